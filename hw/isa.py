"""The instruction set and its memories as declarative tables.

Everything that knows a bit position, the width of a field or what a memory type moves reads it from
here: encoder, decoder, disassembler, range errors, code generation, the cost model, the functional
simulator and the documentation.  Fields are listed from bit 0 upwards; a width is a number of bits
or the name of an SRAM whose index width it has (``"uop+1"``: one bit more); those are the
configuration's (``VTAConfig.index_bits``), from its depths or fixed by the core.

The reference models of ``hw/reference/`` say again which memory type counts what and which SRAM it
reaches: they are second opinions, which a wrong line of these tables must not reach.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vta_byoc.hw.bitfields import WORD_BITS, BitField, Layout, Unpacker, packed
from vta_byoc.hw.bitfields import FieldSpec as F
from vta_byoc.hw.errors import VTAError


class Opcode(enum.IntEnum):
    """What an instruction does."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class MemType(enum.IntEnum):
    """What a LOAD or STORE moves; MEMORY_TYPES says more of each."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC_8BIT = 5


class AluOp(enum.IntEnum):
    """The operations of the vector ALU; ALU_CAPABILITIES names those that not every machine has."""

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


# ---------------------------------------------------------------- fields
UOP_BITS = 32
SRAM_BASE_BITS = 16
DEP_FIELDS = ("pop_prev", "pop_next", "push_prev", "push_next")
PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
"""Padding of a LOAD: rows above and below, columns to the left and right."""
SIZES = ("y_size", "x_size", "x_stride")
"""Rows and columns of a transfer, and elements from one row to the next in DRAM."""
_HEAD = (F("opcode", 3), *(F(name, 1) for name in DEP_FIELDS))
_LOOPS = (
    F("reset", 1),
    F("uop_bgn", "uop"),
    F("uop_end", "uop+1"),
    F("iter_out", 14),
    F("iter_in", 14),
)
_MEM = Layout(
    (
        (*_HEAD, F("mem_type", 3), F("sram_base", SRAM_BASE_BITS), F("dram_base", 32)),
        (*(F(name, 16) for name in SIZES), *(F(name, 4) for name in PADS)),
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


# ---------------------------------------------------------------- limits of every machine
def _fixed(opcode: Opcode, *names: str) -> BitField:
    """One of the fields ``names``, which are as wide as each other on every machine."""
    fields = {n: LAYOUTS[opcode].field(n) for n in names}
    (kind,) = {(f.width, f.signed) for f in fields.values()}
    return BitField(names[0], 0, 0, int(kind[0]), kind[1])


OPCODE_MASK = _fixed(Opcode.FINISH, "opcode").high
"""The bits of the first word that say the opcode, in every configuration."""
INSN_BYTES = 2 * WORD_BITS // 8
"""Bytes of an instruction in DRAM."""
UOP_BYTES = UOP_BITS // 8
"""Bytes of a micro-op in DRAM."""
SIZE_LIMIT = _fixed(Opcode.LOAD, *SIZES).high
"""Most rows, columns and elements between rows of a transfer."""
PAD_LIMIT = _fixed(Opcode.LOAD, *PADS).high
"""Most padding on one side of a transfer."""
LOOP_LIMIT = _fixed(Opcode.GEMM, "iter_out", "iter_in").high
"""Most iterations of a hardware loop."""
DRAM_ELEMENTS = _fixed(Opcode.LOAD, "dram_base").high + 1
"""Elements that ``dram_base`` can address."""
IMMEDIATE_LOW, IMMEDIATE_HIGH = _fixed(Opcode.ALU, "imm").low, _fixed(Opcode.ALU, "imm").high
"""Least and greatest immediate of the ALU."""


def index_widths(bits: Mapping[str, int]) -> dict[str, int]:
    """The widths that layouts name, of the bits that index each SRAM."""
    return {**bits, "src": max(bits["acc"], bits["inp"])}


def overfull(bits: Mapping[str, int]) -> list[str]:
    """Words that the fields do not fit where each SRAM is indexed by so many bits, as text."""
    widths, found, seen = index_widths(bits), [], set()
    layouts = {"micro-op": UOP_LAYOUT} | {op.name: layout for op, layout in LAYOUTS.items()}
    for name, layout in layouts.items():
        for number, (word, need) in enumerate(zip(layout.words, layout.needs(widths), strict=True)):
            if need > layout.word_bits and word not in seen:
                what = name if len(layout.words) == 1 else f"{name} word {number}"
                found.append(f"{what} needs {need} bits of {layout.word_bits}")
            seen.add(word)
    return found


# ---------------------------------------------------------------- memories
@dataclass(frozen=True)
class Sram:
    """An on-chip memory: the type of its scalars and the shape of an element.

    ``sizes`` are the configuration's names of the shape; ``depth`` is ``VTAConfig.<name>_depth``.
    """

    name: str
    dtype: str
    sizes: tuple[str, ...] = ()


SRAMS: Mapping[str, Sram] = {
    "uop": Sram("uop", "uint32"),
    "inp": Sram("inp", "int8", ("batch", "block")),
    "wgt": Sram("wgt", "int8", ("block", "block")),
    "acc": Sram("acc", "int32", ("batch", "block")),
}
"""The memories that instructions index, by name, in the order of the probe's outputs."""


@dataclass(frozen=True)
class MemoryType:
    """What a LOAD or STORE of one memory type moves.

    Attributes:
        sram: name of the on-chip memory.
        dtype: type of a scalar in DRAM, where an element has the shape that it has on chip.
        counter: the published counter of its bytes in DRAM.
        queue: the queue that moves it; that of STORE where STORE is the instruction.
        scope: the DRAM scope of tensors that are kept for such loads.
        capability: of ``Capabilities``, the one a machine must have.
    """

    sram: str
    dtype: str
    counter: str
    queue: Queue
    scope: str = ""
    capability: str = ""

    @property
    def opcode(self) -> Opcode:
        """The instruction that moves it."""
        return Opcode.STORE if self.queue == Queue.STORE else Opcode.LOAD


MEMORY_TYPES: Mapping[MemType, MemoryType] = {
    MemType.UOP: MemoryType("uop", "uint32", "uop_load_nbytes", Queue.COMPUTE),
    MemType.INP: MemoryType("inp", "int8", "inp_load_nbytes", Queue.LOAD, "global.vta.inp"),
    MemType.WGT: MemoryType("wgt", "int8", "wgt_load_nbytes", Queue.LOAD, "global.vta.wgt"),
    MemType.ACC: MemoryType("acc", "int32", "acc_load_nbytes", Queue.COMPUTE, "global.vta.acc"),
    MemType.OUT: MemoryType("acc", "int8", "out_store_nbytes", Queue.STORE),
    MemType.ACC_8BIT: MemoryType(
        "acc", "int8", "acc_load_nbytes", Queue.COMPUTE, "global.vta.acc", "acc_8bit"
    ),
}
LOADABLE = tuple(m for m, kind in MEMORY_TYPES.items() if kind.opcode == Opcode.LOAD)
"""Memory types that LOAD takes."""
_LOAD_QUEUES: Mapping[int, Queue] = {m: MEMORY_TYPES[m].queue for m in LOADABLE}
STORABLE = tuple(m for m, kind in MEMORY_TYPES.items() if kind.opcode == Opcode.STORE)
"""Memory types that STORE takes."""
ALU_CAPABILITIES: Mapping[AluOp, str] = {AluOp.MUL: "mul"}
"""The capability of ``Capabilities`` that an operation needs; every machine does the others."""


# ---------------------------------------------------------------- instructions
@dataclass(frozen=True)
class Instruction:
    """A decoded instruction: its opcode and every field by name."""

    opcode: Opcode
    fields: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    @functools.cached_property
    def queue(self) -> Queue:
        """The command queue that executes it."""
        return _queue_of(self)


def _queue_of(insn: Instruction) -> Queue:
    if insn.opcode == Opcode.STORE:
        return Queue.STORE
    if insn.opcode == Opcode.LOAD:
        return _LOAD_QUEUES.get(insn["mem_type"], Queue.COMPUTE)
    return Queue.COMPUTE


class Indexed(Protocol):
    """What the instruction set needs to know of a configuration."""

    def __hash__(self) -> int:
        """Equal configurations have one instruction set."""

    @property
    def index_bits(self) -> Mapping[str, int]:
        """Width of the fields that index each SRAM."""


@dataclass(frozen=True)
class ISA:
    """Encoder and decoder for one configuration."""

    instructions: Mapping[Opcode, tuple[BitField, ...]]
    uop: tuple[BitField, ...]

    @classmethod
    def of(cls, config: Indexed) -> ISA:
        """The instruction set of ``config`` (cached)."""
        return _isa(config)

    # ---------------------------------------------------------------- encode
    def encode(self, opcode: Opcode, **values: int) -> tuple[int, int]:
        """Two 64-bit words; fields not named are 0.  Out of range: VTAError."""
        words = packed(self.instructions[opcode], {"opcode": int(opcode), **values}, opcode.name)
        return words[0], words[1]

    def encode_uop(self, dst: int = 0, src: int = 0, wgt: int = 0) -> int:
        """One 32-bit micro-op; operands are SRAM element indices."""
        return packed(self.uop, {"dst": dst, "src": src, "wgt": wgt}, "micro-op")[0]

    # ---------------------------------------------------------------- decode
    def decode(self, word0: int, word1: int) -> Instruction:
        """The instruction of two words; unknown opcodes and set reserved bits: VTAError."""
        words = (int(word0), int(word1))
        code = words[0] & OPCODE_MASK
        decoder = self._decoders.get(code)
        if decoder is None:
            raise VTAError(
                f"opcode {code} in word {words[0]:016x}; known opcodes are 0 to {max(Opcode)}"
            )
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
    def _decoders(self) -> dict[int, tuple[Opcode, Unpacker]]:
        return {int(op): (op, Unpacker.of(fields)) for op, fields in self.instructions.items()}

    @functools.cached_property
    def _uop_fields(self) -> Unpacker:
        return Unpacker.of(self.uop)

    def field(self, opcode: Opcode, name: str) -> BitField:
        """The placed field ``name`` of ``opcode``."""
        return next(f for f in self.instructions[opcode] if f.name == name)

    def limit(self, opcode: Opcode, name: str) -> int:
        """Largest value the field ``name`` of ``opcode`` can hold."""
        return self.field(opcode, name).high


@functools.lru_cache(maxsize=64)
def _isa(config: Indexed) -> ISA:
    widths = index_widths(config.index_bits)
    table = {op: layout.placed(widths) for op, layout in LAYOUTS.items()}
    return ISA(table, UOP_LAYOUT.placed(widths))
