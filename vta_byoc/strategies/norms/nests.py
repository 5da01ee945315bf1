"""The loop nests of both kernels of a normalization."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

from tvm import tirx

from vta_byoc.cost.dma import halves
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.norms import FACTOR, OFFSET, SQUARES, SUM
from vta_byoc.strategies.norms.registers import program_of
from vta_byoc.strategies.norms.usage import DIGIT_BITS, WEIGHTS, axes_of, digits_of, has_tail
from vta_byoc.strategies.te.definition import OPERATORS
from vta_byoc.strategies.te.in_place import apply_moves
from vta_byoc.strategies.te.tile_grid import Grid
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests
from vta_byoc.workload.memory import ACC, INP, WGT, depth_of
from vta_byoc.workload.norms import element_steps
from vta_byoc.workload.workloads import NormWorkload

IDENTITY, IDENTITY_TAIL, ONES, ONES_TAIL, UNIT = range(5)
"""Numbers of the weights."""


def square_nests(work: NormWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """Data, weights, scratch: the digits of each lane's sum of squares."""
    return _Squares(work, config, choice).func()


def apply_nests(work: NormWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """Data, weights, factors and offsets of channels, scratch, result."""
    return _Apply(work, config, choice).func()


class _Tiles:
    """What both kernels have: sums in tiles, what they read in chunks, the data of one.

    Where SRAM holds all data, the first kernel leaves it in the place that the second one loads it
    to: a program then loads it once.
    """

    def __init__(self, work: NormWorkload, config: VTAConfig, choice: Choice) -> None:
        self.work, self.config, self.choice = work, config, choice
        self.axes = axes_of(work, config)
        self.grid = Grid(self.axes.sizes, choice.tile)
        self.nests = nests = Nests(config)
        self.sizes, self.tiled = self.grid.sizes, self.grid.tile
        self.positions = tuple(self.tiled[a] for a in self.axes.kept)
        self.extents = self.grid.shape
        self.data = nests.param("data", tuple(self.sizes.values()))
        self.param = nests.weights("weights", WEIGHTS)
        self.tail = has_tail(work, config)
        self.held = self.extents

    def hold(self) -> None:
        """Leave room for all that the sums of a tile read, if it is all and SRAM holds that."""
        held = tuple(
            self.tiled[axis] if axis in self.axes.kept else self.sizes[axis] for axis in self.sizes
        )
        one = all(self.grid.count(axis) == 1 for axis in self.axes.kept)
        if one and math.prod(held) <= depth_of(self.config, INP):
            self.held = held

    def weights(self) -> None:
        """Load the weights; the tile of the data."""
        self.weight = self.nests.sram(WGT, "weight", (WEIGHTS,))
        self.tile = self.nests.sram(INP, "tile", self.held)
        self.nests.load("load_weights", (WEIGHTS,), lambda i: (self.weight[i], self.param[i]))

    def over(self, axes: Sequence[str], body: Callable[[], None]) -> None:
        """`body` for every tile along `axes`."""
        with contextlib.ExitStack() as loops:
            for axis in axes:
                loop = self.nests.loop(f"{axis}o", self.grid.count(axis))
                self.grid.outer[axis] = loops.enter_context(loop)
            body()

    def over_positions(self, body: Callable[[], None]) -> None:
        """`body` for every tile of sums."""
        self.over(self.axes.kept, body)

    def over_chunks(self, body: Callable[[], None]) -> None:
        """`body` for every chunk of what they read."""
        self.over(self.axes.summed, body)

    def kept(self, *i: Expr) -> tuple[Expr, ...]:
        """The sum that a place of the tile belongs to."""
        return tuple(v for axis, v in zip(self.sizes, i, strict=True) if axis in self.axes.kept)

    def load(self, name: str) -> None:
        """The data of a tile."""
        self.nests.load(
            name,
            self.extents,
            lambda *i: (self.place(*i), self.data[self.at(*i)]),
            self.inside,
        )

    def place(self, *i: Expr) -> Load:
        """Where the data of a place of the tile is."""
        if self.held == self.extents:
            return self.tile[i]
        pairs = zip(self.sizes, i, strict=True)
        return self.tile[tuple(v if a in self.axes.kept else self.grid.at(a, v) for a, v in pairs)]

    def at(self, *i: Expr) -> tuple[Expr, ...]:
        """A place of the tile in the tensor."""
        return self.grid.positions(*i)

    def inside(self, *i: Expr) -> list[Expr]:
        """Conditions of a smaller last tile."""
        return self.grid.where(*i)

    def sum_at(self, *i: Expr) -> tuple[Expr, ...]:
        """A sum of the tile among all sums."""
        return tuple(self.grid.at(axis, v) for axis, v in zip(self.axes.kept, i, strict=True))

    def there(self, *i: Expr) -> list[Expr]:
        """Conditions of a smaller last tile, of sums."""
        return self.grid.inside(dict(zip(self.axes.kept, i, strict=True)))

    def product(
        self, name: str, target: Callable[..., Load], whole: int, tail: int, chunks_first: bool
    ) -> None:
        """`target += tile . weight`; the lanes behind the last channel by the weight `tail`."""
        names = list(self.sizes)
        first = self.axes.summed if chunks_first else ()
        order = [*first, *(axis for axis in names if axis not in first)]
        extents = tuple(self.tiled[axis] for axis in order)

        def placed(i: Sequence[Expr]) -> list[Expr]:
            return [i[order.index(axis)] for axis in names]

        def nest(suffix: str, weight: int, more: Callable[[Expr], list[Expr]]) -> None:
            def operands(*i: Expr) -> tuple[Load, Load, Load]:
                index = placed(i)
                return target(*index), self.place(*index), self.weight[weight]

            def where(*i: Expr) -> list[Expr]:
                return [*self.inside(*placed(i)), *more(i[order.index("c")])]

            self.nests.gemm(f"{name}{suffix}", extents, operands, where)

        if not self.tail or whole == tail:
            nest("", whole, lambda c: [])
            return
        last = self.sizes["c"] - 1
        nest("", whole, lambda c: [self.grid.at("c", c) < last])
        nest("_tail", tail, lambda c: [self.grid.at("c", c) >= last])


class _Squares(_Tiles):
    def func(self) -> tirx.PrimFunc:
        nests, work, config = self.nests, self.work, self.config
        self.counts = digits_of(work, config)
        sums = tuple(self.sizes[axis] for axis in self.axes.kept)
        self.digits = nests.param("digits", (sum(self.counts.values()), *sums))
        self.hold()
        self.weights()
        self.wide = nests.sram(ACC, "wide", self.extents)
        self.total = nests.sram(ACC, "total", (len(self.counts), *self.positions))
        if self.held != self.extents:
            nests.keep(self.tile)
        self.over_positions(self._tile)
        return nests.func(self.choice.slots_attr())

    def _tile(self) -> None:
        nests, total = self.nests, self.total
        kinds = range(len(self.counts))
        for kind in kinds:
            nests.reset(
                f"clear_total{kind}", self.positions, lambda *i, t=kind: total[(t, *i)], self.there
            )
        self.over_chunks(self._chunk)
        half, number = 1 << (DIGIT_BITS - 1), 0
        for kind, count in enumerate(self.counts.values()):
            for digit in range(count):
                if digit:
                    nests.alu(
                        f"next{number}",
                        self.positions,
                        lambda *i, t=kind: (total[(t, *i)], (total[(t, *i)] + half) >> DIGIT_BITS),
                        self.there,
                    )
                nests.store(
                    f"digit{number}",
                    self.positions,
                    lambda *i, d=number, t=kind: (
                        self.digits[(d, *self.sum_at(*i))],
                        total[(t, *i)],
                    ),
                    self.there,
                )
                number += 1

    def _chunk(self) -> None:
        nests, wide = self.nests, self.wide
        self.load("load")
        for number, kind in enumerate(self.counts):
            nests.reset(f"clear{number}", self.extents, lambda *i: wide[i])
            self.product(f"widen{number}", lambda *i: wide[i], IDENTITY, IDENTITY_TAIL, False)
            if kind == SQUARES:
                nests.alu("square", self.extents, lambda *i: (wide[i], wide[i] * wide[i]))
            self._add_up(number)

    def _add_up(self, number: int) -> None:
        """All that a sum reads of the tile, in halves along each axis; to the total."""
        nests, wide, total, left = self.nests, self.wide, self.total, dict(self.tiled)
        for place, axis in enumerate(self.sizes):
            if axis in self.axes.kept:
                continue
            for count, distance in halves(left[axis]):
                left[axis] = count

                def halved(*i: Expr, at: int = place, by: int = distance) -> tuple[Load, Expr]:
                    other = (*i[:at], i[at] + by, *i[at + 1 :])
                    return wide[i], wide[i] + wide[other]

                nests.alu(f"add{number}_{axis}{count}", tuple(left.values()), halved)
            left[axis] = 1

        def first(*i: Expr) -> tuple[Expr, ...]:
            kept = iter(i)
            return tuple(next(kept) if axis in self.axes.kept else 0 for axis in self.sizes)

        nests.alu(
            f"sum{number}",
            self.positions,
            lambda *i: (total[(number, *i)], total[(number, *i)] + wide[first(*i)]),
        )


class _Apply(_Tiles):
    def func(self) -> tirx.PrimFunc:
        nests, work, config = self.nests, self.work, self.config
        kinds = [name for name in (FACTOR, OFFSET) if name not in work.numbers]
        given = self.axes.given
        channels = tuple(self.sizes[axis] for axis in given)
        self.operands = {name: nests.param(name, channels, "int32") for name in kinds}
        self.counts = digits_of(work, config)
        self.count = sum(self.counts.values())
        sums = tuple(self.sizes[axis] for axis in self.axes.kept)
        self.digits = nests.param("digits", (self.count, *sums))
        self.out = nests.param("out", tuple(self.sizes.values()))
        self.weights()
        self.program = program_of(work)
        self.digit = nests.sram(INP, "digit", (self.count, *self.positions))
        self.registers = nests.sram(ACC, "registers", (self.program.count, *self.positions))
        self.wide = nests.sram(ACC, "wide", self.extents)
        tiles = tuple(self.tiled[axis] for axis in given)
        self.values = {name: nests.sram(ACC, name, tiles) for name in kinds}
        self.whole = all(self.grid.count(axis) == 1 for axis in self.axes.summed)
        self.reads_sum = work.centred and SUM not in self.counts
        self.once = self.whole and not set(given) & set(self.axes.kept)
        if self.once and kinds:
            self.over(given, self._load_operands)
        self.over_positions(self._tile)
        return nests.func(self.choice.slots_attr())

    def _load_operands(self) -> None:
        given = self.axes.given
        for name, tile in self.values.items():
            param = self.operands[name]
            self.nests.load(
                f"load_{name}",
                tuple(self.tiled[axis] for axis in given),
                lambda *i, t=tile, p=param: (
                    t[i],
                    p[tuple(self.grid.at(axis, v) for axis, v in zip(given, i, strict=True))],
                ),
                lambda *i: self.grid.inside(dict(zip(given, i, strict=True))),
            )

    def _register(self, name: str) -> Callable[..., Load]:
        place = self.program.places[name]
        return lambda *i: self.registers[(place, *i)]

    # ---------------------------------------------------------------- statistics
    def _tile(self) -> None:
        if self.reads_sum:
            self.nests.reset("clear_sum", self.positions, self._register(SUM))
        if self.whole:
            self.over_chunks(self._all)
            return
        if self.reads_sum:
            self.over_chunks(self._again)
        self._lanes()
        self._statistics()
        self.over_chunks(self._chunk)

    def _all(self) -> None:
        """Everything of a tile that has all channels; the digits are waited for last."""
        self.load("load")
        if not self.once:
            self._load_operands()
        if self.reads_sum:
            self._sum()
        self._lanes()
        self._statistics()
        self._apply()

    def _again(self) -> None:
        self.load("again_load")
        self._sum()

    def _chunk(self) -> None:
        self._load_operands()
        self.load("load")
        self._apply()

    def _lanes(self) -> None:
        """What the first kernel has added up by lanes, in every lane of a sum, from the digits."""
        self.nests.load(
            "load_digits",
            (self.count, *self.positions),
            lambda d, *i: (self.digit[(d, *i)], self.digits[(d, *self.sum_at(*i))]),
            lambda d, *i: self.there(*i),
        )
        first = 0
        for kind, count in self.counts.items():
            self._joined(kind, range(first, first + count))
            first += count

    def _joined(self, kind: str, numbers: range) -> None:
        nests, total = self.nests, self._register(kind)
        nests.reset(f"clear_{kind}", self.positions, total)
        for number in reversed(numbers):
            nests.gemm(
                f"lanes{number}",
                self.positions,
                lambda *i, d=number: (total(*i), self.digit[(d, *i)], self.weight[ONES]),
                self.there,
            )
            if number > numbers.start:
                nests.alu(
                    f"raise{number}",
                    self.positions,
                    lambda *i: (total(*i), total(*i) << DIGIT_BITS),
                )

    def _sum(self) -> None:
        total = self._register(SUM)
        self.product("sum", lambda *i: total(*self.kept(*i)), ONES, ONES_TAIL, True)

    def _statistics(self) -> None:
        apply_moves(self.nests, "token", self.program.moves, self.registers, self.positions)

    # ---------------------------------------------------------------- elements
    def _apply(self) -> None:
        nests, wide, work = self.nests, self.wide, self.work
        nests.reset("clear", self.extents, lambda *i: wide[i])
        self.product("widen", lambda *i: wide[i], UNIT, UNIT, False)
        steps = element_steps(work)[1:] if work.centred else element_steps(work)
        stored = 3
        for number, each in enumerate(steps[:-stored]):
            nests.alu(
                f"element{number}",
                self.extents,
                lambda *i, e=each: (wide[i], OPERATORS[e.op](wide[i], self._operand(e.right, *i))),
            )

        def result(*i: Expr) -> tuple[Load, Expr]:
            value: Expr = wide[i]
            for each in steps[-stored:]:
                value = OPERATORS[each.op](value, self._operand(each.right, *i))
            return self.out[self.at(*i)], value

        nests.store("out", self.extents, result, self.inside)

    def _operand(self, right: str | int, *i: Expr) -> Expr:
        if isinstance(right, int):
            return tirx.const(right, "int32")
        if right in self.work.numbers:
            return tirx.const(self.work.numbers[right], "int32")
        if right in self.values:
            pairs = zip(self.sizes, i, strict=True)
            return self.values[right][tuple(v for axis, v in pairs if axis in self.axes.given)]
        return self._register(right)(*self.kept(*i))
