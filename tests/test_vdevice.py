"""DRAM scopes: every tensor's scope follows from its consumers and reaches the program."""

from __future__ import annotations

import dataclasses
import json

import pytest
import tvm
from integer_models import IntegerNet, island_net, residual_net

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.lowering import compile_region
from vta_byoc.pipeline import partition_for_vta
from vta_byoc.region import Region, region_functions
from vta_byoc.strategy import DRAM_ACC, DRAM_INP, DRAM_WGT
from vta_byoc.vdevice import SCOPES_ATTR, decide, scope_align, scopes_of

CONFIG = VTAConfig()


def only_region(mod: tvm.IRModule) -> tvm.relax.Function:
    (func,) = region_functions(mod).values()
    return func


def test_decisions_of_a_residual_block() -> None:
    net = residual_net()
    mod = partition_for_vta(net.module(net.result), CONFIG)
    func = only_region(mod)
    region, decisions = Region.of(func), scopes_of(func)
    assert [s.output for s in region.steps] == ["conv_a", "conv_b", "join"]
    x = region.params[0]
    assert decisions[x].demands == (("conv_a", DRAM_INP), ("join", DRAM_INP))
    assert decisions[x].scope == DRAM_INP
    assert (decisions["conv_a"].scope, decisions["conv_a"].rule) == (DRAM_INP, "consumers agree")
    assert (decisions["conv_b"].scope, decisions["conv_b"].rule) == (DRAM_INP, "consumers agree")
    assert decisions["join"].rule == "no consumer on VTA: as the store left it"
    constants = [p for p in region.params if p != x]
    assert [decisions[p].scope for p in constants] == [DRAM_WGT, DRAM_ACC] * 2 + [DRAM_WGT]


def test_packed_int8_serves_both_buffers() -> None:
    decision = decide("t", "int8", [("c", DRAM_INP), ("d", DRAM_ACC)])
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
    items = json.loads(str(func.attrs[SCOPES_ATTR]))
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
        decide("t", "int8", [("c", DRAM_INP), ("d", DRAM_WGT)])
    assert str(err.value) == (
        "tensor t (int8) is wanted in global.vta.inp and global.vta.wgt; one copy cannot serve "
        "both; give each consumer a tensor of its own"
    )
    with pytest.raises(VTAError, match="wanted in global.vta.acc and global.vta.inp"):
        decide("t", "int32", [("c", DRAM_INP), ("d", DRAM_ACC)])


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
    decision = decide("t", "int8", [("c", DRAM_INP)])
    assert dataclasses.replace(decision) == decision
