"""Chains of movements between layers: one region, the reference's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dialect_numpy import run as reference
from integer_models import IntegerNet
from layer_runs import run_module
from tvm import relax

from vta_byoc.hw.config import VTAConfig

Make = Callable[[IntegerNet, relax.Var], relax.Var]
SHAPE = (1, 32, 6, 4)


def pixel_shuffle(net: IntegerNet, x: relax.Var) -> relax.Var:
    seen = net.op("reshape", x, (1, 8, 2, 2, 6, 4), name="seen")
    turned = net.op("permute_dims", seen, [0, 1, 4, 2, 5, 3], name="turned")
    return net.op("reshape", turned, (1, 8, 12, 8), name="moved")


def space_to_depth(net: IntegerNet, x: relax.Var) -> relax.Var:
    seen = net.op("reshape", x, (1, 32, 3, 2, 2, 2), name="seen")
    turned = net.op("permute_dims", seen, [0, 3, 5, 1, 2, 4], name="turned")
    return net.op("reshape", turned, (1, 128, 3, 2), name="moved")


def transposed(net: IntegerNet, x: relax.Var) -> relax.Var:
    return net.op("permute_dims", x, [0, 1, 3, 2], name="moved")


def plane(net: IntegerNet, x: relax.Var) -> relax.Var:
    return net.op("reshape", x, (1, 32, 3, 8), name="moved")


def taken(net: IntegerNet, x: relax.Var) -> relax.Var:
    indices = relax.const(np.array([5, 31, 2, 2], "int64"))
    return net.op("take", x, indices, axis=1, name="moved")


def backwards(net: IntegerNet, x: relax.Var) -> relax.Var:
    return net.op("flip", x, axis=3, name="moved")


Range = tuple[int, int, int]
"""Begin, end and step."""


def slices(net: IntegerNet, x: relax.Var, axis: int, parts: list[Range]) -> relax.Var:
    """Slices of one tensor side by side in the channels."""
    found = [
        net.op("strided_slice", x, [axis], [begin], [end], [step], name=f"part{number}")
        for number, (begin, end, step) in enumerate(parts)
    ]
    return net.op("concat", found, axis=1, name="moved")


def focus(net: IntegerNet, x: relax.Var) -> relax.Var:
    """As YOLOv5 begins: every second column, and the columns between them."""
    return slices(net, x, 3, [(0, 4, 2), (1, 4, 2)])


def odd_channels(net: IntegerNet, x: relax.Var) -> relax.Var:
    return slices(net, x, 1, [(3, 12, 1), (20, 32, 3), (0, 5, 1)])


def padded_slices(net: IntegerNet, x: relax.Var) -> relax.Var:
    padded = net.op("nn.pad", x, [0, 0, 1, 0, 1, 1, 0, 2], name="padded")
    return slices(net, padded, 2, [(0, 6, 1), (2, 8, 1)])


def padded_channels(net: IntegerNet, x: relax.Var) -> relax.Var:
    return net.op("nn.pad", x, [0, 0, 3, 5, 0, 0, 0, 0], name="moved")


def joined_rows(net: IntegerNet, x: relax.Var) -> relax.Var:
    """Rows and, below them, the same rows turned upside down."""
    turned = net.op("flip", x, axis=2, name="turned")
    return net.op("concat", [x, turned], axis=2, name="moved")


@pytest.mark.parametrize(
    "make",
    [
        *(pixel_shuffle, space_to_depth, transposed, plane, taken, backwards),
        *(focus, odd_channels, padded_slices, padded_channels, joined_rows),
    ],
)
@pytest.mark.parametrize("machine", ["sim", "1x32", "2x16"])
def test_layers_around_a_movement_are_one_region(make: Make, machine: str) -> None:
    net = IntegerNet(x=SHAPE)
    moved = make(net, net.conv(net.params[0], 32, name="first"))
    mod = net.module(net.conv(moved, 16, k=1, name="last"))
    found = run_module(mod, VTAConfig.preset(machine), net.inputs(), planned=False)
    np.testing.assert_array_equal(found.outputs[0], reference(mod, *net.inputs())["result"])
    assert {p.device for p in found.placement.values()} == {"vta"}
    assert len(found.programs) == 1


def test_a_movement_that_the_host_reads_is_the_hosts() -> None:
    net = IntegerNet(x=SHAPE)
    mod = net.module(transposed(net, net.conv(net.params[0], 32, name="first")))
    found = run_module(mod, VTAConfig(), net.inputs(), planned=False)
    assert found.placement["moved"].reason == (
        "moves data that the CPU reads, or that VTA's operators hold in another layout; VTA moves "
        "what it reads again, channels second; move the operator to the model's end or leave it to "
        "the CPU"
    )
    np.testing.assert_array_equal(found.outputs[0], reference(mod, *net.inputs())["result"])
