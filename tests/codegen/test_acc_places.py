"""Places of accumulators: the first tile of a kernel is not where the last one before is stored."""

from __future__ import annotations

import pytest

from vta_byoc.codegen.acc_places import place, place_accumulators
from vta_byoc.codegen.stream import DRAM, Insn
from vta_byoc.codegen.uops import Kernel
from vta_byoc.hw.isa import MemType, Opcode, Queue


def kernel_of(size: int, *slots: int, operand: str = "") -> list[Insn]:
    """Tiles of ``size`` accumulators, each in one of ``slots``; the ALU reads what is loaded."""
    stream: list[Insn] = []
    for at in slots:
        tile, loaded = ("acc", at, at + size - 1), ("acc", at + size - 1, at + size)
        if operand:
            fields = {"mem_type": int(MemType.ACC), "sram_base": at + size - 1}
            reads = [(DRAM + operand, 0, 64)]
            stream.append(Insn(Opcode.LOAD, Queue.COMPUTE, fields, reads, [loaded]))
        stream.append(compute(Opcode.GEMM, {"reset": 1}, [], tile, (at, 0, 0)))
        reads = [tile, ("inp", 3, 7), ("wgt", 5, 6)]
        stream.append(compute(Opcode.GEMM, {}, reads, tile, (at, 3, 5)))
        stream.append(compute(Opcode.ALU, {}, [tile, loaded], tile, (at, at + size - 1, 0)))
        fields = {"mem_type": int(MemType.OUT), "sram_base": at}
        stream.append(Insn(Opcode.STORE, Queue.STORE, fields, [tile], [(DRAM + "r", 0, 9)]))
    return stream


def compute(
    opcode: Opcode,
    fields: dict[str, int],
    reads: list[tuple[str, int, int]],
    tile: tuple[str, int, int],
    uop: tuple[int, int, int],
) -> Insn:
    return Insn(opcode, Queue.COMPUTE, fields, reads, [tile], kernel=Kernel([uop]))


def placed(*kernels: list[Insn], depth: int = 100) -> list[int]:
    """How far each kernel was moved, on which all its instructions agree."""
    first = [stream[-1].fields["sram_base"] for stream in kernels]
    place_accumulators(kernels, depth)
    found = []
    for stream, before in zip(kernels, first, strict=True):
        found.append(stream[-1].fields["sram_base"] - before)
        for insn in stream:
            check(insn)
            assert all(high <= depth for space, _, high in insn.reads if space == "acc")
    return found


def check(insn: Insn) -> None:
    """Intervals, fields and micro-ops name one place."""
    if insn.kernel is None:
        (_, at, _) = insn.writes[0] if insn.opcode == Opcode.LOAD else insn.reads[0]
        assert insn.fields["sram_base"] == at
        return
    ((dst, src, wgt),) = insn.kernel
    assert dst == insn.writes[0][1]
    if insn.opcode == Opcode.ALU:
        assert (src, wgt) == (insn.reads[1][1], 0)
    elif insn.reads:
        assert (src, wgt) == (3, 5) and insn.reads[1:] == [("inp", 3, 7), ("wgt", 5, 6)]


def test_a_kernel_begins_where_the_one_before_does_not_end() -> None:
    """Of the first kernel's three tiles the last one is where it began; the third is free to."""
    assert placed(kernel_of(10, 0, 10, 0), kernel_of(20, 0, 20), kernel_of(8, 0)) == [0, 10, 0]


def test_what_a_tile_reads_last_is_part_of_it() -> None:
    """The operand of its last ALU lies where the last tile before is stored."""
    far = kernel_of(10, 0)
    alu = far[-2]
    alu.reads[1] = ("acc", 24, 25)
    alu.kernel = Kernel([(0, 24, 0)])
    assert placed(kernel_of(10, 0, 20), kernel_of(10, 0)) == [0, 0]
    assert placed(kernel_of(10, 0, 20), far) == [0, 30]


def test_what_ends_elsewhere_moves_nothing() -> None:
    assert placed(kernel_of(10, 0, 10), kernel_of(10, 0, 10), kernel_of(10, 0, 10)) == [0, 0, 0]


def test_accumulators_that_fill_sram_stay() -> None:
    assert placed(kernel_of(50, 0), kernel_of(50, 0, 50)) == [0, 0]
    assert placed(kernel_of(50, 0), kernel_of(50, 0), depth=99) == [0, 0]


def test_kernels_with_an_operand_in_common_have_one_place() -> None:
    """The second has the first's operand in SRAM; moved apart it would be loaded again."""
    kernels = [kernel_of(10, 0, operand=name) for name in "abbc"]
    assert placed(*kernels) == [0, 10, 10, 0]
    kernels = [kernel_of(10, 0, operand=name) for name in "ab"]
    assert placed(*kernels, kernel_of(95, 0, operand="b")) == [0, 10, 5], "as far as it fits"


def test_kernels_that_clear_nothing_stay() -> None:
    work = compute(Opcode.ALU, {}, [("acc", 0, 4), ("acc", 4, 5)], ("acc", 0, 4), (0, 4, 0))
    place_accumulators([kernel_of(10, 0), [work], kernel_of(10, 0)], 100)
    assert work.kernel == ((0, 4, 0),) and work.reads[0] == ("acc", 0, 4)


@pytest.mark.parametrize(
    ("first", "taken", "most", "at"),
    [
        ((0, 10), (20, 30), 50, 0),
        ((0, 10), (5, 15), 50, 15),
        ((0, 10), (12, 22), 2, 0),
        ((10, 20), (10, 30), 50, 20),
        ((0, 10), (5, 15), 14, 0),
    ],
)
def test_the_lowest_place_with_least_in_common(
    first: tuple[int, int], taken: tuple[int, int], most: int, at: int
) -> None:
    assert place(first, taken, most) == at


def test_one_accumulator_in_common_is_worse_than_none() -> None:
    """The first tile's last element is stored by the kernel before: it moves behind that one's."""
    assert place((0, 4), (3, 8), 10) == 8
    assert place((0, 4), (4, 8), 10) == 0
