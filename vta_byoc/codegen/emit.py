"""Leaves to instructions: DMA transfers, resets, GEMM and ALU, with the SRAM they touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import AluOp, MemType, Opcode, Queue

from .accumulator import Accumulator, elements
from .alu import Access, AluStep
from .dma import load_pieces, store_pieces
from .execution import Execution
from .leaf import ACC, INP, WGT, Leaf
from .linear import CodegenError
from .stream import Insn, Interval
from .transfer import Piece
from .uops import Folded, FoldMode, LoopDim, UopBuffer, fold, fuse
from .walk import SramMap

SPACES = {INP: "inp", WGT: "wgt", ACC: "acc"}
# no tensor can be named so: names of tensors have no dot
ZEROS = "vta.zeros"
UOPS = "vta.uops"


class LeafEmitter:
    """Turns executions of leaves into :class:`Insn` records, in program order."""

    def __init__(
        self,
        config: VTAConfig,
        uops: UopBuffer,
        mode: FoldMode,
        symbols: Mapping[tirx.Var, str],
        layer: int,
    ):
        self._config = config
        self._uops = uops
        self._mode = mode
        self._symbols = symbols
        self._layer = layer
        self._acc = Accumulator(config.acc_depth)
        self._begun: set[tuple[tirx.Var, int, int]] = set()
        self.insns: list[Insn] = []
        self.needs_zeros = False

    def emit(self, leaf: Leaf, env: Mapping[int, int], sram: SramMap) -> None:
        """One execution of ``leaf`` with the outer loop values ``env``."""
        run = Execution.of(self._config, leaf, env, sram)
        if run is None:
            return
        step = {"load": self._load, "store": self._store, "gemm": self._gemm, "reset": self._reset}
        step.get(leaf.kind, self._alu)(run)
        if leaf.kind != "store":
            self._begun.add(run.instance(leaf.dst.buffer))

    # ---------------------------------------------------------------- DMA
    def _load(self, run: Execution) -> None:
        dst = run.leaf.dst
        at, pieces = load_pieces(run, fill=run.instance(dst.buffer) not in self._begun)
        for piece in pieces:
            self._dma(run.leaf, dst.scope, run.leaf.src, at, piece)
        if dst.scope == ACC:
            self._acc.cleared(run.elements(dst))

    def _store(self, run: Execution) -> None:
        leaf = run.leaf
        assert leaf.src is not None
        run.check_lanes(leaf.src)
        where = run.elements(leaf.src)
        if not leaf.steps:
            self._acc.refuse_spent(where, leaf.name, leaf.src.buffer.name)
        self._steps(run)
        if not self._acc.storable(where):
            # a STORE may read only what GEMM or ALU wrote last: pass the tile through the ALU
            self._step(run, AluStep(AluOp.ADD, leaf.src, imm=0), "storable")
            self._acc.computed(where)
        at, pieces = store_pieces(run)
        for piece in pieces:
            self._dma(leaf, leaf.src.scope, leaf.dst, at, piece)

    def _dma(
        self, leaf: Leaf, scope: str, tensor: Access | None, at: int, piece: Piece
    ) -> None:
        assert leaf.mem is not None
        self.needs_zeros |= piece.zero
        symbol = self._symbols[tensor.buffer] if tensor and not piece.zero else ZEROS
        elem = dram_elem_bytes(self._config, leaf.mem)
        chip = (SPACES[scope], at + piece.sram, at + piece.sram + piece.sram_elems)
        outer = (f"dram.{symbol}", piece.dram * elem, (piece.dram + piece.dram_span) * elem)
        pads = dict(zip(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), piece.pads, strict=True))
        fields = {
            "mem_type": int(leaf.mem),
            "sram_base": at + piece.sram,
            "y_size": piece.y_size,
            "x_size": piece.x_size,
            "x_stride": piece.x_stride,
            **pads,
        }
        store = leaf.mem == MemType.OUT
        compute = leaf.mem in (MemType.ACC, MemType.ACC_8BIT)
        self.insns.append(
            Insn(
                Opcode.STORE if store else Opcode.LOAD,
                Queue.STORE if store else Queue.COMPUTE if compute else Queue.LOAD,
                fields,
                reads=[chip] if store else [outer],
                writes=[outer] if store else [chip],
                symbol=symbol,
                addend=piece.dram,
                layer=self._layer,
            )
        )

    # ---------------------------------------------------------------- GEMM
    def _gemm(self, run: Execution) -> None:
        leaf = run.leaf
        assert leaf.src is not None and leaf.wgt is not None
        accesses = (leaf.dst, leaf.src, leaf.wgt)
        for access in accesses:
            run.check_lanes(access)
        run.check_gemm_lanes(*accesses)
        dims = fuse(run.dims(*accesses))
        base = tuple(run.at(a) for a in accesses)
        where = elements(dims, 0, base[0])
        self._acc.refuse_spent(where, leaf.name, leaf.dst.buffer.name)
        for part in self._fold(dims, base, self._config.capabilities.dst_distance):
            spans = [self._span(part, k) for k in range(3)]
            reads = [(SPACES[a.scope], *spans[k]) for k, a in enumerate(accesses)]
            self._compute(Opcode.GEMM, part, (leaf.name, "gemm"), reads, {}, ("src", "wgt"))
        self._acc.computed(where)

    def _reset(self, run: Execution) -> None:
        leaf = run.leaf
        run.check_lanes(leaf.dst)
        dims, base = run.dims(leaf.dst), run.at(leaf.dst)
        for part in self._fold(fuse(dims) if self._mode.fuse_reset else dims, (base, 0, 0), 1):
            self._compute(Opcode.GEMM, part, (leaf.name, "reset"), [], {"reset": 1}, ())
        self._acc.cleared(elements(dims, 0, base))

    # ---------------------------------------------------------------- ALU
    def _alu(self, run: Execution) -> None:
        if run.leaf.clear:
            self._reset(run)
        run.check_lanes(run.leaf.dst)
        self._steps(run)

    def _steps(self, run: Execution) -> None:
        """The in-place steps of an ALU nest or of a store."""
        leaf = run.leaf
        changed: dict[Access, np.ndarray] = {}
        for number, step in enumerate(leaf.steps):
            dims = run.dims(step.dst, step.src or step.dst, lanes_alike=True)
            if step.dst not in changed and step.dst != leaf.dst:
                _refuse_repeat(leaf, step, dims)
            places = {
                a: elements(dims, k, run.at(a))
                for k, a in enumerate((step.dst, step.src))
                if a is not None
            }
            for access, where in places.items():
                if access not in changed:
                    self._acc.refuse_spent(where, leaf.name, access.buffer.name)
            changed.setdefault(step.dst, places[step.dst])
            _refuse_overlap(leaf, changed, places)
            self._step(run, step, number)
        for access, where in changed.items():
            if access == leaf.dst:
                self._acc.computed(where)
            else:
                self._acc.spent(where, leaf.name)

    def _step(self, run: Execution, step: AluStep, number: int | str) -> None:
        src = step.src or step.dst
        dims = fuse(run.dims(step.dst, src))
        base = (run.at(step.dst), run.at(src), 0)
        fields = {"alu_opcode": int(step.op)}
        if step.imm is not None:
            fields |= {"use_imm": 1, "imm": step.imm}
        distance = min(2, self._config.capabilities.dst_distance)
        for part in self._fold(dims, base, distance):
            reads = [("acc", *self._span(part, k)) for k in range(2)]
            self._compute(Opcode.ALU, part, (run.leaf.name, number), reads, fields, ("src",))

    # ---------------------------------------------------------------- micro-ops
    def _fold(
        self, dims: Sequence[LoopDim], base: Sequence[int], distance: int
    ) -> list[Folded]:
        dst, src, wgt = base
        return list(fold(self._config, dims, (dst, src, wgt), self._mode, distance=distance))

    @staticmethod
    def _span(part: Folded, operand: int) -> tuple[int, int]:
        """[low, high) of the SRAM elements that ``operand`` of an instruction touches."""
        reach = sum((d.extent - 1) * d.strides[operand] for d in part.loops)
        values = [u[operand] for u in part.kernel]
        return min(values), max(values) + reach + 1

    def _compute(
        self,
        opcode: Opcode,
        part: Folded,
        site: object,
        reads: list[Interval],
        fields: dict[str, int],
        sources: Sequence[str],
    ) -> None:
        at, load = self._uops.place(part.kernel, (self._layer, site))
        if load is not None:
            self._load_uops(at, *load)
        loops = [LoopDim(1, (0, 0, 0))] * (2 - len(part.loops)) + list(part.loops)
        values = {
            "uop_bgn": at,
            "uop_end": at + len(part.kernel),
            "iter_out": loops[0].extent,
            "iter_in": loops[1].extent,
            **fields,
        }
        operands = ("dst", *(s for s in sources if not fields.get("use_imm")))
        for name in operands:
            k = ("dst", "src", "wgt").index(name)
            values[f"{name}_factor_out"] = loops[0].strides[k]
            values[f"{name}_factor_in"] = loops[1].strides[k]
        dst = ("acc", *self._span(part, 0))
        self.insns.append(
            Insn(opcode, Queue.COMPUTE, values, reads=reads, writes=[dst], layer=self._layer)
        )

    def _load_uops(self, at: int, dram: int, count: int) -> None:
        fields = {
            "mem_type": int(MemType.UOP),
            "sram_base": at,
            "y_size": 1,
            "x_size": count,
            "x_stride": count,
        }
        self.insns.append(
            Insn(
                Opcode.LOAD,
                Queue.COMPUTE,
                fields,
                symbol=UOPS,
                addend=dram,
                layer=self._layer,
            )
        )


def _refuse_repeat(leaf: Leaf, step: AluStep, dims: Sequence[LoopDim]) -> None:
    """An intermediate value must be changed once an element."""
    if any(d.extent > 1 and d.strides[0] == 0 for d in dims):
        raise CodegenError(
            f"block {leaf.name} applies {step.op.name} to {step.dst.buffer.name} more than once "
            "per element (a loop does not move it); put the varying operand first or stage a copy"
        )


def _refuse_overlap(
    leaf: Leaf, changed: Mapping[Access, np.ndarray], places: Mapping[Access, np.ndarray]
) -> None:
    """Two different accesses must not meet in an element that one of them changes."""
    for first, low in changed.items():
        for second, high in places.items():
            alike = second == first or not second.buffer.same_as(first.buffer)
            if not alike and np.isin(low, high).any():
                raise CodegenError(
                    f"block {leaf.name} reads elements of {first.buffer.name} that it also "
                    "changes, at another index; the ALU works in place and its loops run in any "
                    "order; stage a second copy"
                )
