"""Biases that differ beside borders, as sums of boxes of the result, against numpy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from alu_cases import BARE, GEOMETRIES, clamp
from conv_cases import numpy_conv, random_int8, random_work
from draws import draws
from fused_cases import MOST_VALUES, Case, Head, case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fused_consumers import random_consumer
from test_overlapping_pools import pool_of

from vta_byoc.base.rewrites import without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.strategies.conv.borders import MOST_BOXES, bordered
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.workload.borders import apart, border_boxes, middle
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Conv2dWorkload, Epilogue, Step

STEPS = (Step("add", FULL), Step("shr", 7), *clamp())
PADDED = Conv2dWorkload(1, 20, 24, 28, 35, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=Epilogue(STEPS))
MACHINES = {**GEOMETRIES, "pynq": BARE}
Rng = np.random.Generator


def sums(work: Conv2dWorkload, weight: np.ndarray, zero: int) -> np.ndarray:
    """What a zero point adds to each accumulator, int64 (C, H, W)."""
    ones = dataclasses.replace(work, epilogue=Epilogue((), "int32"), batch=1)
    data = np.ones(ones.in_shapes[0], np.int8)
    return zero * numpy_conv(ones, data, weight)[0].astype(np.int64)


def made(kind: str, work: Conv2dWorkload, rng: Rng, *, boxes: bool = True) -> Head:
    """A convolution whose first tensor operand is that of a zero point, other operands random."""
    weight = random_int8(rng, work.out_channels, work.in_channels // work.groups, *work.kernel)
    inputs = [random_int8(rng, *work.in_shapes[0])]
    operands = []
    for tensor in work.epilogue.tensors:
        whole = rng.integers(-9000, 9000, (work.out_channels, 1, 1))
        moved = sums(work, weight, int(rng.integers(-128, 128))) if tensor == FULL else 0
        value = (whole + moved).astype(np.int32)
        operands.append(value if tensor == FULL else value[:, 0, 0])
    result = numpy_conv(work, inputs[0], weight, *operands)
    constants = {"weight": weight, **{f"operand{n}": value for n, value in enumerate(operands)}}
    if boxes:
        found = bordered(work, constants)
        assert found is not None
        work, constants = found
    return Head(kind, work, inputs, constants, result)


def drawn(rng: Rng, kind: str, *, mul: bool) -> Conv2dWorkload:
    """A convolution with padding, and steps of which the first adds a bias by position."""
    while True:
        steps = [Step("add", FULL)]
        steps += [Step("add", CHANNEL)] * (rng.random() < 0.3)
        steps += [Step("mul", 3)] * (mul and rng.random() < 0.3)
        rng.shuffle(steps[:2])  # type: ignore[arg-type]
        epilogue = Epilogue((*steps, Step("shr", int(rng.integers(4, 10))), *clamp()))
        work = random_work(rng, epilogue=epilogue, digit_shift=0)
        if kind == "depthwise":
            channels = work.in_channels
            work = dataclasses.replace(work, out_channels=channels, groups=channels)
        if np.prod(work.out_shape) <= MOST_VALUES and 0 < len(border_boxes(work)) <= MOST_BOXES:
            return work


@pytest.mark.parametrize("kind", ["conv2d", "depthwise"])
@settings(max_examples=draws(15, 40), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), machine=st.sampled_from(sorted(MACHINES)))
def test_any_borders(kind: str, seed: int, machine: str) -> None:
    """Alone, with consumers behind it, and with a pool in the tile."""
    rng, config = np.random.default_rng(seed), MACHINES[machine]
    if kind == "depthwise" and not config.capabilities.mul:
        return
    head = made(kind, drawn(rng, kind, mul=config.capabilities.mul), rng)
    shape = head.work.out_shape
    consumers = []
    if kind == "conv2d" and rng.random() < 0.4 and min(shape[2:]) > 1:
        window = (2, 2), (2, 2), (0, 0, 0, 0)
        consumers.append(FusedConsumer(pool_of(head.work, window)))  # type: ignore[arg-type]
        shape = consumers[0].work.out_shape
    if rng.random() < 0.5:
        consumers.append(random_consumer(rng, shape, mul=config.capabilities.mul))
    try:
        found = case(head, consumers, config, rng)
    except VTAError as error:
        assert "no tile" in str(error) or "no MUL" in str(error), error
        return
    found.check()


def both(kind: str, work: Conv2dWorkload, config: VTAConfig) -> tuple[Case, Case]:
    """With boxes, and with a map."""
    heads = [made(kind, work, np.random.default_rng(3), boxes=boxes) for boxes in (True, False)]
    first, second = (case(head, [], config, np.random.default_rng(3)) for head in heads)
    first.check()
    second.check()
    return first, second


@pytest.mark.parametrize("machine", ["pynq", "1x16", "4x8", "quarter"])
@pytest.mark.parametrize("kind", ["conv2d", "depthwise"])
def test_boxes_cost_less_than_a_map(kind: str, machine: str) -> None:
    config = MACHINES[machine]
    if kind == "depthwise" and not config.capabilities.mul:
        pytest.skip("the machine has no MUL")
    groups = 32 if kind == "depthwise" else 1
    work = dataclasses.replace(PADDED, in_channels=32, out_channels=32, groups=groups)
    boxes, whole = both(kind, work, config)
    assert simulate(boxes.program).cycles < simulate(whole.program).cycles
    fewer, more = (dram_bytes(each.program.counters()) for each in (boxes, whole))
    assert fewer < more


@pytest.mark.parametrize("machine", ["pynq", "1x16", "4x8", "quarter"])
def test_the_estimate_is_near_the_simulated_cycles(machine: str) -> None:
    config = MACHINES[machine]
    work = dataclasses.replace(PADDED, in_channels=32, out_channels=64, height=40, width=40)
    found, _ = both("conv2d", work, config)
    estimate = found.computation.estimate(config)
    assert simulate(found.program).cycles == pytest.approx(estimate, rel=0.08)


def test_where_a_bias_stays_a_map() -> None:
    rng = np.random.default_rng(0)
    values = sums(PADDED, random_int8(rng, 24, 20, 3, 3), 5).astype(np.int32)
    assert bordered(PADDED, {"operand0": values}) is not None
    with without(["border_bias"]):
        assert bordered(PADDED, {"operand0": values}) is None
    other = values.copy()
    other[3, 5, 5] += 1  # in the middle
    assert bordered(PADDED, {"operand0": other}) is None
    other = values.copy()
    other[3, 0, 5] += 1  # in a box
    assert bordered(PADDED, {"operand0": other}) is None
    inside = dataclasses.replace(PADDED, padding=(0, 0, 0, 0))
    same = np.zeros(inside.out_shape[1:], np.int32)
    assert bordered(inside, {"operand0": same}) is None
    for steps in (
        (Step("max", 0), *STEPS),
        (Step("mul", FULL), *clamp()),
        (Step("shr", 3), Step("add", MAP), *clamp()),
    ):
        work = dataclasses.replace(PADDED, epilogue=Epilogue(steps))
        assert bordered(work, {"operand0": values}) is None
    wide = dataclasses.replace(PADDED, epilogue=Epilogue((Step("add", FULL),), "int32"))
    assert bordered(wide, {"operand0": values}) is None


def test_what_boxes_add() -> None:
    """3x3 taps of one beside a zero point of one: how many of them are inside."""
    work = dataclasses.replace(PADDED, in_channels=1, out_channels=1, height=4, width=5)
    values = sums(work, np.ones((1, 1, 3, 3), np.int8), 1)
    assert middle(work) == ((1, 3), (1, 4))
    found = apart(work, values)
    assert found is not None
    inner, added = found
    assert inner.tolist() == [9]
    assert added[:, 0].tolist() == [-5, -3, -5, -3, -3, -5, -3, -5]
