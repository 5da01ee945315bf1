"""DRAM scopes: every tensor's scope follows from its consumers and reaches the program."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import tvm
from integer_models import IntegerNet, island_net, residual_net

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.records import text_of
from vta_byoc.partitioning.region import Region, region_functions
from vta_byoc.passes.lower_regions import compile_region
from vta_byoc.pipeline import DRAM_ONLY, ON, partition_for_vta, partition_passes
from vta_byoc.scopes import Fact
from vta_byoc.strategies.conv.conv2d import Conv2d
from vta_byoc.strategies.elementwise.elementwise import Elementwise
from vta_byoc.strategy import DRAM_ACC, DRAM_INP, DRAM_WGT, STRATEGIES
from vta_byoc.vdevice import (
    SCOPES_ATTR,
    annotate_scopes,
    decide,
    scope_align,
    scopes_of,
    vta_scopes,
)
from vta_byoc.workload.workloads import Conv2dWorkload, ElementwiseWorkload

CONFIG = VTAConfig()
TABLE = vta_scopes(CONFIG)
INT8 = Fact("t", "int8", 64)


def only_region(mod: tvm.IRModule) -> tvm.relax.Function:
    (func,) = region_functions(mod).values()
    return func


@pytest.mark.parametrize(
    ("scopes", "stored"), [(ON, ["conv_a", "join"]), (DRAM_ONLY, ["conv_a", "conv_b", "join"])]
)
def test_decisions_of_a_residual_block(scopes: str, stored: list[str]) -> None:
    """What stays on chip is no tensor of the region; the others are decided alike."""
    net = residual_net()
    mod = partition_for_vta(net.module(net.result), CONFIG, scopes=scopes)
    func = only_region(mod)
    region, decisions = Region.of(func), scopes_of(func)
    int8 = {name for name, (_, dtype) in region.tensors.items() if dtype == "int8"}
    assert [s.output for s in region.steps] == stored
    assert set(decisions) == {*region.params, *stored}
    x = region.params[0]
    assert decisions[x].demands == (("conv_a", DRAM_INP), ("join", DRAM_INP))
    assert decisions[x].scope == DRAM_INP
    assert (decisions[x].rule, decisions["conv_a"].rule) == ("consumers agree", "single consumer")
    assert {decisions[name].scope for name in stored} == {DRAM_INP}
    assert decisions["join"].rule == "no consumer: as its producer writes it"
    for name, (shape, _dtype) in region.tensors.items():
        assert decisions[name].nbytes == math.prod(shape) * (1 if name in int8 else 4)
    constants = [p for p in region.params if p != x]
    # Of each convolution the weights, the vector that its bias is a product with, and the bias.
    conv = [DRAM_WGT, DRAM_INP, DRAM_WGT]
    assert [decisions[p].scope for p in constants] == [*conv, *conv, DRAM_WGT]


def test_packed_int8_serves_both_buffers() -> None:
    for demands in ([("c", DRAM_INP), ("d", DRAM_ACC)], [("d", DRAM_ACC), ("c", DRAM_INP)]):
        assert decide(INT8, demands, TABLE).scope == DRAM_INP
    decision = decide(INT8, [("c", DRAM_INP), ("d", DRAM_ACC)], TABLE)
    assert decision.scope == DRAM_INP
    assert decision.rule == "packed int8 serves INP and ACC_8BIT loads: the INP scope holds both"


def test_scopes_reach_the_program() -> None:
    net = residual_net()
    mod = partition_for_vta(net.module(net.result), CONFIG)
    func = only_region(mod)
    program = compile_region(mod, func, {}, CONFIG)
    for name, decision in scopes_of(func).items():
        symbol = program.symbol(name)
        assert symbol.scope == decision.scope
        assert symbol.align == scope_align(CONFIG, decision.scope, decision.dtype)
        assert symbol.offset % symbol.align == 0


def test_another_decision_moves_the_tensor() -> None:
    """Forging one decision changes where code generation puts that tensor."""
    net = residual_net()
    mod = partition_for_vta(net.module(net.result), CONFIG)
    func = only_region(mod)
    items = json.loads(text_of(func.attrs[SCOPES_ATTR]))
    for item in items:
        if item["tensor"] == "conv_a":
            item["scope"] = DRAM_WGT
    forged = func.with_attr(SCOPES_ATTR, json.dumps(items))
    program = compile_region(mod, forged, {}, CONFIG)
    assert program.symbol("conv_a").align == CONFIG.wgt_elem_bytes
    assert program.symbol("conv_a").scope == DRAM_WGT


def test_regions_are_decided_separately() -> None:
    net = island_net()
    mod = partition_for_vta(net.module(net.result), CONFIG)
    regions = region_functions(mod)
    assert len(regions) == 2
    for func in regions.values():
        region = Region.of(func)
        assert set(scopes_of(func)) == set(region.tensors)


def test_result_that_is_also_consumed_keeps_its_consumers_scope() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    a = net.conv(net.params[0], 16, name="a")
    b = net.conv(a, 16, name="b")
    mod = partition_for_vta(net.module(a, b), CONFIG)
    func = only_region(mod)
    assert set(Region.of(func).outputs) == {"a", "b"}
    assert scopes_of(func)["a"].demands == (("b", DRAM_INP),)


def test_demands_that_no_copy_serves_are_refused() -> None:
    with pytest.raises(VTAError) as err:
        decide(INT8, [("c", DRAM_INP), ("d", DRAM_WGT)], TABLE)
    assert str(err.value) == (
        "tensor t (int8) is wanted in global.vta.inp and global.vta.wgt; one copy cannot serve "
        "both; give each consumer a tensor of its own"
    )
    with pytest.raises(VTAError, match='"global.vta.inp": need int32, have int8 on VTA 1x16;'):
        decide(Fact("t", "int32", 64), [("c", DRAM_INP), ("d", DRAM_ACC)], TABLE)


def test_scopes_of_a_machine_follow_its_configuration() -> None:
    narrow = vta_scopes(VTAConfig(capabilities=Capabilities(acc_8bit=False)))
    with pytest.raises(VTAError) as err:
        decide(INT8, [("c", DRAM_INP), ("d", DRAM_ACC)], narrow)
    assert str(err.value) == (
        'tensor "t": consumer "d" demands scope "global.vta.acc": need int8, have int32 on VTA '
        "1x16; convert the tensor or name another scope"
    )
    large = Fact("t", "int8", 10**6)
    with pytest.raises(VTAError) as err:
        decide(large, [("c", "local.inp_buffer")], TABLE)
    assert str(err.value) == (
        'tensor "t": consumer "c" demands scope "local.inp_buffer": need 1000000 bytes in '
        f"elements of 16, have {CONFIG.inp_depth * 16} on VTA 1x16; name global or cut the "
        "tensor into tiles"
    )


def test_a_strategys_demand_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other demands of the residual give its operands another scope, alignment and place."""
    net = residual_net()
    *until, _annotate, _place = partition_passes(CONFIG, scopes=DRAM_ONLY)
    merged = tvm.transform.Sequential(until)(net.module(net.result))
    mod = annotate_scopes(CONFIG)(merged)
    name = only_region(mod).params[0].name
    before = compile_region(mod, only_region(mod), {}, CONFIG)

    class LoadsDataAsWeights(Conv2d):
        def scopes(self, work: Conv2dWorkload) -> tuple[str, ...]:
            return tuple(DRAM_WGT if s == DRAM_INP else s for s in super().scopes(work))

    class LoadsAllAsWeights(Elementwise):
        def scopes(self, work: ElementwiseWorkload) -> tuple[str, ...]:
            return (DRAM_WGT,) * 3

    monkeypatch.setitem(STRATEGIES, "conv2d", LoadsDataAsWeights())
    with pytest.raises(VTAError, match="is wanted in global.vta.inp and global.vta.wgt"):
        annotate_scopes(CONFIG)(merged)
    monkeypatch.setitem(STRATEGIES, "elementwise", LoadsAllAsWeights())
    changed = annotate_scopes(CONFIG)(merged)
    decisions = scopes_of(only_region(changed))
    assert {decisions[t].scope for t in (name, "conv_a", "conv_b")} == {DRAM_WGT}
    after = compile_region(changed, only_region(changed), {}, CONFIG)
    assert [p.symbol("conv_a").align for p in (before, after)] == [16, 256]


def test_unknown_scope_and_missing_annotation() -> None:
    with pytest.raises(VTAError, match=r"unknown DRAM scope 'local'; known: global, "):
        scope_align(CONFIG, "local", "int8")
    net = residual_net()
    mod = partition_for_vta(net.module(net.result), CONFIG)
    with pytest.raises(VTAError, match="region has no memory scopes; run .*annotate_scopes"):
        scopes_of(only_region(mod).without_attr(SCOPES_ATTR))


def test_alignment_is_the_largest_element_of_the_scope() -> None:
    for preset in VTAConfig.presets():
        config = VTAConfig.preset(preset)
        assert scope_align(config, DRAM_WGT, "int8") == config.block**2
        assert scope_align(config, DRAM_ACC, "int32") == config.acc_elem_bytes
        assert scope_align(config, DRAM_ACC, "int8") == config.out_elem_bytes
        assert scope_align(config, "global", "int8") >= config.wgt_elem_bytes


def test_decision_is_a_value() -> None:
    decision = decide(INT8, [("c", DRAM_INP)], TABLE)
    assert dataclasses.replace(decision) == decision
