"""What a schedule that works could do better, from its nests and the instructions they became."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tvm import tirx

from vta_byoc.base.quantities import count
from vta_byoc.codegen.sram import DEFAULT_SLOTS, slots_of
from vta_byoc.hw.counters import count_stream
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.schedule.compiled import Kernel
from vta_byoc.schedule.nests import Nest
from vta_byoc.schedule.ranges import truncations
from vta_byoc.workload.memory import ACC, SRAM_SCOPES, in_dram

LOADED = ("inp_load_nbytes", "wgt_load_nbytes", "acc_load_nbytes")
MOVED = (*LOADED, "uop_load_nbytes", "out_store_nbytes")
OFTEN = 2
"""A tensor that is loaded this many times, or an instruction with this many times fewer micro-ops
than cycles to start, is worth a word."""


def counters_by_block(kernel: Kernel) -> dict[str, dict[str, int]]:
    """The seven counters of each block's instructions, and their number as ``instructions``."""
    by_block: dict[str, list[int]] = {}
    for index, block in enumerate(kernel.blocks):
        by_block.setdefault(block, []).append(index)
    return {
        block: count_stream(kernel.config, kernel.program.insns[rows]) | {"instructions": len(rows)}
        for block, rows in by_block.items()
    }


def advice(kernel: Kernel, nests: Sequence[Nest]) -> list[str]:
    """What could be better, in the order of the blocks; each names its block and the next step."""
    counted = counters_by_block(kernel)
    found: list[str] = []
    for nest in nests:
        mine = counted.get(nest.name)
        if mine is not None and nest.leaf is not None:
            found += _copies(nest, nests, mine, kernel.counters["alu_counter"])
            found += _reloads(nest, mine, kernel.func)
            found += _short_instructions(nest, kernel)
    found += _one_slot(nests, kernel.func)
    return found + [str(cut) for cut in truncations(kernel.func, kernel.constants)]


def _copies(
    nest: Nest, nests: Sequence[Nest], counters: Mapping[str, int], total: int
) -> Iterator[str]:
    """A nest that copies accumulators before it computes on them."""
    leaf = nest.leaf
    assert leaf is not None
    if leaf.kind != "alu" or not leaf.clear or leaf.src is None or leaf.src.scope != ACC:
        return
    if any(_reads(other, leaf.src.buffer) for other in nests if other is not nest):
        return
    copied = counters["alu_counter"] // len(leaf.steps)
    yield (
        f"block {nest.name} computes into {nest.writes}, a second tensor in {ACC}; the ALU has no "
        f"move, so {copied:,} of {total:,} ALU micro-ops of the kernel only copy; compute_inline "
        f"{nest.name}"
    )


def _reads(nest: Nest, buffer: tirx.Var) -> bool:
    """Whether another nest wants the values of ``buffer``, beyond adding to them."""
    leaf = nest.leaf
    if leaf is None or leaf.dst.buffer.same_as(buffer):
        return False
    return any(access.buffer.same_as(buffer) for access in leaf.on_chip)


def _reloads(nest: Nest, counters: Mapping[str, int], func: tirx.PrimFunc) -> Iterator[str]:
    """A nest that loads the same bytes again and again."""
    leaf = nest.leaf
    assert leaf is not None
    if leaf.kind != "load" or leaf.src is None or not in_dram(leaf.src.scope):
        return
    name = str(leaf.src.buffer.name)
    param = next((p for p in func.params if str(p.name) == name), None)
    if param is None:
        return
    size = math.prod(int(s) for s in param.shape) * (4 if str(param.dtype) == "int32" else 1)
    loaded = sum(counters[kind] for kind in LOADED)
    if loaded < OFTEN * size:
        return
    still = nest.still_loops
    verb = "does" if len(still) == 1 else "do"
    why = f", because {' and '.join(still)} {verb} not move it" if still else ""
    yield (
        f"block {nest.name} loads {loaded:,} bytes of {name}, which has {size:,}{why}; compute_at "
        "it further out, reorder, or make the tiles larger"
    )


def _short_instructions(nest: Nest, kernel: Kernel) -> Iterator[str]:
    """A GEMM nest of instructions that are over as soon as they have begun."""
    leaf = nest.leaf
    assert leaf is not None
    if leaf.kind != "gemm" or not nest.outer:
        return
    isa, start = ISA.of(kernel.config), kernel.config.timing.compute_start
    steps = []
    for block, words in zip(kernel.blocks, kernel.program.insns.tolist(), strict=True):
        insn = isa.decode(*words) if block == nest.name else None
        if insn is not None and insn.opcode == Opcode.GEMM:
            steps.append((insn["uop_end"] - insn["uop_bgn"]) * insn["iter_out"] * insn["iter_in"])
    if not steps or sum(steps) * OFTEN >= start * len(steps):
        return
    each = count(round(sum(steps) / len(steps)), "micro-op")
    outside = ", ".join(str(loop.loop_var.name) for loop in nest.outer)
    yield (
        f"block {nest.name} becomes {len(steps):,} instructions of {each}, and each takes {start} "
        f"cycles to start; reorder so that more loops over elements run inside of it: {outside} "
        "are outside"
    )


def _one_slot(nests: Sequence[Nest], func: tirx.PrimFunc) -> Iterator[str]:
    """Loads that wait for what computes on the tile before."""
    slots = slots_of(func)
    if any(slots.get(scope, DEFAULT_SLOTS) > 1 for scope in SRAM_SCOPES):
        return
    if any(loop.thread_binding is not None for nest in nests for loop in nest.outer):
        return
    loads = [n.name for n in nests if n.leaf and n.leaf.kind == "load" and n.executions > 1]
    if loads:
        yield (
            f"block {' and block '.join(loads)}: each tile goes to one place in SRAM, so that LOAD "
            "and GEMM wait for each other; give slots=2, or bind a loop around them to vthread.x"
        )
