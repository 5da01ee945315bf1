"""Values of an attention mixed by shares, and divided by the sums of the shares.

Behind a causal mask, blocks of queries are mixed one by one, each of the keys that it may see.
Where a tile has all queries of a group, the reciprocals of several groups are computed together:
their instructions are many, and of one vector for each block of queries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tvm import tirx

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import HALF, LIFT, RATE, TOTAL, lifts, result_steps
from vta_byoc.strategies.attention.nests import Kernel
from vta_byoc.strategies.attention.usage import rate_program, unseen_parts
from vta_byoc.strategies.te.in_place import apply_moves
from vta_byoc.strategies.te.tir_builder import Expr
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
        self.chunk, near = self.choice.tile["t"], self.choice.tile.get("g", 1)
        self.together = 1 if work.causal else self.chunk
        self.spots = near * self.chunk
        self.program = rate_program(work)
        self.one, self.one_tile = nests.sram(INP, "one", (1,)), nests.sram(WGT, "one_tile", (1,))
        self.values = nests.sram(INP, "values", (self.keys, work.width))
        self.tile = nests.sram(WGT, "tile", (self.spots, self.keys))
        self.lift = nests.sram(ACC, "lift", (work.width,))
        self.mixed = nests.sram(ACC, "mixed", (self.together, work.width))
        self.registers = nests.sram(ACC, "registers", (self.program.count, self.spots))
        nests.load("load_one", (1,), lambda i: (self.one[i], units[k]))
        nests.load("load_ones", (1,), lambda i: (self.one_tile[i], ones[i]))
        self.slot: Expr = 0
        if near == 1:
            with nests.loop("go", work.groups) as self.group:
                self._values()
                with nests.loop("to", -(-self.queries // self.chunk)) as self.outer:
                    self._rates()
                    with self.blocks("tm") as first:
                        self._mix(first)
            return self.finish()
        self.outer = 0  # all queries of a group are one tile
        with nests.loop("go", work.groups // near) as some:
            self.group = some * near
            self._rates()
            with nests.loop("gi", near) as each:
                self.group, self.slot = some * near + each, each * self.chunk
                self._values()
                self._mix(0)
        return self.finish()

    @property
    def at_once(self) -> int:
        """Blocks of queries whose shares are summed together."""
        return 1 if self.work.causal else self.spots

    def at(self, t: Expr) -> Expr:
        """A block of queries of the tile in the tensor."""
        return self.outer * self.chunk + t

    def inside(self, t: Expr) -> list[Expr]:
        """Conditions of a smaller last tile."""
        return [self.at(t) < self.queries] if self.queries % self.chunk else []

    @contextlib.contextmanager
    def blocks(self, name: str) -> Iterator[Expr]:
        """The first of `together` blocks of queries of a tile, one after the other."""
        if self.together == self.chunk:
            yield 0
            return
        with self.nests.loop(name, self.chunk) as first:
            yield first

    def key_seen(self, first: Expr, t: Expr, s: Expr) -> list[Expr]:
        """Conditions of a block of queries being there, and seeing a block of keys."""
        seen = [s < self.work.causal[0] + self.at(first)] if self.work.causal else []
        return [*self.inside(first + t), *seen]

    def _values(self) -> None:
        """The values of a group, and their sums over the keys in every lane.

        With a causal mask, sums of those that all queries see, times `HALF`.
        """
        nests, work = self.nests, self.work
        nests.load(
            "load_values",
            (self.keys, work.width),
            lambda s, d: (self.values[s, d], self.value[self.group * self.keys + s, d]),
        )
        nests.reset("clear_lift", (work.width,), lambda d: self.lift[d])
        if work.causal:
            self._lifted("seen_values", work.causal[0] - 1, 0, lambda _t: [])
            return
        nests.gemm(
            "sum_values",
            (self.keys, work.width),
            lambda s, d: (self.lift[d], self.values[s, d], self.one_tile[0]),
        )
        self.applied("lift", lifts(), (work.width,), lambda d: self.lift[d], {}, lambda d: [])

    def _lifted(
        self, name: str, count: int, first: Expr, where: Callable[..., list[Expr]]
    ) -> None:
        """The sums of `count` blocks of values are added, twice by half of `HALF`."""
        if not count:
            return
        self.nests.gemm(
            name,
            (2, count, self.work.width),
            lambda _half, s, d: (self.lift[d], self.values[first + s, d], self.one_tile[0]),
            lambda _half, s, _d: where(first + s),
        )

    def _load(self, first: Expr) -> None:
        """The turned shares of blocks of queries."""
        self.nests.load(
            "load_shares",
            (self.at_once, self.keys),
            lambda t, s: (
                self.tile[first + t, s],
                self.shares[(self.group * self.queries + self.at(first + t)) * self.keys + s],
            ),
            lambda t, s: self.key_seen(first, t, s),
        )

    def _mix(self, first: Expr) -> None:
        """The product with the values, divided by the sums of the shares."""
        nests, work = self.nests, self.work
        each = (self.together, work.width)
        if work.causal:
            block = work.causal[0] - 1 + self.at(first)
            self._lifted(
                "further_values", 1, block, lambda s: [*self.inside(first), s < self.keys]
            )
        nests.reset("clear", each, lambda t, d: self.mixed[t, d])
        nests.gemm(
            "mix",
            (self.keys, *each),
            lambda s, t, d: (
                self.mixed[t, d],
                self.values[s, d],
                self.tile[self.slot + first + t, s],
            ),
            lambda s, t, d: self.key_seen(first, t, s),
        )
        rate = self.program.places[RATE]
        self.applied(
            "result",
            result_steps(work.attention),
            each,
            lambda t, d: self.mixed[t, d],
            {
                LIFT: lambda t, d: self.lift[d],
                RATE: lambda t, d: self.registers[rate, self.slot + first + t],
            },
            lambda t, d: self.inside(first + t),
        )
        nests.store(
            "store",
            each,
            lambda t, d: (self.out[self.group, self.at(first + t), d], self.mixed[t, d]),
            lambda t, d: self.inside(first + t),
        )

    def _rates(self) -> None:
        """The sums of the shares, and their reciprocals."""
        nests, registers = self.nests, self.registers
        total = self.program.places[TOTAL]
        with self.blocks("tt") as first:
            self._load(first)
            nests.reset("clear_total", (self.at_once,), lambda t: registers[total, first + t])
            nests.gemm(
                "total",
                (self.keys, self.at_once),
                lambda s, t: (registers[total, first + t], self.one[0], self.tile[first + t, s]),
                lambda s, t: self.key_seen(first, t, s),
            )
            if self.work.causal:
                self._unseen(total, first)
        behind = self.keys * self.k - self.work.keys
        if behind:  # shares of 0 are stored as -HALF
            nests.alu(
                "behind",
                (self.spots,),
                lambda t: (registers[total, t], registers[total, t] + HALF * behind),
            )
        apply_moves(nests, "rate", self.program.moves, registers, (self.spots,))

    def _unseen(self, total: int, t: Expr) -> None:
        """Keys that a block of queries does not see have the share 0, stored as -HALF."""
        parts = unseen_parts(self.work)
        unseen = self.work.causal[0] + self.at(t) - self.keys
        each = unseen * (HALF * self.k // parts)
        for number in range(parts):
            self.nests.alu(
                f"unseen{number}",
                (1,),
                lambda i: (self.registers[total, t + i], self.registers[total, t + i] + each),
                lambda _i: [*self.inside(t), unseen < 0],
            )
