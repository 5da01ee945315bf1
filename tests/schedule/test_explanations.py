"""What `explain` says of schedules: their blocks, what could be better, whether results agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from own_schedules import CHAIN, Layer, Recipe, right
from tvm import s_tir, tirx

import vta_byoc.schedule as vs
from vta_byoc.hw.config import VTAConfig

WIDE = Layer(inputs=16, outputs=16)


def wide(tile: int = 8) -> Recipe:
    return Recipe(WIDE, tile).stage().inline().tiles().state()


def row(found: vs.Explanation, name: str) -> vs.BlockFacts:
    return next(block for block in found.blocks if block.name == name)


# ---------------------------------------------------------------- what each block is
def test_every_block_of_a_right_schedule() -> None:
    found = vs.explain(wide().sch, definition=WIDE.definition())
    assert {b.name: b.is_what for b in found.blocks} == {
        "acc_init": "GEMM reset",
        "data_local.inp_buffer": "LOAD",
        "weight_local.wgt_buffer": "LOAD",
        "acc_update": "GEMM",
        "out": "ALU, STORE",
    }
    assert found.ok and found.equals_definition and found.equals_host
    assert not found.problems and found.kernel is not None


def test_the_numbers_of_a_block() -> None:
    found = vs.explain(wide().sch)
    weights = row(found, "weight_local.wgt_buffer")
    assert (weights.scope, weights.runs) == (vs.WGT, 4)
    # 8 x 8 blocks of 256 bytes in two slots, of 256 KiB
    assert (weights.sram_bytes, weights.sram_size) == (2 * 64 * 256, 1 << 18)
    assert weights.dram_bytes == 16 * 16 * 256
    assert (weights.instructions, weights.micro_ops) == (4, 0)
    update = row(found, "acc_update")
    assert (update.micro_ops, update.instructions) == (256, 4 + 2)  # two load micro-ops
    assert update.sram_bytes == 2 * 8 * 64


def test_blocks_add_up_to_the_program() -> None:
    found = vs.explain(wide().sch)
    assert found.kernel is not None
    counters = found.kernel.counters
    moved = sum(n for name, n in counters.items() if name.endswith("_nbytes"))
    assert sum(b.dram_bytes for b in found.blocks) == moved
    steps = counters["gemm_counter"] + counters["alu_counter"]
    assert sum(b.micro_ops for b in found.blocks) == steps


@pytest.mark.parametrize(("slots", "count"), [(None, 2), (1, 1), (3, 3), ({vs.WGT: 1}, 1)], ids=str)
def test_sram_holds_every_slot(slots: int | dict[str, int] | None, count: int) -> None:
    found = vs.explain(wide().sch, slots=slots)
    assert row(found, "weight_local.wgt_buffer").sram_bytes == count * 64 * 256


def test_a_schedule_that_is_not_begun() -> None:
    definition = Layer().definition()
    found = vs.explain(s_tir.Schedule(definition), definition=definition)
    assert {b.is_what for b in found.blocks} == {"not VTA"}
    assert len(found.problems) == len(found.blocks) == 5
    assert found.equals_definition and found.equals_host is None and not found.ok


def test_tiles_that_do_not_fit() -> None:
    recipe = Recipe(Layer(inputs=64, outputs=64), tile=64).stage().inline().tiles().state()
    found = vs.explain(recipe.sch)
    (problem,) = found.problems
    assert problem.startswith("block weight_local.wgt_buffer: local.wgt_buffer needs 4096 elements")
    assert not found.ok


def test_another_machine_is_another_answer() -> None:
    small = VTAConfig.from_dict({"LOG_WGT_BUFF_SIZE": 13})
    assert vs.explain(wide().sch).ok
    assert not vs.explain(wide().sch, small).ok
    assert vs.explain(wide(2).sch, small).ok


# ---------------------------------------------------------------- what could be better
def remark(found: vs.Explanation, text: str) -> str:
    """The one remark with a text in it."""
    (match,) = [line for line in found.remarks if text in line]
    return match


def test_a_right_schedule_has_one_remark() -> None:
    """Each tile of outputs wants all inputs."""
    assert vs.explain(wide().sch).remarks == (
        "block data_local.inp_buffer loads 512 bytes of data, which has 256, because i1_0 does not "
        "move it; compute_at it further out, reorder, or make the tiles larger",
    )


def test_a_missing_compute_inline() -> None:
    """Every step of the chain in a tensor of its own doubles what the ALU does."""
    recipe = Recipe().stage()
    sch = recipe.sch
    for name in CHAIN:
        sch.set_scope(name, 0, vs.ACC)
    *spatial, part, lane = sch.get_loops("acc")
    sch.reorder(part, *spatial, lane)
    sch.decompose_reduction("acc", part)
    recipe.state("out")
    for name in CHAIN:
        vs.alu(sch, name)
    vs.dma_copy(sch, "out")
    found = vs.explain(sch, definition=recipe.definition)
    assert found.ok and found.kernel is not None
    assert found.kernel.counters["alu_counter"] == 2 * 3 * 4
    assert remark(found, "block shifted") == (
        "block shifted computes into shifted_local.acc_buffer, a second tensor in "
        "local.acc_buffer; the ALU has no move, so 4 of 24 ALU micro-ops of the kernel only copy; "
        "compute_inline shifted"
    )
    assert len([line for line in found.remarks if "compute_inline" in line]) == 3


def test_a_missing_reorder() -> None:
    """The loop over outputs stays outside of the reduction's tiles."""

    def order(part: Any, rest: Any, n: Any, o: Any, b: Any, k: Any, rk: Any) -> Sequence[Any]:
        return o, part, rest, n, b, k, rk

    found = vs.explain(Recipe(WIDE, 8).stage().inline().tiles(order).state().sch)
    assert remark(found, "acc_update") == (
        "block acc_update becomes 256 instructions of 1 micro-op, and each takes 10 cycles to "
        "start; reorder so that more loops over elements run inside of it: i1_0, ax1, ax4_0 are "
        "outside"
    )
    assert remark(found, "data_local") == (
        "block data_local.inp_buffer loads 4,096 bytes of data, which has 256, because i1_0 and "
        "ax1 do not move it; compute_at it further out, reorder, or make the tiles larger"
    )


def test_truncation_without_clip() -> None:
    layer = Layer(clip=lambda v: v)
    found = vs.explain(right(layer).sch)
    assert found.ok
    assert remark(found, "STORE keeps") == (
        "block out stores values that may be -128 to 4,096; STORE keeps the low 8 bits, so that "
        "128 becomes -128; clip them before the cast to int8: T.max(T.min(x, 127), -128), after a "
        "shift where the values are to be scaled"
    )


def test_one_slot() -> None:
    assert remark(vs.explain(wide().sch, slots=1), "slots=2") == (
        "block data_local.inp_buffer and block weight_local.wgt_buffer: each tile goes to one "
        "place in SRAM, so that LOAD and GEMM wait for each other; give slots=2, or bind a loop "
        "around them to vthread.x"
    )


# ---------------------------------------------------------------- results
def test_another_definition_is_noticed() -> None:
    other = Layer(clip=lambda v: tirx.Min(v, 3)).definition()
    found = vs.explain(right().sch, definition=other)
    assert found.equals_definition is False and found.equals_host and not found.ok
    assert "differs: the schedule does not compute what its definition does" in str(found)


def test_constants_are_used() -> None:
    weight = np.zeros((16, 16, 16, 16), np.int8)
    found = vs.explain(wide().sch, constants={"weight": weight})
    assert found.ok and found.kernel is not None
    assert np.array_equal(found.kernel.constants["weight"], weight)


# ---------------------------------------------------------------- showing it
def test_as_text() -> None:
    text = str(vs.explain(right().sch, definition=Layer().definition()))
    assert repr(vs.explain(right().sch)).splitlines()[0] == text.splitlines()[0]
    head, _, first, *_ = text.splitlines()
    assert head.split()[:4] == ["block", "is", "scope", "runs"]
    assert first.split()[:4] == ["acc_init", "GEMM", "reset", "local.acc_buffer"]
    assert "same: the schedule computes what its definition does (random inputs, LLVM)" in text
    assert "same: VTA computes what the host does (random inputs, bit for bit)" in text


def test_as_html() -> None:
    page = vs.explain(Recipe().stage().sch)._repr_html_()
    assert page.startswith("<table>") and "<td>acc</td><td>not VTA</td>" in page
    assert "problem: block acc still holds its init" in page
