"""Tensorizable nests of a scheduled PrimFunc: loops around one block, by what the block touches.

The scopes a block reads and writes decide what a nest is; the pragma on its loops states what the
author meant.  The two must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.s_tir import SBlockRealize

from vta_byoc.codegen.alu import Access, AluExpression, AluStep, loads_of
from vta_byoc.codegen.linear import Bound, CodegenError, Linear, VarTable, bounds_of
from vta_byoc.codegen.views import View
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import MEMORY_TYPES, MemType
from vta_byoc.workload.memory import ACC, DTYPES, INP, LOADS, SRAM_SCOPES, WGT, in_dram

PRAGMA_KEY = "vta.pragma"
PRAGMAS = ("dma_copy", "gemm", "alu")
APART_KEY = "vta.apart"
"""Annotates a loop that is no part of a nest: every turn has instructions of its own."""
SHARES_KEY = "vta.shares"
"""Annotates a block that is one of several with the same destination: each is a part of it."""


@dataclass(eq=False)
class TensorizableNest:
    """A classified loop nest.

    ``kind`` is load, store, gemm, reset or alu; ``loops`` are (variable, extent) from the outside;
    ``where`` bounds its domain, ``pad`` the part of a load that comes from DRAM (the rest is zero;
    all of it where ``src`` is None); ``clear``: the destination is set to zero before the steps;
    ``shares``: other nests write between what this one writes of a tile.
    """

    kind: str
    name: str
    loops: list[tuple[int, int]]
    dst: Access
    src: Access | None = None
    wgt: Access | None = None
    steps: list[AluStep] = field(default_factory=list)
    where: list[Bound] = field(default_factory=list)
    pad: list[Bound] = field(default_factory=list)
    mem: MemType | None = None
    clear: bool = False
    shares: bool = False

    @property
    def does(self) -> set[str]:
        """The pragmas that this nest really is."""
        if self.kind == "load":
            return {"dma_copy"}
        if self.kind == "store":
            return {"dma_copy", "alu"} if self.steps else {"dma_copy"}
        return {"gemm"} if self.kind in ("gemm", "reset") else {"alu"}

    def describe(self) -> str:
        """Which memories this nest reads and writes, and its ALU operations, in words."""
        reads = [a.scope for a in (self.src, self.wgt) if a is not None]
        ops = [s.op.name for s in self.steps]
        return f"reads {'+'.join(reads) or 'nothing'}, writes {self.dst.scope}" + (
            f", {' '.join(ops)}" if ops else ""
        )

    @property
    def on_chip(self) -> list[Access]:
        """The accesses to SRAM, each once."""
        found = [self.dst, self.src, self.wgt]
        found += [access for step in self.steps for access in (step.dst, step.src)]
        return [a for a in dict.fromkeys(found) if a is not None and not in_dram(a.scope)]

    @property
    def immediates_vary(self) -> bool:
        """Whether an immediate depends on a loop of this nest: the nest is several instructions."""
        loops = {var for var, _ in self.loops}
        forms = [step.imm for step in self.steps if step.imm is not None]
        return any(var in loops for form in forms for var, _ in form.terms)


class Classifier:
    """Turns a block and the loops around it into a :class:`TensorizableNest`, or says why not.

    ``shapes`` are those of the SRAM tiles, ``views`` those parameters that are parts of a tensor.
    """

    def __init__(
        self,
        config: VTAConfig,
        table: VarTable,
        shapes: Mapping[tirx.Var, Sequence[int]],
        views: Mapping[tirx.Var, View],
    ):
        self.config = config
        self.table = table
        self.shapes = shapes
        self.views = views
        self._known: dict[tuple[int, tuple[Linear, ...], Linear], Access] = {}
        self._read: dict[int, tuple[TensorLoad, Access]] = {}

    def classify(self, loops: list[tirx.For], real: SBlockRealize) -> TensorizableNest:
        """The nest of ``loops`` (outermost first) around ``real``, which their pragmas state."""
        nest = self.read(loops, real)
        self._check_pragma(nest, loops)
        return nest

    def read(self, loops: list[tirx.For], real: SBlockRealize) -> TensorizableNest:
        """The nest of ``loops`` (outermost first) around ``real``, whatever their pragmas state."""
        block = real.block
        name = str(block.name_hint)
        body = block.body
        if not isinstance(body, tirx.BufferStore):
            raise CodegenError(
                f"block {name} holds {type(body).__name__}; a tensorizable nest stores one value; "
                "split it into blocks"
            )
        pairs = [(self.table.bind(f.loop_var, int(f.extent)), int(f.extent)) for f in loops]
        nest = self._by_scopes(name, pairs, body)
        nest.where = bounds_of(real.predicate, self.table)
        nest.shares = SHARES_KEY in block.annotations
        return nest

    # ---------------------------------------------------------------- pragmas
    def _check_pragma(self, nest: TensorizableNest, loops: list[tirx.For]) -> None:
        stated = stated_pragmas(loops)
        unknown = stated - set(PRAGMAS)
        if unknown:
            raise CodegenError(
                f"block {nest.name} carries pragma {', '.join(sorted(unknown))}; known pragmas are "
                f"{', '.join(PRAGMAS)}"
            )
        if stated == nest.does:
            return
        fix = f'annotate a loop of it with "{PRAGMA_KEY}" = "{",".join(sorted(nest.does))}"'
        raise CodegenError(
            f"block {nest.name} carries pragma {','.join(sorted(stated)) or 'none'} but is "
            f"{','.join(sorted(nest.does))} ({nest.describe()}); {fix} or change the nest"
        )

    # ---------------------------------------------------------------- classification
    def _by_scopes(
        self, name: str, loops: list[tuple[int, int]], body: tirx.BufferStore
    ) -> TensorizableNest:
        dst = self._access(body.buffer, body.indices)
        reads = loads_of(body.value)
        scopes = {self._scope_of(r) for r in reads}
        if in_dram(dst.scope):
            if scopes != {ACC}:
                source = " and ".join(sorted(scopes)) or "a constant"
                raise CodegenError(
                    f"block {name} stores to DRAM from {source}; STORE reads {ACC} only; "
                    "stage the value there"
                )
            return self._store(name, loops, dst, body.value)
        self._check_sram(name, dst)
        if scopes and all(in_dram(scope) for scope in scopes):
            return self._load(name, loops, dst, body.value)
        if dst.scope != ACC and not reads:
            return self._all_padding(name, loops, dst, body.value)
        if dst.scope != ACC:
            raise CodegenError(
                f"block {name} computes into {dst.scope}; GEMM and ALU write {ACC} only; "
                f"set_scope of its result to {ACC}"
            )
        if not reads:
            return self._constant(name, loops, dst, body.value)
        if INP in scopes or WGT in scopes:
            return self._gemm(name, loops, dst, body.value)
        if scopes != {ACC}:
            raise CodegenError(
                f"block {name} reads {' and '.join(sorted(scopes))}; the ALU reads {ACC} only; "
                f"cache_read the operand into {ACC}"
            )
        return self._alu(name, loops, dst, body.value)

    def _check_sram(self, name: str, dst: Access) -> None:
        if dst.scope not in SRAM_SCOPES:
            raise CodegenError(
                f"block {name} writes scope {dst.scope}; VTA has {', '.join(SRAM_SCOPES)}; "
                "set_scope to one of them"
            )
        if str(dst.buffer.dtype) != DTYPES[dst.scope]:
            raise CodegenError(
                f"block {name} writes {dst.buffer.dtype} to {dst.scope}; it holds "
                f"{DTYPES[dst.scope]}; cast in the compute"
            )

    @staticmethod
    def _scope_of(load: TensorLoad) -> str:
        return str(load.source.scope())

    def _access(self, buffer: tirx.Var, indices: Sequence[Expr]) -> Access:
        shape = [int(s) for s in self.shapes.get(buffer, buffer.shape)]
        view = self.views.get(buffer) or View.dense(shape)
        dims, flat = self.table.place(indices, view.strides, view.offset)
        key = (self.table[buffer], dims, flat)
        if key not in self._known:
            buffer = self.table.same(buffer)
            self._known[key] = Access(buffer, dims, flat, str(buffer.scope()))
        return self._known[key]

    def _expression(self, name: str, into: Access | None = None) -> AluExpression:
        return AluExpression(self.config, name, self.table, self._load_access, into)

    def _load_access(self, load: TensorLoad) -> Access:
        """The access of a load, which is kept, so that its address stays its own."""
        address = load.__chandle__()
        if address not in self._read:
            self._read[address] = load, self._access(load.source, load.indices)
        return self._read[address][1]

    def _store(
        self, name: str, loops: list[tuple[int, int]], dst: Access, value: Expr
    ) -> TensorizableNest:
        if str(dst.buffer.dtype) != "int8":
            raise CodegenError(
                f"block {name} stores {dst.buffer.dtype}; STORE writes int8; "
                "saturate and cast first"
            )
        expression = self._expression(name)
        src = expression.evaluate(_uncast(value))
        steps = expression.steps
        return TensorizableNest("store", name, loops, dst, src=src, steps=steps, mem=MemType.OUT)

    def _load(
        self, name: str, loops: list[tuple[int, int]], dst: Access, value: Expr
    ) -> TensorizableNest:
        pad: list[Bound] = []
        value = _uncast(value)
        if isinstance(value, Call) and value.op.name == "prim.if_then_else":
            cond, value, other = value.args
            pad = bounds_of(cond, self.table)
            if not isinstance(other, tirx.IntImm) or int(other.value) != 0:
                raise CodegenError(
                    f"block {name} pads with {other}; the DMA pads zeros only; pad with 0"
                )
        value = _uncast(value)
        if not isinstance(value, TensorLoad):
            raise CodegenError(
                f"block {name} computes {value} while loading; a DMA only copies; "
                "compute in a block of its own"
            )
        src = self._load_access(value)
        mem = self._load_type(name, dst.scope, str(src.buffer.dtype))
        return TensorizableNest("load", name, loops, dst, src=src, pad=pad, mem=mem)

    def _all_padding(
        self, name: str, loops: list[tuple[int, int]], dst: Access, value: Expr
    ) -> TensorizableNest:
        """A load that never meets its tensor: TVM has simplified it to its padding."""
        if not isinstance(value, tirx.IntImm) or int(value.value) != 0:
            raise CodegenError(
                f"block {name} fills {dst.scope} with {value}; the DMA pads zeros only; pad with 0"
            )
        mem = LOADS[dst.scope, DTYPES[dst.scope]]
        return TensorizableNest("load", name, loops, dst, mem=mem)

    def _load_type(self, name: str, scope: str, dtype: str) -> MemType:
        mem = LOADS.get((scope, dtype))
        if mem is None:
            taken = " or ".join(known for memory, known in LOADS if memory == scope)
            raise CodegenError(
                f"block {name} loads {dtype} into {scope}; it takes {taken} from DRAM; cast the "
                "tensor before it is stored there"
            )
        capability = MEMORY_TYPES[mem].capability
        if not self.config.capabilities.has(capability):
            raise CodegenError(
                f"block {name} loads {dtype} into {scope}; this machine has no {mem.name} load "
                f"(CAPABILITIES.{capability} is false); keep the operand {DTYPES[scope]} in DRAM"
            )
        return mem

    def _constant(
        self, name: str, loops: list[tuple[int, int]], dst: Access, value: Expr
    ) -> TensorizableNest:
        if not isinstance(value, tirx.IntImm):
            raise CodegenError(f"block {name} fills {dst.scope} with {value}; use an integer")
        fill = int(value.value)
        if not fill:
            return TensorizableNest("reset", name, loops, dst)
        _check_once(name, loops, dst)
        expression = self._expression(name)
        expression.fill(dst, fill)
        return TensorizableNest("alu", name, loops, dst, steps=expression.steps, clear=True)

    def _gemm(
        self, name: str, loops: list[tuple[int, int]], dst: Access, value: Expr
    ) -> TensorizableNest:
        if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
            raise _no_gemm(name, value)
        factors = [_uncast(value.b.a), _uncast(value.b.b)]
        if not all(isinstance(f, TensorLoad) for f in (value.a, *factors)):
            raise _no_gemm(name, value)
        by_scope = {self._scope_of(f): self._load_access(f) for f in factors}
        if set(by_scope) != {INP, WGT}:
            found = " by ".join(f"{f.source.name} in {self._scope_of(f)}" for f in factors)
            raise CodegenError(
                f"block {name} multiplies {found}; GEMM is acc += int32(inp) * int32(wgt), one "
                f"factor in {INP} and one in {WGT}; cache_read each into its own"
            )
        if self._load_access(value.a) != dst:
            raise _no_gemm(name, value)
        return TensorizableNest("gemm", name, loops, dst, src=by_scope[INP], wgt=by_scope[WGT])

    def _alu(
        self, name: str, loops: list[tuple[int, int]], dst: Access, value: Expr
    ) -> TensorizableNest:
        expression = self._expression(name, into=dst)
        if dst not in [self._load_access(r) for r in loads_of(value)]:
            # no move instruction: the destination is cleared and the first operand added
            _check_once(name, loops, dst)
            expression.evaluate(value, home=dst)
            src = expression.steps[0].src
            return TensorizableNest(
                "alu", name, loops, dst, src=src, steps=expression.steps, clear=True
            )
        if expression.evaluate(value) != dst:
            raise CodegenError(
                f"block {name} reads its destination {dst.buffer.name} as second operand of "
                f"{value}; the ALU overwrites its first operand; swap them or stage a copy"
            )
        _check_reduction(name, loops, dst, expression.steps)
        return TensorizableNest("alu", name, loops, dst, src=dst, steps=expression.steps)


def _no_gemm(name: str, value: Expr) -> CodegenError:
    return CodegenError(
        f"block {name} computes {value}; GEMM is acc += int32(inp) * int32(wgt); "
        "write the reduction so"
    )


def stated_pragmas(loops: Sequence[tirx.For]) -> set[str]:
    """The pragmas that the annotations of ``loops`` state, known or not."""
    texts = [str(f.annotations[PRAGMA_KEY]) for f in loops if PRAGMA_KEY in f.annotations]
    return {p.strip() for p in ",".join(texts).split(",") if p.strip()}


def _repeats(loops: Sequence[tuple[int, int]], dst: Access) -> bool:
    """Whether a loop leaves ``dst`` where it is."""
    return any(extent > 1 and not dst.flat.coef(var) for var, extent in loops)


def _check_once(name: str, loops: Sequence[tuple[int, int]], dst: Access) -> None:
    if _repeats(loops, dst):
        raise CodegenError(
            f"block {name} writes {dst.buffer.name} anew in a loop that does not move it; only the "
            "last turn would count; drop the loop or reduce into the destination"
        )


def _check_reduction(
    name: str, loops: Sequence[tuple[int, int]], dst: Access, steps: Sequence[AluStep]
) -> None:
    """Steps run one after the other over the whole nest, which one operation alone survives."""
    ops = sorted({step.op.name for step in steps if step.dst is dst})
    if len(ops) > 1 and _repeats(loops, dst):
        raise CodegenError(
            f"block {name} reduces into {dst.buffer.name} with {' and '.join(ops)}; the ALU runs "
            "one operation over the whole nest; stage the other in a block of its own"
        )


def _uncast(expr: Expr) -> Expr:
    return expr.value if isinstance(expr, tirx.Cast) else expr
