"""Rooms: which folder of the code imports which, and that nothing imports upward."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from vta_byoc.strategies.te import kept_choices
from vta_byoc.unary import kept

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"vta_byoc": ROOT / "vta_byoc", "vta_byoc.hw": ROOT / "hw"}
FLAT = 12
"""Python files that may lie directly in `vta_byoc/`."""
OTHERS = ("benchmarks", "models", "tests")
"""Folders that use the product; it knows nothing of them."""

COMPILER = {
    "_interrupt": "",
    "hw": "",
    "base": "hw",
    "runtime": "hw",
    "ir": "hw base",
    "unary": "hw base ir",
    "workload": "hw ir",
    "registry": "hw",
    "scopes": "hw ir",
    "codegen": "hw workload",
    "cost": "hw base ir workload",
    "strategies": "hw base ir workload codegen cost",
    "strategy": "hw workload strategies",
    "partitioning": "hw base runtime ir workload cost strategies strategy",
    "tuning": "hw base ir workload cost strategies strategy partitioning",
    "partition": "hw ir partitioning",
    "graph_pack": "hw ir workload strategies tuning strategy partitioning",
    "vdevice": "hw ir workload scopes strategy partitioning",
    "passes": "hw base registry tuning runtime ir workload codegen cost strategies strategy "
    "partitioning vdevice",
    "tune": "hw base ir cost strategies strategy partitioning tuning passes",
    "options": "hw base ir cost tuning passes",
    "pipeline": "hw options cost tuning tune ir partitioning partition graph_pack vdevice "
    "passes",
    "_autoload": "hw ir pipeline",
    "bundle": "_interrupt hw runtime ir workload options partitioning passes pipeline",
    "quantization": "hw base ir unary",
    "importers": "hw base ir quantization",
    # Sees the partition table too: a layer's factor takes the form that costs the fewest cycles.
    "quantize": "hw base ir partitioning quantization",
    "validation": "hw base runtime ir workload pipeline quantization importers",
    "decoding": "hw base ir options codegen strategies partitioning passes pipeline quantization "
    "importers quantize",
    # Passes public names on: nothing that they are made of may import it.
    "vta_byoc": "_interrupt hw base runtime pipeline bundle importers quantize validation decoding",
    # The old flow in one call: it sees what its steps were.
    "relay": "hw base options runtime ir pipeline quantization importers quantize",
    "explore": "hw base pipeline quantization importers quantize",
    "reports": "hw base runtime ir workload scopes strategy partitioning vdevice passes "
    "pipeline quantization validation decoding vta_byoc explore",
    "schedule": "hw base runtime ir workload codegen passes reports",
    "extend": "hw ir workload cost registry strategies strategy partitioning _autoload "
    "quantization importers schedule",
    "testing": "hw runtime ir codegen strategies pipeline quantization importers quantize "
    "validation schedule extend",
    "cli": "_interrupt hw base runtime ir cost tuning options tune pipeline bundle quantization "
    "importers quantize validation decoding vta_byoc explore reports extend",
    "__main__": "cli",
}
"""Rooms of `vta_byoc/` from the lowest to the highest, and the lower ones that each imports.

A module that lies beside the folders is a room of its own; "vta_byoc" is the package's `__init__`.
"""
MACHINE = {
    "hw": "",
    "program": "hw",
    "timing": "hw program",
    "result": "timing",
    "verify": "hw program",
    "driver": "hw",
    "rtl": "hw",
    "sim": "hw program timing result driver rtl",
    "reference": "hw program result verify",
    "trace": "hw program result verify sim reference rtl",
    "testing": "hw program driver",
}
"""The same for `hw/`; "hw" are the files that lie in it, but for `result`, which knows of time."""
STRATEGIES = {
    "te": "",
    "fused": "te",
    "base": "te fused",
    "elementwise": "te fused base",
    "conv": "te fused base",
    "pooling": "te base",
    "movement": "te base elementwise",
    "norms": "te base",
    "attention": "te base",
    "softmax": "te base attention",
}
"""The same for `vta_byoc/strategies/`: tools, fused consumers, the base of all, and the kinds."""


class Import(NamedTuple):
    """One name that a module imports, and where."""

    importer: str
    line: int
    imported: str

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


@functools.cache
def modules() -> dict[str, str]:
    """Module -> source, of everything that is installed."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path.read_text(encoding="utf-8")
    return found


def imports(importer: str, source: str) -> Iterator[Import]:
    """What a module imports: in functions and for type checkers too. A relative import is ""."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(importer, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "" if node.level else node.module or ""
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield Import(importer, node.lineno, name if name in modules() else module)


@functools.cache
def all_imports() -> list[Import]:
    """Of every module."""
    return [found for name, source in modules().items() for found in imports(name, source)]


def room(module: str) -> str:
    """The room of `vta_byoc` that a module stands in."""
    return module.split(".")[1] if "." in module else module


def room_of_machine(module: str) -> str:
    """The room of `vta_byoc.hw` that a module stands in."""
    parts = module.split(".")[2:]
    return parts[0] if len(parts) > 1 or set(parts) & set(MACHINE) else "hw"


def arrows(found: list[Import]) -> dict[tuple[str, str], list[Import]]:
    """(importing room, imported room) of the compiler -> the imports between them."""
    ours = [i for i in found if i.imported.split(".")[0] == "vta_byoc"]
    return between(ours, {name: room(name) for name in modules()})


def arrows_of_machine(found: list[Import]) -> dict[tuple[str, str], list[Import]]:
    """The same inside of `hw/`."""
    names = [name for name in modules() if room(name) == "hw"]
    ours = [i for i in found if i.importer in names and i.imported in names]
    return between(ours, {name: room_of_machine(name) for name in names})


def room_of_strategies(module: str) -> str:
    """The room of `vta_byoc.strategies` that a module stands in."""
    return module.split(".")[2]


def arrows_of_strategies(found: list[Import]) -> dict[tuple[str, str], list[Import]]:
    """The same inside of `strategies/`."""
    names = [name for name in modules() if name.startswith("vta_byoc.strategies.")]
    ours = [i for i in found if i.importer in names and i.imported in names]
    return between(ours, {name: room_of_strategies(name) for name in names})


def between(found: list[Import], rooms: Mapping[str, str]) -> dict[tuple[str, str], list[Import]]:
    result: dict[tuple[str, str], list[Import]] = {}
    for each in found:
        ends = rooms[each.importer], rooms[each.imported]
        if ends[0] != ends[1]:
            result.setdefault(ends, []).append(each)
    return result


def stated(table: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(name, seen) for name, text in table.items() for seen in text.split()}


Arrows = Callable[[list[Import]], dict[tuple[str, str], list[Import]]]
TABLES = pytest.mark.parametrize(
    ("table", "arrows_in"),
    [
        (COMPILER, arrows),
        (MACHINE, arrows_of_machine),
        (STRATEGIES, arrows_of_strategies),
    ],
    ids=["compiler", "machine", "strategies"],
)


@TABLES
def test_rooms_import_what_the_table_says(table: dict[str, str], arrows_in: Arrows) -> None:
    found = arrows_in(all_imports())
    wrong = [str(each) for ends in found.keys() - stated(table) for each in found[ends]]
    assert not wrong, "\n".join(sorted(wrong))


@TABLES
def test_the_table_says_no_more_than_there_is(table: dict[str, str], arrows_in: Arrows) -> None:
    assert stated(table) - arrows_in(all_imports()).keys() == set()


@pytest.mark.parametrize(
    "table", [COMPILER, MACHINE, STRATEGIES], ids=["compiler", "machine", "strategies"]
)
def test_rooms_see_lower_rooms_only(table: dict[str, str]) -> None:
    """So that there are no cycles."""
    order = list(table)
    upward = [(a, b) for a, b in stated(table) if order.index(b) >= order.index(a)]
    assert upward == []


@pytest.mark.parametrize("name", sorted(COMPILER))
def test_modules_of_a_room_import_no_cycle(name: str) -> None:
    inside = {module for module in modules() if room(module) == name}
    seen: dict[str, set[str]] = {module: set() for module in inside}
    for each in all_imports():
        if each.importer in inside and each.imported in inside:
            seen[each.importer].add(each.imported)
    graphlib.TopologicalSorter(seen).prepare()  # raises with the cycle


def test_every_module_stands_in_a_room_of_the_table() -> None:
    assert {room(name) for name in modules()} == set(COMPILER)
    assert {room_of_machine(n) for n in modules() if room(n) == "hw"} == set(MACHINE)
    inside = [name for name in modules() if name.startswith("vta_byoc.strategies.")]
    assert {room_of_strategies(name) for name in inside} == set(STRATEGIES)


def test_few_files_lie_beside_the_folders() -> None:
    assert len(list(FOLDERS["vta_byoc"].glob("*.py"))) <= FLAT


def test_imports_are_absolute_and_stay_in_the_product() -> None:
    wrong = [each for each in all_imports() if each.imported.split(".")[0] in ("", *OTHERS)]
    support = {path.stem for path in (ROOT / "tests" / "support").glob("*.py")}
    wrong += [each for each in all_imports() if each.imported in support]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize(
    "source",
    [
        "from vta_byoc.pipeline import build",
        "from vta_byoc import pipeline",
        "import vta_byoc.pipeline as stages",
        "def late():\n    from vta_byoc.pipeline import build",
        "if TYPE_CHECKING:\n    from vta_byoc.pipeline import build",
    ],
)
def test_an_upward_import_is_found_in_any_form(source: str) -> None:
    """From a module of the lowest room to one of the highest."""
    found = arrows(list(imports("vta_byoc.ir.names", source)))
    assert set(found) == {("ir", "pipeline")}
    assert found.keys().isdisjoint(stated(COMPILER))


@pytest.mark.parametrize(
    "room, rooms", [("strategies", kept_choices.ROOMS), ("unary", kept.ROOMS)]
)
def test_what_is_kept_is_of_all_sources_that_a_room_sees(room: str, rooms: tuple[str, ...]) -> None:
    seen: set[str] = set()
    new = {room}
    while new:
        seen |= new
        new = {lower for name in new for lower in COMPILER[name].split()} - seen
    assert set(rooms) == seen
