"""Hand-written programs whose temporary and output have bytes in common."""

from __future__ import annotations

import dataclasses

from hand_programs import Hand, product

from vta_byoc.hw.isa import ISA, MemType, Queue
from vta_byoc.hw.program.program import Program

INP = MemType.INP


def sharing(hand: Hand, **offsets: int) -> Program:
    """The program of ``hand`` with symbols that begin at an element of the output."""
    program = hand.done()
    y, elem = program.symbol("y"), program.config.out_elem_bytes
    by_name = {s.name: s for s in program.symbols}
    places = {name: by_name[name].offset - y.offset - at * elem for name, at in offsets.items()}
    isa, insns = ISA.of(program.config), program.insns.copy()
    for rel in program.relocations:
        insn = isa.decode(*insns[rel.index].tolist())
        values = {k: v for k, v in insn.fields.items() if k != "opcode"}
        values["dram_base"] -= places.get(rel.symbol, 0) // elem
        insns[rel.index] = isa.encode(insn.opcode, **values)
    symbols = [
        dataclasses.replace(s, offset=s.offset - places.get(s.name, 0)) for s in program.symbols
    ]
    end = max(s.offset + s.nbytes for s in symbols)
    return dataclasses.replace(program, insns=insns, symbols=tuple(symbols), arena_bytes=end)


def stored_over(element: int, *, part: bool = False) -> Program:
    """STOREs t, elements 0 to 3, then one element of y over ``element`` of it, then LOADs t.

    ``part``: t is stored and loaded as a part of itself.
    """
    hand = product(finish=False)
    hand.lines[6].set(symbol="t")
    hand.store("y", at=0, x=1, push_prev=1)
    hand.no_op(pop_next=1, push_prev=1)
    hand.load(INP, "t", x=4, sram=32, pop_next=1)
    hand.finish(Queue.LOAD)
    program = sharing(hand, t=-element)
    if not part:
        return program
    whole = program.symbol("t")
    inner = dataclasses.replace(whole, name="p", shape=(4, *whole.shape[1:]), parent="t")
    relocations = [
        dataclasses.replace(r, symbol="p") if r.symbol == "t" else r for r in program.relocations
    ]
    return dataclasses.replace(
        program, symbols=(*program.symbols, inner), relocations=tuple(relocations)
    )


def output_stored_over(element: int) -> Program:
    """STOREs y, elements 0 to 3, then one element of t over ``element`` of it."""
    hand = product(finish=False)
    hand.store("t")
    hand.finish(Queue.STORE)
    return sharing(hand, t=element)


def read_before() -> Program:
    """STOREs t, LOADs it, then STOREs y over it."""
    hand = product(finish=False)
    hand.lines[6].set(symbol="t", push_prev=1)
    hand.no_op(pop_next=1, push_prev=1)
    hand.load(INP, "t", x=4, sram=32, pop_next=1, push_next=1)
    hand.no_op(pop_prev=1, push_next=1)
    hand.store("y", x=4, pop_prev=1)
    hand.finish(Queue.STORE)
    return sharing(hand, t=0)
