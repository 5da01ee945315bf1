"""Modules built for the host with and without LLVM's optimizations: time of a build and of a run.

    python benchmarks/host_builds.py

Float modules are what calibration runs, integer modules what `--check` compares with. Seconds are
the processor's: until the first result, those of the build and one run. Their baseline is the same
with optimizations, in the same run. From so many runs on the optimizations pay: the baseline is
what `vta_byoc.ir.optimization` predicts. Both builds of integers must give the same bits.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks.networks import images
from vta_byoc import load_model, quantize
from vta_byoc.ir.float_modules import computes_integers
from vta_byoc.ir.reference import build_reference, worth_of
from vta_byoc.runtime.execute import run_vm

NETWORKS = ("resnet18", "mobilenet_v3_small", "squeezenet", "dcgan", "vit_tiny")
RUNS = 2
"""Of each build; the fastest counts."""
MOST_OF_OPTIMIZED = 1.25
"""Of the time to the first result of the optimized build, where that is the better one, too."""


@dataclass(frozen=True)
class Build:
    """One build of a module: the processor's seconds it took, those of a run, and what it gave."""

    seconds: float
    run: float
    outputs: list[np.ndarray]


def build(mod: tvm.IRModule, inputs: np.ndarray, runs: float) -> Build:
    """A module as `build_reference` makes it for so many runs."""
    start = time.process_time()
    machine = relax.VirtualMachine(build_reference(mod, runs), tvm.cpu())
    built = time.process_time() - start
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        outputs = run_vm(machine, inputs)
        seconds.append(time.process_time() - start)
    return Build(built, min(seconds), outputs)


def figures(name: str, mod: tvm.IRModule, inputs: np.ndarray) -> list[Figure]:
    """The figures of one module."""
    once, often = build(mod, inputs, 1), build(mod, inputs, float("inf"))
    pairs = zip(once.outputs, often.outputs, strict=True)
    differing = sum(int(a.tobytes() != b.tobytes()) for a, b in pairs)
    rows = [
        Figure.at_most(
            f"{name}_seconds_to_first_result",
            once.seconds + once.run,
            "s",
            MOST_OF_OPTIMIZED * (often.seconds + often.run),
            baseline=often.seconds + often.run,
            baseline_name="optimized",
        ),
        Figure(f"{name}_run", once.run, "s", baseline=often.run, baseline_name="optimized"),
    ]
    if computes_integers(mod):
        rows.append(Figure.at_most(f"{name}_differing_outputs", differing, "outputs", 0))
    predicted = worth_of(mod).runs
    if 1 < predicted < float("inf") and once.run > often.run:
        measured = (often.seconds - once.seconds) / (once.run - often.run)
        row = Figure(
            f"{name}_worthwhile_runs",
            max(measured, 0.0),
            "runs",
            baseline=predicted,
            baseline_name="predicted",
        )
        rows.append(row)
    return rows


def main() -> int:
    """Measure and print."""
    args = arguments(__doc__.splitlines()[0]).parse_args()
    rows: list[Figure] = []
    for name in NETWORKS:
        given = images(name)
        mod = load_model(given.path)
        rows += figures(f"{name}_float", mod, given.samples[0])
        qmod = quantize(mod, calibration=given.calibration)
        rows += figures(f"{name}_integer", qmod, given.samples[0])
    return report("host_builds", rows, args.json)


if __name__ == "__main__":
    raise SystemExit(main())
