"""The instructions of scheduled PrimFuncs, written once however often a program runs them.

What a kernel's instructions are does not depend on the tensors that it is bound to, nor on what
comes before it: these only name DRAM, number the layer and choose places later.  So a kernel that
several layers run, or several programs, is walked once, its tensors named by the numbers of its
parameters, and every layer has a copy of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from vta_byoc.codegen.emit import NestEmitter
from vta_byoc.codegen.narrowing import narrowed
from vta_byoc.codegen.stream import DRAM, Insn
from vta_byoc.codegen.uops import LoopCompression
from vta_byoc.codegen.walk import Walker, lower
from vta_byoc.hw.config import VTAConfig


@dataclass(frozen=True)
class KernelStream:
    """The instructions of one kernel, of layer 0, whose tensors are called "0", "1", ..."""

    insns: Sequence[Insn]
    needs_zeros: bool

    def bound(self, symbols: Sequence[str], layer: int) -> list[Insn]:
        """New instructions of ``layer``, with the ``symbols`` that parameters are bound to."""
        names = {str(number): symbol for number, symbol in enumerate(symbols)}
        spaces = {DRAM + number: DRAM + symbol for number, symbol in names.items()}
        found = []
        for insn in self.insns:
            reads, writes, symbol = insn.reads, insn.writes, insn.symbol
            if symbol is not None:
                symbol = names.get(symbol, symbol)
                reads = [(spaces.get(space, space), low, high) for space, low, high in reads]
                writes = [(spaces.get(space, space), low, high) for space, low, high in writes]
            found.append(
                Insn(
                    insn.opcode,
                    insn.queue,
                    insn.fields.copy(),
                    reads,
                    writes,
                    symbol,
                    insn.addend,
                    layer,
                    insn.block,
                    insn.kernel,
                    insn.site,
                )
            )
        return found


class KernelStreams:
    """Streams of kernels by the PrimFunc that they are of: the same object, not an equal one.

    One of these serves any number of builders.
    """

    def __init__(self) -> None:
        self._lowered: dict[tirx.PrimFunc, tirx.PrimFunc] = {}
        self._written: dict[tuple[object, ...], KernelStream] = {}

    def lowered(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """The scheduled ``func`` with explicit tiles and opaque blocks."""
        if func not in self._lowered:
            self._lowered[func] = narrowed(lower(func))
        return self._lowered[func]

    def written(
        self, func: tirx.PrimFunc, config: VTAConfig, mode: LoopCompression, weight_room: int
    ) -> KernelStream:
        """The instructions of the scheduled ``func``.

        Args:
            func: the kernel.
            config: the machine.
            mode: how its loops become micro-ops.
            weight_room: that of `SramMap`.

        Raises:
            CodegenError: it cannot become instructions.
        """
        key = func, config, mode, weight_room
        if key not in self._written:
            own = self.lowered(func)
            symbols = {param: str(number) for number, param in enumerate(own.params)}
            emitter = NestEmitter(config, mode, symbols, 0)
            Walker(config, own, emitter, weight_room).run()
            self._written[key] = KernelStream(emitter.insns, emitter.needs_zeros)
        return self._written[key]
