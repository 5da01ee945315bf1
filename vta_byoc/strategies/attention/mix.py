"""Values of an attention mixed by shares, and divided by the sums of the shares."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import HALF, LIFT, RATE, TOTAL, lifts, result_steps
from vta_byoc.strategies.attention.nests import Kernel
from vta_byoc.strategies.attention.usage import rate_program
from vta_byoc.strategies.te.definition import OPERATORS
from vta_byoc.strategies.te.registers import Move
from vta_byoc.strategies.te.tir_builder import Expr, Load
from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.memory import ACC, INP, WGT


def mix_nests(work: AttentionWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """Values, units, ones, shares; the result with queries in lanes."""
    return _Mix(work, config, choice).func()


class _Mix(Kernel):
    def func(self) -> tirx.PrimFunc:
        nests, work, k = self.nests, self.work, self.k
        self.value = nests.param("value", (work.groups * self.keys, work.width))
        units, ones = nests.param("units", (k + 1,)), nests.weights("ones", 1)
        self.shares = nests.weights("shares", work.groups * self.queries * self.keys)
        self.out = nests.param("out", (work.groups, self.queries, work.width))
        self.chunk = self.choice.tile["t"]
        self.program = rate_program(work)
        self.one, self.one_tile = nests.sram(INP, "one", (1,)), nests.sram(WGT, "one_tile", (1,))
        self.values = nests.sram(INP, "values", (self.keys, work.width))
        self.tile = nests.sram(WGT, "tile", (self.chunk, self.keys))
        self.lift = nests.sram(ACC, "lift", (work.width,))
        self.mixed = nests.sram(ACC, "mixed", (self.chunk, work.width))
        self.registers = nests.sram(ACC, "registers", (self.program.count, self.chunk))
        nests.load("load_one", (1,), lambda i: (self.one[i], units[k]))
        nests.load("load_ones", (1,), lambda i: (self.one_tile[i], ones[i]))
        with nests.loop("go", work.groups) as self.group:
            self._values()
            with nests.loop("to", -(-self.queries // self.chunk)) as self.outer:
                self._tile()
        return self.finish()

    def at(self, t: Expr) -> Expr:
        """A block of queries of the tile in the tensor."""
        return self.outer * self.chunk + t

    def inside(self, t: Expr) -> list[Expr]:
        """Conditions of a smaller last tile."""
        return [self.at(t) < self.queries] if self.queries % self.chunk else []

    def _values(self) -> None:
        """The values of a group, and their sums over the keys in every lane."""
        nests, work = self.nests, self.work
        nests.load(
            "load_values",
            (self.keys, work.width),
            lambda s, d: (self.values[s, d], self.value[self.group * self.keys + s, d]),
        )
        nests.reset("clear_lift", (work.width,), lambda d: self.lift[d])
        nests.gemm(
            "sum_values",
            (self.keys, work.width),
            lambda s, d: (self.lift[d], self.values[s, d], self.one_tile[0]),
        )
        self.applied("lift", lifts(), (work.width,), lambda d: self.lift[d], {}, lambda d: [])

    def _tile(self) -> None:
        nests, work = self.nests, self.work
        nests.load(
            "load_shares",
            (self.chunk, self.keys),
            lambda t, s: (
                self.tile[t, s],
                self.shares[(self.group * self.queries + self.at(t)) * self.keys + s],
            ),
            lambda t, s: self.inside(t),
        )
        self._rates()
        each = (self.chunk, work.width)
        nests.reset("clear", each, lambda t, d: self.mixed[t, d])
        nests.gemm(
            "mix",
            (self.keys, *each),
            lambda s, t, d: (self.mixed[t, d], self.values[s, d], self.tile[t, s]),
            lambda s, t, d: self.inside(t),
        )
        rate = self.program.places[RATE]
        self.applied(
            "result",
            result_steps(work.attention),
            each,
            lambda t, d: self.mixed[t, d],
            {LIFT: lambda t, d: self.lift[d], RATE: lambda t, d: self.registers[rate, t]},
            lambda t, d: self.inside(t),
        )
        nests.store(
            "store",
            each,
            lambda t, d: (self.out[self.group, self.at(t), d], self.mixed[t, d]),
            lambda t, d: self.inside(t),
        )

    def _rates(self) -> None:
        """The sums of the shares, and their reciprocals."""
        nests, registers = self.nests, self.registers
        total = self.program.places[TOTAL]
        nests.reset("clear_total", (self.chunk,), lambda t: registers[total, t])
        nests.gemm(
            "total",
            (self.keys, self.chunk),
            lambda s, t: (registers[total, t], self.one[0], self.tile[t, s]),
            lambda s, t: self.inside(t),
        )
        behind = self.keys * self.k - self.work.keys
        if behind:  # shares of 0 are stored as -HALF
            nests.alu(
                "behind",
                (self.chunk,),
                lambda t: (registers[total, t], registers[total, t] + HALF * behind),
            )
        for number, move in enumerate(self.program.moves):
            operation = OPERATORS[move.op]

            def changed(
                t: Expr, move: Move = move, operation: Callable[..., Expr] = operation
            ) -> tuple[Load, Expr]:
                right: Expr = tirx.const(move.right, "int32")
                if move.is_register:
                    right = registers[move.right, t]
                return registers[move.to, t], operation(registers[move.left, t], right)

            nests.alu(f"rate{number}", (self.chunk,), changed)
