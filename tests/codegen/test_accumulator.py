"""Which accumulators the loops of a nest touch."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from vta_byoc.codegen.accumulator import Change, _continued, elements
from vta_byoc.codegen.uops import LoopDim
from vta_byoc.hw.isa import AluOp

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


@given(st.integers(-2, 4), st.integers(-2, 6), st.integers(0, 1), st.integers(0, 2))
def test_a_right_shift_is_the_first_part_of_a_longer_one(
    done: int, wanted: int, before: int, behind: int
) -> None:
    """What is left of changes is what follows those that are done; nothing else goes on."""

    def change(op: AluOp, imm: int) -> Change:
        return Change(op, imm, 0, 0, ())

    head = [change(AluOp.MAX, -5)] * before
    rest = [change(AluOp.ADD, 1 + number) for number in range(behind)]
    made = [*head, change(AluOp.SHR, done)]
    found = _continued(made, [*head, change(AluOp.SHR, wanted), *rest])
    left = [change(AluOp.SHR, wanted - done), *rest] if 0 <= done <= wanted else None
    assert found == (rest if wanted == done else left)
    other = [change(AluOp.MAX, -6)] * before
    assert before == 0 or _continued(made, [*other, change(AluOp.SHR, wanted), *rest]) is None
    assert _continued([*made, *rest], head) is None
