"""Demands for the accumulator buffer: met, refused with the reason, overruled by the user."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, residual_net

from vta_byoc.base.rewrites import without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import count_stream
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import output_names
from vta_byoc.partition import placements
from vta_byoc.partitioning.region import Region, region_functions
from vta_byoc.passes.demands import Demands
from vta_byoc.passes.fuse_tiles import HINTED, SHARED, Sharing, sharing_record
from vta_byoc.pipeline import compile_module, partition_for_vta
from vta_byoc.quantization.scales import Rescale
from vta_byoc.runtime.execute import profile
from vta_byoc.strategy import DRAM_INP
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner
from vta_byoc.workload.memory import ACC

SIM = VTAConfig.preset("sim")


def decided(
    mod: tvm.IRModule, config: VTAConfig = SIM, demands: Demands | None = None
) -> dict[tuple[str, str], Sharing]:
    """The record by (consumer, tensor)."""
    record = sharing_record(partition_for_vta(mod, config, demands=demands))
    return {(item.consumer, item.tensor): item for item in record}


def counters(
    net: IntegerNet,
    mod: tvm.IRModule,
    config: VTAConfig = SIM,
    *,
    scopes: str = "on",
    demands: Demands | None = None,
) -> dict[str, int]:
    """Counters of all regions, and instructions, of a compiled module that is bit-exact."""
    compiled = compile_module(mod, config, scopes=scopes, demands=demands)
    inputs = net.inputs()
    run = profile(compiled.exe, inputs, arenas=True)
    reference = reference_runner(mod, compiled.programs)(inputs)
    checks = compare_outputs(output_names(mod), run.outputs, reference)
    checks += compare_stored(run, compiled.programs, reference)
    assert checks and all(check.equal for check in checks), [str(c) for c in checks if not c.equal]
    total = {"instructions": sum(len(p.insns) for p in compiled.programs.values())}
    for program in compiled.programs.values():
        for name, value in count_stream(program.config, program.insns).items():
            total[name] = total.get(name, 0) + value
    return total


def dram_bytes(found: Mapping[str, int]) -> int:
    """Bytes of tensors that are loaded and stored."""
    return sum(n for name, n in found.items() if name.endswith("nbytes") and "uop" not in name)


def join_net(size: int = 28, channels: int = 32, kernel: int = 3) -> IntegerNet:
    """Two convolutions whose results are added: either could share its tiles."""
    net = IntegerNet(x=(1, 16, size, size))
    a = net.conv(net.params[0], channels, k=kernel, relu=False, name="left")
    b = net.conv(net.params[0], channels, k=1, relu=False, name="right")
    net.result = net.residual(a, b, name="join")
    return net


class TestMet:
    def test_a_residual_sum_is_taken_from_the_tiles_of_its_convolution(self) -> None:
        net = residual_net()
        found = decided(net.module(net.result))["join", "conv_b"]
        assert (found.scope, found.rule) == (ACC, SHARED)
        assert found.nbytes == 32 * 8 * 8 and found.saved == 2 * found.nbytes
        assert found.together <= 1.01 * found.apart

    def test_one_step_computes_both(self) -> None:
        net = residual_net()
        mod = partition_for_vta(net.module(net.result), SIM)
        (func,) = region_functions(mod).values()
        region = Region.of(func)
        assert [(step.source, step.composite) for step in region.steps] == [
            ("conv_a", "vta.conv2d"),
            ("conv_b+join", "vta.conv2d_binary"),
        ]
        assert "conv_b" not in region.tensors
        notes = {op.name: op for op in placements(mod)}
        assert notes["join"].note == "fused into conv_b"
        assert 0 < notes["join"].cycles < notes["conv_b"].cycles

    def test_the_tensor_does_not_visit_dram(self) -> None:
        net = join_net(kernel=1)  # no rows that tiles load twice
        mod = net.module(net.result)
        apart, together = counters(net, mod, scopes="dram"), counters(net, mod)
        tensor = 32 * 28 * 28
        assert apart["out_store_nbytes"] - together["out_store_nbytes"] == tensor
        spared = 2 * tensor + SIM.wgt_elem_bytes  # of two weights one is left
        assert dram_bytes(together) == dram_bytes(apart) - spared
        assert together["instructions"] != apart["instructions"]

    def test_a_chain_shares_one_tile(self) -> None:
        net = join_net(size=12)
        pooled = net.op("nn.max_pool2d", net.result, pool_size=(2, 2), strides=(2, 2), name="pool")
        mod = net.module(net.residual(pooled, pooled, name="twice"))
        taken = [k for k, item in decided(mod).items() if item.scope == ACC]
        assert {("pool", "join"), ("twice", "pool")} < set(taken) and len(taken) == 3
        counters(net, mod)

    def test_an_operator_of_two_parts_is_named_once(self) -> None:
        """As a sum of three is; its cycles are what both parts add to the producer's."""
        net = join_net(size=12)
        third = net.conv(net.params[0], 32, k=1, relu=False, name="third")
        mod = net.module(net.residual(net.result, third, name="join__2"))
        together = partition_for_vta(mod, SIM, demands={("join__2", "join"): ACC})
        taken = [item for item in sharing_record(together) if item.scope == ACC]
        homes = {item.consumer: item.tensor for item in taken}
        assert (len(homes), homes["join__2"]) == (2, "join")
        (func,) = region_functions(together).values()
        steps = Region.of(func).steps
        assert [step.source for step in steps if "join" in step.source] == [f"{homes['join']}+join"]
        assert len(steps) == 3
        now, before = (
            {op.name: op for op in placements(m)}
            for m in (together, partition_for_vta(mod, SIM, scopes="dram"))
        )
        assert now["join"].note == f"fused into {homes['join']}"
        gain = sum(item.apart - item.together for item in taken)
        assert gain > 0 and abs(before["join"].cycles - gain - now["join"].cycles) <= 1

    def test_small_machines_and_batches(self) -> None:
        for config, batch in (
            (VTAConfig.preset("2x16"), 1),
            (VTAConfig.preset("tophub_4x8"), 3),
            (dataclasses.replace(SIM, log_inp_buff_size=12, log_acc_buff_size=14), 2),
        ):
            net = residual_net(batch=batch)
            mod = net.module(net.result)
            assert any(item.scope == ACC for item in decided(mod, config).values())
            counters(net, mod, config)


class TestRefused:
    def test_a_tensor_that_another_operator_reads_too(self) -> None:
        net = residual_net()
        b = net.conv(net.params[0], 32, relu=False, name="shared")
        mod = net.module(net.residual(b, net.params[0], name="sum"), net.conv(b, 16, name="after"))
        found = decided(mod)["sum", "shared"]
        assert found.scope == DRAM_INP and found.saved == 0
        assert found.rule == 'need "sum" as its only reader, have after too'

    def test_a_result_of_the_network(self) -> None:
        net = residual_net()
        b = net.conv(net.params[0], 32, relu=False, name="shared")
        mod = net.module(net.residual(b, net.params[0], name="sum"), b)
        rule = decided(mod)["sum", "shared"].rule
        assert rule.startswith('need "sum" as its only reader, have '), rule

    def test_a_producer_whose_accumulators_are_spent(self) -> None:
        net = IntegerNet(x=(1, 16, 12, 12))
        a = net.conv(net.params[0], 16, name="conv")
        pooled = net.op("nn.max_pool2d", a, pool_size=(3, 3), strides=(1, 1), padding=(1, 1),
                        name="pool")  # fmt: skip
        mod = net.module(net.residual(pooled, net.params[0], name="sum"))
        with without(["overlapping_pools"]):
            record = decided(mod)
        assert record["sum", "pool"].rule == (
            "need a producer whose accumulators keep its result, have pool"
        )
        assert record["pool", "conv"].rule == (
            "need windows that neither overlap nor leave gaps, have windows of 3x3 every 1x1"
        )

    def test_only_one_operand_is_in_the_tile(self) -> None:
        net = join_net()
        record = decided(net.module(net.result))
        taken = [item for item in record.values() if item.scope == ACC]
        (other,) = [item for item in record.values() if item.scope != ACC]
        assert len(taken) == 1 and other.rule == "the other operand is fused"
        assert taken[0].apart - taken[0].together >= other.apart - other.together

    def test_nothing_is_taken_at_a_loss(self) -> None:
        """The estimate decides: where both together cost more than the tolerance, they stay."""
        net = join_net(size=56, channels=16)
        mod = net.module(net.result)
        config = dataclasses.replace(SIM, log_inp_buff_size=10, log_acc_buff_size=13)
        for item in decided(mod, config).values():
            if item.scope != ACC and item.together:
                assert item.together > 1.01 * item.apart or "other operand" in item.rule
            elif item.scope == ACC:
                assert item.together <= 1.01 * item.apart


class TestDemands:
    def test_one_consumers_demand_changes_instructions_and_bytes(self) -> None:
        net = join_net()
        mod = net.module(net.result)
        own = counters(net, mod)
        there = counters(net, mod, demands={("join", "left"): ACC})
        other = counters(net, mod, demands={("join", "right"): ACC})
        apart = counters(
            net, mod, demands={("join", "left"): DRAM_INP, ("join", "right"): DRAM_INP}
        )
        assert own in (there, other)
        assert there["instructions"] != other["instructions"]
        tensor = 32 * 28 * 28
        for shared in (there, other):
            assert shared["instructions"] != apart["instructions"]
            assert shared["out_store_nbytes"] == apart["out_store_nbytes"] - tensor
            assert dram_bytes(shared) < dram_bytes(apart) - tensor

    def test_a_demand_is_recorded(self) -> None:
        net = join_net()
        mod = net.module(net.result)
        record = decided(mod, demands={("join", "left"): DRAM_INP, ("join", "right"): ACC})
        assert record["join", "left"].rule == f"demanded in {DRAM_INP}"
        assert record["join", "right"].rule == HINTED

    @pytest.mark.parametrize(
        ("demands", "message"),
        [
            (
                {("join", "middle"): ACC},
                r'tensor "middle": consumer "join" is to take it in scope "local.acc_buffer": need '
                r"a consumer on VTA that reads it, have none on VTA; name the results",
            ),
            (
                {("left", "right"): ACC},
                r"need a consumer on VTA that reads it, have join; name the results of two",
            ),
            (
                {("join", "left"): "global.vta.wgt"},
                r"need global.vta.inp, which its instructions load, or local.acc_buffer, have "
                r"global.vta.wgt; name one of the two",
            ),
            (
                {("join", "left"): "local.vtcm"},
                r'scope "local.vtcm": need global.vta.inp, which',
            ),
            (
                {("join", "left"): ACC, ("join", "right"): ACC},
                r'"join" is to take it.*, and ".*" too: need one fused operand, have two',
            ),
        ],
    )
    def test_demands_that_cannot_be_met(self, demands: Demands, message: str) -> None:
        net = join_net()
        with pytest.raises(VTAError, match=message):
            partition_for_vta(net.module(net.result), SIM, demands=demands)

    def test_selected_consumers_and_tensors(self) -> None:
        net = join_net()
        mod = net.module(net.result)
        record = decided(mod, demands={("@add", "left.."): DRAM_INP, ("join", "right"): ACC})
        assert record["join", "left"].rule == f"demanded in {DRAM_INP}"
        assert record["join", "right"].rule == HINTED  # a name overrules a selector

    @pytest.mark.parametrize(
        ("demands", "message"),
        [
            (
                {("left*", "join*"): ACC},
                'tensors "join*": consumers "left*" are to take them in "local.acc_buffer": none '
                "of these consumers on VTA reads such a tensor; `vta-byoc scopes` lists who reads "
                "what; select others",
            ),
            (
                {("j*", "*"): "global.vta.wgt"},
                'tensors "*": consumers "j*" are to take them in "global.vta.wgt": their '
                "instructions load global.vta.inp; name one of these or local.acc_buffer",
            ),
            (
                {("j*", "left"): ACC, ("@add", "left"): DRAM_INP},
                '"join" is to have "left" in local.acc_buffer by "j*:left" and in global.vta.inp '
                'by "@add:left"; need one scope, have two; drop one of the demands or name the two '
                "results",
            ),
            (
                {("k*", "left"): ACC},
                'operator "k*" of a demand for local.acc_buffer is not in the model; it has 3 '
                "operators; `vta-byoc place MODEL` lists their names",
            ),
        ],
    )
    def test_selectors_that_cannot_be_met(self, demands: Demands, message: str) -> None:
        net = join_net()
        with pytest.raises(VTAError, match=f"^{re.escape(message)}$"):
            partition_for_vta(net.module(net.result), SIM, demands=demands)

    def test_a_demand_whose_producer_cannot_write_it(self) -> None:
        net = residual_net()
        b = net.conv(net.params[0], 32, relu=False, name="shared")
        mod = net.module(net.residual(b, net.params[0], name="sum"), net.conv(b, 16, name="after"))
        message = (
            r'tensor "shared": consumer "sum" is to take it in scope "local.acc_buffer": need '
            r'"sum" as its only reader, have after too; demand global.vta.inp or drop the demand'
        )
        with pytest.raises(VTAError, match=message):
            partition_for_vta(mod, SIM, demands={("sum", "shared"): ACC})

    def test_a_demand_that_the_buffers_cannot_hold(self) -> None:
        net = join_net()
        a = net.conv(net.params[0], 32, name="first")
        mod = net.module(net.leaky_relu(a, 26, 8, Rescale(8, -128), "leaky"))
        config = dataclasses.replace(SIM, log_acc_buff_size=7)  # two vectors
        message = (
            r'tensor "first": consumer "leaky" is to take it.*: no tile of a 3x3 convolution fits '
            r"the SRAM of machine 1x16 \(the smallest needs 3 ACC of 2 elements\)"
        )
        # a bias that is loaded takes the third
        with pytest.raises(VTAError, match=message), without(["bias_gemm"]):
            partition_for_vta(mod, config, demands={("leaky", "first"): ACC})


def test_the_record_is_the_same_every_time() -> None:
    net = join_net()
    mod = net.module(net.result)
    first, second = (partition_for_vta(mod, SIM) for _ in range(2))
    assert sharing_record(first) == sharing_record(second)
    tvm.ir.assert_structural_equal(first, second)
    assert np.array_equal(
        *(compile_module(m, SIM).programs["region0"].insns for m in (first, second))
    )
