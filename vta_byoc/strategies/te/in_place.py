"""Programs and reductions on accumulators that take the place of what they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tvm import tirx

from vta_byoc.ir.programs import Instructions
from vta_byoc.strategies.te.definition import OPERATORS
from vta_byoc.strategies.te.registers import Move
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests, NestTensor, Where

LANES = 2
"""Maxima, or sums, that are kept at a time: the ALU reads a vector two steps after it wrote it."""


def apply_program(
    nests: Nests,
    prefix: str,
    program: Instructions,
    extents: Sequence[int],
    target: Callable[..., Load],
    operands: Mapping[str, Callable[..., Load]],
    where: Where = None,
) -> None:
    """A program whose every value takes the place of the one before, in `target`."""
    for number, each in enumerate(program):
        function = OPERATORS[each.op]

        def changed(
            *i: Expr,
            right: str | int = each.right,
            left: str = each.left,
            function: Callable[..., Expr] = function,
        ) -> tuple[Load, Expr]:
            to = target(*i)
            if isinstance(right, int):
                return to, function(to, tirx.const(right, "int32"))
            return to, function(to, to if right == left else operands[right](*i))

        nests.alu(f"{prefix}{number}_{each.op}", extents, changed, where)


def apply_moves(
    nests: Nests,
    prefix: str,
    moves: Sequence[Move],
    registers: NestTensor,
    extents: Sequence[int],
    where: Where = None,
) -> None:
    """A program in `registers`, each of which has `extents` vectors."""
    for number, move in enumerate(moves):

        def changed(*i: Expr, move: Move = move) -> tuple[Load, Expr]:
            right: Expr = tirx.const(move.right, "int32")
            if move.is_register:
                right = registers[(move.right, *i)]
            value = OPERATORS[move.op](registers[(move.left, *i)], right)
            return registers[(move.to, *i)], value

        nests.alu(f"{prefix}{number}", extents, changed, where)


class Stages(NamedTuple):
    """The names of the nests of a reduction."""

    clear: str
    first: str
    further: str
    last: str


def reduce_vectors(
    nests: Nests,
    stages: Stages,
    op: str,
    kept: NestTensor,
    vector: Callable[..., Load],
    extents: Sequence[int],
    there: Callable[..., Sequence[Expr]],
    seen: Callable[..., Sequence[Expr]],
) -> int:
    """The largest of vectors, or their sum, in lanes of `kept`; gives how many lanes there are.

    Args:
        nests: what is written to.
        stages: how its nests are called.
        op: max or add.
        kept: (LANES, places).
        vector: of a number and a place.
        extents: how many vectors there are for each place, and of the places.
        there: conditions of a place.
        seen: conditions of a vector, by its number and place.
    """
    count, *places = extents
    lanes, function = min(LANES, count), OPERATORS[op]
    every = (lanes, *places)
    nests.reset(stages.clear, every, lambda *at: kept[at], lambda _, *i: there(*i))
    nests.alu(
        stages.first,
        every,
        lambda r, *i: (kept[(r, *i)], kept[(r, *i)] + vector(r, *i)),
        lambda _, *i: there(*i),
    )

    def joined(j: Expr, r: Expr, *i: Expr) -> tuple[Load, Expr]:
        return kept[(r, *i)], function(kept[(r, *i)], vector((j + 1) * lanes + r, *i))

    further, rest = count // lanes - 1, count % lanes
    if further:
        nests.alu(
            stages.further,
            (further, *every),
            joined,
            lambda j, _, *i: seen((j + 1) * lanes, *i),
        )
    if rest:
        nests.alu(
            stages.last,
            (1, rest, *places),
            lambda _, r, *i: joined(further, r, *i),
            lambda _j, _r, *i: seen(count - 1, *i),
        )
    return lanes
