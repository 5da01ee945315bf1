"""CPU time of the functional simulator on whole networks, beside ONNX Runtime float32 and int8.

All run on one thread in this process, in turns; medians of the rounds are compared. ONNX Runtime
runs the whole network, in float32 and quantized by itself (QDQ, uint8 activations, int8 weights by
channel); the simulator runs the network's region, which is all of it but the image's quantization
and the class scores' dequantization.
"""

from __future__ import annotations

import os

os.environ["TVM_NUM_THREADS"] = "1"

import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime as ort
import tvm
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from vta_byoc import VTAConfig, load_model, quantize
from vta_byoc.hw.faults import COUNTER_SLOTS
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.interpreter import NO_REGION, build_interpreter, symbol
from vta_byoc.pipeline import compile_module

NETWORKS = {"resnet18": 0.6, "mobilenet_v2": 1.0}
"""The networks, and the most that the simulator may take of ONNX Runtime's time in float32."""
IMAGES = 2
"""Images that calibrate."""


def region_of(model: ModuleType, config: VTAConfig) -> Program:
    """The Program of the network's region."""
    mod = load_model(model.cached())
    calibration = [x[None] for x in model.calibration_inputs(IMAGES)]
    qmod = quantize(mod, calibration=calibration, config=config)
    (program,) = compile_module(qmod, config, device="null").programs.values()
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


class Reader(CalibrationDataReader):
    """The images that calibrate, one after another."""

    def __init__(self, name: str, images: list[np.ndarray]) -> None:
        self.name, self.images = name, iter(images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self.images, None)
        return None if image is None else {self.name: image}


def onnxruntime(path: Path, image: np.ndarray) -> Callable[[], None]:
    """A call that runs the file once."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: image})


def quantized_by_onnxruntime(model: ModuleType, folder: Path) -> Path:
    """The network as ONNX Runtime quantizes it."""
    path, prepared = folder / "int8.onnx", folder / "prepared.onnx"
    quant_pre_process(str(model.cached()), str(prepared))
    name = onnx.load(str(prepared), load_external_data=False).graph.input[0].name
    images = [x[None] for x in model.calibration_inputs(IMAGES)]
    quantize_static(
        str(prepared),
        str(path),
        Reader(name, images),
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    return path


def medians(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each call; every round runs each of them once."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(t[1:]) for name, t in times.items()}


def measured(name: str, config: VTAConfig, rounds: int) -> Iterator[Figure]:
    """The figures of one network."""
    model = importlib.import_module(f"models.{name}")
    program = region_of(model, config)
    calls = {dot: simulator(program, config, dot) for dot in ("auto", "portable")}
    image = model.sample_inputs(1, 7)[0][None]
    with tempfile.TemporaryDirectory() as folder:
        int8 = quantized_by_onnxruntime(model, Path(folder))
        calls["fp32"] = onnxruntime(model.cached(), image)
        calls["int8"] = onnxruntime(int8, image)
    seconds = medians(calls, rounds)
    base = {"baseline": seconds["fp32"] * 1e3, "baseline_name": "onnxruntime fp32, ms"}
    of_int8 = {"baseline": seconds["int8"] * 1e3, "baseline_name": "onnxruntime int8, ms"}
    ratio = {dot: seconds[dot] / seconds["fp32"] for dot in ("auto", "portable")}
    over = f"{name}_over_onnxruntime"
    yield Figure.at_most(f"{over}_fp32", ratio["auto"], "x", NETWORKS[name], **base)
    yield Figure(f"{over}_int8", seconds["auto"] / seconds["int8"], "x", **of_int8)
    yield Figure(f"{name}_portable_over_onnxruntime_fp32", ratio["portable"], "x", **base)
    yield Figure(f"{name}_region_ms", seconds["auto"] * 1e3, "ms", **base)
    gemm = program.counters()["gemm_counter"]
    yield Figure(f"{name}_gemm_micro_ops_per_second", gemm / seconds["auto"], "1/s")


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="runs of each (default: 15)")
    options = parser.parse_args()
    config = VTAConfig.preset("pynq")
    figures = [x for name in NETWORKS for x in measured(name, config, options.rounds)]
    return report("simulator", figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
