"""`explain`: what each block of a schedule is, what it costs, and if the result is the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import s_tir, tirx

from vta_byoc.codegen import CodegenError
from vta_byoc.codegen.sram import SramMap, Tile
from vta_byoc.codegen.tensorizable import TensorizableNest
from vta_byoc.codegen.walk import Walker
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAWarning
from vta_byoc.hw.html_table import html_table
from vta_byoc.reports.tables import text_of, text_table
from vta_byoc.schedule.advice import MOVED, advice, counters_by_block
from vta_byoc.schedule.build import kernel, statement_error
from vta_byoc.schedule.compiled import Kernel
from vta_byoc.schedule.elements import with_whole_elements
from vta_byoc.schedule.nests import Nest, ScheduleError, function_of, lowered, read_nests
from vta_byoc.schedule.reference import random_inputs, reference
from vta_byoc.workload.memory import ACC, INP, WGT

COLUMNS = (
    "block",
    "is",
    "scope",
    "runs",
    "SRAM B",
    "of",
    "DRAM B",
    "instructions",
    "micro-ops",
    "cycles",
)


@dataclass(frozen=True)
class BlockFacts:
    """One block of a schedule.

    Attributes:
        name: of the block.
        is_what: LOAD, GEMM, GEMM reset, ALU, STORE, "ALU, STORE", or "not VTA".
        scope: of the tensor that it writes.
        runs: how many times the loops around it run it.
        sram_bytes: what that tensor takes on chip, all its slots together; 0 in DRAM.
        sram_size: the bytes of the memory that it is in; 0 in DRAM.
        dram_bytes: moved between DRAM and SRAM, micro-ops included.
        instructions: that it becomes, those that only move tokens excepted.
        micro_ops: that GEMM and ALU execute for it.
        cycles: in which its instructions occupy their queue.
    """

    name: str
    is_what: str
    scope: str
    runs: int
    sram_bytes: int = 0
    sram_size: int = 0
    dram_bytes: int = 0
    instructions: int = 0
    micro_ops: int = 0
    cycles: int = 0

    def cells(self) -> list[str]:
        """The row of the table; "" for what there is none of."""
        numbers = (self.sram_bytes, self.sram_size, self.dram_bytes)
        counts = (self.instructions, self.micro_ops, self.cycles)
        shown = [f"{n:,}" if n else "" for n in (*numbers, *counts)]
        return [self.name, self.is_what, self.scope, f"{self.runs:,}", *shown]


@dataclass(frozen=True, repr=False)
class Explanation:
    """What `explain` found; it prints as a table, in a notebook too.

    Attributes:
        blocks: the blocks in order.
        problems: why the schedule cannot become a program, one line each; none where it can.
        remarks: what works and could be better, one line each.
        equals_definition: whether the schedule computes what its definition does, on random
            inputs and the host's processor; None where no definition was given.
        equals_host: whether VTA's result is the one of the host's processor; None where there is
            no program.
        kernel: the compiled schedule; None where there are problems.
    """

    blocks: tuple[BlockFacts, ...]
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    equals_definition: bool | None = None
    equals_host: bool | None = None
    kernel: Kernel | None = None

    @property
    def ok(self) -> bool:
        """Whether the schedule becomes a program that computes what it should."""
        wrong = self.equals_definition is False or self.equals_host is False
        return not self.problems and not wrong

    def lines(self) -> list[str]:
        """What stands below the table."""
        found = [f"problem: {text}" for text in self.problems]
        found += [f"remark: {text}" for text in self.remarks]
        if self.equals_definition is not None:
            found.append(_DEFINITION[self.equals_definition])
        if self.equals_host is not None:
            found.append(_HOST[self.equals_host])
        return found

    def __str__(self) -> str:
        return text_of(text_table(COLUMNS, [b.cells() for b in self.blocks]), *self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = html_table("", COLUMNS, [block.cells() for block in self.blocks])
        return table + html_table("", ("",), [[line] for line in self.lines()])


_DEFINITION = {
    True: "same: the schedule computes what its definition does (random inputs, LLVM)",
    False: "differs: the schedule does not compute what its definition does (random inputs, LLVM); "
    "an unsafe_ primitive, a scope or an annotation of TVM's own changed it: leave them out one by "
    "one",
}
_HOST = {
    True: "same: VTA computes what the host does (random inputs, bit for bit)",
    False: "differs: VTA does not compute what the host does; a sum left int32, which the host "
    "does not define: scale the operands down",
}


def explain(
    func_or_schedule: tirx.PrimFunc | s_tir.Schedule,
    config: VTAConfig | None = None,
    *,
    definition: tirx.PrimFunc | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    slots: int | Mapping[str, int] | None = None,
) -> Explanation:
    """What each block of a schedule is on VTA, what it costs, and what is wrong with it.

    A schedule that is not finished yet is explained as far as it is.

    Args:
        func_or_schedule: as of `kernel`.
        config: the machine; the preset ``sim`` when None.
        definition: the function before it was scheduled, to compare the results.
        constants: as of `kernel`.
        slots: as of `kernel`.

    Raises:
        ScheduleError: there is no function, or it has no blocks.
    """
    func, machine = function_of(func_or_schedule), config or VTAConfig()
    nests = read_nests(func, machine)
    problems = [text for nest in nests if (text := statement_error(nest))]
    built, remarks = None, list[str]()
    if not problems:
        func = with_whole_elements(func, machine)
        nests = read_nests(func, machine)
        try:
            built = _silent_kernel(func, machine, constants, slots)
        except ScheduleError as err:
            problems = [str(err)]
        else:
            remarks = advice(built, nests)
    tiles = _tiles(func if built is None else built.func, machine)
    blocks = _facts(nests, built, tiles, machine)
    same, on_host = _results(func, definition, built, constants or {}, problems)
    return Explanation(tuple(blocks), tuple(problems), tuple(remarks), same, on_host, built)


def _silent_kernel(
    func: tirx.PrimFunc,
    config: VTAConfig,
    constants: Mapping[str, np.ndarray] | None,
    slots: int | Mapping[str, int] | None,
) -> Kernel:
    """The kernel; what it would warn of is a remark here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VTAWarning)
        return kernel(func, config=config, constants=constants, slots=slots)


# ---------------------------------------------------------------- numbers
def _facts(
    nests: Sequence[Nest], built: Kernel | None, tiles: Mapping[str, Tile], config: VTAConfig
) -> Iterator[BlockFacts]:
    """The row of every nest; without a kernel those have no instructions."""
    counted = {} if built is None else counters_by_block(built)
    cycles = {} if built is None else _cycles(built)
    for nest in nests:
        held, size = _sram(tiles.get(nest.writes), config)
        mine = counted.get(nest.name, {})
        yield BlockFacts(
            nest.name,
            nest.is_what,
            nest.scope,
            nest.executions,
            held,
            size,
            sum(mine.get(kind, 0) for kind in MOVED),
            mine.get("instructions", 0),
            mine.get("gemm_counter", 0) + mine.get("alu_counter", 0),
            cycles.get(nest.name, 0),
        )


def _cycles(built: Kernel) -> dict[str, int]:
    """Cycles in which the instructions of each block occupy their queue."""
    cycles: dict[str, int] = dict.fromkeys(built.blocks, 0)
    for block, insn in zip(built.blocks, built.timing.instructions, strict=True):
        cycles[block] += insn.end - insn.start
    return cycles


def _sram(tile: Tile | None, config: VTAConfig) -> tuple[int, int]:
    """Bytes of a tile in all its slots, and of the memory that it is in."""
    if tile is None:
        return 0, 0
    element, log_size = {
        INP: (config.inp_elem_bytes, config.log_inp_buff_size),
        WGT: (config.wgt_elem_bytes, config.log_wgt_buff_size),
        ACC: (config.acc_elem_bytes, config.log_acc_buff_size),
    }[tile.scope]
    return tile.size * len(tile.slots) * element, 1 << log_size


class _TileWalk:
    """Takes note of every tile that a walk meets."""

    def __init__(self) -> None:
        self.tiles: dict[str, Tile] = {}

    def emit(self, leaf: TensorizableNest, _env: Mapping[int, int], sram: SramMap) -> None:
        """One execution of ``leaf``."""
        for access in leaf.on_chip:
            tile = sram[access.buffer]
            self.tiles[tile.name] = tile


def _tiles(func: tirx.PrimFunc, config: VTAConfig) -> dict[str, Tile]:
    """The tiles of a function by the name of their tensor, as far as it can be walked."""
    walk = _TileWalk()
    try:
        Walker(config, lowered(func), walk).run()
    except CodegenError:
        return walk.tiles  # what stopped the walk is a problem that is told already
    return walk.tiles


# ---------------------------------------------------------------- results
def _results(
    func: tirx.PrimFunc,
    definition: tirx.PrimFunc | None,
    built: Kernel | None,
    constants: Mapping[str, np.ndarray],
    problems: list[str],
) -> tuple[bool | None, bool | None]:
    """Whether the schedule computes what its definition does, and VTA what the host does.

    None is what cannot be compared; why the host cannot run a function goes to ``problems``.
    """
    if definition is None and built is None:
        return None, None
    try:
        names = [str(param.name) for param in func.params[:-1]]
        arrays = zip(names, random_inputs(func), strict=True)
        inputs = {name: constants.get(name, array) for name, array in arrays}
        result = reference(func, *inputs.values())
        same = on_host = None
        if definition is not None:
            same = bool(np.array_equal(reference(definition, *inputs.values()), result))
        if built is not None:
            given = [inputs[tensor.name] for tensor in built.inputs]
            on_host = bool(np.array_equal(built(*given), result))
    except ScheduleError as err:
        problems.append(str(err))
        return None, None
    return same, on_host
