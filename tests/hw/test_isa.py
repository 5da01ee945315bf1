"""The instruction set against the published bit layout."""

from __future__ import annotations

import pytest

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES, dram_elem_bytes
from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import (
    IMMEDIATE_HIGH,
    IMMEDIATE_LOW,
    INSN_BYTES,
    ISA,
    LAYOUTS,
    LOOP_LIMIT,
    MEMORY_TYPES,
    PAD_LIMIT,
    PADS,
    SIZE_LIMIT,
    SIZES,
    UOP_BYTES,
    UOP_LAYOUT,
    AluOp,
    MemType,
    Opcode,
    Queue,
    overfull,
)

GOLDEN = [
    (
        "load",
        Opcode.LOAD,
        {
            "pop_next": 1,
            "push_next": 1,
            "mem_type": MemType.INP,
            "sram_base": 0x123,
            "dram_base": 0x89ABCDEF,
            "y_size": 14,
            "x_size": 28,
            "x_stride": 56,
            "y_pad_0": 1,
            "y_pad_1": 2,
            "x_pad_0": 3,
            "x_pad_1": 4,
        },
        ("0226af37bc048d50", "43210038001c000e"),
        "LOAD   INP      sram 291 dram 0x89abcdef y 14 x 28 stride 56 pad 1,2,3,4"
        "  [pop_next push_next]",
    ),
    (
        "gemm",
        Opcode.GEMM,
        {
            "pop_prev": 1,
            "push_prev": 1,
            "uop_bgn": 5,
            "uop_end": 41,
            "iter_out": 14,
            "iter_in": 7,
            "dst_factor_out": 98,
            "dst_factor_in": 14,
            "src_factor_out": 257,
            "src_factor_in": 16,
            "wgt_factor_out": 9,
            "wgt_factor_in": 3,
        },
        ("000e00700520052a", "00c0902040407062"),
        "GEMM   MAC      uop 5-41 iter 14,7 dst 98,14 src 257,16 wgt 9,3  [pop_prev push_prev]",
    ),
    (
        "alu",
        Opcode.ALU,
        {
            "push_next": 1,
            "uop_bgn": 1,
            "uop_end": 2,
            "iter_out": 3,
            "iter_in": 196,
            "dst_factor_out": 196,
            "dst_factor_in": 1,
            "src_factor_out": 196,
            "src_factor_in": 1,
            "alu_opcode": AluOp.SHR,
            "use_imm": 1,
            "imm": -5,
        },
        ("0188001800400144", "fffbb002310008c4"),
        "ALU    SHR      uop 1-2 iter 3,196 dst 196,1 imm -5  [push_next]",
    ),
]


@pytest.mark.parametrize(
    ("opcode", "fields", "words", "text"),
    [g[1:] for g in GOLDEN],
    ids=[g[0] for g in GOLDEN],
)
def test_golden_words(opcode, fields, words, text):
    isa = ISA.of(VTAConfig())
    got = isa.encode(opcode, **fields)
    assert tuple(f"{w:016x}" for w in got) == words
    insn = isa.decode(*got)
    assert insn.opcode == opcode
    assert {k: v for k, v in insn.fields.items() if v and k != "opcode"} == fields
    assert format_instruction(insn) == text


def test_golden_uop():
    isa = ISA.of(VTAConfig())
    assert isa.encode_uop(dst=1000, src=77, wgt=513) == 0x80426BE8
    assert isa.decode_uop(0x80426BE8) == {"dst": 1000, "src": 77, "wgt": 513}


def test_range_error_names_field_value_and_limit():
    isa = ISA.of(VTAConfig())
    with pytest.raises(VTAError) as err:
        isa.encode(Opcode.GEMM, iter_in=20000)
    assert str(err.value) == (
        "GEMM field iter_in is 20000; its 14 bits hold 0 to 16383; "
        "split the operation or use a smaller tile"
    )
    with pytest.raises(VTAError, match=r"ALU field imm is 40000; its 16 bits hold -32768 to 32767"):
        isa.encode(Opcode.ALU, imm=40000)
    with pytest.raises(VTAError, match=r"micro-op field wgt is 1024; its 10 bits hold 0 to 1023"):
        isa.encode_uop(wgt=1024)


def test_unknown_opcode_and_reserved_bits_are_refused():
    isa = ISA.of(VTAConfig())
    with pytest.raises(VTAError, match="opcode 5 in word .*known opcodes are 0 to 4"):
        isa.decode(5, 0)
    with pytest.raises(VTAError, match="FINISH word 1 .* sets reserved bits 0000000000000001"):
        isa.decode(3, 1)
    with pytest.raises(VTAError, match="LOAD word 0 .* sets reserved bits"):
        isa.decode(1 << 63, 0)


def test_every_field_of_every_machine_holds_its_limits():
    for name in VTAConfig.presets():
        isa = ISA.of(VTAConfig.preset(name))
        for opcode, fields in isa.instructions.items():
            for f in fields[1:]:
                for value in (f.low, f.high):
                    assert isa.decode(*isa.encode(opcode, **{f.name: value}))[f.name] == value
                with pytest.raises(VTAError, match=f"field {f.name} is {f.high + 1}"):
                    isa.encode(opcode, **{f.name: f.high + 1})


def test_default_machine_fills_its_words():
    isa = ISA.of(VTAConfig())
    used = {
        (op, word): sum(f.width for f in fields if f.word == word)
        for op, fields in isa.instructions.items()
        for word in (0, 1)
    }
    assert used[Opcode.GEMM, 1] == 64
    assert used[Opcode.ALU, 1] == 64
    assert used[Opcode.GEMM, 0] == 63
    assert sum(f.width for f in isa.uop) == 32


def test_queues():
    isa = ISA.of(VTAConfig())
    loads = {m: isa.decode(*isa.encode(Opcode.LOAD, mem_type=m)).queue for m in MemType}
    assert loads[MemType.INP] == loads[MemType.WGT] == Queue.LOAD
    assert loads[MemType.UOP] == loads[MemType.ACC] == loads[MemType.ACC_8BIT] == Queue.COMPUTE
    assert isa.decode(*isa.encode(Opcode.STORE)).queue == Queue.STORE
    assert isa.decode(*isa.encode(Opcode.FINISH)).queue == Queue.COMPUTE


def test_every_opcode_has_a_layout_that_names_each_field_once():
    assert set(LAYOUTS) == set(Opcode)
    for layout in (*LAYOUTS.values(), UOP_LAYOUT):
        names = [spec.name for word in layout.words for spec in word]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", VTAConfig.presets())
def test_fields_do_not_overlap_and_fit_their_words(name):
    isa = ISA.of(VTAConfig.preset(name))
    for fields, width in [*((f, 64) for f in isa.instructions.values()), (isa.uop, 32)]:
        bits = [(f.word, bit) for f in fields for bit in range(f.lsb, f.lsb + f.width)]
        assert len(bits) == len(set(bits)) and all(0 <= bit < width for _, bit in bits)
        assert min(f.width for f in fields) >= 1


def test_limits_are_those_of_the_fields():
    isa = ISA.of(VTAConfig())
    assert {isa.limit(Opcode.LOAD, name) for name in SIZES} == {SIZE_LIMIT} == {65535}
    assert {isa.limit(Opcode.STORE, name) for name in PADS} == {PAD_LIMIT} == {15}
    loops = {isa.limit(op, f"iter_{x}") for op in (Opcode.GEMM, Opcode.ALU) for x in ("in", "out")}
    assert loops == {LOOP_LIMIT} == {16383}
    imm = isa.field(Opcode.ALU, "imm")
    assert (imm.low, imm.high) == (IMMEDIATE_LOW, IMMEDIATE_HIGH) == (-32768, 32767)
    assert (INSN_BYTES, UOP_BYTES) == (16, 4)


def test_words_that_do_not_fit_are_named():
    assert overfull({"uop": 13, "inp": 11, "wgt": 10, "acc": 11}) == []
    assert overfull({"uop": 14, "inp": 11, "wgt": 11, "acc": 12}) == [
        "micro-op needs 35 bits of 32",
        "GEMM word 0 needs 65 bits of 64",
        "GEMM word 1 needs 68 bits of 64",
        "ALU word 1 needs 68 bits of 64",
    ]


def test_memory_types_state_bytes_counter_and_queue():
    config = VTAConfig(log_batch=1)
    found = {
        mem: (kind.opcode, kind.queue, kind.counter, dram_elem_bytes(config, mem))
        for mem, kind in MEMORY_TYPES.items()
    }
    assert found == {
        MemType.UOP: (Opcode.LOAD, Queue.COMPUTE, "uop_load_nbytes", 4),
        MemType.WGT: (Opcode.LOAD, Queue.LOAD, "wgt_load_nbytes", 256),
        MemType.INP: (Opcode.LOAD, Queue.LOAD, "inp_load_nbytes", 32),
        MemType.ACC: (Opcode.LOAD, Queue.COMPUTE, "acc_load_nbytes", 128),
        MemType.OUT: (Opcode.STORE, Queue.STORE, "out_store_nbytes", 32),
        MemType.ACC_8BIT: (Opcode.LOAD, Queue.COMPUTE, "acc_load_nbytes", 32),
    }
    assert {kind.counter for kind in MEMORY_TYPES.values()} <= set(COUNTER_NAMES)


def test_capabilities_say_what_a_machine_takes():
    everything, least = Capabilities(), Capabilities(mul=False, acc_8bit=False)
    assert everything.alu_ops == list(AluOp)
    assert least.alu_ops == [AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR]
    assert set(everything.loadable) - set(least.loadable) == {MemType.ACC_8BIT}
    assert MemType.OUT not in everything.loadable
