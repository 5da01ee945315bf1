"""Which values may reach a STORE: a warning where int8 does not hold them, else silence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from own_schedules import Layer, right
from script_nests import X8, A, Y, alu, computed, function, gemm, load, parse, store, stored
from tvm import tirx

import vta_byoc.schedule as vs
from vta_byoc.hw.errors import VTAWarning
from vta_byoc.schedule.ranges import truncations

WIDEN = load(value='T.Cast("int32", x[i, 0, k])')
ALL = -(1 << 31), (1 << 31) - 1


def of_int8(value: str) -> str:
    """``value`` of an int8 tensor, stored."""
    return function(f"{X8} {Y}", A, WIDEN, store(value))


@pytest.mark.parametrize(
    ("func", "low", "high"),
    [
        (stored("a[i, 0, k]"), *ALL),
        (stored("T.shift_right(a[i, 0, k], 16)"), -(1 << 15), (1 << 15) - 1),
        (stored("T.min(a[i, 0, k], 127)"), ALL[0], 127),
        (stored("T.max(a[i, 0, k], -128)"), -128, ALL[1]),
        (of_int8("a[i, 0, k] + 1"), -127, 128),
        (of_int8("a[i, 0, k] * 3"), -384, 381),
        (of_int8("a[i, 0, k] + a[i, 0, k]"), -256, 254),
        # 16 products of int8
        (gemm(), 16 * -128 * 127, 16 * 128 * 128),
        (computed("b[i, 0, k] = T.max(a[i, 0, k], -300)"), -300, ALL[1]),
    ],
)
def test_may_be_cut_off(func: str, low: int, high: int) -> None:
    (found,) = truncations(parse(func))
    assert (found.block, found.low, found.high) == ("store", low, high)


@pytest.mark.parametrize(
    "func",
    [
        stored("T.min(T.max(a[i, 0, k], -128), 127)"),
        stored("T.max(T.min(T.shift_right(a[i, 0, k], 8), 127), 0)"),
        stored("T.shift_right(a[i, 0, k], 24)"),
        of_int8("a[i, 0, k]"),
        of_int8("T.max(a[i, 0, k], 0)"),
        function(
            f"{X8} {Y}", f"{A} b:acc:4,1,16", WIDEN, alu("b[i, 0, k] = T.max(a[i, 0, k], 3)"),
            store("b[i, 0, k]"),
        ),
    ],
)  # fmt: skip
def test_fits(func: str) -> None:
    assert truncations(parse(func)) == []


def test_constants_narrow_the_sum() -> None:
    """64 products with weights of 0 to 1, shifted by 8: nothing is left to clip."""
    layer = Layer(clip=lambda v: v, floor=lambda v: v)
    func = right(layer).sch.mod["main"]
    assert truncations(func)
    ones = np.ones((4, 4, 16, 16), np.int8)
    assert truncations(func, {"weight": ones}) == []


def test_the_kernel_warns_once_and_works() -> None:
    layer = Layer(shift=lambda v: v, clip=lambda v: v)
    recipe = right(layer)
    with pytest.warns(VTAWarning, match="^kernel dense: block out stores values that may be "):
        kernel = vs.kernel(recipe.sch, name="dense")
    arrays = vs.random_inputs(recipe.definition)
    assert np.array_equal(kernel(*arrays), vs.reference(recipe.definition, *arrays))


def test_a_clip_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vs.kernel(right(Layer(shift=lambda v: v >> tirx.const(9, "int32"))).sch)
