"""What a compiled model needs of DRAM: arenas, tensors on chip, reasons."""

from __future__ import annotations

import dataclasses

from integer_models import IntegerNet, island_net, residual_net
from report_cases import SHARING, net

from vta_byoc.hw.config import VTAConfig
from vta_byoc.passes.fuse_tiles import DEARER, READ_BY_OTHERS
from vta_byoc.pipeline import Compiled, compile_module
from vta_byoc.reports.run.layers import model_facts
from vta_byoc.reports.run.memory import ArenaUse, MemoryFacts

CONFIG = VTAConfig()


def compiled(net: IntegerNet, *results: object, config: VTAConfig = CONFIG) -> Compiled:
    return compile_module(net.module(*(results or (net.result,))), config, "null")


def memory_of(made: Compiled) -> MemoryFacts:
    return MemoryFacts.of(made.programs, made.sharing)


class TestArenas:
    def test_parts_add_up_to_the_arena(self) -> None:
        program = net()
        use = ArenaUse.of(program)
        assert use.inputs + use.constants + use.peak == program.arena_bytes
        assert use.outputs == program.symbol("sum").nbytes
        assert use.to_json() == dataclasses.asdict(use)

    def test_places_are_shared(self) -> None:
        chain = IntegerNet(x=(1, 16, 8, 8))
        value = chain.params[0]
        for number in range(5):
            value = chain.conv(value, 16, name=f"conv{number}")
        memory = memory_of(compiled(chain, value))
        assert (memory.largest.peak, memory.largest.apart) == (2 * 1024, 5 * 1024)
        (line,) = memory.lines()
        assert line == ("DRAM peak", "2.0 kB of stored tensors, 5.1 kB with a place for each")

    def test_regions_run_one_after_the_other(self) -> None:
        island = island_net()
        memory = memory_of(compiled(island))
        peaks = [arena.peak for arena in memory.arenas.values()]
        assert len(peaks) == 2 and memory.largest.peak == max(peaks) < sum(peaks)

    def test_without_vta(self) -> None:
        assert list(MemoryFacts.of({}, []).lines()) == []


def test_a_layer_says_once_whose_tiles_are_shared() -> None:
    chain = residual_net()
    twice = chain.residual(chain.result, chain.params[0], name="twice")
    made = compiled(chain, twice)
    layers = model_facts(made.config, made.programs, made.placement, made.sharing).layers
    assert layers[-1].name == "conv_b+join+twice"
    assert layers[-1].how == "packed GEMM; fused into conv_b"


class TestOnChip:
    def test_totals(self) -> None:
        memory = MemoryFacts.of({"region0": net()}, SHARING)
        assert [item.tensor for item in memory.met] == ["conv2", "e"]
        assert [item.tensor for item in memory.unmet] == ["conv1", "a", "c"]
        assert memory.saved == 2 * 4_096
        assert dict(memory.lines())["on chip"] == "2 tensors, 8.2 kB not moved"
        assert memory.to_json()["on_chip"][2] == {
            "tensor": "a",
            "consumer": "b",
            "met": False,
            "rule": "together 11 cycles by estimate, apart 10",
            "bytes": 1_000,
            "saved": 0,
            "cycles_apart": 10.0,
            "cycles_together": 11.0,
        }

    def test_reasons_are_grouped(self) -> None:
        """The most bytes first; what differs by names and figures only is one reason."""
        reasons = MemoryFacts.of({}, SHARING).reasons()
        assert {why: [x.tensor for x in items] for why, items in reasons.items()} == {
            DEARER: ["a", "c"],
            READ_BY_OTHERS: ["conv1"],
        }
        assert list(reasons) == [DEARER, READ_BY_OTHERS]

    def test_reasons_are_those_of_the_compiler(self) -> None:
        branches = residual_net()
        x = branches.params[0]
        shared = branches.conv(x, 32, relu=False, name="shared")
        made = compiled(branches, branches.residual(shared, x, name="sum"), shared)
        assert list(memory_of(made).reasons()) == [READ_BY_OTHERS]

    def test_cost_is_a_reason_of_the_compiler(self) -> None:
        """A small accumulator buffer: the pooled tile beside the whole one costs more than it
        saves."""
        pooled = IntegerNet(x=(1, 16, 32, 32))
        conv = pooled.conv(pooled.params[0], 64, name="conv")
        pool = pooled.op("nn.max_pool2d", conv, pool_size=(4, 4), strides=(4, 4), name="pool")
        small = dataclasses.replace(CONFIG, log_acc_buff_size=11)
        made = compiled(pooled, pool, config=small)
        memory = memory_of(made)
        assert list(memory.reasons()) == [DEARER], made.sharing
