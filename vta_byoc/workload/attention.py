"""Attention of tokens, as a strategy needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass

from vta_byoc.ir.attention import Attention
from vta_byoc.workload.steps import Epilogue, Shape


@dataclass(frozen=True)
class AttentionWorkload:
    """Queries attend to keys and give mixed values, in groups (images times heads).

    Tokens are columns, and all sizes but `queries` and `keys` fill whole blocks. The operands are
    (1, groups * depth, 1, columns) of the queries and of the keys, and the values the other way
    round: (1, groups * columns of the keys, 1, width).

    Attributes:
        groups: how many attend each by itself.
        queries: of a group.
        keys: of a group.
        depth: channels of a query and a key.
        width: channels of a value.
        numbers: of `ir.attention.Attention`, in order, from `shift` on.
        masks: 0, or of how many groups the mask has scores of its own: 1 or all.
        block: lanes of a vector.
        epilogue: no steps: they are those of `ir.attention`.
        hiding: of a mask of run time, a fourth operand of int8: of how many groups it has values
            of its own (1 or all), whether queries have (1 or 0), and what it is shifted by to the
            left before it is added to the scores; empty where there is none. It is
            (1, groups * columns of queries or one block, 1, columns of the keys).
        causal: (seen, clear) in blocks of keys: the first block of queries sees none behind
            `seen`, and to none of the first `clear` is a mask added; for each block of queries
            both are one more. `clear` may be below 0. Empty where all keys may be seen.
    """

    groups: int
    queries: int
    keys: int
    depth: int
    width: int
    numbers: tuple[int, ...]
    masks: int
    block: int
    epilogue: Epilogue = Epilogue()
    hiding: tuple[int, ...] = ()
    causal: tuple[int, ...] = ()

    @property
    def attention(self) -> Attention:
        """What is computed."""
        return Attention(self.keys, *self.numbers)

    @property
    def query_blocks(self) -> int:
        """Blocks of queries of a group."""
        return -(-self.queries // self.block)

    @property
    def key_blocks(self) -> int:
        """Blocks of keys of a group."""
        return -(-self.keys // self.block)

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """The shapes of queries, keys and values."""
        queries, keys = self.query_blocks * self.block, self.key_blocks * self.block
        shapes = (
            (1, self.groups * self.depth, 1, queries),
            (1, self.groups * self.depth, 1, keys),
            (1, self.groups * keys, 1, self.width),
        )
        if not self.hiding:
            return shapes
        return (*shapes, (1, self.hiding[0] * self.hidden_blocks * self.block, 1, keys))

    @property
    def hidden_blocks(self) -> int:
        """Blocks of queries for which a mask of run time has values: one for all, or their own."""
        return self.query_blocks if self.hiding[1] else 1

    def seen(self, first: int, chunk: int) -> int:
        """Blocks of keys that `chunk` blocks of queries from `first` on may see."""
        if not self.causal:
            return self.key_blocks
        return min(self.key_blocks, self.seen_first(chunk) + first)

    def seen_first(self, chunk: int) -> int:
        """What the first chunk may see of a causal mask, if there are so many blocks of keys."""
        return self.causal[0] + chunk - 1

    def seen_together(self, chunk: int) -> list[tuple[int, int]]:
        """(blocks of queries, blocks of keys that they may see) of a group's chunks of queries."""
        return [
            (min(chunk, self.query_blocks - first), self.seen(first, chunk))
            for first in range(0, self.query_blocks, chunk)
        ]

    def masked_keys(self, chunk: int) -> int:
        """Keys to whose scores a chunk of blocks of queries has a constant mask added."""
        if not self.causal:
            return self.keys
        seen, clear = self.causal
        return min(self.keys, (seen - clear + chunk - 1) * self.block)

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        return (1, self.groups * self.width, 1, self.query_blocks * self.block)
