"""Sums and means over rows, columns or both: every stored tensor equals the integer module's."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from float_nets import Net, compiled_from
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.quantize import quantize
from vta_byoc.testing.integer_ops import check_integer_op

MACHINES = tuple(VTAConfig.preset(name) for name in ("sim", "2x16", "1x32"))
SHAPE = (1, 20, 6, 5)


def reduced(net: Net, kind: str, axes: list[int], *, keepdims: bool = True) -> relax.Expr:
    """A convolution, the sums of its rows or columns, and what they are multiplied with."""
    channels = int(net.data.ty.shape[1])
    kernels = [net.const(channels, channels, 1, 1, spread=channels**-0.5) for _ in "ab"]
    x = net.op(relax.op.nn.conv2d(net.data, kernels[0]), "first")
    total = net.op(getattr(relax.op, kind)(x, axes, keepdims), kind)
    if not keepdims:
        total = net.op(relax.op.reshape(total, (*total.ty.shape, 1, 1)), "plane")
    gated = net.op(relax.op.multiply(x, total), "gate")
    return net.op(relax.op.nn.conv2d(gated, kernels[1]), "last")


@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_drawn_reductions(kind: str) -> None:
    def draw(rng: np.random.Generator, _config: VTAConfig) -> tvm.IRModule:
        axes = [[2], [3], [-1], [2, 3]][rng.integers(4)]
        keepdims = bool(rng.integers(2)) or len(axes) == 1
        shape = tuple(int(rng.integers(1, high)) for high in (3, 40, 12, 12))
        return Net(rng, shape).module(lambda net: reduced(net, kind, axes, keepdims=keepdims))

    check_integer_op(f"relax.{kind}", draw, machines=MACHINES, cases=4, tolerance=0.2)


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize("axes", [[2], [3], [2, 3]])
def test_a_gate_of_rows_is_one_region(kind: str, axes: list[int]) -> None:
    compiled = compiled_from(lambda net: reduced(net, kind, axes), SHAPE, MACHINES[0])
    assert len(compiled.programs) == 1
    assert {each.device for each in compiled.placement[1:]} == {"vta"}


def test_a_sum_for_floats_is_float() -> None:
    """As a square root on the host reads it, nothing is rounded in front."""

    def build(net: Net) -> relax.Expr:
        x = net.op(relax.op.nn.conv2d(net.data, net.const(4, 20, 1, 1)), "conv")
        total = net.op(relax.op.sum(x, [3], True), "total")
        return net.op(relax.op.sqrt(net.op(relax.op.abs(total), "abs")), "root")

    rng = np.random.default_rng(3)
    mod = Net(rng, SHAPE).module(build)
    samples = [{"data": rng.normal(size=SHAPE).astype("float32")}]
    text = quantize(mod, calibration=samples, config=MACHINES[0]).script()
    assert 'total: R.Tensor((1, 4, 6, 1), dtype="float32") = R.sum' in text
