"""Whether a change alters programs: their digests, beside those of another state of the code.

    python benchmarks/programs.py --write before.json      # SHA-256 of every program, by name
    python benchmarks/programs.py --against before.json    # figure programs_different; the names

Programs of the networks of `models/` in all three scope modes, of the TopHub layers, and of the
prequantized TFLite fixtures on machines with and without MUL. Compilation is deterministic: the
same code and options give the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import tvm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks._layers import compiled
from benchmarks.layers import PRESETS, table_rows
from benchmarks.networks import images
from models import FIRST
from vta_byoc import load_model, quantize
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.pipeline import SCOPE_MODES, compile_module

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "tflite"
MACHINES = ("sim", "pynq", "ultra96", "tophub_4x8")
LARGE = frozenset({"vgg16", "resnet50"})
"""Networks that are compiled in the default mode only."""


def network(name: str) -> Iterator[tuple[str, Program]]:
    """One of `models/`, quantized once, on the preset pynq."""
    given, config = images(name), VTAConfig.preset("pynq")
    qmod = quantize(load_model(given.path), calibration=given.calibration, config=config)
    for mode in SCOPE_MODES[:1] if name in LARGE else SCOPE_MODES:
        yield from _programs(f"{name} {mode}", qmod, config, mode)


def layers() -> Iterator[tuple[str, Program]]:
    """The distinct layers of the TopHub table."""
    for row in dict.fromkeys((row.geometry, row.layer) for row in table_rows()):
        geometry, layer = row
        result = compiled(layer, VTAConfig.preset(PRESETS[geometry]))
        yield f"{layer.op} {layer.text} {geometry}", result.program


def fixture(path: Path) -> Iterator[tuple[str, Program]]:
    """A TFLite file that comes quantized, on several machines."""
    try:
        qmod = quantize(load_model(path))
    except VTAError:
        return  # float, or in a form that is refused
    for machine in MACHINES:
        yield from _programs(f"{path.stem} {machine}", qmod, VTAConfig.preset(machine), "on")


def _programs(
    title: str, qmod: tvm.IRModule, config: VTAConfig, mode: str
) -> Iterator[tuple[str, Program]]:
    compiled = compile_module(qmod, config, "null", scopes=mode)
    for region, program in compiled.programs.items():
        yield f"{title} {region}", program


def sources() -> dict[str, Callable[[], Iterator[tuple[str, Program]]]]:
    """What is compiled, by the name that `--only` takes."""
    found: dict[str, Callable[[], Iterator[tuple[str, Program]]]] = {
        name: lambda name=name: network(name)  # type: ignore[misc]
        for name in FIRST
    }
    found["layers"] = layers
    for path in sorted(FIXTURES.glob("*.tflite")):
        found[path.stem] = lambda path=path: fixture(path)  # type: ignore[misc]
    return found


def digests(names: list[str]) -> dict[str, str]:
    """Name of a program -> SHA-256 of its bytes."""
    found: dict[str, str] = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found |= {title: program.digest() for title, program in sources()[name]()}
    return found


def different(now: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Programs that have other bytes, or exist on one side only."""
    return sorted(name for name in {**before, **now} if now.get(name) != before.get(name))


def main() -> int:
    parser = arguments("Digests of programs, compared with those of another state of the code.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sources(), help="these")
    parser.add_argument("--write", metavar="FILE", type=Path, help="keep the digests")
    parser.add_argument("--against", metavar="FILE", type=Path, help="digests to compare with")
    args = parser.parse_args()
    now = digests(args.only or list(sources()))
    if args.write:
        args.write.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    figures = [Figure("programs", len(now), "programs")]
    names: list[str] = []
    if args.against:
        before = json.loads(args.against.read_text(encoding="utf-8"))
        if args.only:
            before = {name: digest for name, digest in before.items() if name in now}
        names = different(now, before)
        figures.append(Figure.at_most("programs_different", len(names), "programs", 0))
    for name in names if not args.json else ():
        print(f"different: {name}")
    return report("programs", figures, args.json, digests=now, different=names)


if __name__ == "__main__":
    sys.exit(main())
