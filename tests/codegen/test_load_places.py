"""Places of weights and micro-ops in SRAM, and the LOADs of micro-ops that become one."""

from __future__ import annotations

import dataclasses

import pytest
from tvm import tirx

from vta_byoc.codegen.sram import SramMap
from vta_byoc.codegen.stream import DRAM, Insn
from vta_byoc.codegen.uop_loads import UOPS, with_uop_loads
from vta_byoc.codegen.uops import BEST, Kernel, UopBuffer
from vta_byoc.codegen.weight_places import place_weights
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import MemType, Opcode, Queue
from vta_byoc.workload.memory import WGT

CONFIG = dataclasses.replace(VTAConfig(), log_uop_buff_size=5)
"""Eight micro-ops fit."""


def gemm(first: int, count: int) -> Insn:
    kernel = Kernel((first + k, 0, 0) for k in range(count))
    return Insn(Opcode.GEMM, Queue.COMPUTE, {}, kernel=kernel)


def loads(insns: list[Insn]) -> list[tuple[int, int, int]]:
    """(SRAM, DRAM, elements) of each LOAD of micro-ops."""
    found = [insn for insn in insns if insn.symbol == UOPS]
    return [(i.fields["sram_base"], i.addend, i.fields["x_size"]) for i in found]


def brought(insns: list[Insn], words: list[int]) -> list[list[int]]:
    """The words that each computation finds in SRAM."""
    sram, found = [-1] * CONFIG.uop_depth, []
    for insn in insns:
        if insn.symbol == UOPS:
            at, size = insn.fields["sram_base"], insn.fields["x_size"]
            sram[at : at + size] = words[insn.addend : insn.addend + size]
        else:
            found.append(sram[insn.fields["uop_bgn"] : insn.fields["uop_end"]])
    return found


def test_micro_ops_of_a_kernel_come_together() -> None:
    given = [gemm(0, 2), gemm(10, 3), gemm(0, 2), gemm(20, 1)]
    apart = with_uop_loads(given, UopBuffer(CONFIG, BEST), joined=False)
    assert loads(apart) == [(0, 0, 2), (2, 2, 3), (5, 5, 1)]
    stream = with_uop_loads(given, UopBuffer(CONFIG, BEST), joined=True)
    assert loads(stream) == [(0, 0, 6)]
    assert stream[0].symbol == UOPS and stream[1:] == given


def test_micro_ops_that_begin_anew_are_loaded_then() -> None:
    """The third kernel does not fit behind the others: SRAM is filled from its first element on."""
    given = [gemm(0, 4), gemm(10, 4), gemm(20, 2), gemm(30, 1), gemm(0, 4)]
    buffer = UopBuffer(CONFIG, BEST)
    stream = with_uop_loads(given, buffer, joined=True)
    assert loads(stream) == [(0, 0, 8), (0, 8, 3), (3, 0, 4)]
    assert [insn.symbol for insn in stream[:4]] == [UOPS, None, None, UOPS]
    encoded = [buffer._encoded(insn.kernel) for insn in given if insn.kernel]
    assert brought(stream, buffer.words) == encoded


def test_micro_ops_elsewhere_in_dram_are_no_part() -> None:
    """What a kernel before has stored lies in another place of DRAM than what follows in SRAM."""
    buffer = UopBuffer(CONFIG, BEST)
    with_uop_loads([gemm(0, 3), gemm(10, 4), gemm(20, 2)], buffer, joined=True)
    stream = with_uop_loads([gemm(30, 1), gemm(10, 4), gemm(40, 1)], buffer, joined=True)
    assert loads(stream) == [(2, 9, 1), (3, 3, 4), (7, 10, 1)]


def test_micro_ops_come_before_what_needs_none_of_them() -> None:
    """The first computations of a kernel have theirs in SRAM from the one before."""
    buffer = UopBuffer(CONFIG, BEST)
    with_uop_loads([gemm(0, 3)], buffer, joined=True)
    given = [gemm(0, 3), gemm(10, 2), gemm(20, 2)]
    stream = with_uop_loads(given, buffer, joined=True)
    assert loads(stream) == [(3, 3, 4)]
    assert stream[0].symbol == UOPS and stream[1:] == given
    (before,) = with_uop_loads([gemm(0, 3)], buffer, joined=True)
    assert before.kernel is not None, "nothing is to be loaded"


def test_micro_ops_that_begin_anew_come_no_earlier() -> None:
    """The first computation still reads what lies where the LOAD writes."""
    buffer = UopBuffer(CONFIG, BEST)
    with_uop_loads([gemm(0, 6)], buffer, joined=True)
    given = [gemm(0, 6), gemm(10, 4)]
    stream = with_uop_loads(given, buffer, joined=True)
    assert loads(stream) == [(0, 6, 4)]
    assert [insn.symbol for insn in stream] == [None, UOPS, None]


# ------------------------------------------------------------------ weights
def kernel_of(tensor: str, size: int, micro: int = 0) -> list[Insn]:
    fields = {"mem_type": int(MemType.WGT), "sram_base": 0}
    load = Insn(Opcode.LOAD, Queue.LOAD, fields, [(DRAM + tensor, 0, 9)], [("wgt", 0, size)])
    reads = [("inp", 0, 4), ("wgt", 0, size)]
    kernel = Kernel([(micro, 0, 0), (micro, 1, size - 1)])
    return [load, Insn(Opcode.GEMM, Queue.COMPUTE, {}, reads, kernel=kernel)]


def placed(*sizes: int, tensors: str = "", depth: int = 100) -> list[int]:
    """The first element of the weights of kernels, whose instructions agree on it."""
    names = tensors or "abcdefgh"[: len(sizes)]
    given = [
        kernel_of(name, size, k) for k, (name, size) in enumerate(zip(names, sizes, strict=True))
    ]
    place_weights(given, depth)
    found = []
    for (load, work), size in zip(given, sizes, strict=True):
        at = load.fields["sram_base"]
        assert load.writes == [("wgt", at, at + size)] and at + size <= depth
        assert work.reads == [("inp", 0, 4), ("wgt", at, at + size)] and work.kernel is not None
        assert [(src, wgt) for _, src, wgt in work.kernel] == [(0, at), (1, at + size - 1)]
        found.append(at)
    return found


def overlap(places: list[int], sizes: tuple[int, ...]) -> list[int]:
    """Elements that neighbours share."""
    ends = [at + size for at, size in zip(places, sizes, strict=True)]
    pairs = zip(places, ends, places[1:], ends[1:], strict=False)
    return [max(0, min(b, d) - max(a, c)) for a, b, c, d in pairs]


@pytest.mark.parametrize("sizes", [(30, 40), (30, 30, 30), (50, 50, 50, 50), (20, 70, 30, 60)])
def test_neighbours_have_places_of_their_own(sizes: tuple[int, ...]) -> None:
    assert not any(overlap(placed(*sizes), sizes))


def test_of_equal_places_weights_take_the_last() -> None:
    """The first kernel shares the second's place anyhow, and half of the third's at either end."""
    assert placed(90, 20, 20, 20) == [10, 60, 80, 0]


def test_weights_that_do_not_fit_side_by_side_share_least() -> None:
    assert overlap(placed(70, 60), (70, 60)) == [30]
    assert placed(100, 100) == [0, 0]


def test_kernels_with_weights_in_common_stay_together() -> None:
    """The second has the first's weights in SRAM; moved apart they would be loaded again."""
    first, second, third = placed(30, 30, 40, tensors="aab")
    assert first == second and not set(range(first, first + 30)) & set(range(third, third + 40))
    first, second, third = placed(30, 40, 30, tensors="abb")
    assert second == third and overlap([first, second], (30, 40)) == [0]
    assert overlap(placed(30, 30, 30, tensors="aba"), (30, 30, 30)) == [0, 0]


def test_kernels_without_weights_stay() -> None:
    work = Insn(Opcode.ALU, Queue.COMPUTE, {}, [("acc", 0, 4)], [("acc", 0, 4)])
    work.kernel = Kernel([(0, 1, 0)])
    place_weights([kernel_of("a", 30), [work], kernel_of("b", 30)], 100)
    assert work.kernel == ((0, 1, 0),) and work.reads == [("acc", 0, 4)]


@pytest.mark.parametrize("others", [(), (1,), (7,), (3, 6)])
def test_weights_ahead_have_the_room_that_other_tiles_leave(others: tuple[int, ...]) -> None:
    """The largest tile has its slots beside two of every other one, and never less than two."""
    sizes = [CONFIG.wgt_depth // 64 * size for size in (8, *others)]
    shapes = {
        tirx.decl_buffer((size, 16, 16), "int8", f"w{number}", scope=WGT): (size, 16, 16)
        for number, size in enumerate(sizes)
    }
    largest, *rest = shapes
    for room in (CONFIG.wgt_depth // 2, CONFIG.wgt_depth):
        sram, places = SramMap(CONFIG, shapes, {}, room), set()
        for other in rest * 3:
            sram.new_instance(other, None)
        for _ in range(20):
            sram.new_instance(largest, None)
            places.add(sram[largest].base)
        assert len(places) == max(2, (room - 2 * sum(sizes[1:])) // sizes[0])
