"""A softmax between layers: every stored tensor equals the integer module's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from float_nets import Net, compiled_from
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.testing.integer_ops import check_integer_op

MACHINES = tuple(VTAConfig.preset(name) for name in ("sim", "2x16", "1x32"))
SIM = MACHINES[0]


def image(net: Net, axis: int) -> relax.Expr:
    """Between two convolutions."""
    channels, rank = int(net.data.ty.shape[1]), net.data.ty.ndim
    ones = (1,) * (rank - 2)
    conv = relax.op.nn.conv2d if rank == 4 else relax.op.nn.conv1d
    kernels = [net.const(channels, channels, *ones, spread=s * channels**-0.5) for s in (3.0, 1.0)]
    x = net.op(conv(net.data, kernels[0]), "first")
    x = net.op(relax.op.nn.softmax(x, axis), "softmax")
    return net.op(conv(x, kernels[1]), "second")


def tokens(net: Net, axis: int) -> relax.Expr:
    """Between two dense layers."""
    x = net.dense(net.data, int(net.data.ty.shape[-1]), "first")
    x = net.op(relax.op.nn.softmax(x, axis), "softmax")
    return net.dense(x, 16, "second")


def test_drawn_images() -> None:
    """Rows and columns of planes, and of sequences."""

    def draw(rng: np.random.Generator, _config: VTAConfig) -> tvm.IRModule:
        channels, plane = int(rng.integers(1, 40)), rng.integers(1, 12, 2).tolist()
        if rng.integers(3) == 0:
            shape, axis = (int(rng.integers(1, 3)), channels, 3 * plane[0]), -1
        else:
            shape, axis = (int(rng.integers(1, 3)), channels, *plane), int(rng.choice([2, 3, -1]))
        return Net(rng, shape).module(lambda net: image(net, axis))

    check_integer_op("relax.nn.softmax", draw, machines=MACHINES, cases=6, tolerance=0.2)


def test_drawn_tokens() -> None:
    """Along the channels of tokens, and along the tokens."""

    def draw(rng: np.random.Generator, _config: VTAConfig) -> tvm.IRModule:
        rows, channels = int(rng.choice([5, 16, 30])), int(rng.choice([16, 24, 48]))
        axis = int(rng.choice([-1, -2]))
        return Net(rng, (1, rows, channels)).module(lambda net: tokens(net, axis))

    check_integer_op("relax.nn.softmax", draw, machines=MACHINES[:1], cases=4, tolerance=0.2)


@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 20, 6, 5), 3), ((1, 20, 6, 5), 2), ((1, 32, 48), -1)]
)
def test_it_is_one_region(shape: tuple[int, ...], axis: int) -> None:
    """Also where lanes are turned for it and back."""
    build = image if len(shape) == 4 else tokens
    compiled = compiled_from(lambda net: build(net, axis), shape, SIM)
    assert len(compiled.programs) == 1
    (record,) = (each for each in compiled.placement if each.name == "softmax")
    assert record.device == "vta"
    assert record.why.rule == "pattern vta.softmax"
