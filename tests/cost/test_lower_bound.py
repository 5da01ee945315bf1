"""The lower bound of layers whose positions the host folds into idle lanes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from integer_models import IntegerNet, Rescale
from tvm import relax

from vta_byoc.cost.lower_bound import Around, bound
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.pipeline import compile_module
from vta_byoc.quantization.requantize import FixedPoint
from vta_byoc.strategies.te.prologue import plan_of
from vta_byoc.workload.workloads import ElementwiseWorkload, Epilogue, Prologue, Step

SIM = VTAConfig.preset("sim")


@pytest.mark.parametrize(
    ("channels", "size", "kernel"),
    [(1, (1, 4096), (1, 16)), (1, (64, 64), (4, 4)), (3, (32, 32), (2, 2)), (2, (1, 600), (1, 3))],
)
def test_a_stem_reads_what_its_image_holds(
    channels: int, size: tuple[int, int], kernel: tuple[int, int]
) -> None:
    net = IntegerNet(x=(1, channels, *size))
    weight = net.rng.integers(-127, 128, (16, channels, *kernel)).astype("int8")
    attrs = SimpleNamespace(strides=list(kernel), padding=[0] * 4, dilation=[1, 1], groups=1)
    rescale = FixedPoint(np.array(0), (("right_shift", np.array(9)),), 0, 127, 1 << 20)
    bias = np.zeros(16, "int32")
    mod = net.module(net.conv2d(net.params[0], weight, bias, attrs, rescale, "stem"))
    compiled = compile_module(mod, SIM)
    (row,) = compiled.placement
    (program,) = compiled.programs.values()
    assert 0 < row.bound <= simulate(program).cycles


def test_a_sum_of_two_functions_of_one_operand_takes_their_steps() -> None:
    """3 and 2 immediates, a copy cleared and added, the sum, a shift; not two tensors' factors."""
    sides = (
        Prologue(0, (Step("add", 5), Step("max", 0), Step("mul", -3))),
        Prologue(0, (Step("add", -9), Step("min", 0))),
    )
    work = ElementwiseWorkload(
        1, 32, 14, 14, prologues=sides, op="add", epilogue=Epilogue((Step("shr", 4),))
    )
    vectors = 2 * 14 * 14
    assert bound(work, SIM) == vectors * (3 + 2 + 3 + 2 + 1)
    relu = dataclasses.replace(work, prologues=(sides[0], Prologue(0, (Step("max", 0),))))
    assert bound(relu, SIM) == vectors * (3 + 3 + 2 + 1), "cleared, and the maximum with 0"
    apart = dataclasses.replace(
        work, prologues=(sides[0], dataclasses.replace(sides[1], operand=1))
    )
    assert bound(apart, SIM) < vectors * (3 + 2 + 2 + 1)


def test_a_straight_line_in_a_sum_is_a_product() -> None:
    """The operand is loaded and multiplied twice: less than a copy of what was left on chip."""
    line = Prologue(0, (Step("add", 7), Step("mul", -80)))
    curve = Prologue(0, (Step("max", 3), Step("mul", 2), Step("shr", 1)))
    work = ElementwiseWorkload(
        1, 32, 14, 14, prologues=(line, curve), op="add", epilogue=Epilogue((Step("shr", 4),))
    )
    vectors = 2 * 14 * 14
    assert bound(work, SIM) == vectors * (3 + 3 + 1)
    plan = plan_of(work, SIM)
    assert plan.other is None and plan.late
    assert bound(dataclasses.replace(work, op="max"), SIM) == vectors * (2 + 3 + 3 + 2 + 1)


def test_a_gate_finds_what_it_scales_in_memory() -> None:
    """The product's whole operand is widened: no tile of its producer waits for the gate."""
    shapes = ((1, 32, 14, 14), (1, 32, 1, 1))
    steps = Epilogue((Step("shr", 7), Step("max", -128), Step("min", 127)))
    sides = (Prologue(0, ()), Prologue(1, ()))
    work = ElementwiseWorkload(1, 32, 14, 14, sides, "mul", steps, shapes=shapes)
    vectors = 2 * 14 * 14
    assert bound(work, SIM) == vectors * (2 + 3)
    assert bound(work, SIM, Around(loads=True)) == vectors * (2 + 3 + 2)


def test_whether_an_operand_can_wait_is_read_from_the_network() -> None:
    """A gate from the mean of what it scales; the same product with a gate from elsewhere."""
    bounds = {}
    for own in (True, False):
        net = IntegerNet(x=(1, 32, 8, 8), y=(1, 32, 8, 8))
        x, y = net.params
        gate = net.mean(x if own else y, [2, 3], 1, Rescale(6), "gate")
        scaled = net.binary(relax.op.multiply, [(x, 0), (gate, 0)], Rescale(7), "scaled")
        compiled = compile_module(net.module(scaled), SIM)
        (bounds[own],) = (row.bound for row in compiled.placement if row.name == "scaled")
    assert bounds[True] == bounds[False] + 2 * (2 * 8 * 8)
