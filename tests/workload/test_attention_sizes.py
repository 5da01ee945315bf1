"""Sizes of attention, and which blocks of keys queries see, against every pair of two blocks."""

from __future__ import annotations

import itertools

import pytest

from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.texts import from_json, to_json

BLOCK = 4
NUMBERS = (3, 40, 5, 6, 7, 8, 9)


def attention(
    queries: int, keys: int, hiding: tuple[int, ...] = (), causal: tuple[int, ...] = ()
) -> AttentionWorkload:
    return AttentionWorkload(
        3, queries, keys, 8, 12, NUMBERS, 1, BLOCK, hiding=hiding, causal=causal
    )


def blocks_of(size: int) -> int:
    """Blocks, counted one by one."""
    return len({place // BLOCK for place in range(size)})


@pytest.mark.parametrize(("queries", "keys"), [(1, 9), (4, 8), (5, 3), (12, 12), (17, 1)])
def test_operands_and_result_fill_whole_blocks(queries: int, keys: int) -> None:
    """Values are the other way round; a mask of run time has values for groups and queries of its
    own, or for all of them together."""
    work = attention(queries, keys)
    assert (work.query_blocks, work.key_blocks) == (blocks_of(queries), blocks_of(keys))
    columns, rows = BLOCK * blocks_of(queries), BLOCK * blocks_of(keys)
    operands = ((1, 24, 1, columns), (1, 24, 1, rows), (1, 3 * rows, 1, 12))
    assert work.in_shapes == operands and work.out_shape == (1, 36, 1, columns)
    for groups, own in itertools.product((1, 3), (1, 0)):
        hidden = attention(queries, keys, (groups, own, 2))
        mask = (1, groups * (columns if own else BLOCK), 1, rows)
        assert hidden.in_shapes == (*operands, mask)
        assert hidden.hidden_blocks == blocks_of(queries) ** own
        assert from_json(AttentionWorkload, to_json(hidden)) == hidden


def test_without_a_causal_mask_all_queries_see_and_mask_all_keys() -> None:
    work = attention(10, 13)
    assert [work.seen(first, chunk) for first in range(3) for chunk in (1, 2)] == [4] * 6
    assert [work.masked_keys(chunk) for chunk in (1, 2, 3)] == [13] * 3
    assert work.seen_together(2) == [(2, 4), (1, 4)]


def test_a_chunk_of_queries_sees_what_its_last_block_sees() -> None:
    """Block q of queries sees the first seen + q blocks of keys, as far as there are so many, and
    has no mask added to the first clear + q of them."""
    for keys, seen, shift in itertools.product((3, 8, 13, 30), (1, 2, 3), (0, 1, 3)):
        work = attention(15, keys, causal=(seen, seen - shift))
        assert from_json(AttentionWorkload, to_json(work)) == work
        every = range(blocks_of(keys))
        for chunk in (1, 2, 4):
            chunks = [range(first, first + chunk) for first in range(0, 4, chunk)]
            found = [(chunk, sum(key < seen + queries[-1] for key in every)) for queries in chunks]
            assert work.seen_together(chunk) == found
            assert [work.seen(queries[0], chunk) for queries in chunks] == [n for _, n in found]
            assert min(work.seen_first(chunk), len(every)) == found[0][1]
            masked = (seen + chunk - 1 - (seen - shift)) * BLOCK
            assert work.masked_keys(chunk) == min(keys, masked)
        assert [count for count, _ in work.seen_together(3)] == [3, 1]
