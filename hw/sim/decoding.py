"""Expressions that decode instructions and micro-ops, from the placed fields of ``hw/isa.py``."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from tvm import tirx
from tvm.script import tirx as T

from vta_byoc.hw.bitfields import BitField
from vta_byoc.hw.isa import ISA, LOADABLE, MEMORY_TYPES, UOP_BITS, Opcode, Queue
from vta_byoc.hw.sim.dot import Expr
from vta_byoc.hw.sim.sram import Machine


def i64(value: Expr) -> Expr:
    """An int64 expression of a Python integer or an expression."""
    return T.int64(value) if isinstance(value, int) else T.Cast("int64", value)


def variable(value: Expr) -> Expr:
    """``value``, computed once.

    A stack slot: TVM's simplifier substitutes a bound variable wherever it is used, which costs
    seconds, and a TVMScript scalar is a workspace allocation, each time it is passed.
    """
    slot = T.alloc_buffer((1,), str(value.ty.dtype))
    T.buffer_store(slot, value, [0])
    return slot[0]


def _bits(f: BitField, words: Sequence[Expr]) -> Expr:
    word = words[f.word]
    if f.signed:
        top = T.reinterpret("int64", word << T.uint64(64 - f.lsb - f.width))
        return top >> T.int64(64 - f.width)
    return i64((word >> T.uint64(f.lsb)) & T.uint64((1 << f.width) - 1))


def decode(m: Machine, opcode: Opcode, words: Sequence[Expr]) -> SimpleNamespace:
    """The fields of an instruction as int64 variables."""
    fields = ISA.of(m.config).instructions[opcode]
    return SimpleNamespace(**{f.name: variable(_bits(f, words)) for f in fields})


def _unused(fields: Sequence[BitField], word: int, bits: int) -> int:
    used = sum(((1 << f.width) - 1) << f.lsb for f in fields if f.word == word)
    return ~used & ((1 << bits) - 1)


def reserved_bits(m: Machine, opcode: Expr, words: Sequence[Expr]) -> Expr:
    """The reserved bits that an instruction sets, both words in one uint64."""
    bad = tirx.const(0, "uint64")
    for op, fields in ISA.of(m.config).instructions.items():
        masks = [tirx.const(_unused(fields, i, 64), "uint64") for i in (0, 1)]
        found = (words[0] & masks[0]) | (words[1] & masks[1])
        bad = T.Select(opcode == int(op), found, bad)
    return variable(bad)


def queue_of(m: Machine, opcode: Expr, words: Sequence[Expr]) -> Expr:
    """The queue that runs an instruction (``isa.Instruction.queue``), int64."""
    mem = _bits(ISA.of(m.config).field(Opcode.LOAD, "mem_type"), words)
    ours = tirx.any(*(mem == int(t) for t in LOADABLE if MEMORY_TYPES[t].queue == Queue.LOAD))
    loads = T.And(opcode == int(Opcode.LOAD), ours)
    other = T.Select(loads, i64(int(Queue.LOAD)), i64(int(Queue.COMPUTE)))
    return variable(T.Select(opcode == int(Opcode.STORE), i64(int(Queue.STORE)), other))


def reserved_uop_bits(m: Machine, uop: Expr) -> Expr:
    """The reserved bits that a micro-op sets, int64."""
    return i64(uop & T.uint32(_unused(ISA.of(m.config).uop, 0, UOP_BITS)))


def operand(m: Machine, uop: Expr, name: str) -> Expr:
    """An operand index of a micro-op, int64."""
    f = next(f for f in ISA.of(m.config).uop if f.name == name)
    return i64((uop >> T.uint32(f.lsb)) & T.uint32((1 << f.width) - 1))
