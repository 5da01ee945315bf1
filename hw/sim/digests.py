# TVMScript is parsed by TVM, not run by Python: its annotations are not types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""The commit log's digest of each instruction, computed from what then lies in SRAM and DRAM.

It is that of ``hw/trace/commit_log.py``.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from vta_byoc.hw.isa import MemType, Opcode
from vta_byoc.hw.sim.computation import moved
from vta_byoc.hw.sim.decoding import decode, operand, variable
from vta_byoc.hw.sim.dot import Expr
from vta_byoc.hw.sim.inline import inline
from vta_byoc.hw.sim.lane_digest import HALF_MASK, ROUND_KEYS, SALTS
from vta_byoc.hw.sim.sram import unpack_inp, unpack_wgt


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
    """Digest every SRAM lane that a LOAD has written, padding included."""
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
                dst: T.let = operand(m, s.uop[i], "dst") + moved(f, "dst", y, x)
                if s.stamp[dst] != pc:
                    s.stamp[dst] = pc
                    for k in T.serial(m.acc_words):
                        absorb(s, "acc", dst * m.acc_words + k, s.acc[dst * m.acc_words + k])


@inline
def digest(m, s, words, head, pc):
    """Digest what the instruction has changed."""
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


@inline
def log_instruction(m, s, words, head, pc):
    """Write the digest of an executed instruction to the log."""
    if s.fault[0] == 0:
        digest(m, s, words, head, pc)
        s.log[pc] = s.digest[0]


@inline
def start_log(m, s, n):
    """Forget all destinations and clear the log."""
    for i in T.serial(m.config.acc_depth):
        s.stamp[i] = T.int64(-1)
    for i in T.serial(n):
        s.log[i] = T.uint64(0)
