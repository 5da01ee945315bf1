"""Leaves to instructions: DMA transfers, resets, GEMM and ALU, with the SRAM they touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx

from vta_byoc.codegen.accumulator import AccumulatorState, Change, Clobbered
from vta_byoc.codegen.alu import Access, shift_parts
from vta_byoc.codegen.dma import dram_spans, load_pieces, store_pieces
from vta_byoc.codegen.execution import Execution, Site
from vta_byoc.codegen.inplace import InPlace
from vta_byoc.codegen.sram import SramMap
from vta_byoc.codegen.stream import DRAM, Insn, Interval
from vta_byoc.codegen.tensorizable import TensorizableNest
from vta_byoc.codegen.transfer import Piece
from vta_byoc.codegen.uops import (
    CompressedNest,
    Kernel,
    LoopCompression,
    LoopDim,
    compress,
    fuse,
)
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import MEMORY_TYPES, PADS, AluOp, Opcode, Queue
from vta_byoc.workload.memory import ACC, SPACES

# no tensor can be named so: names of tensors have no dot
ZEROS = "vta.zeros"
OPERANDS = ("dst", "src", "wgt")


@dataclass(frozen=True)
class PendingInstruction:
    """A GEMM or ALU instruction before its micro-ops have a place."""

    opcode: Opcode
    kernel: Kernel
    site: object
    fields: dict[str, int]
    reads: list[Interval]
    writes: list[Interval]


@dataclass(frozen=True)
class Move:
    """A LOAD or STORE before it has a DRAM address; ``dram`` is in elements."""

    fields: dict[str, int]
    chip: Interval
    dram: int
    zero: bool


class NestEmitter:
    """Turns executions of tensorizable nests into :class:`Insn` records, in program order."""

    def __init__(
        self,
        config: VTAConfig,
        mode: LoopCompression,
        symbols: Mapping[tirx.Var, str],
        layer: int,
    ):
        self._config = config
        self._mode = mode
        self._symbols = symbols
        self._layer = layer
        self._acc = AccumulatorState(config.acc_depth)
        self._begun: set[tuple[str, int, int]] = set()
        self._sites: dict[TensorizableNest, Site] = {}
        self.insns: list[Insn] = []
        self.needs_zeros = False

    def emit(self, nest: TensorizableNest, env: Mapping[int, int], sram: SramMap) -> None:
        """One execution of ``nest`` with the outer loop values ``env``."""
        site = self._sites.get(nest)
        if site is None:
            site = self._sites[nest] = Site(self._config, nest)
        first = len(self.insns)
        for run in site.executions(env, sram):
            self._execute(run, site, env, sram)
        for insn in self.insns[first:]:
            insn.block = nest.name

    def _execute(self, run: Execution, site: Site, env: Mapping[int, int], sram: SramMap) -> None:
        nest = run.nest
        if nest.kind == "store":
            self._store(run, site, env)
            return
        tile = sram[nest.dst.buffer]
        if nest.kind == "load":
            begins = not nest.shares and tile.instance not in self._begun
            begins = begins and run.at(nest.dst) == tile.base
            self._load(run, site, env, tile.size if begins else None)
        elif nest.kind == "gemm":
            self._gemm(run)
        elif nest.kind == "reset":
            self._reset(run)
        else:
            self._alu(run)
        self._begun.add(tile.instance)

    # ---------------------------------------------------------------- DMA
    def _load(self, run: Execution, site: Site, env: Mapping[int, int], room: int | None) -> None:
        nest, dst = run.nest, run.nest.dst
        data = site.data(env, run.domain)
        moves = run.once((data, room), lambda: self._moves(run, dst, load_pieces(run, data, room)))
        start = site.first(env, data, run.unit(dst)) if data is not None else 0
        for move in moves:
            self._dma(nest, nest.src, move, start)
        if dst.scope == ACC:
            self._acc.cleared(run.where(dst))

    def _store(self, run: Execution, site: Site, env: Mapping[int, int]) -> None:
        nest, src = run.nest, run.nest.src
        assert src is not None
        run.once("lanes", lambda: run.check_lanes(src))
        self._store_steps(run, src)
        where = run.where(src)
        if not self._acc.storable(where):
            # a STORE may read only what GEMM or ALU wrote last: pass the tile through the ALU
            dims = tuple(run.dims(src, src))
            self._change(run, Change(AluOp.ADD, 0, run.at(src), run.at(src), dims), "storable")
            self._acc.computed(where)
        moves = run.once("moves", lambda: self._moves(run, src, store_pieces(run)))
        start = site.first(env, run.domain, run.unit(src))
        for move in moves:
            self._dma(nest, nest.dst, move, start)

    def _store_steps(self, run: Execution, src: Access) -> None:
        """The in-place steps of a store, or those that an earlier store of ``src`` has not made."""
        nest, steps = run.nest, run.once("steps", lambda: InPlace.of(run))
        if steps.changes and not steps.only(src):
            self._steps(run, steps)
            return
        where = run.where(src)
        rest = self._acc.rest_of(where, steps.changes)
        if rest is None:
            self._acc.refuse_clobbered(where, nest.name, src.buffer.name)
            return
        for access, at in steps.reads:
            if access is not src:
                self._acc.refuse_clobbered(at, nest.name, access.buffer.name)
        for number, change in enumerate(rest):
            self._change(run, change, number)
        if rest:
            self._acc.clobbered(where, Clobbered(nest.name, steps.changes, steps.operands))

    def _moves(self, run: Execution, access: Access, pieces: Sequence[Piece]) -> list[Move]:
        at, space, mem = run.at(access), SPACES[access.scope], run.nest.mem
        assert mem is not None
        return [
            Move(
                {
                    "mem_type": int(mem),
                    "sram_base": at + piece.sram,
                    "y_size": piece.y_size,
                    "x_size": piece.x_size,
                    "x_stride": piece.x_stride,
                    **dict(zip(PADS, piece.pads, strict=True)),
                },
                (space, at + piece.sram, at + piece.sram + piece.sram_elems),
                piece.dram,
                piece.zero,
            )
            for piece in pieces
        ]

    def _dma(self, nest: TensorizableNest, tensor: Access | None, move: Move, start: int) -> None:
        assert nest.mem is not None
        self.needs_zeros |= move.zero
        symbol = self._symbols[tensor.buffer] if tensor and not move.zero else ZEROS
        first = move.dram if move.zero else move.dram + start
        elem = dram_elem_bytes(self._config, nest.mem)
        outer = [(DRAM + symbol, *span) for span in dram_spans(move.fields, first, elem)]
        kind = MEMORY_TYPES[nest.mem]
        store = kind.opcode == Opcode.STORE
        self.insns.append(
            Insn(
                kind.opcode,
                kind.queue,
                move.fields.copy(),
                reads=[move.chip] if store else outer,
                writes=outer if store else [move.chip],
                symbol=symbol,
                addend=first,
                layer=self._layer,
            )
        )

    # ---------------------------------------------------------------- GEMM
    def _gemm(self, run: Execution) -> None:
        nest = run.nest
        where = run.where(nest.dst)
        self._acc.refuse_clobbered(where, nest.name, nest.dst.buffer.name)
        for work in run.once("gemm", lambda: self._gemm_works(run)):
            self._compute(work)
        self._acc.computed(where)

    def _gemm_works(self, run: Execution) -> list[PendingInstruction]:
        nest = run.nest
        assert nest.src is not None and nest.wgt is not None
        accesses = (nest.dst, nest.src, nest.wgt)
        for access in accesses:
            run.check_lanes(access)
        run.check_gemm_lanes(*accesses)
        distance = self._config.capabilities.dst_distance
        base = (run.at(nest.dst), run.at(nest.src), run.at(nest.wgt))
        parts = compress(
            self._config, fuse(run.dims(*accesses)), base, self._mode, distance=distance
        )
        spaces = [SPACES[a.scope] for a in accesses]
        return [self._work(Opcode.GEMM, p, (nest.name, "gemm"), {}, spaces, 3) for p in parts]

    def _reset(self, run: Execution) -> None:
        for work in run.once("reset", lambda: self._reset_works(run)):
            self._compute(work)
        self._acc.cleared(run.where(run.nest.dst))

    def _reset_works(self, run: Execution) -> list[PendingInstruction]:
        nest = run.nest
        run.check_lanes(nest.dst)
        dims, base = run.dims(nest.dst), (run.at(nest.dst), 0, 0)
        parts = compress(
            self._config, fuse(dims) if self._mode.fuse_reset else dims, base, self._mode
        )
        site, reset = (nest.name, "reset"), {"reset": 1}
        return [self._work(Opcode.GEMM, part, site, reset, [], 1) for part in parts]

    # ---------------------------------------------------------------- ALU
    def _alu(self, run: Execution) -> None:
        if run.nest.clear:
            self._reset(run)
        run.once("lanes", lambda: run.check_lanes(run.nest.dst))
        self._steps(run, run.once("steps", lambda: InPlace.of(run)))

    def _steps(self, run: Execution, steps: InPlace) -> None:
        nest = run.nest
        for access, where in steps.reads:
            self._acc.refuse_clobbered(where, nest.name, access.buffer.name)
        for number, change in enumerate(steps.changes):
            self._change(run, change, number)
        for access, where in steps.changed.items():
            if access is nest.dst:
                self._acc.computed(where)
            else:
                self._acc.clobbered(where, Clobbered(nest.name))

    def _change(self, run: Execution, change: Change, number: int | str) -> None:
        for work in run.once((change, number), lambda: self._alu_works(run, change, number)):
            self._compute(work)

    def _alu_works(
        self, run: Execution, change: Change, number: int | str
    ) -> list[PendingInstruction]:
        distance = min(2, self._config.capabilities.dst_distance)
        base = (change.dst, change.src, 0)
        parts = list(compress(self._config, fuse(change.dims), base, self._mode, distance=distance))
        amounts = [change.imm]
        if change.op == AluOp.SHR and change.imm is not None:
            amounts = [*shift_parts(change.imm, self._config.capabilities.max_shift)]
        works = []
        for turn, amount in enumerate(amounts):
            fields = {"alu_opcode": int(change.op)}
            fields |= {} if amount is None else {"use_imm": 1, "imm": amount}
            site = (run.nest.name, number, turn)
            # an immediate has dst as its src: some cores compute acc[src] op imm
            works += [self._work(Opcode.ALU, p, site, fields, ["acc", "acc"], 2) for p in parts]
        return works

    # ---------------------------------------------------------------- micro-ops
    def _work(
        self,
        opcode: Opcode,
        part: CompressedNest,
        site: object,
        fields: dict[str, int],
        spaces: Sequence[str],
        operands: int,
    ) -> PendingInstruction:
        """An instruction that reads ``spaces`` and has factors for its first ``operands``."""
        loops = [LoopDim(1, (0, 0, 0))] * (2 - len(part.loops)) + list(part.loops)
        values = {"iter_out": loops[0].extent, "iter_in": loops[1].extent, **fields}
        for k, name in enumerate(OPERANDS[:operands]):
            values[f"{name}_factor_out"] = loops[0].strides[k]
            values[f"{name}_factor_in"] = loops[1].strides[k]
        reads = [(space, *part.spans[k]) for k, space in enumerate(spaces)]
        writes = [("acc", *part.spans[0])]
        return PendingInstruction(opcode, part.kernel, site, values, reads, writes)

    def _compute(self, work: PendingInstruction) -> None:
        self.insns.append(
            Insn(
                work.opcode,
                Queue.COMPUTE,
                work.fields.copy(),
                reads=work.reads,
                writes=work.writes,
                layer=self._layer,
                kernel=work.kernel,
                site=work.site,
            )
        )
