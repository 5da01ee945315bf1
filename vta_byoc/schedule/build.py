"""`kernel`: from a scheduled function to a program, with an answer to every mistake on the way."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from tvm import s_tir, tirx

from vta_byoc.codegen import BEST, PUBLISHED, SLOTS_ATTR, FoldMode, ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError, VTAWarning
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.verify.rules import summary
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.schedule.compiled import Kernel
from vta_byoc.schedule.elements import with_whole_elements
from vta_byoc.schedule.nests import Nest, ScheduleError, function_of, read_nests, shape_of
from vta_byoc.schedule.ranges import truncations
from vta_byoc.workload.memory import SRAM_SCOPES

MICRO_OPS: Mapping[str, FoldMode] = {mode.name: mode for mode in (BEST, PUBLISHED)}
"""How nests become micro-ops: as few as possible, or as the published tutorials have them."""
DTYPES = ("int8", "int32")


def kernel(
    func_or_schedule: tirx.PrimFunc | s_tir.Schedule,
    *,
    config: VTAConfig | None = None,
    name: str = "kernel",
    constants: Mapping[str, np.ndarray] | None = None,
    slots: int | Mapping[str, int] | None = None,
    micro_ops: str = BEST.name,
) -> Kernel:
    """Compile a scheduled function to a program, verified and ready to run.

    Args:
        func_or_schedule: its parameters are the tensors in DRAM, of int8 or int32: the last one is
            the output, the others are inputs.
        config: the machine; the preset ``sim`` when None.
        name: of the kernel, in reports and messages.
        constants: the values of parameters by name that are part of the program instead of being
            given with every call: weights, biases.
        slots: how many places each tile has in SRAM, for all scopes or by scope: with 2, the
            default, one tile is filled while another is used; with 1 a tile may be twice as large.
        micro_ops: "best" makes as few micro-ops as possible, "published" those of the tutorials of
            the original VTA, whose bytes are counted.

    Raises:
        ScheduleError: the function cannot become a program; the message names the block, the
            fact and the next step.

    Warns:
        VTAWarning: a STORE may cut values off because nothing clips them to int8.
    """
    func, machine = function_of(func_or_schedule), config or VTAConfig()
    values = dict(constants or {})
    _check_signature(func, values)
    scheduled = with_whole_elements(_with_slots(func, slots), machine)
    nests = read_nests(scheduled, machine)
    _check_nests(func, nests)
    built = _built(scheduled, nests, machine, name, values, _mode(micro_ops))
    for truncation in truncations(func, values):
        warnings.warn(f"kernel {name}: {truncation}", VTAWarning, stacklevel=2)
    return built


# ---------------------------------------------------------------- arguments
def _mode(micro_ops: str) -> FoldMode:
    if micro_ops not in MICRO_OPS:
        raise ScheduleError(
            f"micro_ops is {micro_ops!r}; known: {', '.join(MICRO_OPS)}; choose one"
        )
    return MICRO_OPS[micro_ops]


def _with_slots(func: tirx.PrimFunc, slots: int | Mapping[str, int] | None) -> tirx.PrimFunc:
    """``func`` with the number of slots of every scope that ``slots`` names."""
    if slots is None:
        return func
    by_scope = dict.fromkeys(SRAM_SCOPES, slots) if isinstance(slots, int) else dict(slots)
    for scope, count in by_scope.items():
        if scope not in SRAM_SCOPES:
            raise ScheduleError(
                f"slots for scope {scope!r}; the scopes on chip are {', '.join(SRAM_SCOPES)}; "
                "name one of them"
            )
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ScheduleError(
                f"{count!r} slots in {scope}; a tile has 1 or more places in SRAM; give a "
                "positive integer"
            )
    return func.with_attr(SLOTS_ATTR, by_scope)


def _check_signature(func: tirx.PrimFunc, constants: Mapping[str, np.ndarray]) -> None:
    """Refuse parameters that are no tensors of VTA, and constants that are no parameters."""
    names = [str(param.name) for param in func.params]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ScheduleError(
            f"the function has the parameters {', '.join(names) or 'none'}; a kernel reads one or "
            "more and writes the last one; give each a name of its own"
        )
    for param in func.params:
        shape_of(param)
        if str(param.dtype) not in DTYPES:
            raise ScheduleError(
                f"parameter {param.name} is {param.dtype}; DMA moves {' and '.join(DTYPES)}; "
                "convert it before it is given to the kernel"
            )
    for key, value in constants.items():
        if key not in names[:-1]:
            raise ScheduleError(
                f"constant {key!r} is no input of the function; its inputs are "
                f"{', '.join(names[:-1])}; name one of them"
            )
        param = func.params[names.index(key)]
        wanted = str(param.dtype), shape_of(param)
        if (str(value.dtype), value.shape) != wanted:
            raise ScheduleError(
                f"constant {key} is {value.dtype} {value.shape}; the function takes {wanted[0]} "
                f"{wanted[1]}; convert it"
            )


# ---------------------------------------------------------------- nests
def _check_nests(func: tirx.PrimFunc, nests: Sequence[Nest]) -> None:
    """Refuse a schedule whose blocks are not all stated nests that together make the output."""
    output = str(func.params[-1].name)
    inputs = {str(param.name) for param in func.params[:-1]}
    for nest in nests:
        wrong = statement_error(nest)
        if wrong:
            raise ScheduleError(wrong)
        if nest.writes in inputs:
            raise ScheduleError(
                f"block {nest.name} stores to {nest.writes}, an input; a kernel writes its last "
                f"parameter, {output}, and nothing else; make {nest.writes} the last one or stage "
                "the value on chip"
            )
        _check_reads(nest, nests)
    if output not in {nest.writes for nest in nests}:
        raise ScheduleError(
            f"no block stores to {output}; the last parameter of a kernel is its output; give the "
            "parameters in the order inputs, output"
        )


def statement_error(nest: Nest) -> str:
    """What is wrong with a nest or with the pragmas that it states, as one line; "" for nothing."""
    if nest.leaf is None:
        return nest.refusal
    calls = " and ".join(f'{does}(sch, "{nest.name}")' for does in sorted(nest.leaf.does))
    what = f"is {nest.is_what} (it {nest.leaf.describe()})"
    wrong = sorted(nest.stated - nest.leaf.does)
    if wrong:
        stated = " and ".join(wrong)
        return f"block {nest.name} states {stated} but {what}; unannotate its loop and call {calls}"
    missing = " and ".join(nest.missing)
    return f"block {nest.name} {what} and does not state {missing}; call {calls}" if missing else ""


def _check_reads(nest: Nest, nests: Sequence[Nest]) -> None:
    """Everything on chip that a nest reads must be written by another one."""
    leaf = nest.leaf
    assert leaf is not None
    others = {other.writes for other in nests if other is not nest}
    if leaf.kind == "gemm" and nest.writes not in others:
        raise ScheduleError(
            f"block {nest.name} adds to {nest.writes}, which no block sets before; SRAM holds what "
            "was left in it; begin with a block that sets it to 0, as decompose_reduction makes"
        )
    for access in leaf.on_chip:
        name = str(access.buffer.name)
        if name not in {nest.writes, *others}:
            raise ScheduleError(
                f"block {nest.name} reads {name} in {access.scope}, which no block writes; SRAM "
                "holds what was left in it; cache_read the tensor, or add the block that loads it"
            )


# ---------------------------------------------------------------- building
def _built(
    func: tirx.PrimFunc,
    nests: Sequence[Nest],
    config: VTAConfig,
    name: str,
    constants: Mapping[str, np.ndarray],
    mode: FoldMode,
) -> Kernel:
    builder = ProgramBuilder(config, mode)
    names = [str(param.name) for param in func.params]
    try:
        for param in func.params:
            _declare(builder, param, constants, output=str(param.name) == names[-1])
        builder.layer(name, func, names)
        program = builder.finish()
    except VTAError as err:
        raise ScheduleError(_explained(str(err).removeprefix(f"layer {name}: "), nests)) from err
    blocks = tuple(builder.blocks())
    _check_safe(program, blocks)
    return Kernel(name, func, config, program, constants, blocks)


def _check_safe(program: Program, blocks: Sequence[str]) -> None:
    """The verifier's proof, with the block of the first instruction that breaks a rule."""
    violations = verify(program)
    if violations:
        index = max(violations[0].index, 0)
        # What moves tokens only belongs to no block; those behind it wait for the same.
        block = next((name for name in (*blocks[index:], *blocks[index::-1]) if name), "")
        raise ScheduleError(
            f"block {block} is not safe to run: {summary(violations)}; see that a block before it "
            "writes everything that it reads on chip"
        )


def _declare(
    builder: ProgramBuilder,
    param: tirx.Var,
    constants: Mapping[str, np.ndarray],
    *,
    output: bool,
) -> None:
    name, scope = str(param.name), str(param.scope())
    if name in constants:
        builder.constant(name, constants[name], scope)
        return
    kind = "output" if output else "input"
    builder.symbol(name, kind, shape_of(param), str(param.dtype), scope)


def _explained(message: str, nests: Sequence[Nest]) -> str:
    """What code generation says, with the block that it is about and what the schedule can do."""
    nest = next((nest for nest in nests if _is_about(message, nest)), None)
    if nest is None:
        return message
    if not message.startswith("block "):
        message = f"block {nest.name}: {message}"
    around = {str(loop.loop_var.name) for loop in nest.outer}
    outside = sorted(around & {loop for other in nests for loop in other.lanes_outside})
    if not outside or "lane" not in message:
        return message
    loops = " and ".join(outside)
    return (
        f"{message}; {loops} around it runs over lanes that it needs for itself: reorder {loops} "
        "to the inside, or compute_at the block further out"
    )


def _is_about(message: str, nest: Nest) -> bool:
    """Whether a message of code generation names the block of ``nest``, its tensor or a loop."""
    if message.startswith("block "):
        return message.startswith((f"block {nest.name}:", f"block {nest.name} "))
    loops = [f"loop {loop.loop_var.name} " for loop in (*nest.loops, *nest.outer)]
    tensor = f" for {nest.writes} (slot", f"buffer {nest.writes} in"
    return any(text in message for text in (*loops, *tensor))
