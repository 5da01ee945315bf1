"""Scores and shares of an attention, with queries in lanes, then turned.

A tile of shares is turned while the next one is computed: it goes through DRAM, out of the
accumulators into weights.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import HALF, ROOM, room, score_steps, share_steps
from vta_byoc.strategies.attention.nests import Kernel
from vta_byoc.strategies.attention.usage import SPREAD_BITS
from vta_byoc.strategies.te.in_place import LANES, Stages, reduce_vectors
from vta_byoc.strategies.te.tir_builder import Expr
from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.memory import ACC, INP, WGT


def share_nests(work: AttentionWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """Queries, keys, units, masks where there are; shares, and shares with keys in lanes.

    A mask of run time is followed by the tile that spreads it.
    """
    return _Shares(work, config, choice).func()


class _Shares(Kernel):
    def func(self) -> tirx.PrimFunc:
        nests, work, k = self.nests, self.work, self.k
        count = work.groups * self.depth
        self.query = nests.weights("query", count * self.queries)
        self.key = nests.param("key", (count, self.keys * k))
        units = nests.param("units", (k + 1,))
        if work.hiding:
            blocks = work.hiding[0] * work.hidden_blocks
            self.hidden = nests.param("hidden", (blocks, self.keys * k))
            spread = nests.weights("spread", 1)
        if work.masks:
            self.mask = nests.param("mask", (work.masks, self.queries, work.keys), "int32")
        self.out = nests.param("shares", (work.groups, self.queries, self.keys * k))
        tiles = work.groups * self.queries * self.keys
        self.tiles, self.turned = nests.weights("tiles", tiles), nests.param("turned", (tiles, k))
        self.chunk, self.part = self.choice.tile["t"], self.choice.tile["n"]
        self.count = -(-self.queries // self.chunk)
        rows = self.keys * k
        self.key_tile = nests.sram(INP, "key_tile", (self.depth, work.keys))
        self.query_tile = nests.sram(WGT, "query_tile", (self.depth, self.chunk))
        self.scores = nests.sram(ACC, "scores", (self.chunk, rows))
        self.top = nests.sram(ACC, "top", (LANES, self.chunk))
        if work.hiding:
            self.spread = nests.sram(WGT, "spread_tile", (1,))
            rows = self.chunk if work.hiding[1] else 1
            self.hidden_tile = nests.sram(INP, "hidden_tile", (rows, work.keys))
            nests.load("load_spread", (1,), lambda i: (self.spread[i], spread[i]))
        if work.masks:
            masked = work.masked_keys(self.chunk)
            self.mask_tile = nests.sram(ACC, "mask_tile", (self.chunk, masked))
        self.unit = nests.sram(INP, "unit", (k,))
        self.tile = nests.sram(WGT, "tile", (self.chunk, self.keys))
        self.acc = nests.sram(ACC, "acc", (self.chunk, self.part, k))
        nests.load("load_units", (k,), lambda i: (self.unit[i], units[i]))
        with nests.loop("go", work.groups + 1) as self.group:
            nests.load(
                "load_key",
                (self.depth, work.keys),
                lambda c, s: (self.key_tile[c, s], self.key[self.group * self.depth + c, s]),
                lambda c, s: [self.group < work.groups],
            )
            with nests.loop("to", self.count) as self.outer:
                self._tile()
                with nests.loop("no", -(-self.keys // self.part)) as self.piece:
                    self._turn()
        return self.finish()

    def at(self, t: Expr) -> Expr:
        """A block of queries of the tile in the tensor."""
        return self.outer * self.chunk + t

    def inside(self, t: Expr) -> list[Expr]:
        """Conditions of a smaller last tile, and of there being one."""
        short = [self.at(t) < self.queries] if self.queries % self.chunk else []
        return [self.group < self.work.groups, *short]

    def key_seen(self, t: Expr, s: Expr) -> list[Expr]:
        """The same, and of a key that the tile may see."""
        some = [s < self.seen(self.outer) * self.k] if self.work.causal else []
        return [*self.inside(t), *some]

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
            self.key_seen,
        )
        self._behind()
        nests.store(
            "store",
            (self.chunk, self.keys * k),
            lambda t, s: (self.out[self.group, self.at(t), s], self.scores[t, s]),
            self.key_seen,
        )

    def _behind(self) -> None:
        """Keys that fill the last block have the share 0."""
        nests, work = self.nests, self.work
        behind = self.keys * self.k - work.keys
        if not behind:
            return

        def last_seen(t: Expr, _s: Expr) -> list[Expr]:
            return [*self.inside(t), *self.before_end(self.keys - 1, self.outer)]

        rest = (self.chunk, behind)
        nests.reset("behind", rest, lambda t, s: self.scores[t, work.keys + s], last_seen)
        nests.alu(
            "behind_share",
            rest,
            lambda t, s: (
                self.scores[t, work.keys + s],
                self.scores[t, work.keys + s] + tirx.const(-HALF, "int32"),
            ),
            last_seen,
        )

    def _scores(self, each: tuple[int, int]) -> None:
        nests, work = self.nests, self.work
        nests.reset("clear", each, lambda t, s: self.scores[t, s], self.key_seen)
        if work.hiding:
            self._hide(each)
        nests.gemm(
            "score",
            (self.depth, *each),
            lambda c, t, s: (self.scores[t, s], self.key_tile[c, s], self.query_tile[c, t]),
            lambda c, t, s: self.key_seen(t, s),
        )
        self._load_before()  # here: its store is over, and what follows hides it
        if work.masks:
            self._mask()
        self.applied(
            "score_",
            score_steps(work.attention),
            each,
            lambda t, s: self.scores[t, s],
            {},
            self.key_seen,
        )

    def _mask(self) -> None:
        """The constant mask is added to the scores that it changes."""
        nests, work, chunk = self.nests, self.work, self.chunk
        each = (chunk, work.masked_keys(chunk))
        first: Expr = 0
        if work.causal and each[1] < work.keys:
            first = (self.outer * chunk + work.causal[1]) * self.k

        def there(t: Expr, s: Expr) -> list[Expr]:
            if each[1] == work.keys:
                return self.key_seen(t, s)
            return [*self.inside(t), first + s >= 0, first + s < work.keys]

        nests.load(
            "load_mask",
            each,
            lambda t, s: (
                self.mask_tile[t, s],
                self.mask[self.group if work.masks > 1 else 0, self.at(t), first + s],
            ),
            there,
        )
        nests.alu(
            "masked",
            each,
            lambda t, s: (
                self.scores[t, first + s],
                self.scores[t, first + s] + self.mask_tile[t, s],
            ),
            there,
        )

    def _hide(self, each: tuple[int, int]) -> None:
        """Scores begin with the mask of run time."""
        nests, work = self.nests, self.work
        masks, own, shift = work.hiding
        first = self.group * work.hidden_blocks if masks > 1 else 0
        nests.load(
            "load_hidden",
            (self.chunk if own else 1, work.keys),
            lambda t, s: (
                self.hidden_tile[t, s],
                self.hidden[first + (self.at(t) if own else 0), s],
            ),
            lambda t, s: self.key_seen(t if own else 0, s),
        )
        nests.gemm(
            "spread",
            each,
            lambda t, s: (self.scores[t, s], self.hidden_tile[t if own else 0, s], self.spread[0]),
            self.key_seen,
        )
        nests.alu(
            "raise_hidden",
            each,
            lambda t, s: (self.scores[t, s], self.scores[t, s] << (shift - SPREAD_BITS)),
            self.key_seen,
        )

    def _top(self) -> None:
        """The largest score of each query; several at a time, which the ALU's pipeline asks for."""
        lanes = reduce_vectors(
            self.nests,
            Stages("clear_top", "first", "larger", "last"),
            "max",
            self.top,
            lambda s, t: self.scores[t, s],
            (self.work.keys, self.chunk),
            self.inside,
            lambda s, t: self.key_seen(t, s),
        )
        self._joined(lanes)

    def _joined(self, lanes: int) -> None:
        """The maxima of a query become one, and what its shares begin with."""
        nests, work = self.nests, self.work
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

    # ---------------------------------------------------------------- the tile before
    def _turn(self) -> None:
        """The tile of shares before, of this group or, in the first turn, of the group before."""
        nests, k = self.nests, self.k
        each = (self.chunk, self.part)
        for suffix, _first, when in self._turns():
            nests.reset(
                f"clear_acc{suffix}",
                (*each, k),
                lambda t, n, i: self.acc[t, n, i],
                lambda t, n, i, w=when: [*w(self.piece * self.part + n), *self._there(t, n)],
            )
            nests.gemm(
                f"turn{suffix}",
                (*each, k),
                lambda t, n, i: (
                    self.acc[t, n, i],
                    self.unit[i],
                    self.tile[t, self.piece * self.part + n],
                ),
                lambda t, n, i, w=when: [*w(self.piece * self.part + n), *self._there(t, n)],
            )
        for suffix, first, when in self._before():
            nests.store(
                f"store_turned{suffix}",
                (*each, k),
                lambda t, n, i, f=first: (
                    self.turned[(f + t) * self.keys + self.piece * self.part + n, i],
                    self.acc[t, n, i],
                ),
                lambda t, n, i, w=when: [*w(self.piece * self.part + n), *self._there(t, n)],
            )

    def _load_before(self) -> None:
        """The tile of shares before, as weights."""
        for suffix, first, when in self._before():
            self.nests.load(
                f"load_tile{suffix}",
                (self.chunk, self.keys),
                lambda t, n, f=first: (self.tile[t, n], self.tiles[(f + t) * self.keys + n]),
                lambda t, n, w=when: [*w(n), *self._short(t)],
            )

    def _before(self) -> list[tuple[str, Expr, Callable[[Expr], list[Expr]]]]:
        """The first block of queries before: in this group, in the one before; and when.

        That is of the number of a block of keys.
        """
        here = self.group * self.queries + (self.outer - 1) * self.chunk
        before = (self.group - 1) * self.queries + (self.count - 1) * self.chunk
        inside = [self.outer >= 1, self.group < self.work.groups]
        across = [self.outer < 1, self.group >= 1]
        return [
            ("", here, lambda n: [*inside, *self.before_end(n, self.outer - 1)]),
            ("_before", before, lambda n: [*across, *self.before_end(n, self.count - 1)]),
        ]

    def _turns(self) -> list[tuple[str, Expr, Callable[[Expr], list[Expr]]]]:
        """As `_before`; together where both turn as many blocks of keys."""
        if self.work.causal:
            return self._before()
        turn = self.group * self.count + self.outer
        some = [turn >= 1, turn <= self.work.groups * self.count]
        return [("", 0, lambda _n: some)]

    def _short(self, t: Expr) -> list[Expr]:
        """Conditions of a smaller tile before, which was its group's last."""
        rest = self.queries - (self.count - 1) * self.chunk
        return [t < self.outer * self.chunk + rest] if rest < self.chunk else []

    def _there(self, t: Expr, n: Expr) -> list[Expr]:
        """The same, and of a smaller last part."""
        cut = [self.piece * self.part + n < self.keys] if self.keys % self.part else []
        return [*self._short(t), *cut]
