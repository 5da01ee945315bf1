"""Programs are values: placed, linked, relocated, printed, compared."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import count_stream, dram_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode
from vta_byoc.hw.program.program import Layer, Program, Relocation, Symbol, link, place_symbols

CONFIG = VTAConfig()
SYMBOLS = (
    Symbol("y", "output", (3, 16), "int8", 16),
    Symbol("w", "const", (2, 16, 16), "int8", 256, "global.vta.wgt"),
    Symbol("x", "input", (5, 16), "int8", 16),
    Symbol("uops", "uop", (1,), "uint32", 4),
)
STREAM = [
    (Opcode.LOAD, {"mem_type": MemType.WGT, "y_size": 1, "x_size": 2, "push_next": 1}),
    (Opcode.LOAD, {"mem_type": MemType.INP, "y_size": 2, "x_size": 2, "x_stride": 3}),
    (Opcode.LOAD, {"mem_type": MemType.UOP, "y_size": 1, "x_size": 1}),
    (Opcode.GEMM, {"uop_end": 1, "iter_out": 3, "iter_in": 2, "pop_prev": 1}),
    (Opcode.GEMM, {"uop_end": 1, "iter_out": 3, "iter_in": 2, "reset": 1}),
    (
        Opcode.ALU,
        {
            "uop_end": 1,
            "iter_out": 3,
            "iter_in": 1,
            "alu_opcode": AluOp.MAX,
            "use_imm": 1,
            "push_next": 1,
        },
    ),
    (Opcode.STORE, {"mem_type": MemType.OUT, "y_size": 1, "x_size": 3, "pop_prev": 1}),
    (Opcode.FINISH, {}),
]
RELOCATIONS = [
    Relocation(0, "w", 0),
    Relocation(1, "x", 1),
    Relocation(2, "uops", 0),
    Relocation(6, "y", 0),
]


def program(stream: list[tuple[Opcode, dict[str, int]]] = STREAM) -> Program:
    constants = {
        "w": np.arange(512).astype("int8").reshape(2, 16, 16),
        "uops": np.array([0x80426BE8], np.uint32),
    }
    layers = [Layer("conv", 0, 8, "y")]
    return link(CONFIG, stream, SYMBOLS, constants, RELOCATIONS, layers)


def test_arena_holds_inputs_then_image_then_the_rest() -> None:
    p = program()
    offsets = {s.name: s.offset for s in p.symbols}
    assert offsets == {"x": 0, "w": 256, "uops": 768, "y": 832}
    assert (p.input_bytes, p.image.size, p.arena_bytes) == (128, 704, 896)
    assert [s.name for s in p.symbols] == ["y", "w", "x", "uops"]
    for s in p.symbols:
        assert s.offset % s.align == 0


def test_link_resolves_addresses_in_elements_of_the_memory_type() -> None:
    p = program()
    isa = ISA.of(CONFIG)
    bases = [isa.decode(*w)["dram_base"] for w in p.insns[[0, 1, 2, 6]].tolist()]
    assert bases == [256 // 256, 0 + 1, 768 // 4, 832 // 16]


def test_views_and_arena() -> None:
    p = program()
    x = np.arange(80).astype("int8").reshape(5, 16)
    arena = p.new_arena({"x": x})
    np.testing.assert_array_equal(p.view(arena, "x"), x)
    np.testing.assert_array_equal(
        p.view(arena, "w"), np.arange(512).astype("int8").reshape(2, 16, 16)
    )
    assert p.view(arena, "uops").tolist() == [0x80426BE8]
    p.view(arena, "y")[...] = 1
    assert arena[832:880].sum() == 48


def test_relocation_moves_every_address_and_nothing_else() -> None:
    p = program()
    isa = ISA.of(CONFIG)
    moved = p.relocated(0x10000)
    for i, (old, new) in enumerate(zip(p.insns.tolist(), moved.tolist(), strict=True)):
        a, b = isa.decode(*old), isa.decode(*new)
        elem = {0: 256, 1: 16, 2: 4, 6: 16}.get(i)
        shift = 0x10000 // elem if elem else 0
        want = {**a.fields}
        if elem:
            want["dram_base"] += shift
        assert dict(b.fields) == want
    np.testing.assert_array_equal(p.relocated(0), p.insns)
    with pytest.raises(VTAError) as err:
        p.relocated(128)
    assert str(err.value) == (
        "arena base 0x80 is not a multiple of 256 bytes, the size of a WGT element; "
        "align the arena to it"
    )
    with pytest.raises(VTAError, match="LOAD field dram_base is .* its 32 bits hold 0 to"):
        p.relocated(1 << 40)


def test_equal_programs_have_equal_bytes() -> None:
    assert program() == program()
    assert hash(program()) == hash(program())
    assert program().digest() == program().digest()
    changed = [*STREAM[:5], (Opcode.ALU, {**STREAM[5][1], "imm": 1}), *STREAM[6:]]
    assert program(changed) != program()
    image = program().image.copy()
    image[200] ^= 1
    assert dataclasses.replace(program(), image=image) != program()
    other = dataclasses.replace(program(), config=VTAConfig.preset("pynq"))
    assert other != program()


def test_counters_are_true_bytes() -> None:
    counters = program().counters()
    assert counters == {
        "inp_load_nbytes": 64,
        "wgt_load_nbytes": 512,
        "acc_load_nbytes": 0,
        "uop_load_nbytes": 4,
        "out_store_nbytes": 48,
        "gemm_counter": 6,
        "alu_counter": 3,
    }
    assert dram_bytes(counters) == 628
    isa = ISA.of(CONFIG)
    for mem, nbytes in ((MemType.ACC, 2 * 64), (MemType.ACC_8BIT, 2 * 16)):
        word = isa.encode(Opcode.LOAD, mem_type=mem, y_size=1, x_size=2, y_pad_0=3)
        assert count_stream(CONFIG, np.array([word], np.uint64))["acc_load_nbytes"] == nbytes


def test_disassembly(golden) -> None:  # type: ignore[no-untyped-def]
    golden("program.txt", program().disassemble())


def test_unknown_symbol() -> None:
    with pytest.raises(VTAError) as err:
        program().symbol("z")
    assert str(err.value) == "program has no symbol 'z'; it has y, w, x, uops"


def test_a_name_is_placed_once() -> None:
    twice = [SYMBOLS[2], SYMBOLS[2]]
    with pytest.raises(AssertionError, match="symbol x declared twice"):
        place_symbols(twice)
