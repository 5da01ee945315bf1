# TVMScript is parsed by TVM, not run by Python: its annotations are not types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""VTA as one TVMScript function, compiled by ``hw/sim/interpreter.py``.

What LOAD and STORE do is in ``transfers.py``, GEMM and ALU in ``computation.py``, refusals in
``refusals.py``, the commit log in ``digests.py``.  Bit positions come from ``hw/isa.py`` through
``decoding.py``, SRAM layout and arithmetic from ``sram.py`` and ``dot.py``.  Every instruction is
checked as a whole before it touches memory, and the first fault stops the program.

Functions under ``inline`` are TVMScript; the others build expressions and statements for it.
``m`` is the :class:`Machine`, ``s`` the state (the buffers that :func:`power_on` declares) and
``f`` the fields of an instruction.
"""

from __future__ import annotations

from types import SimpleNamespace

from tvm import tirx
from tvm.script import tirx as T

from vta_byoc.hw.faults import (
    COUNTER_SLOTS,
    INDEX_SLOT,
    LIMIT_SLOT,
    STATUS_SLOT,
    TOKEN_PAIRS,
    VALUE_SLOT,
    Fault,
)
from vta_byoc.hw.isa import MemType, Opcode
from vta_byoc.hw.sim.computation import run_alu, run_gemm
from vta_byoc.hw.sim.decoding import decode, i64, queue_of, reserved_bits
from vta_byoc.hw.sim.digests import log_instruction, start_log
from vta_byoc.hw.sim.dot import Expr, splat
from vta_byoc.hw.sim.inline import inline
from vta_byoc.hw.sim.refusals import FAULT_SLOTS, assert_no_fault, pop, push, record, refuse
from vta_byoc.hw.sim.sram import Machine, memories, unpack_inp, unpack_wgt
from vta_byoc.hw.sim.transfers import run_load, run_store


@inline
def execute(m, s, words, head, queue):
    """Pop tokens, do what the instruction does, push tokens."""
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
    """Refuse tokens that are left and instructions behind FINISH."""
    left: T.let = i64(s.tokens[0] + s.tokens[1] + s.tokens[2] + s.tokens[3])
    refuse(s, left != 0, Fault.TOKEN_LEFT, left)
    refuse(s, pc + 1 < n, Fault.AFTER_FINISH, n - pc - 1)


@inline
def fill_arena(s, inputs, image, n_inputs, n_image):
    """Copy inputs and image to the start of the arena and clear the rest."""
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
    s.out, s.log = s.acc, None
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


@inline
def run_stream(m, s, insn, n):
    """Run instructions until FINISH or the first fault, and record the outcome."""
    for pc in T.serial(n):
        words = T.meta_var([T.Bind(insn[pc, 0]), T.Bind(insn[pc, 1])])
        head = T.meta_var(decode(m, Opcode.FINISH, words))
        queue = T.meta_var(queue_of(m, head.opcode, words))
        bad = T.meta_var(reserved_bits(m, head.opcode, words))
        refuse(s, head.opcode > max(Opcode), Fault.OPCODE, head.opcode)
        refuse(s, bad != 0, Fault.RESERVED_BITS, T.reinterpret("int64", bad))
        if s.fault[0] == 0:
            execute(m, s, words, head, queue)
        if s.log is not None:
            log_instruction(m, s, words, head, pc)
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
    """Copy the SRAM contents to the outputs, in the order of their tensors."""
    for i in T.serial(m.config.uop_depth):
        uop[i] = s.uop[i]
    for i, row, g in T.grid(m.config.inp_depth, m.config.batch, m.groups):
        inp[i, row, T.ramp(g * m.dot.group, 1, m.dot.group)] = unpack_inp(m, s, i, row, g)
    for i, j, g in T.grid(m.config.wgt_depth, m.config.block, m.groups):
        wgt[i, j, T.ramp(g * m.dot.group, 1, m.dot.group)] = unpack_wgt(m, s, i, j, g)
    for i, row, j in T.grid(m.config.acc_depth, m.config.batch, m.config.block):
        acc[i, row, j] = s.acc[(i * m.config.batch + row) * m.config.block + j]


def keep_log(m: Machine, s: SimpleNamespace, log: Expr) -> None:
    """Declare what digests need beside the state, and where they go."""
    s.log = log
    s.digest = T.alloc_buffer((1,), "uint64")
    s.octets = T.alloc_buffer((m.dot.group,), "int8")
    s.stamp = T.alloc_buffer((m.config.acc_depth,), "int64")


@inline
def clear(counters):
    """Set all counters to 0; no instruction has stopped the program."""
    for i in T.serial(COUNTER_SLOTS):
        counters[i] = T.int64(0)
    counters[INDEX_SLOT] = T.int64(-1)


@inline
def refuse_arena(counters, needed, n_arena):
    """Record that inputs and image do not fit the arena."""
    counters[STATUS_SLOT] = T.int64(int(Fault.ARENA_SIZE))
    counters[VALUE_SLOT] = needed
    counters[LIMIT_SLOT] = n_arena


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
    log_h: T.Optional(T.handle),
    *,
    m: T.constexpr,
    name: T.constexpr,
):
    """Run a program: inputs (int8), then image (int8), fill the arena (int8) from its start.

    insn (n, 2) uint64; region is for observers.  Outputs: arena, counters int64, and where given
    SRAM as ``RunResult.sram`` and a log (n,) uint64.  Without SRAM a fault raises.
    """
    T.func_attr({"tirx.noalias": True, "global_symbol": name})
    n, n_inputs, n_image, n_arena = T.int64(), T.int64(), T.int64(), T.int64()
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
    if log_h is not None:
        log = T.match_buffer(log_h, (n,), "uint64", align=8)
    clear(counters)
    if n_inputs + n_image > n_arena:
        refuse_arena(counters, n_inputs + n_image, n_arena)
    else:  # SRAM lives in this branch: what an assertion leaves behind is never freed.
        s = T.meta_var(power_on(m, arena, n_arena, counters))
        fill_arena(s, inputs, image, n_inputs, n_image)
        if log_h is not None:
            keep_log(m, s, log)
            start_log(m, s, n)
        run_stream(m, s, insn, n)
        if uop_h is not None:
            read_back(m, s, uop_out, inp_out, wgt_out, acc_out)
    if uop_h is None:
        assert_no_fault(counters)
