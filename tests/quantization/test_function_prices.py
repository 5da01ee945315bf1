"""What functions of one operand cost, and which leaky relus have slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_models import Graph
from tvm import relax

from vta_byoc.quantization.fused_ops import FusedOperators
from vta_byoc.quantization.ops.elementwise import leaky_slopes
from vta_byoc.quantization.ops.unary import COARSER, Group, _coarser, _price, _slope
from vta_byoc.quantization.policy import AnyScales
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.scales import Scale
from vta_byoc.unary.program import VALUES, Program
from vta_byoc.unary.search import Found
from vta_byoc.unary.target import counted

WORTH = 4.0
COPY, ABOVE, WRONG = (Program(after=steps) for steps in ((), (("add", 1),), (("max", -127),)))
"""Results that are the operand's values, those a step above, and those with a wrong first one."""
ROUNDING = 255 / 256 / 12
"""The noise of the operand, of which one value in 256 has no next one."""


def price(
    program: Program, step: float = 1.0, beyond: tuple[int, int] = (0, 0), exact: Any = VALUES
) -> float:
    """What the noise of a program for the identity counts, without its cycles."""
    found, wanted = Found(program, 1, 0.9, 0.0), step * np.asarray(exact, np.float64)
    return _price(wanted, counted(beyond), WORTH, found, Scale(step)) - program.cycles()


def test_noise_counts_by_its_size() -> None:
    """Steps of four times the size have noise of 16 times."""
    for program in (COPY, ABOVE):
        assert price(program, 4.0) == pytest.approx(price(program) + 4 * WORTH)


def test_the_operands_rounding_is_there_anyway() -> None:
    assert price(COPY) == pytest.approx(WORTH * np.log2(ROUNDING))
    assert price(ABOVE) == pytest.approx(WORTH * np.log2(1 + ROUNDING))


def test_ends_count_as_often_as_operands_saturate_there() -> None:
    assert price(WRONG) == pytest.approx(WORTH * np.log2(1 / 256 + ROUNDING))
    assert price(WRONG, beyond=(256, 0)) == pytest.approx(WORTH * np.log2(257 / 512 + ROUNDING / 2))
    assert price(WRONG, beyond=(0, 256)) < price(WRONG)


def test_no_noise_at_all_has_a_price() -> None:
    """A function that is 0 everywhere, computed exactly."""
    zeros = Program(after=(("max", 0), ("min", 0)))
    assert -math.inf < price(zeros, exact=0 * VALUES) < price(COPY)


@pytest.mark.parametrize(
    ("curve", "slope"),
    [
        (lambda x: np.maximum(x, 0) * 3, 3.0),
        (lambda x: -0.5 * np.minimum(x, 0), 0.5),
        (lambda x: x * x, 0.0),
        (np.sqrt, 0.0),
        (lambda x: np.where(x < 126.5, x * x, np.inf), 0.0),
        (lambda x: 0 * x, 0.0),
    ],
)
def test_slopes_at_the_ends_of_int8(
    curve: Callable[[np.ndarray], np.ndarray], slope: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "of", lambda _self, values: curve(values))
    group = Group(relax.Var("x", relax.TensorType((1,), "float32")), ())
    assert _slope(group, Scale(0.25, 3)) == pytest.approx(slope)


@pytest.mark.parametrize(("dtype", "slopes"), (("float32", [0.5, 0.25]), ("float16", None)))
def test_slopes_are_of_single_precision_data(dtype: str, slopes: list[float] | None) -> None:
    """Whatever the precision of the slopes themselves."""
    data = relax.Var("x", relax.TensorType((1, 2, 3, 3), dtype))
    alpha = relax.const(np.array([0.5, 0.25], "float32"))
    given = leaky_slopes(relax.op.nn.prelu(data, alpha, 1))
    assert (None if given is None else given.ravel().tolist()) == slopes


@pytest.mark.parametrize("tolerance", [0, 1])
@pytest.mark.parametrize("multiplies", [False, True])
@pytest.mark.parametrize("stated", [None, Scale(0.5)])
def test_coarser_scales_are_tried_where_they_may_help(
    tolerance: int, multiplies: bool, stated: Scale | None
) -> None:
    """Not where results are to be exact, nothing is multiplied, or the model says the scale."""
    g = Graph((1, 4))
    result = g.op("exp", g.params[0])
    policy = AnyScales(tolerance=tolerance, multiplies=multiplies)
    q = Quantizer(g.module(result), {result: 12.7}, policy)
    found = _coarser(q, FusedOperators(result, scale=stated), 0.1)
    expected = [0.1 * factor for factor in COARSER] if tolerance and multiplies else []
    assert [scale.step for scale in found] == pytest.approx([] if stated else expected)
