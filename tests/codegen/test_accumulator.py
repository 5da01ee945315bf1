"""Which accumulators the loops of a nest touch."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from vta_byoc.codegen.accumulator import elements
from vta_byoc.codegen.uops import LoopDim

STRIDE = st.integers(-9, 9)
LOOPS = st.lists(st.tuples(st.integers(2, 5), STRIDE, STRIDE), max_size=4)


@given(LOOPS, st.integers(0, 1))
def test_elements_are_those_of_every_turn(loops: list[tuple[int, int, int]], operand: int) -> None:
    """A slice where none between them is left out, else their numbers, each once, rising."""
    dims = [LoopDim(extent, (dst, src, 0)) for extent, dst, src in loops]
    turns = itertools.product(*(range(dim.extent) for dim in dims))
    steps = [dim.strides[operand] for dim in dims]
    touched = {500 + sum(n * s for n, s in zip(turn, steps, strict=True)) for turn in turns}
    found = elements(dims, operand, 500)
    dense = len(touched) == max(touched) + 1 - min(touched)
    assert isinstance(found, slice) == dense
    wanted = slice(min(touched), max(touched) + 1) if dense else sorted(touched)
    assert (found if isinstance(found, slice) else found.tolist()) == wanted
