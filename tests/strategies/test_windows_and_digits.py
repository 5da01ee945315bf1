"""What estimates count of windows, and the digits of sums and of scales."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.conv.halo import positions
from vta_byoc.strategies.conv.window import Window
from vta_byoc.strategies.pooling.sum import digits_of, sum_space
from vta_byoc.strategies.te.prologue import Term, passes, plan_of
from vta_byoc.workload.workloads import ElementwiseWorkload, PoolWorkload, Prologue, Step

SIM = VTAConfig.preset("sim")


@pytest.mark.parametrize(
    "window, outs, taps, expected",
    [
        (Window(8, 8, 3, 1, 1, 1), 4, 3, (10, 1, 12)),
        (Window(8, 8, 3, 1, 1, 1), 8, 3, (8, 1, 10)),
        (Window(8, 8, 3, 1, 1, 1), 8, 1, (8 + 7 + 7, 1, 24)),
        (Window(4, 8, 1, 2, 1, 0, gathered=True), 2, 1, (4, 0, 4)),
        (Window(4, 8, 3, 2, 1, 1), 2, 3, (9, 1, 10)),
    ],
)
def test_positions(
    window: Window, outs: int, taps: int, expected: tuple[int, int, int]
) -> None:
    """Read, zeros before, all: by hand."""
    assert positions(window, outs, taps) == expected


@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize("step, before", [*itertools.product((1, 2, 3), (0, 1, 2, 5))])
def test_positions_of_all_tiles(step: int, before: int, gathered: bool) -> None:
    """One by one; a single tap may leave out what the stride skips."""
    for taps, outs, size in itertools.product((1,) if gathered else (1, 3), range(1, 6), (2, 7)):
        window = Window(5, size, taps, step, 1, before, gathered)
        found = np.zeros(3, int)
        for first, count in window.tiles(outs):
            low, each = first * step - before, step if gathered else 1
            staged = [low + k * each for k in range(int(window.extent(count, taps)))]
            inside = sum(0 <= place < size for place in staged)
            found += inside, sum(place < 0 for place in staged), len(staged)
        assert positions(window, outs, taps) == tuple(found)


def test_sums_are_multiplied_by_int8_digits() -> None:
    for factor in range(1, 1 << 15):
        total, digits = 0, digits_of([factor])
        assert digits is not None
        for digit in digits:
            (value,) = digit.values
            assert -128 <= value <= 127, factor
            total = (total << digit.shift) + value
        assert total == factor


@pytest.mark.parametrize(
    "scale, levels",
    [
        (0, [[(0, 0)]]),
        (5, [[(0, 5)]]),
        (256, [[(0, 1)], []]),
        (257, [[(0, 1)], [(0, 1)]]),
        (-300, [[(0, -1)], [(0, -44)]]),
    ],
)
def test_digits_by_level(scale: int, levels: list[list[tuple[int, int]]]) -> None:
    """A digit of zero is left out, unless it is the only one."""
    assert passes([Term(0, scale)]) == levels


def test_a_term_is_its_operand_unless_a_scale_is_said() -> None:
    assert passes([Term(3)]) == [[(0, 1)]]


@pytest.mark.parametrize("factor", [-128, -3, 3, 127])
def test_a_factor_of_one_digit_is_a_weight(factor: int) -> None:
    """With MUL, too, the GEMM core multiplies: nothing is left for the ALU."""
    sides = (Prologue(0, (Step("mul", factor),)), Prologue(1))
    plan = plan_of(ElementwiseWorkload(1, 16, 4, 4, sides, "add"), SIM)
    assert sorted(term.scale for term in plan.terms) == sorted([factor, 1])
    assert not any(term.steps for term in plan.terms)


@pytest.mark.parametrize("op", ["max", "min", "mul"])
@pytest.mark.parametrize("repeated", [0, 1])
def test_what_is_repeated_has_accumulators_of_its_own(op: str, repeated: int) -> None:
    """They are as few as its vectors, whichever side it is."""
    shapes = [(1, 32, 4, 4), (1, 32, 4, 4)]
    shapes[repeated] = (1, 32, 1, 1)
    sides = (Prologue(0), Prologue(1))
    plan = plan_of(ElementwiseWorkload(1, 32, 4, 4, sides, op, shapes=tuple(shapes)), SIM)
    assert plan.other is not None
    assert (plan.head.operand, plan.other.operand) == (1 - repeated, repeated)


@pytest.mark.parametrize("vectors, apart", [(3, True), (4, False), (5, False)])
def test_equal_destinations_are_as_far_apart_as_the_machine_needs(
    vectors: int, apart: bool
) -> None:
    """Of one accumulator, taps are summed one after the other if others lie between."""
    capabilities = dataclasses.replace(SIM.capabilities, dst_distance=4)
    config = dataclasses.replace(SIM, capabilities=capabilities)
    space = sum_space(PoolWorkload("sum", 1, 16, 2, 1 + vectors, (2, 2)), config)
    whole = {name: np.array([sizes[-1]]) for name, sizes in space.axes.items()}
    assert space.legal is not None
    found = {variant: bool(space.legal(whole, variant)[0]) for variant in space.variants}
    assert found == {"whole": not apart, "rows": apart, "columns": apart}
