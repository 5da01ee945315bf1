"""What functions of one operand cost, and which leaky relus have slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from vta_byoc.quantization.ops.elementwise import leaky_slopes
from vta_byoc.quantization.ops.unary import Group, _price, _slope
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
