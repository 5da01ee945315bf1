# TVMScript is parsed by TVM, not run by Python: its annotations are not types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""GEMM and ALU, as the interpreter emits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm.script import tirx as T

from vta_byoc.hw.faults import MAX_STEPS, Fault
from vta_byoc.hw.isa import AluOp
from vta_byoc.hw.sim.decoding import operand, reserved_uop_bits, variable
from vta_byoc.hw.sim.dot import Expr, add, load, multiply, shift, splat, store
from vta_byoc.hw.sim.inline import inline
from vta_byoc.hw.sim.refusals import refuse
from vta_byoc.hw.sim.sram import SLOT, Machine, inp_word, wgt_vector

HELD_WORDS = 16 * 32
"""Largest WGT element that GEMM holds in registers while its loops run."""
ALU = {
    AluOp.MIN: lambda a, b, lanes: T.min(a, b),
    AluOp.MAX: lambda a, b, lanes: T.max(a, b),
    AluOp.ADD: add,
    AluOp.SHR: shift,
    AluOp.MUL: multiply,
}
"""The arithmetic of the simulator, apart from the compiler's (`workload/alu.py`) on purpose."""


def result(m: Machine, s: Any, at: Expr, value: Expr) -> None:
    """Emit: a vector of GEMM or ALU goes to ACC, and to what STORE reads where that is apart."""
    store(s.acc, at, m.lanes, value)
    if m.config.capabilities.out_sram:
        store(s.out, at, m.lanes, load(s.acc, at, m.lanes))


_RANGE = {"dst": Fault.DST_RANGE, "src": Fault.SRC_RANGE, "wgt": Fault.WGT_RANGE}


@inline
def scan_uops(m, s, f, top):
    """Find the largest operands of the micro-ops and the reserved bits that any of them sets."""
    for slot in T.serial(len(_RANGE) + 1):
        top[slot] = T.int64(0)
    for i in T.serial(f.uop_bgn, f.uop_end):
        uop: T.let = s.uop[i]
        top[0] = T.max(top[0], operand(m, uop, "dst"))
        top[1] = T.max(top[1], operand(m, uop, "src"))
        top[2] = T.max(top[2], operand(m, uop, "wgt"))
        top[3] = top[3] | reserved_uop_bits(m, uop)


def check_loops(m: Machine, s: Any, f: Any, limits: Mapping[str, tuple[Expr, int]]) -> None:
    """Emit: refuse loops that leave an SRAM; ``limits`` holds (is it used, depth) by operand.

    Micro-ops are data, so their largest operands are sought first: work in proportion to the
    micro-ops, not to the steps.
    """
    top = T.alloc_buffer((len(_RANGE) + 1,), "int64")
    steps = variable((f.uop_end - f.uop_bgn) * f.iter_out * f.iter_in)
    wrong = T.Or(f.uop_bgn > f.uop_end, f.uop_end > m.config.uop_depth)
    refuse(s, wrong, Fault.UOP_RANGE, f.uop_end, m.config.uop_depth)
    refuse(s, steps > MAX_STEPS, Fault.STEPS, steps, MAX_STEPS)
    with T.If(T.And(s.fault[0] == 0, steps > 0)), T.Then():
        scan_uops(m, s, f, top)
        refuse(s, top[len(_RANGE)] != 0, Fault.UOP_RESERVED, top[len(_RANGE)])
        for slot, (name, fault) in enumerate(_RANGE.items()):
            if name in limits:
                used, depth = limits[name]
                last = variable(top[slot] + moved(f, name, f.iter_out - 1, f.iter_in - 1))
                refuse(s, T.And(used, last >= depth), fault, last, depth)


def moved(f: Any, name: str, y: Expr, x: Expr) -> Expr:
    """How far the loops have moved operand ``name`` at iteration (y, x)."""
    return y * getattr(f, f"{name}_factor_out") + x * getattr(f, f"{name}_factor_in")


def weights(m: Machine, s: Any, element: Expr) -> list[list[Expr]]:
    """A WGT element in variables: per vector of output lanes, its groups and bias."""
    count = m.wgt_words // m.config.block
    lanes = range(0, m.config.block, m.lanes)
    return [[T.Bind(wgt_vector(m, s, element, g, j)) for g in range(count)] for j in lanes]


def accumulate(m: Machine, s: Any, dst: Expr, src: Expr, row: Expr, wgt: Expr) -> None:
    """Emit ``acc[dst, row] += inp[src, row] . wgt`` over all output lanes."""
    words = [T.Bind(inp_word(m, s, src, row, g)) for g in range(m.groups)]
    for i, vectors in enumerate(wgt):
        at = T.Bind(dst * m.acc_words + row * m.config.block + i * m.lanes)
        product = m.dot.product(words, vectors)
        result(m, s, at, add(load(s.acc, at, m.lanes), product, m.lanes))


@inline
def multiply_accumulate(m, s, f, inner, held):
    """Multiply and accumulate with the micro-ops outermost, which wrapping addition allows.

    ``inner`` names the innermost loop, "in" or "out". A WGT element is loaded into registers
    outside of it (``held`` 1), outside of both loops (2), or for each step (0).
    """
    for i in T.serial(f.uop_bgn, f.uop_end):
        uop: T.let = s.uop[i]
        wgt: T.let = operand(m, uop, "wgt")
        both = T.meta_var(weights(m, s, wgt) if held == 2 else None)
        for a in T.serial(f.iter_out if inner == "in" else f.iter_in):
            apart = T.meta_var((a, 0) if inner == "in" else (0, a))
            one = T.meta_var(weights(m, s, wgt + moved(f, "wgt", *apart)) if held == 1 else both)
            for b in T.serial(f.iter_in if inner == "in" else f.iter_out):
                at = T.meta_var((a, b) if inner == "in" else (b, a))
                dst: T.let = operand(m, uop, "dst") + moved(f, "dst", *at)
                src: T.let = operand(m, uop, "src") + moved(f, "src", *at)
                now = T.meta_var(one or weights(m, s, wgt + moved(f, "wgt", *at)))
                for row in T.serial(m.config.batch):
                    accumulate(m, s, dst, src, row, now)
        s.counters[SLOT["gemm_counter"]] += f.iter_out * f.iter_in


@inline
def reset(m, s, f):
    """Clear the accumulators that the micro-ops and loops address."""
    for i in T.serial(f.uop_bgn, f.uop_end):
        for y in T.serial(f.iter_out):
            for x in T.serial(f.iter_in):
                dst: T.let = operand(m, s.uop[i], "dst") + moved(f, "dst", y, x)
                for part in T.serial(m.acc_vectors):
                    at = T.meta_var(dst * m.acc_words + part * m.lanes)
                    store(s.acc, at, m.lanes, splat(T.int32(0), m.lanes))


@inline
def run_gemm(m, s, f):
    """Check the loops, then clear accumulators, or multiply and accumulate."""
    c = T.meta_var(m.config)
    mac = T.meta_var(f.reset == 0)
    limits = T.meta_var(
        {"dst": (True, c.acc_depth), "src": (mac, c.inp_depth), "wgt": (mac, c.wgt_depth)}
    )
    fits = T.meta_var(m.wgt_words <= HELD_WORDS)
    check_loops(m, s, f, limits)
    if s.fault[0] == 0:
        if f.reset == 1:
            reset(m, s, f)
        elif T.And(f.wgt_factor_out == 0, f.wgt_factor_in == 0):
            multiply_accumulate(m, s, f, "in", 2 if fits else 0)
        elif T.And(f.wgt_factor_in == 0, f.iter_in > 1):
            multiply_accumulate(m, s, f, "in", 1 if fits else 0)
        elif T.And(f.wgt_factor_out == 0, f.iter_out > 1):
            multiply_accumulate(m, s, f, "out", 1 if fits else 0)
        else:
            multiply_accumulate(m, s, f, "in", 0)


def alu_step(m: Machine, s: Any, f: Any, op: AluOp, dst: Expr, src: Expr, use_imm: bool) -> None:
    """Emit ``acc[dst] = acc[dst] <op> operand`` for the vectors of one element, in order."""
    for part in range(m.acc_vectors):
        at = T.Bind(dst * m.acc_words + part * m.lanes)
        other = T.Bind(src * m.acc_words + part * m.lanes)
        if use_imm:
            left = other if m.config.capabilities.imm_reads_src else at
            right = splat(T.Cast("int32", f.imm), m.lanes)
        else:
            left, right = at, amount(m, op, load(s.acc, other, m.lanes))
        result(m, s, at, ALU[op](load(s.acc, left, m.lanes), right, m.lanes))


def amount(m: Machine, op: AluOp, right: Expr) -> Expr:
    """The tensor operand of ALU, a shift amount modulo 32 where the machine takes it so."""
    if op != AluOp.SHR or not m.config.capabilities.shift_modulo:
        return right
    return right & splat(T.int32(31), m.lanes)


def alu_steps(m: Machine, s: Any, f: Any, dst: Expr, src: Expr, use_imm: bool) -> None:
    """Emit :func:`alu_step` of whichever operation the instruction names."""
    for op in ALU:
        with T.If(f.alu_opcode == int(op)), T.Then():
            alu_step(m, s, f, op, dst, src, use_imm)


@inline
def alu_micro_ops(m, s, f, use_imm):
    """Run the loops around several micro-ops, which are innermost."""
    for y in T.serial(f.iter_out):
        for x in T.serial(f.iter_in):
            for i in T.serial(f.uop_bgn, f.uop_end):
                dst: T.let = operand(m, s.uop[i], "dst") + moved(f, "dst", y, x)
                src: T.let = operand(m, s.uop[i], "src") + moved(f, "src", y, x)
                alu_steps(m, s, f, dst, src, use_imm)


@inline
def alu_one(m, s, f, dst, src, op, use_imm):
    """Run the loops around one micro-op."""
    for y in T.serial(f.iter_out):
        for x in T.serial(f.iter_in):
            to = T.meta_var(dst + moved(f, "dst", y, x))
            alu_step(m, s, f, op, to, src + moved(f, "src", y, x), use_imm)


def alu_one_of(m: Machine, s: Any, f: Any, use_imm: bool) -> None:
    """Emit the loops of every operation around one micro-op: none is told apart inside of them."""
    dst, src = (variable(operand(m, s.uop[f.uop_bgn], name)) for name in ("dst", "src"))
    for op in ALU:
        with T.If(f.alu_opcode == int(op)), T.Then():
            alu_one(m, s, f, dst, src, op, use_imm)


@inline
def alu_loops(m, s, f, use_imm):
    """Run an instruction that is right, on an immediate or on a tensor."""
    if f.uop_end - f.uop_bgn == 1:
        alu_one_of(m, s, f, use_imm)
    else:
        alu_micro_ops(m, s, f, use_imm)


@inline
def run_alu(m, s, f):
    """Vector by vector in program order, every result visible to the next."""
    refuse(s, f.reset != 0, Fault.ALU_RESET)
    refuse(s, f.alu_opcode > max(AluOp), Fault.ALU_OPCODE, f.alu_opcode)
    if not m.config.capabilities.mul:
        refuse(s, f.alu_opcode == int(AluOp.MUL), Fault.NO_MUL)
    depth = T.meta_var(m.config.acc_depth)
    reads = T.meta_var(m.config.capabilities.imm_reads_src or f.use_imm == 0)
    check_loops(m, s, f, {"dst": (True, depth), "src": (reads, depth)})
    if s.fault[0] == 0:
        if f.use_imm == 1:
            alu_loops(m, s, f, True)
        else:
            alu_loops(m, s, f, False)
        steps = T.meta_var((f.uop_end - f.uop_bgn) * f.iter_out * f.iter_in)
        s.counters[SLOT["alu_counter"]] += steps
