"""What is squared for a root on the host is squared there: int8 would not hold it."""

from __future__ import annotations

import numpy as np
import pytest
from float_nets import Net
from small_models import call
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.quantize import quantize

SHAPE = (1, 8, 12)


def magnitude(net: Net, *, rooted: bool) -> relax.Expr:
    """The magnitudes of a spectrum between two convolutions."""
    kernels = [net.const(8, inputs, 1, spread=inputs**-0.5) for inputs in (8, 4)]
    x = net.op(relax.op.nn.conv1d(net.data, kernels[0]), "first")
    halves = [net.op(relax.op.strided_slice(x, [1], [a], [a + 4]), f"half{a}") for a in (0, 4)]
    two = relax.const(2.0, "float32")
    squares = [net.op(relax.op.power(half, two), f"square{i}") for i, half in enumerate(halves)]
    total = net.op(relax.op.add(*squares), "sum")
    total = net.op(relax.op.sqrt(total), "root") if rooted else total
    return net.op(relax.op.nn.conv1d(total, kernels[1]), "second")


@pytest.mark.parametrize("rooted", [True, False])
def test_squares_in_front_of_a_root_stay_float(rooted: bool) -> None:
    """Without the root they are integers, as the convolution behind them is."""
    rng = np.random.default_rng(0)
    mod = Net(rng, SHAPE).module(lambda net: magnitude(net, rooted=rooted))
    draws = [rng.normal(size=SHAPE) * rng.uniform(0.1, 3, (1, 8, 1)) for _ in range(6)]
    samples = [draw.astype("float32") for draw in draws]
    config = VTAConfig.preset("sim")
    quantized = quantize(mod, calibration=[(x,) for x in samples[1:]], config=config, scales="mul")
    dtypes = {
        str(b.var.name): str(b.var.ty.dtype)
        for b in straight_bindings(quantized["main"])
        if op_name(b.value) and "square" in str(b.var.name) and "__" not in str(b.var.name)
    }
    assert set(dtypes.values()) == ({"float32"} if rooted else {"int8"})
    if rooted:
        (want,), (got,) = call(mod, samples[0]), call(quantized, samples[0])
        assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) > 30


def test_many_sums_between_are_looked_at_once() -> None:
    """Each doubles what it reads: there are 2 to the power of 60 ways to the root."""

    def build(net: Net) -> relax.Expr:
        x = net.op(relax.op.nn.conv1d(net.data, net.const(8, 8, 1)), "first")
        x = net.op(relax.op.power(x, relax.const(2.0, "float32")), "square")
        for number in range(60):
            x = net.op(relax.op.add(x, x), f"sum{number}")
        root = net.op(relax.op.sqrt(x), "root")
        return net.op(relax.op.nn.conv1d(root, net.const(8, 8, 1)), "last")

    rng = np.random.default_rng(0)
    mod = Net(rng, SHAPE).module(build)
    samples = [(rng.normal(size=SHAPE).astype("float32"),)]
    text = quantize(mod, calibration=samples, config=VTAConfig.preset("sim")).script()
    assert 'square: R.Tensor((1, 8, 12), dtype="float32") = R.power' in text
