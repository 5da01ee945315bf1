"""What functions of one operand cost, and which leaky relus have slopes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from vta_byoc.quantization.ops.elementwise import leaky_slopes
from vta_byoc.quantization.ops.unary import _price
from vta_byoc.quantization.scales import Scale
from vta_byoc.unary.program import Program
from vta_byoc.unary.search import Found

WORTH = 4.0


def found(noise: float) -> Found:
    """A program of no steps, with so much noise beside that of rounding."""
    return Found(Program(), 1, 0.9, noise)


def test_noise_has_the_same_price_at_any_step() -> None:
    """Results at half the step with four times the squares are as far from the function."""
    assert _price(found(3.0), Scale(0.5), WORTH) == _price(found(0.0), Scale(1.0), WORTH)
    assert _price(found(3.0), Scale(0.5), WORTH) > _price(found(0.0), Scale(0.5), WORTH)
    two_halvings = _price(found(3.0), Scale(1.0), WORTH) - _price(found(0.0), Scale(1.0), WORTH)
    assert two_halvings == 2 * WORTH


@pytest.mark.parametrize(("dtype", "slopes"), (("float32", [0.5, 0.25]), ("float16", None)))
def test_slopes_are_of_single_precision_data(dtype: str, slopes: list[float] | None) -> None:
    """Whatever the precision of the slopes themselves."""
    data = relax.Var("x", relax.TensorType((1, 2, 3, 3), dtype))
    alpha = relax.const(np.array([0.5, 0.25], "float32"))
    given = leaky_slopes(relax.op.nn.prelu(data, alpha, 1))
    assert (None if given is None else given.ravel().tolist()) == slopes
