"""The instruction set as one declarative table.

Everything that knows a bit position reads it from here: encoder, decoder, disassembler, range
errors, the simulators and the documentation.  Fields are listed from bit 0 upwards; a width is a
number of bits or the name of an SRAM whose index width it has (``"uop+1"``: one bit more); those
are the configuration's (``VTAConfig.index_bits``), from its depths or fixed by the core.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.config import LOOP_BITS, SRAM_BASE_BITS, UOP_BITS, WORD_BITS, VTAConfig
from vta_byoc.hw.errors import VTAError


class Opcode(enum.IntEnum):
    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class MemType(enum.IntEnum):
    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC_8BIT = 5


class AluOp(enum.IntEnum):
    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4


class Queue(enum.IntEnum):
    """The three command queues, in the order in which tokens may pass."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


@dataclass(frozen=True)
class FieldSpec:
    """One bit field: ``width`` is a bit count or an SRAM name, optionally ``+1``."""

    name: str
    width: int | str
    signed: bool = False


@dataclass(frozen=True)
class Layout:
    """The fields of an instruction or micro-op, word by word, from bit 0 upwards."""

    words: tuple[tuple[FieldSpec, ...], ...]
    word_bits: int = WORD_BITS


F = FieldSpec
_HEAD = (F("opcode", 3), F("pop_prev", 1), F("pop_next", 1), F("push_prev", 1), F("push_next", 1))
_LOOPS = (
    F("reset", 1),
    F("uop_bgn", "uop"),
    F("uop_end", "uop+1"),
    F("iter_out", LOOP_BITS),
    F("iter_in", LOOP_BITS),
)
_MEM = Layout(
    (
        (*_HEAD, F("mem_type", 3), F("sram_base", SRAM_BASE_BITS), F("dram_base", 32)),
        (
            F("y_size", 16),
            F("x_size", 16),
            F("x_stride", 16),
            F("y_pad_0", 4),
            F("y_pad_1", 4),
            F("x_pad_0", 4),
            F("x_pad_1", 4),
        ),
    )
)
LAYOUTS: Mapping[Opcode, Layout] = {
    Opcode.LOAD: _MEM,
    Opcode.STORE: _MEM,
    Opcode.GEMM: Layout(
        (
            (*_HEAD, *_LOOPS),
            (
                F("dst_factor_out", "acc"),
                F("dst_factor_in", "acc"),
                F("src_factor_out", "inp"),
                F("src_factor_in", "inp"),
                F("wgt_factor_out", "wgt"),
                F("wgt_factor_in", "wgt"),
            ),
        )
    ),
    Opcode.FINISH: Layout((_HEAD, ())),
    Opcode.ALU: Layout(
        (
            (*_HEAD, *_LOOPS),
            (
                F("dst_factor_out", "acc"),
                F("dst_factor_in", "acc"),
                F("src_factor_out", "acc"),
                F("src_factor_in", "acc"),
                F("alu_opcode", 3),
                F("use_imm", 1),
                F("imm", 16, signed=True),
            ),
        )
    ),
}
UOP_LAYOUT = Layout(((F("dst", "acc"), F("src", "src"), F("wgt", "wgt")),), UOP_BITS)
_FACTORS = ("factor_out", "factor_in")
DEP_FIELDS = ("pop_prev", "pop_next", "push_prev", "push_next")


@dataclass(frozen=True)
class BitField:
    """A field placed for one configuration: ``lsb`` counts from bit 0 of word ``word``."""

    name: str
    word: int
    lsb: int
    width: int
    signed: bool

    @property
    def low(self) -> int:
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << (self.width - 1)) - 1 if self.signed else (1 << self.width) - 1


def _place(layout: Layout, widths: Mapping[str, int]) -> tuple[BitField, ...]:
    placed = []
    for word, specs in enumerate(layout.words):
        lsb = 0
        for spec in specs:
            width = _width(spec.width, widths)
            placed.append(BitField(spec.name, word, lsb, width, spec.signed))
            lsb += width
        if lsb > layout.word_bits:
            raise VTAError(f"word {word} needs {lsb} bits of {layout.word_bits}; shrink a buffer")
    return tuple(placed)


def _width(width: int | str, widths: Mapping[str, int]) -> int:
    if isinstance(width, int):
        return width
    name, _, extra = width.partition("+")
    return widths[name] + int(extra or 0)


@dataclass(frozen=True)
class Instruction:
    """A decoded instruction: its opcode and every field by name."""

    opcode: Opcode
    fields: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    @property
    def queue(self) -> Queue:
        """The command queue that executes it."""
        if self.opcode == Opcode.STORE:
            return Queue.STORE
        if self.opcode == Opcode.LOAD and self["mem_type"] in (MemType.INP, MemType.WGT):
            return Queue.LOAD
        return Queue.COMPUTE


@dataclass(frozen=True)
class ISA:
    """Encoder, decoder and disassembler for one configuration."""

    config: VTAConfig
    instructions: Mapping[Opcode, tuple[BitField, ...]]
    uop: tuple[BitField, ...]

    @classmethod
    def of(cls, config: VTAConfig) -> ISA:
        """The instruction set of ``config`` (cached)."""
        return _isa(config)

    # ---------------------------------------------------------------- encode
    def encode(self, opcode: Opcode, **values: int) -> tuple[int, int]:
        """Two 64-bit words; fields not named are 0.  Out of range: VTAError."""
        words = _pack(self.instructions[opcode], {"opcode": int(opcode), **values}, opcode.name)
        return words[0], words[1]

    def encode_uop(self, dst: int = 0, src: int = 0, wgt: int = 0) -> int:
        """One 32-bit micro-op; operands are SRAM element indices."""
        return _pack(self.uop, {"dst": dst, "src": src, "wgt": wgt}, "micro-op")[0]

    # ---------------------------------------------------------------- decode
    def decode(self, word0: int, word1: int) -> Instruction:
        """The instruction of two words; unknown opcodes and set reserved bits: VTAError."""
        words = (int(word0), int(word1))
        code = words[0] & 7
        decoder = self._decoders.get(code)
        if decoder is None:
            raise VTAError(f"opcode {code} in word {words[0]:016x}; known opcodes are 0 to 4")
        opcode, fields = decoder
        for word in (0, 1):
            reserved = words[word] & ~fields.used[word]
            if reserved:
                raise VTAError(
                    f"{opcode.name} word {word} {words[word]:016x} sets reserved bits "
                    f"{reserved:016x}; they must be 0: the stream is corrupt"
                )
        return Instruction(opcode, fields.unpacked(words))

    def decode_uop(self, word: int) -> dict[str, int]:
        """Fields dst, src, wgt of one micro-op."""
        return self._uop_fields.unpacked((int(word),))

    @functools.cached_property
    def _decoders(self) -> dict[int, tuple[Opcode, _Fields]]:
        return {int(op): (op, _Fields.of(fields)) for op, fields in self.instructions.items()}

    @functools.cached_property
    def _uop_fields(self) -> _Fields:
        return _Fields.of(self.uop)

    def field(self, opcode: Opcode, name: str) -> BitField:
        """The placed field ``name`` of ``opcode``."""
        return next(f for f in self.instructions[opcode] if f.name == name)

    def limit(self, opcode: Opcode, name: str) -> int:
        """Largest value the field ``name`` of ``opcode`` can hold."""
        return self.field(opcode, name).high

    # ---------------------------------------------------------------- print
    def disassemble(self, insns: np.ndarray) -> list[str]:
        """One line an instruction; ``insns`` is (n, 2) uint64."""
        return [format_instruction(self.decode(w0, w1)) for w0, w1 in insns.tolist()]


def _pack(fields: tuple[BitField, ...], values: Mapping[str, int], what: str) -> list[int]:
    words = [0, 0]
    unknown = set(values) - {f.name for f in fields}
    if unknown:
        raise TypeError(f"{what} has no field {sorted(unknown)}")
    for f in fields:
        value = values.get(f.name, 0)
        if not f.low <= value <= f.high:
            raise VTAError(
                f"{what} field {f.name} is {value}; its {f.width} bits hold {f.low} to {f.high}; "
                "split the operation or use a smaller tile"
            )
        words[f.word] |= (value & ((1 << f.width) - 1)) << f.lsb
    return words


@dataclass(frozen=True)
class _Fields:
    """Fields in the form that is quick to decode.

    ``parts`` (name, word, lsb, mask), ``signed`` (name, high, span), ``used`` bits of both words.
    """

    parts: tuple[tuple[str, int, int, int], ...]
    signed: tuple[tuple[str, int, int], ...]
    used: tuple[int, int]

    @classmethod
    def of(cls, fields: tuple[BitField, ...]) -> _Fields:
        parts = tuple((f.name, f.word, f.lsb, (1 << f.width) - 1) for f in fields)
        signed = tuple((f.name, f.high, 1 << f.width) for f in fields if f.signed)
        first, second = (sum(m << lsb for _, w, lsb, m in parts if w == word) for word in (0, 1))
        return cls(parts, signed, (first, second))

    def unpacked(self, words: tuple[int, ...]) -> dict[str, int]:
        """Every field of the words."""
        values = {name: (words[word] >> lsb) & mask for name, word, lsb, mask in self.parts}
        for name, high, span in self.signed:
            if values[name] > high:
                values[name] -= span
        return values


@functools.lru_cache(maxsize=64)
def _isa(config: VTAConfig) -> ISA:
    bits = config.index_bits
    widths = {**bits, "src": max(bits["acc"], bits["inp"])}
    table = {op: _place(layout, widths) for op, layout in LAYOUTS.items()}
    return ISA(config, table, _place(UOP_LAYOUT, widths))


def _tokens(insn: Instruction) -> str:
    names = [n for n in DEP_FIELDS if insn[n]]
    return f"  [{' '.join(names)}]" if names else ""


def format_instruction(insn: Instruction) -> str:
    """Disassembly of one instruction on one line."""
    if insn.opcode == Opcode.FINISH:
        return f"FINISH{_tokens(insn)}"
    if insn.opcode in (Opcode.LOAD, Opcode.STORE):
        mem = insn["mem_type"]
        name = MemType(mem).name if mem in set(MemType) else f"?{mem}"
        pads = ",".join(str(insn[p]) for p in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"))
        body = (
            f"{name:<8} sram {insn['sram_base']} dram {insn['dram_base']:#x} "
            f"y {insn['y_size']} x {insn['x_size']} stride {insn['x_stride']}"
        )
        return f"{insn.opcode.name:<6} {body}{f' pad {pads}' if pads != '0,0,0,0' else ''}" + (
            _tokens(insn)
        )
    loops = (
        f"uop {insn['uop_bgn']}-{insn['uop_end']} iter {insn['iter_out']},{insn['iter_in']} "
        f"dst {insn['dst_factor_out']},{insn['dst_factor_in']}"
    )
    srcs = f" src {insn['src_factor_out']},{insn['src_factor_in']}"
    if insn.opcode == Opcode.GEMM:
        if insn["reset"]:
            return f"GEMM   RESET    {loops}{_tokens(insn)}"
        wgts = f" wgt {insn['wgt_factor_out']},{insn['wgt_factor_in']}"
        return f"GEMM   MAC      {loops}{srcs}{wgts}{_tokens(insn)}"
    code = insn["alu_opcode"]
    name = AluOp(code).name if code in set(AluOp) else f"?{code}"
    operand = f" imm {insn['imm']}" if insn["use_imm"] else srcs
    if insn["use_imm"] and any(insn[f"src_{n}"] != insn[f"dst_{n}"] for n in _FACTORS):
        operand = srcs + operand
    return f"ALU    {name:<8} {loops}{operand}{_tokens(insn)}"


def check_table() -> None:
    """Every field named once per layout, every opcode covered, the default machine placeable."""
    if set(LAYOUTS) != set(Opcode):
        raise AssertionError("an opcode has no layout")
    for op, layout in [*LAYOUTS.items(), ("uop", UOP_LAYOUT)]:
        names = [s.name for word in layout.words for s in word]
        if len(names) != len(set(names)):
            raise AssertionError(f"{op}: a field is named twice")
    isa = _isa(VTAConfig())
    for fields in (*isa.instructions.values(), isa.uop):
        seen: set[tuple[int, int]] = set()
        for f in fields:
            bits = {(f.word, b) for b in range(f.lsb, f.lsb + f.width)}
            if bits & seen or f.width < 1:
                raise AssertionError(f"{f.name}: bits overlap")
            seen |= bits


check_table()
