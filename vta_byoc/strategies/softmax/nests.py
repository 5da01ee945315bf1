"""The loop nest of a softmax along an axis of positions.

A tile has all scores of its sums, in accumulators: the largest is a maximum over vectors, and their
sum one over the shares. The weight that widens the scores raises them, too.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import RATE, ROOM, TOTAL
from vta_byoc.ir.programs import Instructions
from vta_byoc.strategies.softmax.usage import axes_of, raised, rate_program
from vta_byoc.strategies.te.in_place import (
    LANES,
    Stages,
    apply_moves,
    apply_program,
    reduce_vectors,
)
from vta_byoc.strategies.te.tile_grid import Grid
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests, NestTensor
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.softmax import SoftmaxWorkload


def softmax_nests(work: SoftmaxWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """Scores, the weight that widens them, result."""
    return _Nests(work, config, choice).func()


class _Nests:
    def __init__(self, work: SoftmaxWorkload, config: VTAConfig, choice: Choice) -> None:
        self.work, self.choice = work, choice
        sizes = axes_of(work, config)
        self.grid = Grid(sizes, {**choice.tile, "s": sizes["s"]})
        self.nests = nests = Nests(config)
        self.data = nests.param("data", tuple(sizes.values()))
        widening = nests.weights("weights", 1)
        self.out = nests.param("out", tuple(sizes.values()))
        self.program = rate_program(work)
        o, _, i = self.spots = self.grid.shape
        self.each, self.sums = (o, work.keys, i), (o, i)
        self.weight = nests.sram(WGT, "weight", (1,))
        self.tile = nests.sram(INP, "tile", self.each)
        self.scores = nests.sram(ACC, "scores", self.spots)
        self.top = nests.sram(ACC, "top", (LANES, o, i))
        self.total = nests.sram(ACC, "total", (LANES, o, i))
        self.registers = nests.sram(ACC, "registers", (self.program.count, o, i))
        nests.load("load_weight", (1,), lambda j: (self.weight[j], widening[j]))

    def func(self) -> tirx.PrimFunc:
        nests, outer = self.nests, self.grid.outer
        outer["s"] = tirx.const(0, "int32")
        with (
            nests.loop("oo", self.grid.count("o")) as outer["o"],
            nests.loop("io", self.grid.count("i")) as outer["i"],
        ):
            self._tile()
        return nests.func(self.choice.slots_attr())

    def inside(self, o: Expr, _s: Expr, i: Expr) -> list[Expr]:
        """Conditions of a smaller last tile."""
        return self.grid.inside({"o": o, "i": i})

    def there(self, o: Expr, i: Expr) -> list[Expr]:
        """The same of a sum."""
        return self.grid.inside({"o": o, "i": i})

    def _tile(self) -> None:
        nests, work = self.nests, self.work
        softmax, score = work.softmax, lambda o, s, i: self.scores[o, s, i]
        nests.load(
            "load",
            self.each,
            lambda *at: (self.tile[at], self.data[self.grid.positions(*at)]),
            self.inside,
        )
        nests.reset("clear", self.spots, score, self.inside)
        nests.gemm(
            "widen", self.each, lambda *at: (score(*at), self.tile[at], self.weight[0]), self.inside
        )
        self._applied("raise", raised(work), {})
        self._top()
        self._applied("share", softmax.share, {ROOM: lambda o, _s, i: self.top[0, o, i]})
        self._rates()
        rate = self.program.places[RATE]
        self._applied("result", softmax.result, {RATE: lambda o, _s, i: self.registers[rate, o, i]})
        nests.store(
            "store",
            self.spots,
            lambda *at: (self.out[self.grid.positions(*at)], score(*at)),
            self.inside,
        )

    def _applied(
        self, prefix: str, program: Instructions, operands: dict[str, Callable[..., Load]]
    ) -> None:
        """`apply_program` on the scores."""
        apply_program(
            self.nests,
            prefix,
            program,
            self.each,
            lambda *at: self.scores[at],
            operands,
            self.inside,
        )

    def _gathered(self, name: str, kept: NestTensor, op: str) -> int:
        """`reduce_vectors` of the scores of each sum."""
        stages = Stages(*(f"{stage}_{name}" for stage in Stages._fields))
        o, keys, i = self.each
        return reduce_vectors(
            self.nests,
            stages,
            op,
            kept,
            lambda s, o, i: self.scores[o, s, i],
            (keys, o, i),
            self.there,
            lambda _s, *at: self.there(*at),
        )

    def _top(self) -> None:
        """The largest score of each sum, and from it what its shares begin with."""
        nests, top = self.nests, self.top
        for lane in range(1, self._gathered("top", top, "max")):
            nests.alu(
                f"top_joined{lane}",
                self.sums,
                lambda o, i, r=lane: (top[0, o, i], tirx.max(top[0, o, i], top[r, o, i])),
                self.there,
            )
        program = self.work.softmax.room
        apply_program(nests, "room", program, self.sums, lambda *at: top[(0, *at)], {}, self.there)

    def _rates(self) -> None:
        """The sum of the shares of each sum, and from it its rate."""
        nests, registers, place = self.nests, self.registers, self.program.places[TOTAL]
        lanes = self._gathered("total", self.total, "add")
        nests.reset("clear_sum", self.sums, lambda *at: registers[(place, *at)], self.there)
        for lane in range(lanes):
            nests.alu(
                f"sum{lane}",
                self.sums,
                lambda *at, r=lane: (
                    registers[(place, *at)],
                    registers[(place, *at)] + self.total[(r, *at)],
                ),
                self.there,
            )
        apply_moves(nests, "rate", self.program.moves, registers, self.sums, self.there)
