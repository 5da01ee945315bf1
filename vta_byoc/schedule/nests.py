"""The blocks of a scheduled function, each read as the nest of VTA that it is or why it is none."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from tvm import s_tir, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_walk

from vta_byoc.codegen import CodegenError
from vta_byoc.codegen.leaf import Classifier, Leaf, stated_pragmas
from vta_byoc.codegen.linear import VarTable
from vta_byoc.codegen.nest import leaf_chain
from vta_byoc.codegen.sram import tile_shapes
from vta_byoc.codegen.views import views_of
from vta_byoc.codegen.walk import lower
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.workload.memory import ACC, SRAM_SCOPES, element_scalars


class ScheduleError(VTAError):
    """A schedule that cannot become a VTA program.

    The message is one line: the block, the fact and the next step.
    """


@dataclass(frozen=True, eq=False)
class Nest:
    """One innermost block with the loops around it alone.

    Attributes:
        name: the name of the block.
        writes: the name of the tensor that it writes.
        scope: the scope of that tensor.
        loops: the loops around this block and no other, outermost first.
        outer: the loops around those, which hold other blocks too, outermost first.
        leaf: what the machine executes for it; None where that is nothing.
        refusal: why it is nothing, as one line; "" where it is something.
        lanes_outside: the names of those of `outer` that run over the lanes of an element, which
            a nest needs for itself.
        still_loops: the names of those of `outer` that leave what a LOAD copies where it is in
            DRAM.
    """

    name: str
    writes: str
    scope: str
    loops: tuple[tirx.For, ...]
    outer: tuple[tirx.For, ...]
    leaf: Leaf | None = None
    refusal: str = ""
    lanes_outside: tuple[str, ...] = ()
    still_loops: tuple[str, ...] = ()

    @property
    def stated(self) -> set[str]:
        """The pragmas that its loops carry."""
        return stated_pragmas(self.loops)

    @property
    def missing(self) -> list[str]:
        """The pragmas that it must carry and does not, in alphabetical order."""
        return [] if self.leaf is None else sorted(self.leaf.does - self.stated)

    @property
    def executions(self) -> int:
        """How many times the loops around it run it."""
        count = 1
        for loop in self.outer:
            count *= int(loop.extent)
        return count

    @property
    def is_what(self) -> str:
        """What the machine does for it, in one or two words."""
        if self.leaf is None:
            return "not VTA"
        words = {"load": "LOAD", "gemm": "GEMM", "reset": "GEMM reset", "alu": "ALU"}
        return words.get(self.leaf.kind, "ALU, STORE" if self.leaf.steps else "STORE")


# ---------------------------------------------------------------- functions
def function_of(func_or_schedule: tirx.PrimFunc | s_tir.Schedule) -> tirx.PrimFunc:
    """The function that a user means.

    Raises:
        ScheduleError: something else, or a schedule of a module with several functions.
    """
    if isinstance(func_or_schedule, tirx.PrimFunc):
        return func_or_schedule
    if not isinstance(func_or_schedule, s_tir.Schedule):
        raise ScheduleError(
            f"{type(func_or_schedule).__name__} given; a kernel is made from a scheduled "
            "tirx.PrimFunc or its s_tir.Schedule; give one of them"
        )
    functions = {v.name_hint: f for v, f in func_or_schedule.mod.functions.items()}
    if len(functions) > 1 and "main" not in functions:
        raise ScheduleError(
            f"the schedule holds the functions {', '.join(sorted(functions))}; a kernel is made "
            'from one; name it "main" or give sch.mod[NAME]'
        )
    return functions.get("main") or next(iter(functions.values()))


def shape_of(param: tirx.Var) -> tuple[int, ...]:
    """The shape of a parameter.

    Raises:
        ScheduleError: it is a scalar, or its shape is not constant.
    """
    if not hasattr(param, "shape"):
        raise ScheduleError(
            f"parameter {param.name} is a scalar; a kernel takes tensors in DRAM; specialize it "
            "with func.specialize"
        )
    if not all(isinstance(size, (int, tirx.IntImm)) for size in param.shape):
        raise ScheduleError(
            f"parameter {param.name} has the shape {list(param.shape)}; a program is made for "
            "constant shapes; specialize it with func.specialize"
        )
    return tuple(int(size) for size in param.shape)


def lowered(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with its SRAM tiles explicit, as code generation reads it.

    Raises:
        ScheduleError: TVM refuses; the message is the last line of its error.
    """
    try:
        return lower(func)
    except (RuntimeError, TypeError) as err:
        raise ScheduleError(
            f"the function cannot be lowered: {last_line(err)}; its blocks must be those of a "
            "TensorIR schedule; look at sch.mod.show()"
        ) from err


def last_line(error: Exception) -> str:
    """The last line of an error's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].removeprefix("Error message: ") if lines else type(error).__name__


def blocks_of(func: tirx.PrimFunc) -> list[SBlock]:
    """Every block of ``func`` that holds no other, in order."""
    found: list[SBlock] = []
    structural_walk(func.body, (SBlockRealize, lambda real: found.append(real.block)))
    return [block for block in found if not _holds_blocks(block.body)]


def _holds_blocks(stmt: tirx.Stmt) -> bool:
    found: list[SBlockRealize] = []
    structural_walk(stmt, (SBlockRealize, found.append))
    return bool(found)


# ---------------------------------------------------------------- reading
def read_nests(func: tirx.PrimFunc, config: VTAConfig) -> list[Nest]:
    """The nests of ``func`` in order, each with what it is on the machine ``config``.

    Raises:
        ScheduleError: the function is no scheduled one, or has loops without constant extents.
    """
    if not isinstance(func.body, SBlockRealize) or not blocks_of(func):
        raise ScheduleError(
            "the function has no blocks; VTA executes the blocks of a TensorIR function; make it "
            "with te.create_prim_func or @T.prim_func(s_tir=True)"
        )
    for param in func.params:
        shape_of(param)
    names = [str(block.name_hint) for block in blocks_of(func)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ScheduleError(
            f"block {twice[0]} stands {names.count(twice[0])} times in the function; messages and "
            "schedules know blocks by their names; give each a name of its own"
        )
    sums = {str(b.name_hint) for b in blocks_of(func) if b.init is not None}
    function = lowered(func)
    try:
        return _Reading(config, function, sums).nests
    except CodegenError as err:
        raise ScheduleError(str(err)) from err


@dataclass
class _Reading:
    """Walks a lowered function; ``sums`` are the blocks that hold an init."""

    config: VTAConfig
    func: tirx.PrimFunc
    sums: set[str]
    nests: list[Nest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._visit(self.func.body, (), ())

    @functools.cached_property
    def _classifier(self) -> Classifier:
        table = VarTable()
        shapes = tile_shapes(self.func, table)
        return Classifier(self.config, table, shapes, views_of(self.func))

    def _visit(
        self, stmt: tirx.Stmt, outer: tuple[tirx.For, ...], own: tuple[tirx.For, ...]
    ) -> None:
        """Collect the nests of ``stmt``; ``own`` are loops around nothing else than it."""
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self._visit(part, (*outer, *own), ())
        elif isinstance(stmt, tirx.For):
            if stmt.thread_binding is None:
                self._visit(stmt.body, outer, (*own, stmt))
            else:
                self._visit(stmt.body, (*outer, *own, stmt), ())
        elif isinstance(stmt, SBlockRealize) and _holds_blocks(stmt.block.body):
            self._visit(stmt.block.body, (*outer, *own), ())
        elif isinstance(stmt, SBlockRealize):
            self.nests.append(self._nest(stmt, outer, own))

    def _nest(
        self, real: SBlockRealize, outer: tuple[tirx.For, ...], own: tuple[tirx.For, ...]
    ) -> Nest:
        name = str(real.block.name_hint)
        store = next(_stores(real.block.body), None)
        writes, scope = ("", "") if store is None else _written(store)
        parameter = store is not None and any(store.buffer.same_as(p) for p in self.func.params)
        refusal = self._refusal(name, "" if parameter else writes, scope, own)
        if refusal:
            return Nest(name, writes, scope, own, outer, None, refusal)
        try:
            leaf_chain(real)
            leaf = self._classifier.read(list(own), real)
        except CodegenError as err:
            return Nest(name, writes, scope, own, outer, None, str(err))
        around = self._lanes(leaf, outer), self._still(leaf, outer)
        return Nest(name, writes, scope, own, outer, leaf, "", *around)

    def _still(self, leaf: Leaf, outer: tuple[tirx.For, ...]) -> tuple[str, ...]:
        """The loops of ``outer`` that do not move the source of ``leaf``."""
        table = self._classifier.table
        loops = [loop for loop in outer if int(loop.extent) > 1 and leaf.src is not None]
        names = [
            str(loop.loop_var.name)
            for loop in loops
            if leaf.src is not None and not leaf.src.flat.coef(table[loop.loop_var])
        ]
        return tuple(names)

    def _lanes(self, leaf: Leaf, outer: tuple[tirx.For, ...]) -> tuple[str, ...]:
        """The loops of ``outer`` that step inside of an element of what ``leaf`` reads or writes.

        An element in DRAM is as large as where it goes to or comes from.
        """
        table = self._classifier.table
        chip = {a: element_scalars(self.config, a.scope) for a in leaf.on_chip}
        ends = [a for a in (leaf.dst, leaf.src) if a is not None]
        units = {a: chip.get(a, max(chip.values())) for a in [*chip, *ends]}
        return tuple(
            str(loop.loop_var.name)
            for loop in outer
            if any(0 < abs(a.flat.coef(table[loop.loop_var])) < u for a, u in units.items())
        )

    def _refusal(self, name: str, local: str, scope: str, own: tuple[tirx.For, ...]) -> str:
        """Why block ``name`` is nothing, where that does not depend on what it computes.

        ``local`` is the tensor that it writes, "" for a parameter.
        """
        if name in self.sums:
            return (
                f"block {name} still holds its init; setting to zero and summing are two nests "
                f"of VTA; decompose_reduction {name} at the loop over the reduction's tiles"
            )
        if local and scope not in SRAM_SCOPES:
            return (
                f"block {name} writes {local} in {scope}; what is not a parameter of the function "
                f"lives on chip; compute_inline {name}, or set_scope its result to {ACC}"
            )
        if not own:
            return (
                f"block {name} shares all its loops with other blocks; a nest has the loops over "
                "its elements and lanes for itself; reorder them to the inside of the loop where "
                "the other blocks are, or compute_at and decompose_reduction further out"
            )
        return ""


def _stores(stmt: tirx.Stmt) -> Iterator[tirx.BufferStore]:
    found: list[tirx.BufferStore] = []
    structural_walk(stmt, (tirx.BufferStore, found.append))
    yield from found


def _written(store: tirx.BufferStore) -> tuple[str, str]:
    return str(store.buffer.name), str(store.buffer.scope())
