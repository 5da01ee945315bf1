"""Fused consumers: any producer, any elementwise operator, against numpy."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from alu_cases import BARE, GEOMETRIES, SIM, clamp, random_elementwise
from draws import draws
from fused_cases import SATURATED, case, head

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.chains import OTHER, SELF
from vta_byoc.strategies.fused.consumer import (
    FusedConsumer,
    fused_plan,
    keeps_int8,
    operand_kinds,
    pooled_by,
)
from vta_byoc.strategy import STRATEGIES, Computation
from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    Conv2dWorkload,
    ElementwiseWorkload,
    Epilogue,
    PoolWorkload,
    Prologue,
    Step,
)

HEADS = ("conv2d", "depthwise", "conv2d_transpose", "elementwise")


def random_pool_consumer(rng: np.random.Generator, shape: Sequence[int]) -> FusedConsumer:
    """A pool whose windows lie side by side."""
    batch, channels, height, width = shape
    kernel = int(rng.integers(1, min(4, height) + 1)), int(rng.integers(1, min(4, width) + 1))
    kind = str(rng.choice(["max", "max", "sum"]))
    scale = Step("mul", str(rng.choice([CHANNEL, MAP]))) if rng.random() < 0.3 else Step("mul", 21)
    epilogue = Epilogue(() if kind == "max" else (scale, Step("shr", 6), *clamp()))
    work = PoolWorkload(kind, batch, channels, height, width, kernel, kernel, epilogue=epilogue)
    return FusedConsumer(work)


def random_consumer(rng: np.random.Generator, shape: Sequence[int], mul: bool) -> FusedConsumer:
    """Any elementwise operator on a tensor of ``shape``; any of its operands is the fused one."""
    work = random_elementwise(rng, mul=mul)
    batch, channels, height, width = shape
    sized = dataclasses.replace(work, batch=batch, channels=channels, height=height, width=width)
    return FusedConsumer(sized, int(rng.integers(0, sized.operands)))


@pytest.mark.parametrize(
    ("kind", "machine"),
    [
        *(("conv2d", machine) for machine in GEOMETRIES),
        *((kind, machine) for kind in HEADS[1:] for machine in ("1x16", "4x8")),
    ],
)
def test_any_producer_and_consumer(kind: str, machine: str) -> None:
    rng, config = np.random.default_rng(HEADS.index(kind) * 17 + 5), GEOMETRIES[machine]
    seen: Counter[str] = Counter()
    while seen["checked"] < 4:
        producer = head(kind, rng)
        consumers: list[FusedConsumer] = []
        for _ in range(int(rng.choice([1, 1, 2, 3]))):
            if not consumers or keeps_int8(consumers[-1].work):
                consumers.append(random_consumer(rng, producer.result.shape, mul=True))
        try:
            made = case(producer, consumers, config, rng)
        except VTAError as error:
            assert "no tile" in str(error), error
            seen["too large"] += 1
            continue
        made.check()
        seen["checked"] += 1
        for consumer in consumers:
            plan = fused_plan(consumer, config)
            seen["summed"] += bool(plan.summed)
            seen["copied"] += plan.copied
            seen["other"] += plan.other is not None and not plan.copied
            seen["again"] += bool(plan.with_other)
            seen.update(operand_kinds(consumer))
    assert seen["too large"] <= 4, seen


@pytest.mark.parametrize("machine", GEOMETRIES)
def test_a_pool_makes_a_smaller_tile(machine: str) -> None:
    rng, config = np.random.default_rng(23), GEOMETRIES[machine]
    checked, too_large, after = 0, 0, 0
    while checked < draws(3, 6):
        producer = head("conv2d", rng)
        consumers = []
        if rng.random() < 0.3:
            consumers.append(random_consumer(rng, producer.result.shape, True))
        consumers = [consumer for consumer in consumers if keeps_int8(consumer.work)]
        consumers.append(random_pool_consumer(rng, producer.result.shape))
        shape = consumers[-1].work.out_shape
        if rng.random() < 0.5:
            consumers.append(random_consumer(rng, shape, True))
        elif rng.random() < 0.5 and keeps_int8(consumers[-1].work):
            consumers.append(random_pool_consumer(rng, shape))
        try:
            made = case(producer, consumers, config, rng)
        except VTAError as error:
            assert "no tile" in str(error), error
            too_large += 1
            continue
        made.check()
        checked, after = checked + 1, after + (consumers[-1].window == (1, 1))
    assert too_large <= 4 and after >= 1


def test_pools_behind_each_other_take_the_product_of_their_windows() -> None:
    """And the windows of an elementwise operator are none."""
    first = PoolWorkload("max", 1, 16, 24, 24, (2, 3), (2, 3))
    second = PoolWorkload("max", 1, 16, 12, 8, (3, 1), (3, 1))
    between = ElementwiseWorkload(1, 16, 12, 8, (Prologue(0),))
    fused = [FusedConsumer(work) for work in (first, between, second)]
    found = [pooled_by(fused[:count]) for count in range(4)]
    assert found == [(1, 1), (2, 3), (2, 3), (6, 3)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strides": (1, 1), "kind": "sum"}, "need windows that neither overlap nor leave gaps, "
         "have windows of 2x2 every 1x1"),
        ({"padding": (1, 0, 0, 0), "kind": "sum"}, "need windows inside of the tensor, have "
         "windows of 2x2"),
        ({"kernel": (5, 5), "strides": (5, 5)}, "need windows of at most 16 positions"),
        ({"kind": "sum", "factor": 3}, "need a divisor that the ALU multiplies by, have 3"),
    ],
)  # fmt: skip
def test_pools_that_stay_apart(change: dict[str, Any], message: str) -> None:
    pool = dataclasses.replace(PoolWorkload("max", 1, 16, 20, 20, (2, 2), (2, 2)), **change)
    conv = Conv2dWorkload(1, 16, 16, 20, 20, (1, 1), epilogue=SATURATED)
    with pytest.raises(VTAError, match=message):
        Computation(STRATEGIES["conv2d"], conv, (FusedConsumer(pool),)).estimate(SIM)


@pytest.mark.parametrize("kind", ["depthwise", "conv2d_transpose", "elementwise"])
def test_other_tiles_are_not_pooled(kind: str) -> None:
    producer = head(kind, np.random.default_rng(6))
    pool = PoolWorkload("max", *producer.work.out_shape, (2, 2), (2, 2))
    with pytest.raises(VTAError, match=rf"need tiles of rows and columns \(conv2d\).*have {kind}"):
        Computation(STRATEGIES[kind], producer.work, (FusedConsumer(pool),)).estimate(SIM)


@pytest.mark.parametrize("fused", [0, 1])
@pytest.mark.parametrize("op", ["add", "sub", "max", "min", "mul"])
def test_either_operand_may_be_fused(op: str, fused: int) -> None:
    rng = np.random.default_rng(fused)
    sides = (Prologue(0, (Step("shl", 2),)), Prologue(1, (Step("mul", 3), Step("add", 7))))
    work = ElementwiseWorkload(1, 24, 9, 7, sides, op, Epilogue((Step("shr", 3), *clamp())))
    conv = Conv2dWorkload(1, 20, 24, 9, 7, (3, 3), padding=(1, 1, 1, 1), epilogue=SATURATED)
    case(head("conv2d", rng, conv), [FusedConsumer(work, fused)], SIM, rng).check()


@pytest.mark.parametrize("fused", [0, 1])
def test_only_weights_of_loaded_operands_are_loaded(fused: int) -> None:
    """The operator's constant has a weight for each operand; the fused operand needs none."""
    rng = np.random.default_rng(fused)
    sides = (Prologue(0, (Step("shl", 1),)), Prologue(1, ()))
    work = ElementwiseWorkload(1, 16, 9, 7, sides, "add", Epilogue((Step("shr", 1), *clamp())))
    conv = Conv2dWorkload(1, 16, 16, 9, 7, (1, 1), epilogue=SATURATED)
    consumer = FusedConsumer(work, fused)
    plan = fused_plan(consumer, SIM)
    assert plan.scales == (2, 1) and list(plan.weights) == [1 - fused]
    made = case(head("conv2d", rng, conv), [consumer], SIM, rng)
    made.check()
    assert made.program.counters()["wgt_load_nbytes"] == 2 * SIM.wgt_elem_bytes


@pytest.mark.parametrize("reads", [(0,), (0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("steps", [(), (Step("max", 0),)])
def test_a_value_is_copied_where_both_sides_read_it(
    reads: tuple[int, ...], steps: tuple[Step, ...]
) -> None:
    """An operator of one operand changes it where it is; so does a sum with another operand."""
    sides = tuple(Prologue(number, steps if k else ()) for k, number in enumerate(reads))
    op = "add" if len(reads) > 1 else None
    work = ElementwiseWorkload(1, 16, 4, 4, sides, op, Epilogue((Step("shr", 1), *clamp())))
    for fused in set(reads):
        plan = fused_plan(FusedConsumer(work, fused), SIM)
        assert plan.copied == (reads == (0, 0))
        assert bool(plan.loaded) == (set(reads) == {0, 1})


def test_leaky_relu_reads_the_tile_twice() -> None:
    rng = np.random.default_rng(1)
    sides = (Prologue(0, (Step("shl", 3),)), Prologue(0, ()))
    work = ElementwiseWorkload(2, 24, 9, 7, sides, "max", Epilogue((Step("shr", 3), *clamp())))
    assert fused_plan(FusedConsumer(work, 0), SIM).copied
    conv = Conv2dWorkload(2, 20, 24, 9, 7, (1, 1), epilogue=SATURATED)
    made = case(head("conv2d", rng, conv), [FusedConsumer(work, 0)], SIM, rng)
    made.check()
    assert "x1" not in made.inputs, "nothing but the convolution's input is loaded"


def test_a_copy_is_added_again_in_the_tile() -> None:
    """As the programs of SiLU have it; tensors in front of the sum and behind it."""
    rng, config = np.random.default_rng(8), GEOMETRIES["1x16"]
    producer = head("conv2d", rng)
    sides = (Prologue(0, (Step("mul", -40),)), Prologue(0, (Step("max", 0), Step("mul", 80))))
    steps = (Step("shr", 5), Step("add", CHANNEL), Step("min", 0), Step("mul", SELF))
    steps = (*steps, Step("shr", 9), Step("add", OTHER), Step("add", FULL), Step("shr", 7))
    shape = producer.result.shape
    work = ElementwiseWorkload(*shape, sides, "add", Epilogue((*steps, *clamp())))
    consumer = FusedConsumer(work)
    plan = fused_plan(consumer, config)
    assert plan.copied and plan.with_other == steps[:6]
    made = case(producer, [consumer], config, rng)
    made.check()


@pytest.mark.parametrize("kind", [CHANNEL, MAP, FULL])
def test_tensor_operands_are_staged_by_chunk(kind: str) -> None:
    rng = np.random.default_rng(2)
    sides = (Prologue(0, (Step("add", kind),)), Prologue(1, (Step("mul", kind), Step("shr", 5))))
    steps = (Step("add", kind), Step("shr", 1), *clamp())
    work = ElementwiseWorkload(1, 40, 30, 31, sides, "add", Epilogue(steps))
    conv = Conv2dWorkload(1, 16, 40, 30, 31, (1, 1), epilogue=SATURATED)
    for config in (SIM, GEOMETRIES["quarter"]):
        for fused in (0, 1):
            case(head("conv2d", rng, conv), [FusedConsumer(work, fused)], config, rng).check()


def test_traffic_is_that_of_the_producer_and_one_operand() -> None:
    rng = np.random.default_rng(3)
    sides = (Prologue(0, ()), Prologue(1, ()))
    work = ElementwiseWorkload(1, 64, 28, 28, sides, "add", Epilogue(clamp()))
    conv = Conv2dWorkload(1, 64, 64, 28, 28, (1, 1), epilogue=SATURATED)
    producer = head("conv2d", rng, conv)
    alone = case(producer, [], SIM, rng).program.counters()
    fused = case(producer, [FusedConsumer(work, 1)], SIM, rng).program.counters()
    tensor = 64 * 28 * 28
    assert fused["out_store_nbytes"] == alone["out_store_nbytes"] == tensor
    assert fused["inp_load_nbytes"] == alone["inp_load_nbytes"] + tensor
    assert fused["acc_load_nbytes"] == alone["acc_load_nbytes"]
    assert fused["gemm_counter"] == alone["gemm_counter"] + tensor // 16


def test_a_product_needs_mul() -> None:
    work = ElementwiseWorkload(
        1, 16, 4, 4, (Prologue(0, (Step("mul", 3),)), Prologue(1)), "add", Epilogue(clamp())
    )
    message = "its fused operand is multiplied by 3; this machine's ALU has no MUL"
    with pytest.raises(VTAError, match=message):
        fused_plan(FusedConsumer(work, 0), BARE)
    assert fused_plan(FusedConsumer(work, 1), BARE).summed, "the GEMM core multiplies what it loads"


def test_what_stays_int8() -> None:
    def conv(*steps: Step, dtype: str = "int8") -> bool:
        return keeps_int8(Conv2dWorkload(1, 16, 16, 4, 4, (1, 1), epilogue=Epilogue(steps, dtype)))

    def combined(op: str | None, *given: tuple[Step, ...], steps: tuple[Step, ...] = ()) -> bool:
        pairs = tuple(Prologue(i, side) for i, side in enumerate(given))
        return keeps_int8(ElementwiseWorkload(1, 16, 4, 4, pairs, op, Epilogue(steps)))

    assert conv(Step("shr", 7), *clamp())
    assert conv(Step("max", 0), Step("min", 300), Step("shr", 2))
    assert not conv(Step("shr", 7))
    assert not conv(*clamp(), Step("add", 1))
    assert not conv(*clamp(), Step("add", CHANNEL))
    assert not conv(*clamp(), dtype="int32")
    assert combined("max", (Step("shl", 3),), (), steps=(Step("shr", 4),)), "a leaky relu"
    assert not combined("add", (), ())
    assert combined("add", (), (), steps=(Step("shr", 1),))
    assert not combined(None, (Step("shl", 25),), steps=(Step("shr", 20),)), "may wrap"
    assert combined(None, (Step("shl", 25),), steps=(Step("shr", 25),)), "wrapped, but int8"
    assert combined(None, (Step("shl", 25),), steps=(Step("shr", 24),)), "int32 has 8 bits more"
    pool = PoolWorkload("max", 1, 16, 4, 4, (2, 2), (2, 2))
    assert keeps_int8(pool) and not keeps_int8(dataclasses.replace(pool, kind="sum"))


def test_same_input_same_program() -> None:
    digests = set()
    for _ in range(2):
        rng = np.random.default_rng(4)
        producer = head("conv2d", rng)
        made = case(producer, [random_consumer(rng, producer.result.shape, True)], SIM, rng)
        digests.add(made.program.digest())
    assert len(digests) == 1
