# TVMScript is parsed by TVM, not run by Python: its annotations are not types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""The functional simulator with a commit log: its instructions, and a digest after each of them.

Execution is that of ``hw/sim/instructions.py``, inlined; the digest is that of
``hw/trace/commit_log.py``, computed from what lies in SRAM and DRAM afterwards.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.script import tirx as T
from tvm.target import Target

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.faults import COUNTER_SLOTS, INDEX_SLOT, Fault
from vta_byoc.hw.isa import MemType, Opcode
from vta_byoc.hw.sim.decoding import decode, operand, queue_of, reserved_bits, variable
from vta_byoc.hw.sim.dot import DOTS, Expr
from vta_byoc.hw.sim.inline import inline
from vta_byoc.hw.sim.instructions import (
    _reach,
    execute,
    fill_arena,
    finish,
    power_on,
    read_back,
    record,
    refuse,
)
from vta_byoc.hw.sim.interpreter import (
    _lanes,
    multiplies,
    seen_by_programs,
    sram_shapes,
    vnni_lanes,
)
from vta_byoc.hw.sim.interpreter import build_interpreter as _build_interpreter
from vta_byoc.hw.sim.lane_digest import HALF_MASK, ROUND_KEYS, SALTS
from vta_byoc.hw.sim.sram import Machine, unpack_inp, unpack_wgt
from vta_byoc.hw.sim.target import as_target, runs_here

SYMBOL = "vta_log"


# ---------------------------------------------------------------- the digest
def _u64(value: Expr) -> Expr:
    return tirx.const(value, "uint64") if isinstance(value, int) else T.Cast("uint64", value)


def absorb(s: Any, space: str, index: Expr, value: Expr) -> None:
    """Emit: add one lane to the digest; the rounds are those of :func:`lane_digest.mix`."""
    mask = _u64(HALF_MASK)
    high = variable((_u64(index) & mask) ^ _u64(SALTS[space]))
    low = variable(_u64(value) & mask)
    for key in ROUND_KEYS:
        product = variable(low * _u64(key) + _u64(key))
        high, low = low, variable(high ^ (product >> _u64(32)) ^ (product & mask))
    T.buffer_store(s.digest, s.digest[0] ^ ((high << _u64(32)) | low), [0])


@inline
def digest_load(m, s, f):
    c = T.meta_var(m.config)
    g = T.meta_var(m.dot.group)
    width: T.let = f.x_pad_0 + f.x_size + f.x_pad_1
    for i in T.serial((f.y_pad_0 + f.y_size + f.y_pad_1) * width):
        at: T.let = f.sram_base + i
        if f.mem_type == int(MemType.UOP):
            absorb(s, "uop", at, s.uop[at])
        elif f.mem_type == int(MemType.INP):
            for row, part in T.grid(c.batch, m.groups):
                s.octets[T.ramp(0, 1, g)] = unpack_inp(m, s, at, row, part)
                for k in T.serial(g):
                    absorb(s, "inp", (at * c.batch + row) * c.block + part * g + k, s.octets[k])
        elif f.mem_type == int(MemType.WGT):
            for lane, part in T.grid(c.block, m.groups):
                s.octets[T.ramp(0, 1, g)] = unpack_wgt(m, s, at, lane, part)
                for k in T.serial(g):
                    absorb(s, "wgt", (at * c.block + lane) * c.block + part * g + k, s.octets[k])
        else:
            for k in T.serial(m.acc_words):
                absorb(s, "acc", at * m.acc_words + k, s.acc[at * m.acc_words + k])


@inline
def digest_store(m, s, f):
    """Every byte once: where rows overlap, all but the last end where the next begins."""
    size = T.meta_var(m.config.out_elem_bytes)
    for y in T.serial(f.y_size):
        own: T.let = T.Select(y + 1 == f.y_size, f.x_size, T.min(f.x_size, f.x_stride))
        for i in T.serial(own * size):
            at: T.let = (f.dram_base + y * f.x_stride) * size + i
            absorb(s, "dram", at, s.arena[at])


@inline
def digest_compute(m, s, f, pc):
    """Every destination once, however often the loops return to it."""
    for y in T.serial(f.iter_out):
        for x in T.serial(f.iter_in):
            for i in T.serial(f.uop_bgn, f.uop_end):
                dst: T.let = operand(m, s.uop[i], "dst") + _reach(f, "dst", y, x)
                if s.stamp[dst] != pc:
                    s.stamp[dst] = pc
                    for k in T.serial(m.acc_words):
                        absorb(s, "acc", dst * m.acc_words + k, s.acc[dst * m.acc_words + k])


@inline
def digest(m, s, words, head, pc):
    s.digest[0] = T.uint64(0)
    if head.opcode == int(Opcode.LOAD):
        load = T.meta_var(decode(m, Opcode.LOAD, words))
        if load.x_size * load.y_size > 0:
            digest_load(m, s, load)
    elif head.opcode == int(Opcode.STORE):
        store = T.meta_var(decode(m, Opcode.STORE, words))
        if store.x_size > 0:
            digest_store(m, s, store)
    elif T.Or(head.opcode == int(Opcode.GEMM), head.opcode == int(Opcode.ALU)):
        # Loops and destination factors lie at the same bits in both.
        loops = T.meta_var(decode(m, Opcode.GEMM, words))
        digest_compute(m, s, loops, pc)


# ---------------------------------------------------------------- the machine
@inline
def run_logged(m, s, insn, n, log):
    """``instructions.run_stream`` with a digest after each instruction."""
    for pc in T.serial(n):
        words = T.meta_var([T.Bind(insn[pc, 0]), T.Bind(insn[pc, 1])])
        head = T.meta_var(decode(m, Opcode.FINISH, words))
        queue = T.meta_var(queue_of(m, head.opcode, words))
        bad = T.meta_var(reserved_bits(m, head.opcode, words))
        refuse(s, head.opcode > max(Opcode), Fault.OPCODE, head.opcode)
        refuse(s, bad != 0, Fault.RESERVED_BITS, T.reinterpret("int64", bad))
        if s.fault[0] == 0:
            execute(m, s, words, head, queue)
        if s.fault[0] == 0:
            digest(m, s, words, head, pc)
            log[pc] = s.digest[0]
        if head.opcode == int(Opcode.FINISH):
            finish(s, pc, n)
            s.done[0] = 1
        if T.Or(s.done[0] == 1, s.fault[0] != 0):
            s.counters[INDEX_SLOT] = pc
            break
    refuse(s, s.done[0] == 0, Fault.NO_FINISH)
    record(s)


@inline
def start_log(m, s, log, n):
    for i in T.serial(m.config.acc_depth):
        s.stamp[i] = T.int64(-1)
    for i in T.serial(n):
        log[i] = T.uint64(0)


def logging_state(m: Machine, arena: Expr, arena_bytes: Expr, counters: Expr) -> Any:
    """The state of ``instructions.power_on`` and what the digest needs beside it."""
    s = power_on(m, arena, arena_bytes, counters)
    s.digest = T.alloc_buffer((1,), "uint64")
    s.octets = T.alloc_buffer((m.dot.group,), "int8")
    s.stamp = T.alloc_buffer((m.config.acc_depth,), "int64")
    return s


@T.jit
def vta_log(
    insn_h: T.handle,
    inputs_h: T.handle,
    arena_h: T.handle,
    counters_h: T.handle,
    log_h: T.handle,
    uop_h: T.handle,
    inp_h: T.handle,
    wgt_h: T.handle,
    acc_h: T.handle,
    *,
    m: T.constexpr,
    name: T.constexpr,
):
    """``instructions.vta_run`` that leaves faults in the counters, SRAM and a log (n,) uint64."""
    T.func_attr({"tirx.noalias": True, "global_symbol": name})
    n = T.int64()
    n_arena = T.int64()
    c = T.meta_var(m.config)
    insn = T.match_buffer(insn_h, (n, 2), "uint64", align=8)
    inputs = T.match_buffer(inputs_h, (n_arena,), "int8", align=1)
    arena = T.match_buffer(arena_h, (n_arena,), "int8", align=1)
    counters = T.match_buffer(counters_h, (COUNTER_SLOTS,), "int64", align=8)
    log = T.match_buffer(log_h, (n,), "uint64", align=8)
    uop_out = T.match_buffer(uop_h, (c.uop_depth,), "uint32")
    inp_out = T.match_buffer(inp_h, (c.inp_depth, c.batch, c.block), "int8")
    wgt_out = T.match_buffer(wgt_h, (c.wgt_depth, c.block, c.block), "int8")
    acc_out = T.match_buffer(acc_h, (c.acc_depth, c.batch, c.block), "int32")
    for i in T.serial(COUNTER_SLOTS):
        counters[i] = T.int64(0)
    counters[INDEX_SLOT] = T.int64(-1)
    s = T.meta_var(logging_state(m, arena, n_arena, counters))
    fill_arena(s, inputs, inputs, n_arena, T.int64(0))
    start_log(m, s, log, n)
    run_logged(m, s, insn, n, log)
    read_back(m, s, uop_out, inp_out, wgt_out, acc_out)


# ---------------------------------------------------------------- building and calling
@functools.cache
def _build(config: VTAConfig, target_json: str, dot: str) -> tvm.runtime.Module:
    machine = Machine(config, DOTS[dot](_lanes(config, Target(target_json), dot)))
    function = vta_log.specialize(m=machine, name=SYMBOL)
    module = tvm.IRModule({SYMBOL: function})
    return tvm.tirx.build(module, target=Target(target_json), pipeline="tirx")


@functools.cache
def _chosen(config: VTAConfig, target_json: str, dot: str) -> str:
    """The way of multiplying that "auto" means in ``interpreter.build_interpreter``."""
    if dot != "auto":
        return dot
    target = Target(target_json)
    if not vnni_lanes(config, target) or not runs_here(target):
        return "portable"
    module = _build_interpreter(config, target, "vnni", probe=True)
    return "vnni" if multiplies(config, module, probe=True) else "portable"


def run_logged_stream(
    config: VTAConfig, insns: np.ndarray, arena: np.ndarray, dot: str = "auto"
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Run a stream (n, 2) uint64 on a copy of ``arena`` int8, whatever faults it has.

    Returns (arena, counters with the fault (``hw/faults.py``), SRAM by name, digests (n,) uint64:
    0 where no instruction was executed).
    """
    machine, target = seen_by_programs(config), str(as_target(None))
    module = _build(machine, target, _chosen(machine, target, dot))
    given = [tvm.runtime.tensor(np.ascontiguousarray(x)) for x in (insns, arena)]
    out = tvm.runtime.empty((arena.size,), "int8")
    counters = tvm.runtime.empty((COUNTER_SLOTS,), "int64")
    log = tvm.runtime.empty((len(insns),), "uint64")
    sram = {name: tvm.runtime.empty(*shape) for name, shape in sram_shapes(config).items()}
    module[SYMBOL](*given, out, counters, log, *sram.values())
    return out.numpy(), counters.numpy(), {k: x.numpy() for k, x in sram.items()}, log.numpy()
