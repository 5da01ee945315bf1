"""Places for the micro-ops of a kernel's instructions, and the LOADs that bring them there.

Micro-ops are loaded by the compute queue, which waits for them: for the latency of DRAM and for the
port, where weights or inputs are just passing.  Where LOADs are joined, the first one of a kernel
brings all that follow it in SRAM and in DRAM alike, before the kernel computes anything: it asks
for the port before the STORE of the last tile does.
"""

from __future__ import annotations

from collections.abc import Iterable

from vta_byoc.codegen.stream import Insn
from vta_byoc.codegen.uops import UopBuffer
from vta_byoc.hw.isa import MemType, Opcode, Queue

# no tensor can be named so: names of tensors have no dot
UOPS = "vta.uops"


def with_uop_loads(insns: Iterable[Insn], buffer: UopBuffer, *, joined: bool) -> list[Insn]:
    """The instructions of one kernel, in order, with their micro-ops in ``buffer``.

    ``joined``: micro-ops that lie behind those of the LOAD before, in SRAM and in DRAM, come with
    it.  Nothing between both uses their place: micro-ops fill SRAM from its first element to its
    last, and what was there before is forgotten when that begins anew.
    """
    out: list[Insn] = []
    last: Insn | None = None
    for insn in insns:
        if insn.kernel is not None:
            at, load = buffer.place(insn.kernel, (insn.layer, insn.site))
            insn.fields |= {"uop_bgn": at, "uop_end": at + len(insn.kernel)}
            if load is not None and not (joined and last and _joins(last, at, *load)):
                begins = joined and last is None and not any(_uses(each, at) for each in out)
                last = _load(insn, at, *load)
                out.insert(0 if begins else len(out), last)
        out.append(insn)
    return out


def _uses(insn: Insn, at: int) -> bool:
    """Whether a computation has micro-ops behind ``at`` in SRAM: these began anew after it."""
    return insn.kernel is not None and insn.fields["uop_end"] > at


def _joins(last: Insn, at: int, dram: int, count: int) -> bool:
    """Whether a LOAD has been made to bring ``count`` micro-ops more."""
    size = last.fields["x_size"]
    if (last.fields["sram_base"] + size, last.addend + size) != (at, dram):
        return False
    last.fields |= {"x_size": size + count, "x_stride": size + count}
    return True


def _load(reader: Insn, at: int, dram: int, count: int) -> Insn:
    fields = {
        "mem_type": int(MemType.UOP),
        "sram_base": at,
        "y_size": 1,
        "x_size": count,
        "x_stride": count,
    }
    return Insn(
        Opcode.LOAD,
        Queue.COMPUTE,
        fields,
        symbol=UOPS,
        addend=dram,
        layer=reader.layer,
        block=reader.block,
    )
