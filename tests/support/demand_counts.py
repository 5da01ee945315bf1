"""What a tiling asks of the machine by estimate, and what the compiled kernel really does."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.codegen.linear import VarTable
from vta_byoc.codegen.sram import Tile, tile_shapes
from vta_byoc.codegen.walk import lower
from vta_byoc.cost.search import Choice, Space, cost_of
from vta_byoc.cost.usage import needs
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.strategies.base import KernelFunction, LayerSchedule, LayerWork, Strategy
from vta_byoc.strategies.te.kernel import Kernel
from vta_byoc.workload.memory import MEMORIES, SPACES, SRAM_SCOPES

Counts = Mapping[str, float]
"""`gemm` micro-ops with resets and `alu` cycles, instructions of both (`gemm_starts`,
`alu_starts`), `kernels` of `uops`, `stores` of `stored` bytes, and for each memory of SRAM bytes
loaded (`inp`), instructions that do so (`inp_loads`) and elements of its tiles (`inp_room`)."""


def asked(space: Space, choice: Choice) -> Counts:
    """By estimate, which divides nothing by zero on its way."""
    tile = {name: np.array([size]) for name, size in choice.tile.items()}
    with np.errstate(all="raise"):
        demand = space.demand(tile, choice.variant)
    names = ("gemm", "gemm_starts", "alu", "alu_starts", "kernels", "uops", "stored", "stores")
    found: defaultdict[str, float] = defaultdict(float)
    for name in names:
        found[name] += _number(getattr(demand, name))
    memories = dict(zip(SRAM_SCOPES, MEMORIES, strict=True))
    for name, room in zip(MEMORIES, needs(demand, choice.slots), strict=True):
        found[f"{name}_room"] += _number(room)
    for item in demand.staged:
        loaded = item.loaded(choice.slots_attr()[item.scope])
        found[memories[item.scope]] += _number(loaded.nbytes)
        found[f"{memories[item.scope]}_loads"] += _number(loaded.dmas)
    return found


def _number(value: Any) -> float:
    return float(np.asarray(value).item())


def done(program: Program) -> Counts:
    """By the instructions of a program."""
    config, isa = program.config, ISA.of(program.config)
    found: defaultdict[str, float] = defaultdict(float)
    for word0, word1 in program.insns.tolist():
        insn = isa.decode(word0, word1)
        if insn.opcode == Opcode.FINISH:
            continue
        moves = insn.opcode in (Opcode.LOAD, Opcode.STORE)
        for name, amount in (_moved if moves else _computed)(insn, config).items():
            found[name] += amount
    return found


def _moved(insn: Instruction, config: VTAConfig) -> Counts:
    elements, mem = insn["y_size"] * insn["x_size"], MemType(insn["mem_type"])
    if not elements:
        return {}
    if insn.opcode == Opcode.STORE:
        return {"stores": 1, "stored": elements * config.out_elem_bytes}
    if mem == MemType.UOP:
        return {"kernels": 1, "uops": elements}
    name = mem.name.lower().partition("_")[0]
    nbytes = config.inp_elem_bytes if mem == MemType.INP else getattr(config, f"{name}_elem_bytes")
    return {name: elements * nbytes, f"{name}_loads": 1}


def _computed(insn: Instruction, config: VTAConfig) -> Counts:
    steps = insn["iter_out"] * insn["iter_in"] * (insn["uop_end"] - insn["uop_bgn"])
    if not steps:
        return {}
    if insn.opcode == Opcode.GEMM:
        return {"gemm_starts": 1, "gemm": steps}
    time = config.timing
    rate = time.alu_imm_cycles if insn["use_imm"] else time.alu_tensor_cycles
    return {"alu_starts": 1, "alu": steps * rate}


def rooms(func: tirx.PrimFunc, config: VTAConfig) -> Counts:
    """Elements of SRAM that the tiles of a scheduled PrimFunc take, one slot each."""
    found: defaultdict[str, float] = defaultdict(float)
    for buffer, shape in tile_shapes(lower(func), VarTable()).items():
        tile = Tile(config, buffer, shape)
        found[f"{SPACES[tile.scope]}_room"] += tile.size
    return found


def kernel_program(kernel: KernelFunction, config: VTAConfig) -> Program:
    """The program of one kernel: all that it reads but does not store are inputs."""
    builder, args = ProgramBuilder(config, reuse_resident=True), kernel.args
    for number, param in dict(zip(args, kernel.func.params, strict=True)).items():
        stored = number == args[-1] or args.count(number) > 1
        shape = [int(size) for size in param.shape]
        builder.symbol(f"t{number}", "output" if stored else "input", shape, str(param.dtype))
    builder.layer("layer", kernel.func, [f"t{number}" for number in args])
    return builder.finish()


def with_tiles(
    strategy: Strategy[Any],
    layer: LayerWork[Any],
    config: VTAConfig,
    tiles: Sequence[tuple[Mapping[str, int], str]],
    candidate: int = 0,
) -> list[tuple[Counts, Counts]]:
    """Of each kernel what such tiles and variants, with one slot each, ask for, and what it does.

    Its groups are put in blocks like those of number ``candidate``.
    """
    spaces = [space.candidates[candidate] for space in strategy.spaces(layer, config)]
    kernels, wanted = [], []
    for (grouping, space), (tile, variant) in zip(spaces, tiles, strict=True):
        choice = Choice(dict(tile), variant, (1, 1, 1))
        assert math.isfinite(cost_of(space, config, choice)), f"{choice} is no tile that fits"
        kernels.append(Kernel(choice, grouping))
        wanted.append(asked(space, choice))
    schedule = LayerSchedule(layer.work, layer.fused, layer.weight_batch, tuple(kernels))
    functions = strategy.functions(schedule, config)
    return [
        (want, {**done(kernel_program(each, config)), **rooms(each.func, config)})
        for want, each in zip(wanted, functions, strict=True)
    ]


def check_same(wanted: Counts, found: Counts, but: Collection[str] = ()) -> None:
    """Every count but some is as asked for."""
    wrong = {
        name: (wanted.get(name, 0), found.get(name, 0))
        for name in {*wanted, *found}.difference(but)
        if abs(wanted.get(name, 0) - found.get(name, 0)) > 1e-6
    }
    assert not wrong, f"asked for and done: {wrong}"
