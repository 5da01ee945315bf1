"""Scores and shares of an attention, with queries in lanes."""

from __future__ import annotations

from tvm import tirx

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import HALF, ROOM, room, score_steps, share_steps
from vta_byoc.strategies.attention.nests import Kernel
from vta_byoc.strategies.attention.usage import LANES_OF_TOP
from vta_byoc.strategies.te.tir_builder import Expr, Load
from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.memory import ACC, INP, WGT


def share_nests(work: AttentionWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """Queries, keys, the mask where there is one; shares with queries in lanes."""
    return _Shares(work, config, choice).func()


class _Shares(Kernel):
    def func(self) -> tirx.PrimFunc:
        nests, work, k = self.nests, self.work, self.k
        count = work.groups * self.depth
        self.query = nests.weights("query", count * self.queries)
        self.key = nests.param("key", (count, self.keys * k))
        if work.masks:
            self.mask = nests.param("mask", (work.masks, self.queries, work.keys), "int32")
        self.out = nests.param("shares", (work.groups, self.queries, self.keys * k))
        self.chunk = self.choice.tile["t"]
        self.count = -(-self.queries // self.chunk)
        rows = self.keys * k
        self.key_tile = nests.sram(INP, "key_tile", (self.depth, work.keys))
        self.query_tile = nests.sram(WGT, "query_tile", (self.depth, self.chunk))
        self.scores = nests.sram(ACC, "scores", (self.chunk, rows))
        self.top = nests.sram(ACC, "top", (LANES_OF_TOP, self.chunk))
        if work.masks:
            self.mask_tile = nests.sram(ACC, "mask_tile", (self.chunk, work.keys))
        with nests.loop("go", work.groups) as self.group:
            nests.load(
                "load_key",
                (self.depth, work.keys),
                lambda c, s: (self.key_tile[c, s], self.key[self.group * self.depth + c, s]),
            )
            with nests.loop("to", self.count) as self.outer:
                self._tile()
        return self.finish()

    def at(self, t: Expr) -> Expr:
        """A block of queries of the tile in the tensor."""
        return self.outer * self.chunk + t

    def inside(self, t: Expr) -> list[Expr]:
        """Conditions of a smaller last tile."""
        return [self.at(t) < self.queries] if self.queries % self.chunk else []

    def _tile(self) -> None:
        nests, work, k = self.nests, self.work, self.k
        each = (self.chunk, work.keys)
        nests.load(
            "load_query",
            (self.depth, self.chunk),
            lambda c, t: (
                self.query_tile[c, t],
                self.query[(self.group * self.depth + c) * self.queries + self.at(t)],
            ),
            lambda c, t: self.inside(t),
        )
        self._scores(each)
        self._top()
        self.applied(
            "share",
            share_steps(work.attention),
            each,
            lambda t, s: self.scores[t, s],
            {ROOM: lambda t, s: self.top[0, t]},
            lambda t, s: self.inside(t),
        )
        behind = self.keys * k - work.keys
        if behind:
            rest = (self.chunk, behind)
            nests.reset("behind", rest, lambda t, s: self.scores[t, work.keys + s])
            nests.alu(
                "behind_share",
                rest,
                lambda t, s: (
                    self.scores[t, work.keys + s],
                    self.scores[t, work.keys + s] + tirx.const(-HALF, "int32"),
                ),
            )
        nests.store(
            "store",
            (self.chunk, self.keys * k),
            lambda t, s: (self.out[self.group, self.at(t), s], self.scores[t, s]),
            lambda t, s: self.inside(t),
        )

    def _scores(self, each: tuple[int, int]) -> None:
        nests, work = self.nests, self.work
        nests.reset("clear", each, lambda t, s: self.scores[t, s])
        nests.gemm(
            "score",
            (self.depth, *each),
            lambda c, t, s: (self.scores[t, s], self.key_tile[c, s], self.query_tile[c, t]),
            lambda c, t, s: self.inside(t),
        )
        if work.masks:
            nests.load(
                "load_mask",
                each,
                lambda t, s: (
                    self.mask_tile[t, s],
                    self.mask[self.group if work.masks > 1 else 0, self.at(t), s],
                ),
                lambda t, s: self.inside(t),
            )
            nests.alu(
                "masked",
                each,
                lambda t, s: (self.scores[t, s], self.scores[t, s] + self.mask_tile[t, s]),
                lambda t, s: self.inside(t),
            )
        self.applied(
            "score_",
            score_steps(work.attention),
            each,
            lambda t, s: self.scores[t, s],
            {},
            lambda t, s: self.inside(t),
        )

    def _top(self) -> None:
        """The largest score of each query; several at a time, which the ALU's pipeline asks for."""
        nests, work = self.nests, self.work
        lanes = min(LANES_OF_TOP, work.keys)
        nests.reset("clear_top", (lanes, self.chunk), lambda r, t: self.top[r, t])
        nests.alu(
            "first",
            (lanes, self.chunk),
            lambda r, t: (self.top[r, t], self.top[r, t] + self.scores[t, r]),
            lambda r, t: self.inside(t),
        )
        further, rest = work.keys // lanes - 1, work.keys % lanes

        def larger(j: Expr, r: Expr, t: Expr) -> tuple[Load, Expr]:
            here = self.scores[t, (j + 1) * lanes + r]
            return self.top[r, t], tirx.max(self.top[r, t], here)

        if further:
            every = (further, lanes, self.chunk)
            nests.alu("larger", every, larger, lambda j, r, t: self.inside(t))
        if rest:
            last = (1, rest, self.chunk)
            nests.alu(
                "last",
                last,
                lambda j, r, t: larger(further, r, t),
                lambda j, r, t: self.inside(t),
            )
        while lanes > 1:
            lanes //= 2
            nests.alu(
                f"largest{lanes}",
                (lanes, self.chunk),
                lambda r, t, d=lanes: (
                    self.top[r, t],
                    tirx.max(self.top[r, t], self.top[r + d, t]),
                ),
                lambda r, t: self.inside(t),
            )
        self.applied(
            "room",
            room(work.attention.width),
            (self.chunk,),
            lambda t: self.top[0, t],
            {},
            lambda t: self.inside(t),
        )
