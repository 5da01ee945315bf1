"""How random demands are drawn, met and refused; the networks are those of test_random_graphs."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import pytest
from integer_models import IntegerNet
from layer_runs import Run, partitioned, run_module
from network_demands import (
    INJECTED,
    OTHER,
    OTHER_OPERAND,
    REFUSED,
    TAKEN_OUT,
    Demands,
    legal_demands,
    scarce,
    with_demands,
)

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.passes.fuse_tiles import Sharing, sharing_record
from vta_byoc.strategy import DRAM_INP
from vta_byoc.workload.memory import ACC

CONFIG = VTAConfig.preset("sim")
SEEDS = range(200)


def joined_and_pooled() -> IntegerNet:
    """The sum may be fused into either of two convolutions, and its pool behind it."""
    net = IntegerNet(x=(1, 16, 8, 8))
    left = net.conv(net.params[0], 32, k=3, relu=False, name="left")
    right = net.conv(net.params[0], 32, k=1, relu=False, name="right")
    joined = net.residual(left, right, name="join")
    net.result = net.op("nn.max_pool2d", joined, pool_size=(2, 2), strides=(2, 2), name="pool")
    return net


def record_of(net: IntegerNet, config: VTAConfig = CONFIG) -> list[Sharing]:
    return sharing_record(partitioned(net.module(net.result), config, planned=False).module)


def met(net: IntegerNet, demands: Demands) -> Counter[str]:
    """What came of ``demands``."""

    def run(kept: Demands) -> Run:
        return run_module(net.module(net.result), CONFIG, net.inputs(), planned=False, demands=kept)

    return with_demands(run, record_of(net), demands)[1]


def test_demands_are_legal() -> None:
    record = record_of(joined_and_pooled())
    items = {(item.consumer, item.tensor): item for item in record}
    drawn = [legal_demands(record, seed) for seed in SEEDS]
    for demands in drawn:
        on_chip = [key for key, scope in demands.items() if scope == ACC]
        assert len({consumer for consumer, _ in on_chip}) == len(on_chip)
        assert all(items[key].together > 0 for key in on_chip)
        assert set(demands.values()) <= {ACC, DRAM_INP}
    assert {key for demands in drawn for key in demands} == set(items)
    assert drawn == [legal_demands(record, seed) for seed in SEEDS]


def test_what_came_of_demands_is_counted() -> None:
    net = joined_and_pooled()
    record = record_of(net)
    (taken,) = (i.tensor for i in record if i.consumer == "join" and i.scope == ACC)
    (other,) = {"left", "right"} - {taken}
    assert met(net, {("join", other): ACC}) == {INJECTED: 1, OTHER_OPERAND: 1}
    assert met(net, {("join", taken): DRAM_INP, ("join", other): DRAM_INP})[TAKEN_OUT] == 1


def test_a_refusal_needs_an_earlier_demand() -> None:
    """Without a convolution's tile there are no rows and columns to pool in."""
    net = joined_and_pooled()
    demands = {("join", "left"): DRAM_INP, ("join", "right"): DRAM_INP, ("pool", "join"): ACC}
    count = met(net, demands)
    assert (count[INJECTED], count[REFUSED], count[TAKEN_OUT]) == (3, 1, 1)
    record = [dataclasses.replace(i, scope=DRAM_INP) for i in record_of(net)]

    def run(kept: Demands) -> Run:
        return run_module(net.module(net.result), CONFIG, net.inputs(), planned=False, demands=kept)

    with pytest.raises(VTAError, match="need tiles of rows and columns"):
        with_demands(run, record, demands)


def test_other_errors_are_no_refusals() -> None:
    def run(kept: Demands) -> Run:
        raise VTAError("no tile of a convolution fits")

    with pytest.raises(VTAError, match="no tile of a convolution fits"):
        with_demands(run, record_of(joined_and_pooled()), {("join", "left"): ACC})


def test_scarce_memory_makes_sharing_dear() -> None:
    net = IntegerNet(x=(1, 16, 28, 28))
    layer = net.conv(net.params[0], 32, k=3, relu=False, name="layer")
    net.result = net.residual(layer, net.conv(net.params[0], 32, k=1, name="b"), name="join")
    record = record_of(net, scarce(CONFIG))
    dear = [item for item in record if item.rule.startswith("together ")]
    assert dear and all(i.together > i.apart for i in dear)
    drawn = [legal_demands(record, seed) for seed in SEEDS]
    share = sum(ACC in demands.values() for demands in drawn) / len(SEEDS)
    assert math.isclose(share, OTHER / 100, abs_tol=0.1)
