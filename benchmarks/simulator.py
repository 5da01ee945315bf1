"""Speed of the functional simulator on ResNet-18's region, against ONNX Runtime float32.

Both run on one thread in this process, in turns; medians of the rounds are compared. ONNX Runtime
runs the whole float32 network, the simulator the 19 convolutions and 8 additions of its region.
"""

from __future__ import annotations

import os

os.environ["TVM_NUM_THREADS"] = "1"

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import tvm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from models import resnet18
from models._build import calibration_inputs, sample_inputs
from vta_byoc import VTAConfig, load_model, quantize
from vta_byoc.hw.faults import COUNTER_SLOTS
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.interpreter import NO_REGION, build_interpreter, symbol
from vta_byoc.pipeline import compile_module

SIZE = 224
TARGET_RATIO = 6.0


def resnet18_program(config: VTAConfig) -> Program:
    """The Program of ResNet-18's region."""
    mod = load_model(resnet18.cached(size=SIZE))
    calibration = list(calibration_inputs(SIZE, 2)[:, None])
    qmod = quantize(mod, calibration=calibration, config=config)
    (program,) = compile_module(qmod, config).programs.values()
    return program


def simulator(program: Program, config: VTAConfig, dot: str) -> Callable[[], None]:
    """A call that runs the program once on random inputs."""
    function = build_interpreter(config, dot=dot)[symbol(config)]
    rng = np.random.default_rng(0)
    tensors = [
        program.insns,
        rng.integers(0, 128, program.input_bytes).astype("int8"),
        program.image,
        np.zeros(program.arena_bytes, "int8"),
        np.zeros(COUNTER_SLOTS, "int64"),
    ]
    args = [tvm.runtime.tensor(t) for t in tensors]
    return lambda: function(*args[:3], NO_REGION, *args[3:])


def onnxruntime_fp32() -> Callable[[], None]:
    """A call that runs the float32 network once."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = str(resnet18.cached(size=SIZE))
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    image = sample_inputs(1, 7, SIZE)
    return lambda: session.run(None, {"data": image})


def medians(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each call; every round runs each of them once."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t[1:]) for name, t in times.items()}


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="runs of each (default: 15)")
    options = parser.parse_args()
    config = VTAConfig.preset("pynq")
    program = resnet18_program(config)
    calls = {dot: simulator(program, config, dot) for dot in ("auto", "portable")}
    calls["onnxruntime"] = onnxruntime_fp32()
    seconds = medians(calls, options.rounds)
    gemm = program.counters()["gemm_counter"]
    base = {"baseline": seconds["onnxruntime"] * 1e3, "baseline_name": "onnxruntime fp32, ms"}
    ratio = {dot: seconds[dot] / seconds["onnxruntime"] for dot in ("auto", "portable")}
    figures = [
        Figure.at_most("resnet18_over_onnxruntime_fp32", ratio["auto"], "x", TARGET_RATIO, **base),
        Figure("resnet18_portable_over_onnxruntime_fp32", ratio["portable"], "x", **base),
        Figure("resnet18_region_ms", seconds["auto"] * 1e3, "ms", **base),
        Figure("gemm_micro_ops_per_second", gemm / seconds["auto"], "1/s"),
        Figure("gemm_micro_ops_per_second_portable", gemm / seconds["portable"], "1/s"),
    ]
    return report("simulator", figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
