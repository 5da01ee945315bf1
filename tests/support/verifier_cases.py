"""The verifier's test cases: for each rule the smallest programs that break it, and near-misses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from hand_programs import Hand, product
from sharing_cases import output_stored_over, read_before, stored_over

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.isa import AluOp, MemType, Opcode, Queue
from vta_byoc.hw.program.program import Layer, Program, Relocation

UOP, INP, ACC, ACC_8BIT, OUT = (
    MemType.UOP,
    MemType.INP,
    MemType.ACC,
    MemType.ACC_8BIT,
    MemType.OUT,
)


def machine(**capabilities: Any) -> VTAConfig:
    return VTAConfig(capabilities=Capabilities(**capabilities))


def changed(index: int, hand: Hand | None = None, **changes: Any) -> Program:
    """The product with one line changed."""
    hand = hand or product()
    hand.lines[index].set(**changes)
    return hand.done()


def compute(*steps: Callable[[Hand], object], hand: Hand | None = None) -> Program:
    """Micro-ops, 16 vectors of ACC, then ``steps``, all in the compute queue; no STORE."""
    hand = hand or Hand()
    hand.load(UOP, "u", x=len(hand.uops))
    hand.load(ACC, "b", x=16)
    for step in steps:
        step(hand)
    hand.finish()
    return hand.done()


# ---------------------------------------------------------------- words and symbols
def with_words(index: int, word0: int) -> Program:
    program = product().done()
    insns = program.insns.copy()
    insns[index] = word0, 0
    return dataclasses.replace(program, insns=insns)


def with_symbol(which: str, **fields: Any) -> Program:
    program = product().done()
    symbols = (dataclasses.replace(s, **fields) if s.name == which else s for s in program.symbols)
    return dataclasses.replace(program, symbols=tuple(symbols))


def with_relocations(*found: Relocation) -> Program:
    """The product, ``found`` in place of the relocation of instruction 2."""
    program = product().done()
    kept = tuple(r for r in program.relocations if r.index != 2)
    return dataclasses.replace(program, relocations=(*kept, *found))


def with_layers(*layers: Layer) -> Program:
    return dataclasses.replace(product().done(), layers=layers)


def micro_op_with_reserved_bits() -> Program:
    program = product(Hand(VTAConfig(log_acc_buff_size=15))).done()
    image = program.image.copy()
    image[program.symbol("u").offset - program.input_bytes + 3] = -128
    return dataclasses.replace(program, image=image)


# ---------------------------------------------------------------- contents
def part_of_the_inputs(step: int) -> Program:
    """INP elements 0, 2, 4 and 6 are written; GEMM reads four, ``step`` apart."""
    hand = product()
    hand.lines[2].set(x_size=1, push_next=0)
    for sram in (2, 4, 6):
        hand.load(INP, "x", sram=sram, push_next=int(sram == 6))
        hand.lines.insert(2 + sram // 2, hand.lines.pop())
    hand.lines[7].set(src_factor_in=step)
    return hand.done()


def moved(to: int) -> Program:
    """The product on INP and ACC elements from ``to``."""
    hand = product(Hand(uops=[(to, to, 0)]))
    hand.lines[2].set(sram_base=to)
    hand.lines[6].set(sram_base=to)
    return hand.done()


def last_micro_op() -> Program:
    hand = product()
    hand.lines[0].set(sram_base=8191)
    for index in (3, 4, 5):
        hand.lines[index].set(uop_bgn=8191, uop_end=8192)
    return hand.done()


def empty_work() -> Program:
    """What moves nothing may address anything."""
    hand = Hand()
    hand.no_op(sram_base=9000, y_size=7, x_pad_0=3)
    hand.finish()
    return hand.done()


def through_a_temporary(columns: int) -> Program:
    """STOREs 4 rows of 2 vectors, 4 apart, into t; LOADs 4 rows of ``columns`` from there."""
    hand = product(vectors=8, finish=False)
    hand.lines[6].set(symbol="t", y_size=4, x_size=2, x_stride=4, push_prev=1)
    hand.no_op(pop_next=1, push_prev=1)
    hand.load(INP, "t", y=4, x=columns, x_stride=4, sram=32, pop_next=1)
    hand.finish(Queue.LOAD)
    return hand.done()


# ---------------------------------------------------------------- order
def tokens_ahead(count: int) -> Program:
    """``count`` loads that compute has not waited for, on a machine that counts to 3."""
    hand = Hand(machine(max_tokens=3))
    for _ in range(count):
        hand.load(INP, "x", push_next=1)
    for _ in range(count):
        hand.no_op(pop_prev=1)
    hand.finish()
    return hand.done()


def crossed() -> Program:
    """Load and compute wait for each other."""
    hand = Hand()
    hand.no_op(Queue.LOAD, pop_next=1, push_next=1)
    hand.no_op(pop_prev=1, push_prev=1)
    hand.finish()
    return hand.done()


def pop_before_push() -> Program:
    hand = Hand()
    hand.no_op(pop_prev=1)
    hand.no_op(Queue.LOAD, push_next=1)
    hand.finish()
    return hand.done()


def no_wait_for_inputs() -> Program:
    hand = product()
    hand.lines[4].set(pop_prev=0)
    hand.lines[7].set(pop_prev=1)
    return hand.done()


def second_load(sram: int, *, wait: bool = False) -> Program:
    """The product, which reads INP elements 0 to 3, and another LOAD of INP."""
    hand = product(finish=False)
    hand.lines[4].set(push_prev=int(wait))
    hand.load(INP, "x", sram=sram, pop_next=int(wait))
    hand.finish(Queue.LOAD, Queue.STORE)
    return hand.done()


def load_between(sram: int) -> Program:
    """GEMM reads INP elements 0, 2, 4 and 6; another LOAD writes one."""
    hand = product(finish=False)
    hand.lines[2].set(x_size=7)
    hand.lines[4].set(src_factor_in=2)
    hand.load(INP, "x", sram=sram)
    hand.finish(Queue.LOAD, Queue.STORE)
    return hand.done()


def compute_after_store(first: int, *, wait: bool = False) -> Program:
    """Eight products, a STORE of vectors 0 to 3, and an ALU instruction on another vector."""
    hand = Hand(uops=[(0, 0, 0), (first, first, 0)])
    product(hand, 8, finish=False)
    hand.lines[6].set(x_size=4, push_prev=int(wait))
    hand.alu(AluOp.ADD, 1, uop_bgn=1, uop_end=2, pop_next=int(wait))
    hand.finish(*() if wait else (Queue.STORE,))
    return hand.done()


def load_of_a_result(at: int, *, wait: bool = False) -> Program:
    """Stores output elements 0, 1, 4 and 5, then element 8; LOADs one of them."""
    hand = product(finish=False)
    hand.lines[6].set(y_size=2, x_size=2, x_stride=4, push_prev=1)
    hand.no_op(pop_next=1, push_prev=1)
    hand.no_op(Queue.LOAD, pop_next=1)
    hand.store("y", at=8, push_prev=int(wait))
    if wait:
        hand.no_op(pop_next=1, push_prev=1)
    hand.load(INP, "y", at=at, sram=40, pop_next=int(wait))
    hand.finish(Queue.LOAD, *() if wait else (Queue.STORE,))
    return hand.done()


def store_after_load(at: int, *, wait: bool = False) -> Program:
    """A STORE to the output after a compute LOAD of output element 0."""
    hand = product(finish=False)
    hand.lines[6].set(push_prev=1)
    hand.no_op(pop_next=1)
    hand.load(ACC_8BIT, "y", sram=40, push_next=int(wait))
    hand.store("y", at=at, pop_prev=int(wait))
    hand.finish(Queue.STORE)
    return hand.done()


def wrong_way_round() -> Program:
    """The LOAD at 7 is ordered before the GEMM at 4, which reads what it overwrites."""
    hand = product(finish=False)
    hand.lines[2].set(push_next=0)
    hand.load(INP, "x", at=9, push_next=1)
    hand.finish(Queue.STORE)
    return hand.done()


def ending(*waits_for: Queue, after: bool = False, pop: bool = False) -> Program:
    hand = product(finish=False)
    hand.lines[6].set(push_prev=int(pop))
    hand.finish(*waits_for, pop_next=int(pop))
    if after:
        hand.no_op()
    return hand.done()


# ---------------------------------------------------------------- capabilities
def alu_again(distance: int, config: VTAConfig | None = None) -> Program:
    """An ALU instruction that visits each vector again after ``distance`` steps."""
    hand = Hand(config or VTAConfig(), [(k, k, 0) for k in range(distance)])
    fields = {"iter_in": 2, "dst_factor_in": 0, "src_factor_in": 0, "uop_end": distance}
    return compute(lambda h: h.alu(**fields), hand=hand)


def gemm_again(distance: int, config: VTAConfig | None = None) -> Program:
    """The product with each destination written again after ``distance`` steps."""
    uops = [(k, k, 0) for k in range(distance)]
    hand = product(Hand(config or VTAConfig(), uops), vectors=distance)
    hand.lines[4].set(iter_in=2, dst_factor_in=0, src_factor_in=0, uop_end=distance)
    return hand.done()


def prefix_sum(step: int, config: VTAConfig | None = None) -> Program:
    """acc[k + step] += acc[k]: reads what was written ``step`` steps before."""
    hand = Hand(config or VTAConfig(), [(step, 0, 0)])
    return compute(lambda h: h.alu(AluOp.ADD, None, 4), hand=hand)


def tensor_shift(*amounts: int, held: bool = True) -> Program:
    """Four vectors shifted by four whose lanes are ``amounts``: constants, or no longer."""
    hand = Hand(uops=[(0, 4, 0), (4, 4, 0)])
    steps = [] if held else [lambda h: h.alu(AluOp.MAX, 0, 4, uop_bgn=1, uop_end=2)]
    program = compute(*steps, lambda h: h.alu(AluOp.SHR, None, 4), hand=hand)
    image = program.image.copy()
    first = program.symbol("b").offset - program.input_bytes
    lanes = image[first : first + program.symbol("b").nbytes].view(np.int32)
    lanes[4 * 16 : 8 * 16] = np.resize(np.array(amounts, np.int32), 4 * 16)
    return dataclasses.replace(program, image=image)


def stored_after(opcode: Opcode, vector: int) -> Program:
    """A LOAD or reset of a vector between the ALU and the STORE of vectors 0 to 3."""
    hand = Hand(uops=[(0, 0, 0), (vector, 0, 0)])
    product(hand, finish=False)
    hand.lines[5].set(push_next=0)
    if opcode == Opcode.LOAD:
        hand.load(ACC, "b", sram=vector, push_next=1)
    else:
        hand.gemm(reset=1, uop_bgn=1, uop_end=2, push_next=1)
    hand.lines[6], hand.lines[7] = hand.lines[7], hand.lines[6]
    hand.finish(Queue.STORE)
    return hand.done()


def address_without_symbol() -> Program:
    return changed(2, symbol="", dram_base=0x5000)


CASES: dict[str, dict[str, Callable[[], Program]]] = {
    "opcode": {"opcode 6": lambda: with_words(3, 6)},
    "reserved-bits": {
        "bit 10 of FINISH": lambda: with_words(8, 3 | 1 << 10),
        "bit 31 of a micro-op of 30 bits": micro_op_with_reserved_bits,
    },
    "mem-type": {
        "LOAD of OUT": lambda: changed(2, mem_type=OUT),
        "STORE of ACC": lambda: changed(6, mem_type=ACC),
    },
    "store-pad": {"STORE with padding": lambda: changed(6, x_pad_0=1)},
    "alu-opcode": {"ALU opcode 5": lambda: changed(5, alu_opcode=5)},
    "alu-reset": {"ALU with reset": lambda: changed(5, reset=1)},
    "alu-uop": {"WGT element 1": lambda: compute(Hand.alu, hand=Hand(uops=[(0, 0, 1)]))},
    "loop-trips": {
        "an outer loop": lambda: changed(4, iter_out=0),
        "micro-ops": lambda: compute(lambda h: h.alu(uop_bgn=1)),
    },
    "empty-rows": {"0 rows of 4": lambda: compute(lambda h: h.load(ACC, "b", y=0, x=4))},
    "token-flag": {
        "LOAD pops from before": lambda: changed(1, pop_prev=1),
        "STORE pushes to behind": lambda: changed(6, push_next=1),
    },
    "symbol": {
        "two constants overlap": lambda: with_symbol("b", offset=0x400),
        "two outputs overlap": lambda: with_symbol("t", kind="output", offset=0x18C0),
        "part of itself": lambda: with_symbol("t", parent="t"),
        "part of nothing": lambda: with_symbol("t", parent="z"),
        "a temporary among the inputs": lambda: with_symbol("t", offset=0),
        "an unknown kind": lambda: with_symbol("t", kind="scratch"),
        "two of one name": lambda: with_symbol("t", name="y"),
        "a small arena": lambda: dataclasses.replace(product().done(), arena_bytes=64),
    },
    "relocation": {
        "none": lambda: with_relocations(),
        "two": lambda: with_relocations(*[Relocation(2, "x", 0)] * 2),
        "another address": lambda: with_relocations(Relocation(2, "x", 1)),
        "an unknown symbol": lambda: with_relocations(Relocation(2, "z", 0)),
        "of a GEMM": lambda: with_relocations(Relocation(2, "x", 0), Relocation(4, "x", 0)),
        "of no instruction": lambda: with_relocations(Relocation(2, "x", 0), Relocation(9, "x", 0)),
    },
    "layer": {
        "two overlap": lambda: with_layers(Layer("a", 0, 5), Layer("b", 4, 9)),
        "one too long": lambda: with_layers(Layer("a", 0, 10)),
    },
    "sram-bounds": {
        "LOAD": lambda: changed(2, sram_base=2045),
        "LOAD by its padding": lambda: changed(2, sram_base=2037, x_pad_0=2, y_pad_1=1),
        "STORE": lambda: changed(6, sram_base=2045),
        "destination": lambda: changed(3, iter_out=2, dst_factor_out=2045),
        "INP source": lambda: changed(4, src_factor_in=683),
        "WGT source": lambda: changed(4, wgt_factor_in=342),
        "ALU source": lambda: compute(
            lambda h: h.alu(AluOp.ADD, None, 2, iter_out=2, src_factor_in=2047, src_factor_out=1)
        ),
    },
    "uop-bounds": {
        "beyond the buffer": lambda: changed(4, uop_end=8193),
        "falling": lambda: changed(4, uop_bgn=2),
    },
    "loop-steps": {
        "2 x 16383 x 16383": lambda: changed(
            3,
            product(Hand(uops=[(0, 0, 0)] * 2)),
            **{"iter_out": 16383, "iter_in": 16383, "uop_end": 2, "dst_factor_in": 0},
        ),
    },
    "uninitialised": {
        "INP between what is written": lambda: part_of_the_inputs(1),
        "WGT": lambda: changed(4, wgt_factor_in=1),
        "a micro-op": lambda: changed(4, uop_end=2),
        "the accumulator of GEMM": lambda: changed(3, iter_in=3),
        "what a STORE reads": lambda: changed(6, sram_base=2),
    },
    "dram-bounds": {
        "LOAD past its symbol": lambda: changed(2, at=61),
        "STORE past its symbol by its stride": lambda: changed(6, y_size=2, x_size=2, x_stride=63),
        "no symbol": address_without_symbol,
    },
    "dram-store": {
        "into an input": lambda: changed(6, symbol="x"),
        "into a constant": lambda: changed(6, symbol="b"),
    },
    "dram-undefined": {"between what is stored": lambda: through_a_temporary(3)},
    "reuse": {
        "a temporary that another was stored over": lambda: stored_over(0),
        "the last element of it": lambda: stored_over(3),
        "a part of it": lambda: stored_over(3, part=True),
        "an output that a temporary is stored over": lambda: output_stored_over(3),
    },
    "uop-source": {"from an input": lambda: changed(0, symbol="x")},
    "deadlock": {
        "two queues wait for each other": crossed,
        "no push": lambda: changed(2, push_next=0),
    },
    "token-order": {"pop before push": pop_before_push},
    "token-limit": {"4 tokens of 3": lambda: tokens_ahead(4)},
    "token-left": {"push without pop": lambda: changed(5, push_prev=1)},
    "race": {
        "GEMM reads what LOADs write": no_wait_for_inputs,
        "LOAD writes what GEMM reads": lambda: second_load(3),
        "LOAD writes one of every second": lambda: load_between(4),
        "ALU writes what STORE reads": lambda: compute_after_store(3),
        "LOAD reads what STORE writes in DRAM": lambda: load_of_a_result(8),
        "STORE writes what LOAD reads in DRAM": lambda: store_after_load(0),
        "the wrong way round": wrong_way_round,
    },
    "finish": {
        "missing": lambda: Hand().done(),
        "not last": lambda: ending(Queue.STORE, after=True),
        "does not wait": ending,
        "pops": lambda: ending(pop=True),
    },
    "mul": {"MUL": lambda: compute(lambda h: h.alu(AluOp.MUL), hand=Hand(machine(mul=False)))},
    "acc-8bit": {
        "LOAD": lambda: compute(
            lambda h: h.load(ACC_8BIT, "x"), hand=Hand(machine(acc_8bit=False))
        ),
    },
    "shift": {
        "right by 16": lambda: compute(lambda h: h.alu(AluOp.SHR, 16)),
        "left by 16": lambda: compute(lambda h: h.alu(AluOp.SHR, -16)),
    },
    "tensor-shift": {
        "right by 16": lambda: tensor_shift(16, 0),
        "left by 1": lambda: tensor_shift(1, -1),
    },
    "imm-source": {
        "another factor": lambda: compute(lambda h: h.alu(count=2, src_factor_in=0)),
        "another element": lambda: compute(
            lambda h: h.alu(uop_bgn=1, uop_end=2), hand=Hand(uops=[(0, 0, 0), (0, 1, 0)])
        ),
    },
    "store-source": {
        "after a LOAD": lambda: stored_after(Opcode.LOAD, 3),
        "after a reset": lambda: stored_after(Opcode.GEMM, 0),
    },
    "dst-distance": {"3 of 4": lambda: gemm_again(3)},
    "alu-distance": {
        "twice in a row": lambda: alu_again(1),
        "reads the vector before": lambda: prefix_sum(1),
    },
}
CORRECT: dict[str, Callable[[], Program]] = {
    "product": lambda: product().done(),
    "last INP and ACC elements": lambda: moved(2044),
    "last micro-op": last_micro_op,
    "nothing at all": empty_work,
    "reads what is written, not what lies between": lambda: part_of_the_inputs(2),
    "last element of a symbol": lambda: changed(2, at=60),
    "stride to the last element": lambda: changed(6, y_size=2, x_size=2, x_stride=62),
    "loads what was stored, not what lies between": lambda: through_a_temporary(2),
    "shares with what is not used": lambda: with_symbol("t", offset=0x18C0),
    "shares with what was read": read_before,
    "stores beside what shares": lambda: output_stored_over(-1),
    "3 tokens of 3": lambda: tokens_ahead(3),
    "LOAD beside what GEMM reads": lambda: second_load(4),
    "LOAD waits for GEMM": lambda: second_load(3, wait=True),
    "LOAD between what GEMM reads": lambda: load_between(3),
    "ALU beside what STORE reads": lambda: compute_after_store(4),
    "ALU waits for STORE": lambda: compute_after_store(3, wait=True),
    "LOAD beside what STORE writes": lambda: load_of_a_result(5),
    "LOAD waits for STORE": lambda: load_of_a_result(8, wait=True),
    "STORE beside what LOAD reads": lambda: store_after_load(1),
    "STORE waits for LOAD": lambda: store_after_load(0, wait=True),
    "MUL": lambda: compute(lambda h: h.alu(AluOp.MUL)),
    "ACC_8BIT": lambda: compute(lambda h: h.load(ACC_8BIT, "x")),
    "shift right by 15": lambda: compute(lambda h: h.alu(AluOp.SHR, 15)),
    "one trip has no use for factors": lambda: compute(lambda h: h.alu(src_factor_out=7)),
    "tensor operands differ": lambda: prefix_sum(4),
    "tensor shifts by 0 to 15": lambda: tensor_shift(0, 15, 3),
    "tensor shifts by data": lambda: tensor_shift(16, -1, held=False),
    "shift left by 15": lambda: compute(lambda h: h.alu(AluOp.SHR, -15)),
    "LOAD beside what is stored": lambda: stored_after(Opcode.LOAD, 4),
    "reset beside what is stored": lambda: stored_after(Opcode.GEMM, 4),
    "destinations 4 apart": lambda: gemm_again(4),
    "destinations 3 apart where that is enough": lambda: gemm_again(3, machine(dst_distance=3)),
    "resets may repeat": lambda: changed(3, iter_out=2),
    "ALU 2 steps later": lambda: alu_again(2),
    "ALU reads 2 steps later": lambda: prefix_sum(2),
    "ALU with an interlock": lambda: prefix_sum(1, machine(dst_distance=1)),
}
