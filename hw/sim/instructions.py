# TVMScript is parsed by TVM, not run by Python: its annotations are not types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""What each instruction does: VTA as one TVMScript function, compiled by ``hw/sim/interpreter.py``.

Bit positions come from ``hw/isa.py`` through ``hw/sim/decoding.py``, refusals from
``hw/faults.py``, SRAM layout and arithmetic from ``hw/sim/sram.py`` and ``hw/sim/dot.py``.  Every
instruction is checked as a whole before it touches memory, and the first fault stops the program.

Functions under ``inline`` are TVMScript; the others build expressions and statements for it.
``m`` is the :class:`Machine`, ``s`` the state (the buffers that :func:`vta_run` declares) and
``f`` the fields of an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.faults import (
    COUNTER_SLOTS,
    INDEX_SLOT,
    LIMIT_SLOT,
    MAX_STEPS,
    STATUS_SLOT,
    TOKEN_PAIRS,
    VALUE_SLOT,
    Fault,
    static_message,
)
from vta_byoc.hw.isa import AluOp, MemType, Opcode
from vta_byoc.hw.sim.decoding import (
    decode,
    i64,
    operand,
    queue_of,
    reserved_bits,
    reserved_uop_bits,
    variable,
)
from vta_byoc.hw.sim.dot import Expr, add, load, multiply, shift, splat, store, vector
from vta_byoc.hw.sim.inline import inline
from vta_byoc.hw.sim.sram import Machine, inp_word, memories, unpack_inp, unpack_wgt, wgt_vector

HELD_WORDS = 16 * 32
"""Largest WGT element that GEMM holds in registers while its loops run."""
FAULT_SLOTS = (STATUS_SLOT, VALUE_SLOT, LIMIT_SLOT)
SLOT = {name: i for i, name in enumerate(COUNTER_NAMES)}
ALU = {
    AluOp.MIN: lambda a, b, lanes: T.min(a, b),
    AluOp.MAX: lambda a, b, lanes: T.max(a, b),
    AluOp.ADD: add,
    AluOp.SHR: shift,
    AluOp.MUL: multiply,
}


# ---------------------------------------------------------------- refusing
def refuse(s: Any, condition: Expr, fault: Fault, value: Expr = 0, limit: Expr = 0) -> None:
    """Emit: if ``condition`` holds and nothing was refused before, record ``fault``."""
    with T.If(T.And(s.fault[0] == 0, condition)), T.Then():
        for slot, entry in enumerate((int(fault), value, limit)):
            T.buffer_store(s.fault, i64(entry), [slot])


def _move_token(s: Any, pair: Expr, exists: Expr, fault: Fault, bound: int, change: int) -> None:
    refuse(s, T.Not(exists), Fault.TOKEN_FLAG)
    which = variable(T.Select(exists, pair, i64(0)))
    refuse(s, s.tokens[which] == bound, fault, which, bound)
    T.buffer_store(s.tokens, s.tokens[which] + change, [which])


def pop(s: Any, flag: Expr, pair: Expr, exists: Expr) -> None:
    """Emit: take a token of ``pair`` (an index of ``faults.TOKEN_PAIRS``) if ``flag`` is set."""
    with T.If(flag == 1), T.Then():
        _move_token(s, pair, exists, Fault.TOKEN_MISSING, 0, -1)


def push(s: Any, flag: Expr, pair: Expr, exists: Expr, limit: int) -> None:
    """Emit: add a token to ``pair`` if ``flag`` is set; at most ``limit`` are outstanding."""
    with T.If(flag == 1), T.Then():
        _move_token(s, pair, exists, Fault.TOKEN_OVERFLOW, limit, 1)


# ---------------------------------------------------------------- LOAD and STORE
def check_transfer(s: Any, f: Any, depth: int, elem_bytes: int) -> None:
    """Emit: refuse a non-empty transfer beside the SRAM or the arena."""
    rows, width = f.y_pad_0 + f.y_size + f.y_pad_1, f.x_pad_0 + f.x_size + f.x_pad_1
    last = variable(f.sram_base + rows * width - 1)
    refuse(s, last >= depth, Fault.SRAM_RANGE, last, depth)
    end = f.dram_base + (f.y_size - 1) * f.x_stride + f.x_size
    byte = variable(end * elem_bytes - 1)
    refuse(s, byte >= s.arena_bytes, Fault.DRAM_RANGE, byte, s.arena_bytes)


@inline
def load_rows(m, s, f, mem):
    width: T.let = f.x_pad_0 + f.x_size + f.x_pad_1
    for y in T.serial(f.y_pad_0 + f.y_size + f.y_pad_1):
        row: T.let = f.dram_base + (y - f.y_pad_0) * f.x_stride - f.x_pad_0
        in_row: T.let = T.And(y >= f.y_pad_0, y < f.y_pad_0 + f.y_size)
        for x in T.serial(width):
            dst: T.let = f.sram_base + y * width + x
            if T.And(in_row, T.And(x >= f.x_pad_0, x < f.x_pad_0 + f.x_size)):
                for part in T.serial(mem.parts):
                    byte = T.meta_var((row + x) * mem.elem_bytes + part * mem.part_bytes)
                    mem.put(m, s, dst, part, load(s.arena, byte, mem.part_bytes))
            else:
                for part in T.serial(mem.parts):
                    mem.put(m, s, dst, part, splat(T.int8(0), mem.part_bytes))
            mem.finish(m, s, dst)
        if in_row:
            s.counters[SLOT[mem.counter]] += f.x_size * mem.elem_bytes


def run_load(m: Machine, s: Any, f: Any) -> None:
    """Emit LOAD of every memory type; an empty one moves only tokens."""
    table = memories(m)
    refuse(s, tirx.all(*(f.mem_type != int(t) for t in table)), Fault.MEM_TYPE, f.mem_type)
    if not m.config.capabilities.acc_8bit:
        refuse(s, f.mem_type == int(MemType.ACC_8BIT), Fault.NO_ACC_8BIT)
    for mem_type, mem in table.items():
        with T.If(T.And(f.mem_type == int(mem_type), f.x_size * f.y_size > 0)), T.Then():
            check_transfer(s, f, mem.depth, mem.elem_bytes)
            with T.If(s.fault[0] == 0), T.Then():
                load_rows(m, s, f, mem)


@inline
def store_rows(m, s, f):
    for y in T.serial(f.y_size):
        src: T.let = (f.sram_base + y * f.x_size) * m.acc_words
        dst: T.let = (f.dram_base + y * f.x_stride) * m.acc_words
        for i in T.serial(f.x_size * m.acc_vectors):
            values = T.meta_var(load(s.out, src + i * m.lanes, m.lanes))
            narrow = T.meta_var(T.Cast(vector("int8", m.lanes), values))
            store(s.arena, dst + i * m.lanes, m.lanes, narrow)
        s.counters[SLOT["out_store_nbytes"]] += f.x_size * m.config.out_elem_bytes


def run_store(m: Machine, s: Any, f: Any) -> None:
    """Emit STORE: the low byte of each ACC lane; an empty one moves only tokens."""
    pads = f.y_pad_0 + f.y_pad_1 + f.x_pad_0 + f.x_pad_1
    refuse(s, f.mem_type != int(MemType.OUT), Fault.MEM_TYPE, f.mem_type)
    refuse(s, pads > 0, Fault.STORE_PAD)
    with T.If(f.x_size * f.y_size > 0), T.Then():
        check_transfer(s, f, m.config.acc_depth, m.config.out_elem_bytes)
        with T.If(s.fault[0] == 0), T.Then():
            store_rows(m, s, f)


# ---------------------------------------------------------------- GEMM and ALU
def result(m: Machine, s: Any, at: Expr, value: Expr) -> None:
    """Emit: a vector of GEMM or ALU goes to ACC, and to what STORE reads where that is apart."""
    store(s.acc, at, m.lanes, value)
    if m.config.capabilities.out_sram:
        store(s.out, at, m.lanes, load(s.acc, at, m.lanes))


_RANGE = {"dst": Fault.DST_RANGE, "src": Fault.SRC_RANGE, "wgt": Fault.WGT_RANGE}


@inline
def scan_uops(m, s, f, top):
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
                last = variable(top[slot] + _reach(f, name, f.iter_out - 1, f.iter_in - 1))
                refuse(s, T.And(used, last >= depth), fault, last, depth)


def _reach(f: Any, name: str, y: Expr, x: Expr) -> Expr:
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
def multiply_accumulate(m, s, f, held):
    """Micro-ops outermost, which wrapping addition allows: a WGT element that the loops do not
    move is held in registers."""
    for i in T.serial(f.uop_bgn, f.uop_end):
        uop: T.let = s.uop[i]
        wgt: T.let = operand(m, uop, "wgt")
        kept = T.meta_var(weights(m, s, wgt) if held else None)
        for y in T.serial(f.iter_out):
            for x in T.serial(f.iter_in):
                dst: T.let = operand(m, uop, "dst") + _reach(f, "dst", y, x)
                src: T.let = operand(m, uop, "src") + _reach(f, "src", y, x)
                now = T.meta_var(kept or weights(m, s, wgt + _reach(f, "wgt", y, x)))
                for row in T.serial(m.config.batch):
                    accumulate(m, s, dst, src, row, now)
        s.counters[SLOT["gemm_counter"]] += f.iter_out * f.iter_in


@inline
def reset(m, s, f):
    for i in T.serial(f.uop_bgn, f.uop_end):
        for y in T.serial(f.iter_out):
            for x in T.serial(f.iter_in):
                dst: T.let = operand(m, s.uop[i], "dst") + _reach(f, "dst", y, x)
                for part in T.serial(m.acc_vectors):
                    at = T.meta_var(dst * m.acc_words + part * m.lanes)
                    store(s.acc, at, m.lanes, splat(T.int32(0), m.lanes))


@inline
def run_gemm(m, s, f):
    c = T.meta_var(m.config)
    mac = T.meta_var(f.reset == 0)
    limits = T.meta_var(
        {"dst": (True, c.acc_depth), "src": (mac, c.inp_depth), "wgt": (mac, c.wgt_depth)}
    )
    check_loops(m, s, f, limits)
    if s.fault[0] == 0:
        if f.reset == 1:
            reset(m, s, f)
        elif T.And(f.wgt_factor_out == 0, f.wgt_factor_in == 0):
            multiply_accumulate(m, s, f, m.wgt_words <= HELD_WORDS)
        else:
            multiply_accumulate(m, s, f, False)


def operate(m: Machine, s: Any, opcode: Expr, at: Expr, left: Expr, right: Expr) -> None:
    """Emit ``acc[at] = acc[left] <opcode> right`` on one vector."""
    for op, function in ALU.items():
        with T.If(opcode == int(op)), T.Then():
            result(m, s, at, function(load(s.acc, left, m.lanes), right, m.lanes))


def amount(m: Machine, opcode: Expr, right: Expr) -> Expr:
    """Emit: the tensor operand of ALU, a shift amount modulo 32 where the machine takes it so."""
    if not m.config.capabilities.shift_modulo:
        return right
    modulo = right & splat(T.int32(31), m.lanes)
    return T.Select(splat(opcode == int(AluOp.SHR), m.lanes), modulo, right)


@inline
def alu_loop(m, s, f, use_imm):
    for y in T.serial(f.iter_out):
        for x in T.serial(f.iter_in):
            for i in T.serial(f.uop_bgn, f.uop_end):
                dst: T.let = operand(m, s.uop[i], "dst") + _reach(f, "dst", y, x)
                src: T.let = operand(m, s.uop[i], "src") + _reach(f, "src", y, x)
                for part in T.serial(m.acc_vectors):
                    at = T.meta_var(dst * m.acc_words + part * m.lanes)
                    other = T.meta_var(src * m.acc_words + part * m.lanes)
                    if use_imm:
                        left = T.meta_var(other if m.config.capabilities.imm_reads_src else at)
                        imm = T.meta_var(splat(T.Cast("int32", f.imm), m.lanes))
                        operate(m, s, f.alu_opcode, at, left, imm)
                    else:
                        right = T.meta_var(amount(m, f.alu_opcode, load(s.acc, other, m.lanes)))
                        operate(m, s, f.alu_opcode, at, at, right)
            s.counters[SLOT["alu_counter"]] += f.uop_end - f.uop_bgn


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
            alu_loop(m, s, f, True)
        else:
            alu_loop(m, s, f, False)


# ---------------------------------------------------------------- the machine
@inline
def execute(m, s, words, head, queue):
    pop(s, head.pop_prev, queue * 2 - 2, queue > 0)
    pop(s, head.pop_next, queue * 2 + 1, queue < 2)
    if head.opcode == int(Opcode.LOAD):
        run_load(m, s, decode(m, Opcode.LOAD, words))
    elif head.opcode == int(Opcode.STORE):
        run_store(m, s, decode(m, Opcode.STORE, words))
    elif head.opcode == int(Opcode.GEMM):
        gemm = T.meta_var(decode(m, Opcode.GEMM, words))
        run_gemm(m, s, gemm)
    elif head.opcode == int(Opcode.ALU):
        alu = T.meta_var(decode(m, Opcode.ALU, words))
        run_alu(m, s, alu)
    push(s, head.push_prev, queue * 2 - 1, queue > 0, m.config.capabilities.max_tokens)
    push(s, head.push_next, queue * 2, queue < 2, m.config.capabilities.max_tokens)


@inline
def finish(s, pc, n):
    left: T.let = i64(s.tokens[0] + s.tokens[1] + s.tokens[2] + s.tokens[3])
    refuse(s, left != 0, Fault.TOKEN_LEFT, left)
    refuse(s, pc + 1 < n, Fault.AFTER_FINISH, n - pc - 1)


@inline
def fill_arena(s, inputs, image, n_inputs, n_image):
    for i in T.serial(n_inputs):
        s.arena[i] = inputs[i]
    for i in T.serial(n_image):
        s.arena[n_inputs + i] = image[i]
    for i in T.serial(s.arena_bytes - n_inputs - n_image):
        s.arena[n_inputs + n_image + i] = T.int8(0)


def power_on(m: Machine, arena: Expr, arena_bytes: Expr, counters: Expr) -> SimpleNamespace:
    """The state, all zero but arena and counters: the outcome of a program is its own."""
    c = m.config
    s = SimpleNamespace(
        arena=arena,
        arena_bytes=arena_bytes,
        counters=counters,
        uop=T.alloc_buffer((c.uop_depth,), "uint32"),
        inp=T.alloc_buffer((c.inp_depth * m.inp_words,), "int32"),
        wgt=T.alloc_buffer((c.wgt_depth * m.wgt_words,), "int32"),
        acc=T.alloc_buffer((c.acc_depth * m.acc_words,), "int32"),
        tokens=T.alloc_buffer((len(TOKEN_PAIRS),), "int32"),
        fault=T.alloc_buffer((len(FAULT_SLOTS),), "int64"),
        done=T.alloc_buffer((1,), "int32"),
    )
    s.out = s.acc
    if c.capabilities.out_sram:
        s.out = T.alloc_buffer((c.acc_depth * m.acc_words,), "int32")
        with T.serial(c.acc_depth * m.acc_words) as i:
            T.buffer_store(s.out, T.int32(0), [i])
    for buffer in (s.tokens, s.fault, s.done):
        with T.serial(buffer.shape[0]) as i:
            T.buffer_store(buffer, tirx.const(0, str(buffer.dtype)), [i])
    for mem_type, mem in memories(m).items():
        if mem_type != MemType.ACC_8BIT:
            with T.serial(mem.depth) as element:
                with T.serial(mem.parts) as part:
                    mem.put(m, s, element, part, splat(T.int8(0), mem.part_bytes))
                mem.finish(m, s, element)
    return s


def record(s: Any) -> None:
    """Emit the fault, or that there is none, into the counters."""
    for i, slot in enumerate(FAULT_SLOTS):
        T.buffer_store(s.counters, s.fault[i], [slot])


@inline
def run_stream(m, s, insn, n):
    for pc in T.serial(n):
        words = T.meta_var([T.Bind(insn[pc, 0]), T.Bind(insn[pc, 1])])
        head = T.meta_var(decode(m, Opcode.FINISH, words))
        queue = T.meta_var(queue_of(m, head.opcode, words))
        bad = T.meta_var(reserved_bits(m, head.opcode, words))
        refuse(s, head.opcode > max(Opcode), Fault.OPCODE, head.opcode)
        refuse(s, bad != 0, Fault.RESERVED_BITS, T.reinterpret("int64", bad))
        if s.fault[0] == 0:
            execute(m, s, words, head, queue)
        if head.opcode == int(Opcode.FINISH):
            finish(s, pc, n)
            s.done[0] = 1
        if T.Or(s.done[0] == 1, s.fault[0] != 0):
            s.counters[INDEX_SLOT] = pc
            break
    refuse(s, s.done[0] == 0, Fault.NO_FINISH)
    record(s)


@inline
def read_back(m, s, uop, inp, wgt, acc):
    for i in T.serial(m.config.uop_depth):
        uop[i] = s.uop[i]
    for i, row, g in T.grid(m.config.inp_depth, m.config.batch, m.groups):
        inp[i, row, T.ramp(g * m.dot.group, 1, m.dot.group)] = unpack_inp(m, s, i, row, g)
    for i, j, g in T.grid(m.config.wgt_depth, m.config.block, m.groups):
        wgt[i, j, T.ramp(g * m.dot.group, 1, m.dot.group)] = unpack_wgt(m, s, i, j, g)
    for i, row, j in T.grid(m.config.acc_depth, m.config.batch, m.config.block):
        acc[i, row, j] = s.acc[(i * m.config.batch + row) * m.config.block + j]


def _stopped(fault: Fault) -> str:
    return f"VTA stopped: {static_message(fault)} (hw.simulator.run names the instruction)"


def assert_no_fault(counters: Expr) -> None:
    """Emit one assertion a fault, so that a caller without Python code still reads the reason."""
    for fault in Fault:
        if fault != Fault.NONE:
            with T.Assert(counters[STATUS_SLOT] != int(fault), _stopped(fault)):
                pass


@T.jit
def vta_run(
    insn_h: T.handle,
    inputs_h: T.handle,
    image_h: T.handle,
    region: T.int64,
    arena_h: T.handle,
    counters_h: T.handle,
    uop_h: T.Optional(T.handle),
    inp_h: T.Optional(T.handle),
    wgt_h: T.Optional(T.handle),
    acc_h: T.Optional(T.handle),
    *,
    m: T.constexpr,
    name: T.constexpr,
):
    """Run a program: the inputs and then the image fill the arena from its start.

    insn (n, 2) uint64, inputs and image int8; region is for those who observe the call and has no
    effect; arena int8 and counters (COUNTER_SLOTS,) int64 are outputs.  With uop, inp, wgt and acc
    (outputs, shaped as ``RunResult.sram``) a fault is left in the counters; without, it raises.
    """
    T.func_attr({"tirx.noalias": True, "global_symbol": name})
    n = T.int64()
    n_inputs = T.int64()
    n_image = T.int64()
    n_arena = T.int64()
    insn = T.match_buffer(insn_h, (n, 2), "uint64", align=8)
    inputs = T.match_buffer(inputs_h, (n_inputs,), "int8", align=1)
    image = T.match_buffer(image_h, (n_image,), "int8", align=1)
    arena = T.match_buffer(arena_h, (n_arena,), "int8", align=1)
    counters = T.match_buffer(counters_h, (COUNTER_SLOTS,), "int64", align=8)
    if uop_h is not None:
        c = T.meta_var(m.config)
        uop_out = T.match_buffer(uop_h, (c.uop_depth,), "uint32")
        inp_out = T.match_buffer(inp_h, (c.inp_depth, c.batch, c.block), "int8")
        wgt_out = T.match_buffer(wgt_h, (c.wgt_depth, c.block, c.block), "int8")
        acc_out = T.match_buffer(acc_h, (c.acc_depth, c.batch, c.block), "int32")
    for i in T.serial(COUNTER_SLOTS):
        counters[i] = T.int64(0)
    counters[INDEX_SLOT] = T.int64(-1)
    if n_inputs + n_image > n_arena:
        counters[STATUS_SLOT] = T.int64(int(Fault.ARENA_SIZE))
        counters[VALUE_SLOT] = n_inputs + n_image
        counters[LIMIT_SLOT] = n_arena
    else:
        # SRAM lives in this branch: what an assertion leaves behind is never freed.
        s = T.meta_var(power_on(m, arena, n_arena, counters))
        fill_arena(s, inputs, image, n_inputs, n_image)
        run_stream(m, s, insn, n)
        if uop_h is not None:
            read_back(m, s, uop_out, inp_out, wgt_out, acc_out)
    if uop_h is None:
        assert_no_fault(counters)
