"""Operators that move channels between convolutions, and nothing else: what could be routed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tvm import relax

from vta_byoc.ir.bindings import straight_bindings, users_of
from vta_byoc.partitioning.channel_moves import Channel, moved_channels
from vta_byoc.partitioning.channel_order import is_by_channel, is_dense
from vta_byoc.partitioning.entry import Match
from vta_byoc.partitioning.kept_match import match_of
from vta_byoc.partitioning.region import called_composite
from vta_byoc.workload.layout import NCHW
from vta_byoc.workload.workloads import MoveWorkload

CONV = "vta.conv2d"


@dataclass
class Connected:
    """Operators that move channels of the same tensors.

    Attributes:
        moves: their results, and the tensor and channel that each channel comes from.
        read: those of them that convolutions read.
        splits: the tensors that nothing else reads and that can be stored in parts, with the
            convolutions that compute them.
        readers: convolutions by result, in order, with what they read.
        before: the composites of ``moves``.
    """

    moves: dict[relax.Var, list[Channel]]
    read: list[relax.Var]
    splits: dict[relax.Var, Match]
    readers: dict[relax.Var, tuple[relax.Var, Match]]
    before: list[Match]


class ChannelMoves:
    """The operators of a function that move channels between convolutions, and nothing else."""

    def __init__(self, main: relax.Function, groups: Mapping[str, relax.Function]) -> None:
        self._users = users_of(main)
        self._calls: dict[relax.Var, tuple[relax.Function, relax.Call]] = {}
        for binding in straight_bindings(main):
            group = called_composite(binding, groups)
            if group is not None:
                self._calls[binding.var] = group, binding.value
        self._matches: dict[relax.Var, Match] = {}

    def change(self, readers: Mapping[relax.Var, Match]) -> None:
        """From now on convolutions are what ``readers`` has for them."""
        self._matches |= readers

    def connected(self) -> Iterator[Connected]:
        """Sets of moves without a tensor in common that hold at least one copy."""
        moves = self._resolved(self._kept())
        for own in _components(moves):
            copies = [self._match(var) for var in own]
            sources = {source for var in own for source, _ in moves[var]}
            if not any(isinstance(match.parsed.work, MoveWorkload) for match in copies):
                continue
            once = all(len(set(moves[var])) == len(moves[var]) for var in own)
            if once and all(self._is_stored(source) for source in sources):
                yield self._described({var: moves[var] for var in own}, sources, copies)

    def _match(self, var: relax.Var) -> Match:
        if var not in self._matches:
            self._matches[var] = match_of(self._calls[var][0])
        return self._matches[var]

    def _convolution(self, var: relax.Var) -> Match | None:
        """The convolution that ``var`` is the result of; None where it is of anything else."""
        if var not in self._calls or str(self._calls[var][0].attrs["Composite"]) != CONV:
            return None
        return self._match(var)

    def _argument(self, var: relax.Var, param: relax.Var) -> relax.Var:
        group, call = self._calls[var]
        return next(a for p, a in zip(group.params, call.args, strict=True) if p.same_as(param))

    def _kept(self) -> dict[relax.Var, list[Channel]]:
        """Moves of channels that only such moves and convolutions read, the last first."""
        kept: dict[relax.Var, list[Channel]] = {}
        for var in reversed(self._calls):
            users = self._users.get(var, [])
            if not all(u is not None and (u.var in kept or self._follows(u.var)) for u in users):
                continue
            channels = moved_channels(self._calls[var][0])
            if channels is not None:
                kept[var] = [(self._argument(var, param), c) for param, c in channels]
        return kept

    def _follows(self, var: relax.Var) -> bool:
        """Whether ``var`` is of a convolution whose weights can have any order of channels.

        Behind one of each channel the readers need that, too.
        """
        match = self._convolution(var)
        if match is None:
            return False
        work, users = match.parsed.work, self._users.get(var, [])
        if is_dense(work):
            return True
        return is_by_channel(work) and all(u is not None and self._follows(u.var) for u in users)

    def _resolved(self, kept: Mapping[relax.Var, list[Channel]]) -> dict[relax.Var, list[Channel]]:
        """The moves in order, with the tensors behind all of them."""
        found: dict[relax.Var, list[Channel]] = {}
        for var in reversed(kept):
            found[var] = [found[s][c] if s in found else (s, c) for s, c in kept[var]]
        return found

    def _is_stored(self, var: relax.Var) -> bool:
        """Whether VTA stores ``var`` in channels, rows and columns."""
        return var in self._calls and self._match(var).parsed.layout == NCHW

    def _described(
        self, moves: dict[relax.Var, list[Channel]], sources: set[relax.Var], copies: list[Match]
    ) -> Connected:
        readers: dict[relax.Var, tuple[relax.Var, Match]] = {}
        for var in self._calls:
            match = self._convolution(var)
            if match is None or not self._follows(var):
                continue
            (operand,) = match.parsed.operands
            data = self._argument(var, operand)
            ordered = data in readers and not is_dense(readers[data][1].parsed.work)
            if data in moves or ordered:
                readers[var] = data, match
        wanted = {data for data, _ in readers.values()}
        read = [var for var in moves if var in wanted]
        splits = {
            var: self._match(var)
            for var in self._calls
            if var in sources and var not in readers and self._splits(var, moves)
        }
        return Connected(moves, read, splits, readers, copies)

    def _splits(self, var: relax.Var, moves: Mapping[relax.Var, object]) -> bool:
        """Whether a tensor is of a convolution that can compute its filters in ranges."""
        match = self._convolution(var)
        if match is None or not is_dense(match.parsed.work):
            return False
        moved = all(u is not None and u.var in moves for u in self._users.get(var, []))
        return moved and match.parsed.work.epilogue.dtype == "int8"


def _components(moves: Mapping[relax.Var, list[Channel]]) -> list[list[relax.Var]]:
    """The moves in sets that have tensors in common, in order."""
    found: list[tuple[set[relax.Var], list[relax.Var]]] = []
    for var, channels in moves.items():
        sources, own = {source for source, _ in channels}, [var]
        apart = []
        for others, members in found:
            if others & sources:
                sources |= others
                own = [*members, *own]
            else:
                apart.append((others, members))
        found = [*apart, (sources, own)]
    return [members for _, members in found]
