"""Bundles in C against the integer dialect in Python, and bundles that were damaged.

Networks: each is compiled to a bundle, which the runtime and the functional simulator in C run on
four inputs; results must equal those of the integer dialect on LLVM bit for bit
(*bundles_different*: runs that do not). The same with the runtime under the sanitizers of addresses
and of undefined behaviour, on one of the inputs.

Damage: bits, bytes, lengths and the manifest's numbers of a small bundle are changed, --mutants
times. *mutated_bundles_run*: damaged bundles that were run; *mutated_bundles_crashed*: those that
ended the process otherwise than by a message. The same again with checksums written anew, where a
bundle may be run and only a crash is counted (*repaired_bundles_crashed*).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bundle_runs import (
    SANITIZERS,
    built,
    damage,
    outcome,
    reference,
    repair,
    results_of,
    run_bundle,
)

import vta_byoc as vta
from benchmarks._figures import Figure, arguments, report
from benchmarks.networks import images
from models import digits
from vta_byoc.hw.config import VTAConfig

TFLITE = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "tflite"
LARGE = ("resnet18", "mobilenet_v2")
PREQUANTIZED = ("network_resnet18_like", "network_mobilenet_v2_like")
INPUTS = 4
PRESET = "pynq"


@dataclass(frozen=True)
class Case:
    """A quantized network and inputs of its own."""

    name: str
    mod: tvm.IRModule
    inputs: list[list[np.ndarray]]


def cases(only: str) -> Iterator[Case]:
    """The networks, those with `only` in their names."""
    config = VTAConfig.preset(PRESET)
    for name in (name for name in LARGE if only in name):
        given = images(name)
        samples = [*given.samples, *given.calibration][:INPUTS]
        mod = vta.quantize(vta.load_model(given.path), calibration=given.calibration, config=config)
        yield Case(name, mod, [[sample] for sample in samples])
    for name in (name for name in PREQUANTIZED if only in name):
        with np.load(TFLITE / f"{name}.npz") as arrays:
            (key,) = (key for key in arrays if key.startswith("x"))
            samples = arrays[key][:INPUTS]
        mod = vta.quantize(vta.load_model(TFLITE / f"{name}.tflite"), config=config)
        yield Case(name, mod, [[sample[None]] for sample in samples])
    for name in (name for name in digits.NETWORKS if only in f"digits_{name}"):
        calibration = [image[None] for image in digits.calibration_inputs(0)[:32]]
        model = vta.load_model(digits.trained(name, fold=0))
        mod = vta.quantize(model, calibration=calibration, config=config)
        held_out = digits.held_out(0).inputs[:INPUTS]
        yield Case(f"digits_{name}", mod, [[image[None]] for image in held_out])


@dataclass
class Row:
    """What was measured of one network."""

    name: str
    different: int
    runs: int
    seconds: float
    megabytes: float


def measure(case: Case, programs: dict[str, Path], folder: Path) -> Row:
    """Run one network by `programs`, "fast" on all inputs and "sanitized" on the first."""
    bundle = vta.write_bundle(case.mod, folder / case.name, VTAConfig.preset(PRESET))
    machine, different, runs, seconds = reference(case.mod), 0, 0, 0.0
    for number, inputs in enumerate(case.inputs):
        wanted = results_of(machine, inputs)
        for kind in ("fast", "sanitized") if number == 0 else ("fast",):
            start = time.perf_counter()
            found, _ = run_bundle(programs[kind], bundle, inputs, wanted, folder)
            if kind == "fast":
                seconds += time.perf_counter() - start
            different += not all(map(np.array_equal, found, wanted))
            runs += 1
    size = sum(path.stat().st_size for path in bundle.iterdir()) / 1e6
    print(f"{case.name}: {runs} runs, {different} different", file=sys.stderr, flush=True)
    return Row(case.name, different, runs, seconds / len(case.inputs), size)


def damaged(bundle: Path, program: Path, folder: Path, count: int, repaired: bool) -> Counter[str]:
    """How `count` damaged copies of a bundle end."""
    rng, found = np.random.default_rng(count + repaired), Counter[str]()
    given = folder / "in.bin"
    np.zeros((1, 16, 16, 3), np.int8).tofile(given)
    for _ in range(count):
        copied = Path(shutil.copytree(bundle, folder / "damaged"))
        what = damage(copied, rng)
        if repaired:
            repair(copied)
        status, message = outcome(program, copied, given, "-o", folder / "out.bin")
        if status.startswith("crash"):
            print(f"{what}: {status}: {message}", file=sys.stderr, flush=True)
            status = "crash"
        found[status] += 1
        shutil.rmtree(copied)
    print(f"damaged{', repaired' * repaired}: {dict(found)}", file=sys.stderr, flush=True)
    return found


def figures(rows: list[Row], plain: Counter[str], repaired: Counter[str]) -> list[Figure]:
    """The figures that the docs quote."""
    made = [
        Figure.at_most("bundles_different", sum(r.different for r in rows), "runs", 0),
        Figure("bundles_run", sum(r.runs for r in rows), "runs"),
        Figure.at_most("mutated_bundles_crashed", plain["crash"], "bundles", 0),
        Figure.at_most("mutated_bundles_run", plain["ok"], "bundles", 0),
        Figure("mutated_bundles", plain.total(), "bundles"),
        Figure.at_most("repaired_bundles_crashed", repaired["crash"], "bundles", 0),
        Figure("repaired_bundles_refused", repaired.total() - repaired["ok"], "bundles"),
    ]
    for row in rows:
        made.append(Figure(f"{row.name}_seconds", row.seconds, "s"))
        made.append(Figure(f"{row.name}_megabytes", row.megabytes, "MB"))
    return made


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", default="", metavar="TEXT", help="networks with it in the name")
    parser.add_argument("--mutants", type=int, default=1000, help="damaged bundles of each kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = {}
        for kind, flags in (("fast", ("-O3",)), ("sanitized", ("-O2", *SANITIZERS))):
            (folder / kind).mkdir()
            programs[kind] = built(folder / kind, *flags)
        rows = [measure(case, programs, folder) for case in cases(options.only)]
        config = VTAConfig.preset(PRESET)
        mod = vta.quantize(vta.load_model(TFLITE / "net.tflite"), config=config)
        small = vta.write_bundle(mod, folder / "small", config)
        ends = [
            damaged(small, programs["sanitized"], folder, options.mutants, repaired)
            for repaired in (False, True)
        ]
    return report("bundle", figures(rows, *ends), options.json)


if __name__ == "__main__":
    sys.exit(main())
