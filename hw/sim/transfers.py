# TVMScript is parsed by TVM, not run by Python: its annotations are not types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""LOAD and STORE, as the interpreter emits them."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from vta_byoc.hw.faults import Fault
from vta_byoc.hw.isa import MemType
from vta_byoc.hw.sim.decoding import variable
from vta_byoc.hw.sim.dot import load, splat, store, vector
from vta_byoc.hw.sim.inline import inline
from vta_byoc.hw.sim.refusals import refuse
from vta_byoc.hw.sim.sram import SLOT, Machine, memories


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
    """Copy rows to SRAM, zeros around them, and count their bytes."""
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
    """Copy the low byte of each lane to rows in DRAM, and count them."""
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
