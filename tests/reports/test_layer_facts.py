"""What a compiled model's layers take: time, traffic, buffers, and the work of their operators."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from conv_cases import NetBuilder, rescale
from report_cases import FOLD, SIM, WORK, facts, net

from vta_byoc.hw.isa import ISA, Instruction, MemType, Opcode, Queue
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing.result import STALLS
from vta_byoc.partition import Placement
from vta_byoc.partitioning.placement import Taken
from vta_byoc.reports.html.charts import charts
from vta_byoc.reports.run.buffers import SRAMS
from vta_byoc.reports.run.layers import BUSY, model_facts, shared
from vta_byoc.reports.run.trace_layer import trace_layer
from vta_byoc.strategies.base import LayerWork
from vta_byoc.strategies.conv.conv2d_transpose import CONV2D_TRANSPOSE
from vta_byoc.workload.workloads import ConvTransposeWorkload


class TestFacts:
    def test_cycles_are_those_of_the_timing_result(self) -> None:
        for region, layers in itertools.groupby(facts().layers, key=lambda layer: layer.region):
            result = simulate(net())
            for layer, wanted in zip(layers, result.layers, strict=True):
                assert (layer.name, layer.cycles, region) == (wanted.name, wanted.cycles, region)
                for queue, breakdown in layer.breakdown.items():
                    time = wanted.queues[queue]
                    assert sum(breakdown[what] for what in BUSY) == time.busy
                    assert breakdown["startup"] == time.startup
                    assert {reason: breakdown[reason] for reason in STALLS} == time.stalls

    def test_every_cycle_of_every_queue_is_there(self) -> None:
        assert facts().cycles == 2 * simulate(net()).cycles
        for queue in Queue:
            assert sum(facts().queue(queue).values()) == facts().cycles

    def test_work_is_what_the_instructions_ask_for(self) -> None:
        timing = facts().timing
        for layer in facts().layers:
            breakdown = layer.breakdown[Queue.COMPUTE]
            assert breakdown["GEMM"] == layer.counters["gemm_counter"]
            alu = layer.counters["alu_counter"]
            assert timing.alu_imm_cycles * alu <= breakdown["ALU"] <= timing.alu_tensor_cycles * alu
            assert layer.breakdown[Queue.STORE]["GEMM"] == 0

    def test_bytes_are_those_of_the_port(self) -> None:
        moved, dram = simulate(net()).port_bytes, facts().dram
        assert dram["wgt"] + dram["inp"] == 2 * moved["load"]
        assert dram["acc"] + dram["uop"] == 2 * moved["compute"]
        assert dram["out"] == 2 * moved["store"]
        assert dram["insn"] == 2 * moved["fetch"]

    def test_counters(self) -> None:
        assert facts().counters == {n: 2 * count for n, count in net().counters().items()}

    def test_work_is_the_models(self) -> None:
        """An operator of two layers, here one in each region, has its work once."""
        assert facts().peak == 256
        for first, second, macs, alu_ops in zip(
            facts().layers[:3],
            facts().layers[3:],
            (WORK.macs, WORK.macs, 0),
            (8_192, 8_192, 4_099),
            strict=True,
        ):
            assert (first.macs + second.macs, first.alu_ops + second.alu_ops) == (macs, alu_ops)
            assert abs(first.alu_ops - second.alu_ops) <= 1
        conv, add = facts().layers[0], facts().layers[2]
        assert conv.achieved == WORK.macs / 2 / conv.cycles
        assert conv.intensity == WORK.macs / 2 / sum(conv.dram.values())
        assert (add.macs, add.achieved, add.intensity) == (0, 0, 0)
        assert [layer.how for layer in facts().layers] == [FOLD.how, "packed GEMM", ""] * 2

    def test_folded_and_depthwise_layers_count_the_unpacked_operator(self) -> None:
        """What the instructions multiply, zeros included, changes the micro-ops only."""
        builder = NetBuilder(SIM)
        builder.input("x", 1, 32, 8, 8)
        work = dataclasses.replace(WORK, groups=32)
        builder.conv("dw", "x", work, kind="output")
        op = Placement("dw", "relax.nn.conv2d", "vta", Taken("vta.conv2d"), work.macs, 9)
        found = model_facts(SIM, {"region0": builder.finish("dw").program}, [op])
        (layer,) = found.layers
        assert layer.macs == work.macs == found.macs == WORK.macs // 32
        assert layer.macs < 256 * layer.counters["gemm_counter"]
        (point,) = charts(found)["roofline"]["data"][1]["y"]
        assert point == work.macs / layer.cycles

    def test_a_layer_of_several_kernels_is_one_layer(self) -> None:
        """A transposed convolution is computed phase by phase: one row, one point, one slice."""
        work = ConvTransposeWorkload(
            *(1, 32, 32, 8, 8, (3, 3), (2, 2), (1, 1, 1, 1)),
            output_padding=(1, 1),
            epilogue=rescale(9),
        )
        assert len(CONV2D_TRANSPOSE.choose(LayerWork(work), SIM).kernels) > 1
        builder = NetBuilder(SIM)
        builder.input("x", *work.in_shapes[0])
        builder.conv_transpose("up", "x", work)
        builder.conv("end", "up", dataclasses.replace(WORK, height=16, width=16), kind="output")
        program = builder.finish("end").program
        macs = 8 * 8 * 32 * 32 * 9
        up = Placement("up", "relax.nn.conv2d_transpose", "vta", Taken("vta.x"), macs)
        end = Placement("end", "relax.nn.conv2d", "vta", Taken("vta.conv2d"), 4 * WORK.macs)
        found = model_facts(SIM, {"region0": program}, [up, end])
        assert [(layer.name, layer.macs) for layer in found.layers] == [
            ("up", macs),
            ("end", 4 * WORK.macs),
        ]
        assert all(layer.achieved <= 256 for layer in found.layers)
        assert sum(sum(x.breakdown[Queue.COMPUTE].values()) for x in found.layers) <= found.cycles
        points = charts(found)["roofline"]["data"][1]
        assert points["x"] == [layer.intensity for layer in found.layers]
        part = trace_layer({"region0": program}, "up")["traceEvents"]
        slices = [e["name"] for e in part if e["ph"] == "X" and e["tid"] == 0]
        assert slices.count("up") == 1 and "end" not in slices
        insns = [e["args"]["insn"] for e in part if e["ph"] == "X" and "text" in e["args"]]
        assert sorted(insns) == list(range(program.layers[0].begin, program.layers[0].end))

    @pytest.mark.parametrize(
        ("amount", "weights", "parts"),
        [
            (10, [1], [10]),
            (10, [1, 1], [5, 5]),
            (10, [1, 2], [3, 7]),
            (10, [0, 5], [0, 10]),
            (7, [0, 0, 0], [2, 2, 3]),
            (0, [3, 4], [0, 0]),
            (5, [], []),
        ],
    )
    def test_shares_add_up(self, amount: int, weights: list[int], parts: list[int]) -> None:
        assert shared(amount, weights) == parts

    def test_buffers_step_by_step(self) -> None:
        wanted = touched_slowly(net())
        for layer, spaces in zip(facts().layers, wanted, strict=False):
            for name, use in layer.sram.items():
                assert use.used == len(spaces[name])
                assert use.high == max(spaces[name], default=-1) + 1
                assert use.depth == getattr(SIM, f"{name}_depth")


def touched_slowly(program: Program) -> list[dict[str, set[int]]]:
    """The SRAM elements of each layer, micro-op by micro-op."""
    isa, uops = ISA.of(program.config), [0] * program.config.uop_depth
    image = program.image.view(np.uint32)
    spaces = {MemType.OUT: "acc", MemType.ACC_8BIT: "acc"}
    layers = []
    for layer in program.layers:
        found: dict[str, set[int]] = {name: set() for name in SRAMS}
        for words in program.insns[layer.begin : layer.end].tolist():
            insn = isa.decode(*words)
            if insn.opcode in (Opcode.LOAD, Opcode.STORE):
                mem = MemType(insn["mem_type"])
                width = insn["x_pad_0"] + insn["x_size"] + insn["x_pad_1"]
                height = insn["y_pad_0"] + insn["y_size"] + insn["y_pad_1"]
                count = width * height if insn["x_size"] and insn["y_size"] else 0
                at = range(insn["sram_base"], insn["sram_base"] + count)
                found[spaces.get(mem, mem.name.lower())] |= set(at)
                if mem == MemType.UOP:
                    first = insn["dram_base"] - program.input_bytes // 4
                    for i in range(count):
                        uops[insn["sram_base"] + i] = int(image[first + i])
            elif insn.opcode != Opcode.FINISH:
                found["uop"] |= set(range(insn["uop_bgn"], insn["uop_end"]))
                for fields in map(isa.decode_uop, uops[insn["uop_bgn"] : insn["uop_end"]]):
                    found["acc"] |= addressed(insn, fields, "dst")
                    if insn.opcode == Opcode.GEMM and not insn["reset"]:
                        found["inp"] |= addressed(insn, fields, "src")
                        found["wgt"] |= addressed(insn, fields, "wgt")
                    elif insn.opcode == Opcode.ALU and not insn["use_imm"]:
                        found["acc"] |= addressed(insn, fields, "src")
        layers.append(found)
    return layers


def addressed(insn: Instruction, uop: dict[str, int], operand: str) -> set[int]:
    """What one micro-op addresses over both loops."""
    out, inner = insn[f"{operand}_factor_out"], insn[f"{operand}_factor_in"]
    loops = itertools.product(range(insn["iter_out"]), range(insn["iter_in"]))
    return {uop[operand] + i * out + j * inner for i, j in loops}
