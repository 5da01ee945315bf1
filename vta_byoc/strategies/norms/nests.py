"""The loop nests of both kernels of a normalization."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import tirx

from vta_byoc.cost.dma import halves
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.norms import FACTOR, OFFSET, SQUARES, SUM
from vta_byoc.strategies.norms.registers import program_of
from vta_byoc.strategies.norms.usage import DIGIT_BITS, WEIGHTS, digits_of, sizes_of
from vta_byoc.strategies.te.definition import OPERATORS
from vta_byoc.strategies.te.registers import Move
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
    """What both kernels have: positions in tiles, channel blocks in chunks, the data of one.

    Where SRAM holds all data, the first kernel leaves it in the place that the second one loads it
    to: a program then loads it once.
    """

    def __init__(self, work: NormWorkload, config: VTAConfig, choice: Choice) -> None:
        self.work, self.config, self.choice = work, config, choice
        self.grid = Grid(sizes_of(work, config), choice.tile)
        self.nests = nests = Nests(config)
        self.sizes = self.grid.sizes
        self.chunk = self.grid.tile["c"]
        self.positions = (self.grid.tile["n"], self.grid.tile["p"])
        self.extents = (self.positions[0], self.chunk, self.positions[1])
        self.data = nests.param("data", tuple(self.sizes[a] for a in "ncp"))
        self.param = nests.weights("weights", WEIGHTS)
        self.tail = work.summed % config.block != 0
        self.held = self.extents

    def hold(self) -> None:
        """Leave room for all channels of a tile, if it has all positions and SRAM holds that."""
        held = (self.positions[0], self.sizes["c"], self.positions[1])
        one = self.grid.count("n") == self.grid.count("p") == 1
        if one and math.prod(held) <= depth_of(self.config, INP):
            self.held = held

    def weights(self) -> None:
        """Load the weights; the tile of the data."""
        self.weight = self.nests.sram(WGT, "weight", (WEIGHTS,))
        self.tile = self.nests.sram(INP, "tile", self.held)
        self.nests.load("load_weights", (WEIGHTS,), lambda i: (self.weight[i], self.param[i]))

    def over_positions(self, body: Callable[[], None]) -> None:
        """`body` for every tile of positions."""
        with (
            self.nests.loop("no", self.grid.count("n")) as self.grid.outer["n"],
            self.nests.loop("po", self.grid.count("p")) as self.grid.outer["p"],
        ):
            body()

    def over_chunks(self, body: Callable[[], None]) -> None:
        """`body` for every chunk of channel blocks."""
        with self.nests.loop("co", self.grid.count("c")) as self.grid.outer["c"]:
            body()

    def load(self, name: str) -> None:
        """The data of a tile."""
        self.nests.load(
            name,
            self.extents,
            lambda n, c, p: (self.place(n, c, p), self.data[self.at(n, c, p)]),
            self.inside,
        )

    def place(self, n: Expr, c: Expr, p: Expr) -> Load:
        """Where the data of a place of the tile is."""
        return self.tile[n, c if self.held == self.extents else self.grid.at("c", c), p]

    def at(self, n: Expr, c: Expr, p: Expr) -> tuple[Expr, Expr, Expr]:
        """A place of the tile in the tensor."""
        return self.grid.at("n", n), self.grid.at("c", c), self.grid.at("p", p)

    def inside(self, n: Expr, c: Expr, p: Expr) -> list[Expr]:
        """Conditions of a smaller last tile."""
        return self.grid.inside({"n": n, "c": c, "p": p})

    def there(self, n: Expr, p: Expr) -> list[Expr]:
        """The same of positions."""
        return self.grid.inside({"n": n, "p": p})

    def product(
        self, name: str, target: Callable[..., Load], whole: int, tail: int, chunks_first: bool
    ) -> None:
        """`target += tile . weight`; the lanes behind the last channel by the weight `tail`."""
        order = (1, 0, 2) if chunks_first else (0, 1, 2)
        extents = tuple(self.extents[i] for i in order)

        def placed(i: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
            n, c, p = (i[order.index(axis)] for axis in range(3))
            return n, c, p

        def nest(suffix: str, weight: int, more: Callable[[Expr], list[Expr]]) -> None:
            def operands(*i: Expr) -> tuple[Load, Load, Load]:
                n, c, p = placed(i)
                return target(n, c, p), self.place(n, c, p), self.weight[weight]

            def where(*i: Expr) -> list[Expr]:
                n, c, p = placed(i)
                return [*self.inside(n, c, p), *more(c)]

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
        count = digits_of(work, config)
        self.digits = nests.param("digits", (count, self.sizes["n"], self.sizes["p"]))
        self.hold()
        self.weights()
        self.wide = nests.sram(ACC, "wide", self.extents)
        self.total = nests.sram(ACC, "total", self.positions)
        if self.held != self.extents:
            nests.keep(self.tile)
        self.over_positions(lambda: self._tile(count))
        return nests.func(self.choice.slots_attr())

    def _tile(self, count: int) -> None:
        nests, total = self.nests, self.total
        nests.reset("clear_total", self.positions, lambda n, p: total[n, p], self.there)
        self.over_chunks(self._chunk)
        half = 1 << (DIGIT_BITS - 1)
        for number in range(count):
            if number:
                nests.alu(
                    f"next{number}",
                    self.positions,
                    lambda n, p: (total[n, p], (total[n, p] + half) >> DIGIT_BITS),
                    self.there,
                )
            nests.store(
                f"digit{number}",
                self.positions,
                lambda n, p, d=number: (
                    self.digits[d, self.grid.at("n", n), self.grid.at("p", p)],
                    total[n, p],
                ),
                self.there,
            )

    def _chunk(self) -> None:
        nests, wide, total = self.nests, self.wide, self.total
        self.load("load")
        nests.reset("clear", self.extents, lambda *i: wide[i])
        self.product("widen", lambda *i: wide[i], IDENTITY, IDENTITY_TAIL, False)
        nests.alu("square", self.extents, lambda *i: (wide[i], wide[i] * wide[i]))
        for count, distance in halves(self.chunk):
            extents = (self.positions[0], count, self.positions[1])
            nests.alu(
                f"add{count}",
                extents,
                lambda n, c, p, d=distance: (wide[n, c, p], wide[n, c, p] + wide[n, c + d, p]),
            )
        nests.alu("sum", self.positions, lambda n, p: (total[n, p], total[n, p] + wide[n, 0, p]))


class _Apply(_Tiles):
    def func(self) -> tirx.PrimFunc:
        nests, work, config = self.nests, self.work, self.config
        kinds = [name for name in (FACTOR, OFFSET) if name not in work.numbers]
        self.operands = {name: nests.param(name, (self.sizes["c"],), "int32") for name in kinds}
        self.count = digits_of(work, config)
        self.digits = nests.param("digits", (self.count, self.sizes["n"], self.sizes["p"]))
        self.out = nests.param("out", tuple(self.sizes[a] for a in "ncp"))
        self.weights()
        self.program = program_of(work)
        self.digit = nests.sram(INP, "digit", (self.count, *self.positions))
        self.registers = nests.sram(ACC, "registers", (self.program.count, *self.positions))
        self.wide = nests.sram(ACC, "wide", self.extents)
        self.values = {name: nests.sram(ACC, name, (self.chunk,)) for name in kinds}
        self.whole = self.grid.count("c") == 1
        if self.whole and kinds:
            with nests.loop("once", 1) as self.grid.outer["c"]:
                self._load_operands()
        self.over_positions(self._tile)
        return nests.func(self.choice.slots_attr())

    def _load_operands(self) -> None:
        for name, tile in self.values.items():
            param = self.operands[name]
            self.nests.load(
                f"load_{name}",
                (self.chunk,),
                lambda c, t=tile, p=param: (t[c], p[self.grid.at("c", c)]),
                lambda c: self.grid.inside({"c": c}),
            )

    def _register(self, name: str) -> Callable[[Expr, Expr], Load]:
        place = self.program.places[name]
        return lambda n, p: self.registers[place, n, p]

    # ---------------------------------------------------------------- statistics
    def _tile(self) -> None:
        if self.work.centred:
            self.nests.reset("clear_sum", self.positions, self._register(SUM))
        if self.whole:
            self.over_chunks(self._all)
            return
        if self.work.centred:
            self.over_chunks(self._again)
        self._squares()
        self._statistics()
        self.over_chunks(self._chunk)

    def _all(self) -> None:
        """Everything of a tile that has all channels; the digits are waited for last."""
        self.load("load")
        if self.work.centred:
            self._sum()
        self._squares()
        self._statistics()
        self._apply()

    def _again(self) -> None:
        self.load("again_load")
        self._sum()

    def _chunk(self) -> None:
        if not self.whole:
            self._load_operands()
        self.load("load")
        self._apply()

    def _squares(self) -> None:
        """The sum of squares in every lane, from the digits."""
        nests, total = self.nests, self._register(SQUARES)
        nests.load(
            "load_digits",
            (self.count, *self.positions),
            lambda d, n, p: (
                self.digit[d, n, p],
                self.digits[d, self.grid.at("n", n), self.grid.at("p", p)],
            ),
            lambda d, n, p: self.there(n, p),
        )
        nests.reset("clear_squares", self.positions, total)
        for number in reversed(range(self.count)):
            nests.gemm(
                f"lanes{number}",
                self.positions,
                lambda n, p, d=number: (total(n, p), self.digit[d, n, p], self.weight[ONES]),
                self.there,
            )
            if number:
                nests.alu(
                    f"raise{number}",
                    self.positions,
                    lambda n, p: (total(n, p), total(n, p) << DIGIT_BITS),
                )

    def _sum(self) -> None:
        total = self._register(SUM)
        self.product("sum", lambda n, c, p: total(n, p), ONES, ONES_TAIL, True)

    def _statistics(self) -> None:
        for number, move in enumerate(self.program.moves):
            self._move(f"token{number}", move)

    def _move(self, name: str, move: Move) -> None:
        registers, operation = self.registers, OPERATORS[move.op]

        def changed(n: Expr, p: Expr) -> tuple[Load, Expr]:
            right: Expr = tirx.const(move.right, "int32")
            if move.is_register:
                right = registers[move.right, n, p]
            return registers[move.to, n, p], operation(registers[move.left, n, p], right)

        self.nests.alu(name, self.positions, changed)

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

    def _operand(self, right: str | int, n: Expr, c: Expr, p: Expr) -> Expr:
        if isinstance(right, int):
            return tirx.const(right, "int32")
        if right in self.work.numbers:
            return tirx.const(self.work.numbers[right], "int32")
        if right in self.values:
            return self.values[right][c]
        return self._register(right)(n, p)
