"""Whole networks: cycles of their regions beside the machine bound, what runs where, compile cost.

Each network is built, calibrated with its own images, compiled for the pynq preset (newer networks,
with gates and smooth activations, for sim, which multiplies), timed, and compared with the integer
reference tensor by tensor, in a process of its own, so that peak memory (until it is compiled) is
its own too. The bound is the sum of the machine bounds of the layers on VTA
(`vta_byoc.cost.lower_bound`); copies of the host are not part of either.

Beside the networks of `models/`, the light models of the onnx package, as they come: published
architectures at their full size in old opsets, every weight tensor one constant. They have no
images of their own: noise calibrates them and runs through them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from models import NAMES, NEWER
from vta_byoc.base.torch_later import import_torch_later
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_bytes
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing_parameters import Timing

TRANSFORMERS = ("vit_tiny", "deit_small", "bert_base_layer")
"""With random weights."""
LIGHT = "light_"
"""What the names of the onnx package's models begin with."""
LIGHT_FILES = Path(onnx.__file__).parent / "backend/test/data/light"
NETWORKS = (
    *NAMES,
    *TRANSFORMERS,
    *(
        LIGHT + name
        for name in (
            "resnet50",
            "squeezenet",
            "shufflenet",
            "densenet121",
            "inception_v1",
            "inception_v2",
            "bvlc_alexnet",
            "zfnet512",
            "vgg19",
        )
    ),
)
LEAST_UTILISATION = {"deit_small": 44.0, "bert_base_layer": 60.0}
"""Percent of the GEMM core's products a cycle; the rest is softmax, normalizations and GELU."""
PUBLISHED = {
    "resnet18": 8.96e6,
    "resnet50": 23.6e6,
    "vgg16": 82.5e6,
    "mobilenet_v1": 5.32e6,
    "mobilenet_v2": 5.30e6,
    "dcgan": 2.56e6,
}
"""Sums of the machine bound in cycles as published for this geometry; ours is measured against
them, so that the formula cannot drift."""
CALIBRATION = 2
"""Inputs that calibrate."""
INPUTS = 4
"""Inputs that every stored tensor is compared on, unless `--inputs` says otherwise."""
MOST_CYCLES = {
    "resnet18": 8.10e6,
    "resnet50": 20.9e6,
    "mobilenet_v2": 4.85e6,
    "mobilenet_v1": 5.03e6,
    "yolov3_tiny": 14.1e6,
    "vgg16": 78.9e6,
    "dcgan": 2.62e6,
    "squeezenet": 2.75e6,
    "vit_tiny": 15.2e6,
}
MOST_MEGABYTES = {"resnet18": 18.7}
"""Moved between DRAM and the chip, micro-ops and the fetch of instructions included."""
MOST_CPU_SECONDS = {"resnet18": 4.0}
"""Of a second process, which finds programs, tiles and interpreters on disk: from its start to the
executable, imports included, calibration and quantization left out."""
VERIFIED = {"vit_tiny": 25_000}
"""The network whose programs the verifier is timed on, and the instructions that it is told for."""
MOST_VERIFY_SECONDS = 1.0
MOST_OVER_BOUND = {
    **dict.fromkeys(NAMES, 1.35),
    **dict.fromkeys(NEWER, 1.15),
    "shufflenet_v2": 1.25,
    LIGHT + "shufflenet": 1.25,
}
"""Of the networks that the project has set itself a limit for."""
REGIONS = dict.fromkeys(NEWER, 1)
LEAST_SHARE = 99.0
MOST_SECONDS = 90.0
MOST_GIB = 4.0


@dataclass(frozen=True)
class Images:
    """A model file, what it is calibrated with, and what it is compared on: arrays of the one
    input's shape."""

    path: Path
    calibration: list[np.ndarray]
    samples: list[np.ndarray]


def images(name: str) -> Images:
    """The network's own images; noise for a light model."""
    if name.startswith(LIGHT):
        path = LIGHT_FILES / f"{name}.onnx"
        shape = noise_shape(path)
        rng = np.random.default_rng(0)
        noise = [rng.standard_normal(shape, np.float32) for _ in range(CALIBRATION + INPUTS)]
        return Images(path, noise[:CALIBRATION], noise[CALIBRATION:])
    model = importlib.import_module(f"models.{name}")
    calibration, samples = model.calibration_inputs(CALIBRATION), model.sample_inputs(INPUTS, 7)
    return Images(model.cached(), [x[None] for x in calibration], [x[None] for x in samples])


def preset(name: str) -> str:
    """The machine that a network is compiled for."""
    return "sim" if name in (*NEWER, *TRANSFORMERS) else "pynq"


def noise_shape(path: Path) -> list[int]:
    """The shape of a light model's input; some list their weights as inputs too."""
    graph = onnx.load(str(path)).graph
    weights = {tensor.name for tensor in graph.initializer}
    (data,) = (value for value in graph.input if value.name not in weights)
    return [dim.dim_value for dim in data.type.tensor_type.shape.dim]


def measure(name: str, inputs: int = INPUTS) -> dict[str, Any]:
    """Compile, time and check one network in this process."""
    import_torch_later()  # as the command line
    from vta_byoc import load_model, quantize
    from vta_byoc.importers.load import output_names
    from vta_byoc.pipeline import compile_module
    from vta_byoc.reports.run.timing import time_programs
    from vta_byoc.runtime.execute import profile
    from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

    imported = time.process_time()
    given = images(name)
    config = VTAConfig.preset(preset(name))
    start, cpu = time.perf_counter(), [time.process_time()]
    mod = load_model(given.path)
    cpu.append(time.process_time())
    qmod = quantize(mod, calibration=given.calibration, config=config)
    cpu.append(time.process_time())
    compiled = compile_module(qmod, config)
    cpu.append(time.process_time())
    seconds = time.perf_counter() - start
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    checks = []
    if inputs:
        reference_of = reference_runner(qmod, compiled.programs)
    for sample in given.samples[:inputs]:
        run = profile(compiled.exe, [sample], arenas=True)
        reference = reference_of([sample])
        checks += compare_outputs(output_names(qmod), run.outputs, reference)
        checks += compare_stored(run, compiled.programs, reference)
    placement = compiled.placement
    timings = time_programs(compiled.programs)
    return {
        "name": name,
        "cycles": sum(t.cycles for t in timings.values()),
        "other_rules": {
            rules: sum(t.cycles for t in time_programs(compiled.programs, timing).values())
            for rules, timing in other_rules(config).items()
        },
        "bound": sum(op.bound for op in placement if op.device == "vta"),
        "megabytes": sum(map(moved_bytes, compiled.programs.values())) / 1e6,
        "regions": len(timings),
        "peak": config.batch * config.block**2,
        "all_macs": sum(op.on_vta.macs for op in placement),
        "macs": share([(op.on_vta.macs, op.macs) for op in placement]),
        "alu_ops": share([(op.on_vta.alu_ops, op.alu_ops) for op in placement]),
        "cpu_ops": sorted(op.name for op in placement if op.device == "cpu"),
        "seconds": seconds,
        "cpu_seconds": imported + cpu[3] - cpu[0],
        "cpu_seconds_without_quantization": imported + cpu[3] - cpu[2] + cpu[1] - cpu[0],
        "gib": gib,
        "verify_seconds": verify_seconds(name, compiled.programs.values()),
        "tensors": len(checks),
        "different": sum(not check.equal for check in checks),
    }


def verify_seconds(name: str, programs: Collection[Program]) -> float | None:
    """Processor time in which the verifier proves VERIFIED instructions of the programs' kind.

    The least of three runs; None for networks that it is not timed on.
    """
    from vta_byoc.hw.verify.verifier import check

    if name not in VERIFIED:
        return None
    instructions = sum(len(program.insns) for program in programs)
    assert instructions >= VERIFIED[name], "too few to tell what so many take"
    spent = []
    for _ in range(3):
        start = time.process_time()
        for program in programs:
            check(program)
        spent.append(time.process_time() - start)
    return min(spent) * VERIFIED[name] / instructions


def other_rules(config: VTAConfig) -> dict[str, Timing]:
    """Rules that the same programs are timed by, besides those of the preset."""
    return {"chisel_profile": Timing.of("chisel"), "hls_alu": config.timing.with_alu("hls")}


def moved_bytes(program: Program) -> int:
    """Bytes between DRAM and the chip, micro-ops and the fetch of instructions included."""
    return dram_bytes(program.counters()) + program.insns.nbytes


def share(amounts: list[tuple[int, int]]) -> float:
    """Percent of the (on VTA, all) amounts that is on VTA; 100 where there is nothing."""
    total = sum(amount for _, amount in amounts)
    return 100 * sum(mine for mine, _ in amounts) / total if total else 100.0


def measured(
    parser: argparse.ArgumentParser,
    choices: Sequence[str],
    names: Sequence[str],
    measure: Callable[..., dict[str, Any]],
    script: str,
    passed: Sequence[str] = (),
) -> tuple[argparse.Namespace, list[dict[str, Any]]]:
    """The command line of a benchmark of networks, and what it measured of each of them.

    Args:
        parser: with the arguments of all benchmarks.
        choices: the networks that may be asked for.
        names: those that are measured when none is.
        measure: measures one network.
        script: the benchmark; each network is measured by a process of it, called with
            ``--measure``, which prints what it measured and has no rows.
        passed: options of ``parser`` that measuring a network takes as keywords.
    """
    parser.add_argument("--only", choices=choices, action="append", help="one network (repeat)")
    parser.add_argument("--measure", choices=choices, help="print the JSON of one network")
    options = parser.parse_args()
    given = {key: getattr(options, key) for key in passed}
    if options.measure:
        print(json.dumps(measure(options.measure, **given)))
        return options, []
    return options, [_in_own_process(name, script, given) for name in options.only or names]


def _in_own_process(
    name: str, script: str, given: dict[str, Any], env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What ``script`` measures of a network, in a new interpreter."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    command = [sys.executable, script, "--measure", name]
    command += [text for key, value in given.items() for text in (f"--{key}", str(value))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def figures_of(row: dict[str, Any]) -> list[Figure]:
    """The figures of one network."""
    name, published = row["name"], PUBLISHED.get(row["name"])
    ratio = row["cycles"] / row["bound"]
    beside = {"baseline": published, "baseline_name": "published"} if published else {}
    bound = {"bound": row["bound"]}
    figures = [
        *utilisation(row),
        limited(f"{name}_cycles", row["cycles"], "cycles", MOST_CYCLES.get(name), **bound),
        *(Figure(f"{name}_cycles_{k}", v, "cycles") for k, v in row["other_rules"].items()),
        limited(f"{name}_dram_megabytes", row["megabytes"], "MB", MOST_MEGABYTES.get(name)),
        over_bound(name, ratio),
        Figure(f"{name}_bound", row["bound"], "cycles", **beside),
        at_least(f"{name}_macs_on_vta", row["macs"], "%", LEAST_SHARE),
        at_least(f"{name}_alu_ops_on_vta", row["alu_ops"], "%", LEAST_SHARE),
        regions(name, row["regions"]),
        Figure.at_most(f"{name}_compile", row["seconds"], "s", MOST_SECONDS),
        Figure.at_most(f"{name}_memory", row["gib"], "GiB", MOST_GIB),
    ]
    if row["verify_seconds"] is not None:
        figure, seconds = f"verify_{VERIFIED[name]}_instructions_seconds", row["verify_seconds"]
        figures.append(Figure.at_most(figure, seconds, "s", MOST_VERIFY_SECONDS))
    if row["tensors"]:
        figures += [
            Figure(f"{name}_tensors_compared", row["tensors"], "tensors"),
            Figure.at_most(f"{name}_tensors_different", row["different"], "tensors", 0),
        ]
    return figures


def cpu_figures(name: str) -> list[Figure]:
    """Processor time of importing, reading and compiling in a process that is not the first.

    Python finds the modules compiled too, as those of an installed package are.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        _in_own_process(name, __file__, {"inputs": 0}, env)
        again = _in_own_process(name, __file__, {"inputs": 0}, env)
    without = again["cpu_seconds_without_quantization"]
    return [
        limited(f"{name}_compile_cpu", without, "s", MOST_CPU_SECONDS[name]),
        Figure(f"{name}_compile_cpu_with_quantization", again["cpu_seconds"], "s"),
    ]


def limited(name: str, value: float, unit: str, most: float | None, **rest: Any) -> Figure:
    """A figure that has an upper limit, or none."""
    if most is None:
        return Figure(name, value, unit, **rest)
    return Figure.at_most(name, value, unit, most, **rest)


def utilisation(row: dict[str, Any]) -> list[Figure]:
    """How much of the GEMM core's peak a transformer reaches, where there is a target."""
    least = LEAST_UTILISATION.get(row["name"])
    if least is None:
        return []
    percent = 100 * row["all_macs"] / row["cycles"] / row["peak"]
    return [at_least(f"{row['name']}_mac_utilisation", percent, "%", least)]


def over_bound(name: str, ratio: float) -> Figure:
    """Cycles over the bound, with the limit that the project has set itself."""
    figure, most = f"{name}_over_bound", MOST_OVER_BOUND.get(name)
    if most is None:
        return Figure(figure, ratio, "ratio", bound=1.0)
    return Figure.at_most(figure, ratio, "ratio", most, bound=1.0)


def regions(name: str, count: int) -> Figure:
    """How many programs the network has; between two of them the host computes."""
    figure = f"{name}_regions"
    if name not in REGIONS:
        return Figure(figure, count, "regions")
    return Figure.at_most(figure, count, "regions", REGIONS[name])


def at_least(name: str, value: float, unit: str, target: float) -> Figure:
    """A figure whose target is a lower limit."""
    return Figure(name, value, unit, target=target, ok=value >= target)


def main() -> int:
    parser = arguments("Cycles of whole networks beside the roofline lower bound.")
    text = "inputs that every stored tensor is compared on; 0: nothing runs"
    parser.add_argument("--inputs", type=int, choices=range(INPUTS + 1), default=INPUTS, help=text)
    options, rows = measured(parser, NETWORKS, NETWORKS, measure, __file__, ("inputs",))
    if options.measure:
        return 0
    figures = [figure for row in rows for figure in figures_of(row)]
    again = [row["name"] for row in rows if row["name"] in MOST_CPU_SECONDS]
    figures += [figure for name in again for figure in cpu_figures(name)]
    cpu = {row["name"]: row["cpu_ops"] for row in rows}
    return report("networks", figures, options.json, cpu_ops=cpu)


if __name__ == "__main__":
    sys.exit(main())
