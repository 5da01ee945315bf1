"""Mutants of a room: every token that can be replaced, and those that a seed draws."""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOMS = {
    "codegen": ("vta_byoc/codegen", "tests/codegen"),
    "strategies": ("vta_byoc/strategies", "tests/strategies"),
    "packing": ("vta_byoc/workload", "tests/workload"),
    "quantization": ("vta_byoc/quantization", "tests/quantization"),
    "rtl": ("vta_byoc/hw/rtl", "tests/hw/rtl"),
}
"""Room: folder of its modules, folder of its tests."""
FACADES = {
    "codegen": (),
    "strategies": ("vta_byoc/strategy.py",),
    "packing": ("vta_byoc/graph_pack.py",),
    "quantization": ("vta_byoc/quantize.py",),
    "rtl": (),
}
"""What stands above a room under its own name."""
CONTROL = (
    *("assembler", "axi_core", "axi_lite", "bursts", "compute", "core", "fetch", "fields"),
    *("loader", "loops", "read_channel", "registers", "sequencer", "storer", "tokens"),
)
"""Modules of the room "rtl" that are mutated: the core's control, not what builds and runs it."""
OPERATORS = (
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_FloorDiv",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_FloorDiv",
    "ReplaceBinaryOperator_LShift_RShift",
    "ReplaceBinaryOperator_RShift_LShift",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceUnaryOperator_USub_UAdd",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "AddNot",
    "ZeroIterationForLoop",
)


@dataclass(frozen=True)
class Mutant:
    """One token of a module replaced."""

    room: str
    module: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.module}:{self.line} {self.operator}: {self.before} -> {self.after}"


def modules(room: str, tree: Path) -> list[Path]:
    """The modules of a room, those that stand above it included."""
    folder, _ = ROOMS[room]
    found = [*sorted((tree / folder).rglob("*.py")), *(tree / name for name in FACADES[room])]
    return [path for path in found if room != "rtl" or path.stem in CONTROL]


@dataclass(frozen=True)
class Place:
    """Where a token can be replaced: which of the operator's places in the module."""

    room: str
    module: str
    line: int
    operator: str
    occurrence: int


def places(room: str, tree: Path) -> Iterator[Place]:
    """Every place of a room where an operator finds a token."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    for path in modules(room, tree):
        source = path.read_text(encoding="utf-8")
        parsed, ignored = get_ast(source), _without_effect(source)
        nodes, where = list(ast_nodes(parsed)), path.relative_to(tree).as_posix()
        for name in OPERATORS:
            operator = get_operator(f"core/{name}")()
            found = (p for node in nodes for p in operator.mutation_positions(node))
            for occurrence, ((line, column), _) in enumerate(found):
                if not any(first <= (line, column) < last for first, last in ignored):
                    yield Place(room, where, line, name, occurrence)


def mutant_at(place: Place, tree: Path) -> Mutant | None:
    """The mutant of a place, None where the operator changes nothing that is compiled.

    Nor is what does not compile a mutant: the `*` in front of parameters is no multiplication.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (tree / place.module).read_text(encoding="utf-8")
    operator = get_operator(f"core/{place.operator}")()
    changed = mutate_code(source, operator, place.occurrence)
    before, after = _changed_line(source, changed, place.line)
    try:
        ast.parse(changed)
    except SyntaxError:
        return None
    return Mutant(**asdict(place), before=before, after=after) if before != after else None


def _without_effect(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a token changes nothing that a correct program shows."""
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for node in ast.walk(ast.parse(source)):
        for given in _silent(node):
            last = (given.end_lineno or 0, given.end_col_offset or 0)
            found.append(((given.lineno, given.col_offset), last))
    return found


def _silent(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The parts of ``node`` that say what holds, or how fast, and not what to compute."""
    for kind in ("annotation", "returns"):
        given = getattr(node, kind, None)
        if isinstance(given, ast.expr):
            yield given
    if isinstance(node, ast.Assert):
        yield node
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if (ast.unparse(node.func), keyword.arg) in (
                ("zip", "strict"),
                ("functools.lru_cache", "maxsize"),
            ):
                yield keyword.value


def _changed_line(source: str, changed: str, line: int) -> tuple[str, str]:
    before, after = source.splitlines(), changed.splitlines()
    for left, right in zip(before[line - 1 :], after[line - 1 :], strict=False):
        if left != right:
            return left.strip(), right.strip().replace("[ ", "[").replace("( ", "(")
    return "", ""


def drawn(rooms: Sequence[str], count: int, seed: int, tree: Path) -> Iterator[Mutant]:
    """``count`` mutants of the rooms, in proportion to how many each has; the seed decides.

    Only those that are drawn are made: a mutant is a module parsed and written again.
    """
    every = {room: list(places(room, tree)) for room in rooms}
    total, chosen = sum(map(len, every.values())), random.Random(seed)
    for of_room in every.values():
        share = round(count * len(of_room) / total)
        order = chosen.sample(of_room, len(of_room))
        made = (mutant_at(place, tree) for place in order)
        yield from itertools.islice(filter(None, made), share)
