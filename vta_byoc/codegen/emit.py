"""Leaves to instructions: DMA transfers, resets, GEMM and ALU, with the SRAM they touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx

from vta_byoc.codegen.accumulator import Accumulator, Change, Spent
from vta_byoc.codegen.alu import Access, shift_parts
from vta_byoc.codegen.dma import load_pieces, store_pieces
from vta_byoc.codegen.execution import Execution, Site
from vta_byoc.codegen.inplace import InPlace
from vta_byoc.codegen.leaf import Leaf
from vta_byoc.codegen.sram import SramMap
from vta_byoc.codegen.stream import DRAM, Insn, Interval
from vta_byoc.codegen.transfer import Piece
from vta_byoc.codegen.uops import Folded, FoldMode, Kernel, LoopDim, UopBuffer, fold, fuse
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import AluOp, MemType, Opcode, Queue
from vta_byoc.workload.memory import ACC, INP, WGT

SPACES = {INP: "inp", WGT: "wgt", ACC: "acc"}
# no tensor can be named so: names of tensors have no dot
ZEROS = "vta.zeros"
UOPS = "vta.uops"
OPERANDS = ("dst", "src", "wgt")


@dataclass(frozen=True)
class Work:
    """A GEMM or ALU instruction before its micro-ops have a place."""

    opcode: Opcode
    kernel: Kernel
    site: object
    fields: dict[str, int]
    reads: list[Interval]
    writes: list[Interval]


@dataclass(frozen=True)
class Move:
    """A LOAD or STORE before it has a DRAM address; ``dram`` and ``span`` are in elements."""

    fields: dict[str, int]
    chip: Interval
    dram: int
    span: int
    zero: bool


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
        self._begun: set[tuple[str, int, int]] = set()
        self._sites: dict[Leaf, Site] = {}
        self.insns: list[Insn] = []
        self.needs_zeros = False

    def emit(self, leaf: Leaf, env: Mapping[int, int], sram: SramMap) -> None:
        """One execution of ``leaf`` with the outer loop values ``env``."""
        site = self._sites.get(leaf)
        if site is None:
            site = self._sites[leaf] = Site(self._config, leaf)
        run = site.execution(env, sram)
        if run is None:
            return
        first = len(self.insns)
        self._execute(run, site, env, sram)
        for insn in self.insns[first:]:
            insn.block = leaf.name

    def _execute(self, run: Execution, site: Site, env: Mapping[int, int], sram: SramMap) -> None:
        leaf = run.leaf
        if leaf.kind == "store":
            self._store(run, site, env)
            return
        tile = sram[leaf.dst.buffer]
        if leaf.kind == "load":
            begins = tile.instance not in self._begun and run.at(leaf.dst) == tile.base
            self._load(run, site, env, tile.size if begins else None)
        elif leaf.kind == "gemm":
            self._gemm(run)
        elif leaf.kind == "reset":
            self._reset(run)
        else:
            self._alu(run)
        self._begun.add(tile.instance)

    # ---------------------------------------------------------------- DMA
    def _load(
        self, run: Execution, site: Site, env: Mapping[int, int], room: int | None
    ) -> None:
        leaf, dst = run.leaf, run.leaf.dst
        data = site.data(env, run.box)
        moves = run.once(
            (data, room), lambda: self._moves(run, dst, load_pieces(run, data, room))
        )
        start = site.first(env, data, run.unit(dst)) if data is not None else 0
        for move in moves:
            self._dma(leaf, leaf.src, move, start)
        if dst.scope == ACC:
            self._acc.cleared(run.where(dst))

    def _store(self, run: Execution, site: Site, env: Mapping[int, int]) -> None:
        leaf, src = run.leaf, run.leaf.src
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
        start = site.first(env, run.box, run.unit(src))
        for move in moves:
            self._dma(leaf, leaf.dst, move, start)

    def _store_steps(self, run: Execution, src: Access) -> None:
        """The in-place steps of a store, or those that an earlier store of ``src`` has not made."""
        leaf, steps = run.leaf, run.once("steps", lambda: InPlace.of(run))
        if steps.changes and not steps.only(src):
            self._steps(run, steps)
            return
        where = run.where(src)
        rest = self._acc.rest_of(where, steps.changes)
        if rest is None:
            self._acc.refuse_spent(where, leaf.name, src.buffer.name)
            return
        for access, at in steps.reads:
            if access is not src:
                self._acc.refuse_spent(at, leaf.name, access.buffer.name)
        for number, change in enumerate(rest):
            self._change(run, change, number)
        if rest:
            self._acc.spent(where, Spent(leaf.name, steps.changes, steps.operands))

    def _moves(self, run: Execution, access: Access, pieces: Sequence[Piece]) -> list[Move]:
        at, space, mem = run.at(access), SPACES[access.scope], run.leaf.mem
        assert mem is not None
        return [
            Move(
                {
                    "mem_type": int(mem),
                    "sram_base": at + piece.sram,
                    "y_size": piece.y_size,
                    "x_size": piece.x_size,
                    "x_stride": piece.x_stride,
                    **dict(zip(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), piece.pads,
                               strict=True)),
                },
                (space, at + piece.sram, at + piece.sram + piece.sram_elems),
                piece.dram,
                piece.dram_span,
                piece.zero,
            )
            for piece in pieces
        ]

    def _dma(self, leaf: Leaf, tensor: Access | None, move: Move, start: int) -> None:
        assert leaf.mem is not None
        self.needs_zeros |= move.zero
        symbol = self._symbols[tensor.buffer] if tensor and not move.zero else ZEROS
        first = move.dram if move.zero else move.dram + start
        elem = dram_elem_bytes(self._config, leaf.mem)
        outer = (DRAM + symbol, first * elem, (first + move.span) * elem)
        store = leaf.mem == MemType.OUT
        compute = leaf.mem in (MemType.ACC, MemType.ACC_8BIT)
        self.insns.append(
            Insn(
                Opcode.STORE if store else Opcode.LOAD,
                Queue.STORE if store else Queue.COMPUTE if compute else Queue.LOAD,
                move.fields.copy(),
                reads=[move.chip] if store else [outer],
                writes=[outer] if store else [move.chip],
                symbol=symbol,
                addend=first,
                layer=self._layer,
            )
        )

    # ---------------------------------------------------------------- GEMM
    def _gemm(self, run: Execution) -> None:
        leaf = run.leaf
        where = run.where(leaf.dst)
        self._acc.refuse_spent(where, leaf.name, leaf.dst.buffer.name)
        for work in run.once("gemm", lambda: self._gemm_works(run)):
            self._compute(work)
        self._acc.computed(where)

    def _gemm_works(self, run: Execution) -> list[Work]:
        leaf = run.leaf
        assert leaf.src is not None and leaf.wgt is not None
        accesses = (leaf.dst, leaf.src, leaf.wgt)
        for access in accesses:
            run.check_lanes(access)
        run.check_gemm_lanes(*accesses)
        distance = self._config.capabilities.dst_distance
        base = (run.at(leaf.dst), run.at(leaf.src), run.at(leaf.wgt))
        parts = fold(self._config, fuse(run.dims(*accesses)), base, self._mode, distance=distance)
        spaces = [SPACES[a.scope] for a in accesses]
        return [self._work(Opcode.GEMM, p, (leaf.name, "gemm"), {}, spaces, 3) for p in parts]

    def _reset(self, run: Execution) -> None:
        for work in run.once("reset", lambda: self._reset_works(run)):
            self._compute(work)
        self._acc.cleared(run.where(run.leaf.dst))

    def _reset_works(self, run: Execution) -> list[Work]:
        leaf = run.leaf
        run.check_lanes(leaf.dst)
        dims, base = run.dims(leaf.dst), (run.at(leaf.dst), 0, 0)
        parts = fold(self._config, fuse(dims) if self._mode.fuse_reset else dims, base, self._mode)
        site, reset = (leaf.name, "reset"), {"reset": 1}
        return [self._work(Opcode.GEMM, part, site, reset, [], 1) for part in parts]

    # ---------------------------------------------------------------- ALU
    def _alu(self, run: Execution) -> None:
        if run.leaf.clear:
            self._reset(run)
        run.once("lanes", lambda: run.check_lanes(run.leaf.dst))
        self._steps(run, run.once("steps", lambda: InPlace.of(run)))

    def _steps(self, run: Execution, steps: InPlace) -> None:
        leaf = run.leaf
        for access, where in steps.reads:
            self._acc.refuse_spent(where, leaf.name, access.buffer.name)
        for number, change in enumerate(steps.changes):
            self._change(run, change, number)
        for access, where in steps.changed.items():
            if access is leaf.dst:
                self._acc.computed(where)
            else:
                self._acc.spent(where, Spent(leaf.name))

    def _change(self, run: Execution, change: Change, number: int | str) -> None:
        for work in run.once((change, number), lambda: self._alu_works(run, change, number)):
            self._compute(work)

    def _alu_works(self, run: Execution, change: Change, number: int | str) -> list[Work]:
        distance = min(2, self._config.capabilities.dst_distance)
        base = (change.dst, change.src, 0)
        parts = list(
            fold(self._config, fuse(change.dims), base, self._mode, distance=distance)
        )
        amounts = [change.imm]
        if change.op == AluOp.SHR and change.imm is not None:
            amounts = [*shift_parts(change.imm, self._config.capabilities.max_shift)]
        works = []
        for turn, amount in enumerate(amounts):
            fields = {"alu_opcode": int(change.op)}
            fields |= {} if amount is None else {"use_imm": 1, "imm": amount}
            site = (run.leaf.name, number, turn)
            # an immediate has dst as its src: some cores compute acc[src] op imm
            works += [self._work(Opcode.ALU, p, site, fields, ["acc", "acc"], 2) for p in parts]
        return works

    # ---------------------------------------------------------------- micro-ops
    def _work(
        self,
        opcode: Opcode,
        part: Folded,
        site: object,
        fields: dict[str, int],
        spaces: Sequence[str],
        operands: int,
    ) -> Work:
        """An instruction that reads ``spaces`` and has factors for its first ``operands``."""
        loops = [LoopDim(1, (0, 0, 0))] * (2 - len(part.loops)) + list(part.loops)
        values = {"iter_out": loops[0].extent, "iter_in": loops[1].extent, **fields}
        for k, name in enumerate(OPERANDS[:operands]):
            values[f"{name}_factor_out"] = loops[0].strides[k]
            values[f"{name}_factor_in"] = loops[1].strides[k]
        reads = [(space, *part.spans[k]) for k, space in enumerate(spaces)]
        return Work(opcode, part.kernel, site, values, reads, [("acc", *part.spans[0])])

    def _compute(self, work: Work) -> None:
        at, load = self._uops.place(work.kernel, (self._layer, work.site))
        if load is not None:
            self._load_uops(at, *load)
        values = {"uop_bgn": at, "uop_end": at + len(work.kernel), **work.fields}
        self.insns.append(
            Insn(
                work.opcode,
                Queue.COMPUTE,
                values,
                reads=work.reads,
                writes=work.writes,
                layer=self._layer,
            )
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
