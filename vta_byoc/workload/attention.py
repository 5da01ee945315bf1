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
        return (
            (1, self.groups * self.depth, 1, queries),
            (1, self.groups * self.depth, 1, keys),
            (1, self.groups * keys, 1, self.width),
        )

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        return (1, self.groups * self.width, 1, self.query_blocks * self.block)
