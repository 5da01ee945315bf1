"""Elementwise operators on int8 tensors: one or two operands, steps, int8."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import (
    COMMUTES,
    SELF,
    STEP_OPS,
    Binding,
    Graph,
    as_step,
    dtype_of,
    is_narrowing,
    is_square,
    is_widening,
    steps_of,
)
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.partitioning.steps import NO_MUL, Range, StepReader, axes_of
from vta_byoc.workload.layout import NCHW, canonical
from vta_byoc.workload.workloads import CHANNEL, ElementwiseWorkload, Epilogue, Prologue

CONSTANT_SIDE = Refusal(
    "one side is a constant int8 tensor",
    limit="two tensors that the model computes are taken",
    remedy="write the constant as int32 behind the widened tensor",
)
NO_PRODUCT = Refusal(
    "both operands are computed and the machine has",
    NO_MUL,
    "a constant factor can become shifts",
    "leave it to the CPU",
)
BINARY = {**{k: v for k, v in STEP_OPS.items() if "shift" not in k}, "relax.subtract": "sub"}


# ---------------------------------------------------------------- matching
def match_binary(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """An operator on two int32 values that are widened int8 tensors, and the steps behind."""
    args = anchor.value.args
    if dtype_of(anchor.var) != "int32" or any(is_constant(a) for a in args):
        return None
    if is_square(anchor.value):
        return None
    prologues = [graph.back(arg) for arg in args]
    if None in prologues:
        return None
    after = graph.chain(anchor.var, squares=True, other=_added_again(anchor, prologues))
    if not after or not is_narrowing(after[-1].value):
        return None
    before = list(dict.fromkeys(b for steps in prologues for b in steps or ()))
    return [*graph.in_order(before), anchor, *after]


def _added_again(anchor: Binding, sides: Sequence[Sequence[Binding] | None]) -> relax.Var | None:
    """The right operand, where a sum behind the operator may add it once more.

    That is where both operands are made of one int8 tensor, and the operator commutes, so that
    no strategy changes the right one.
    """
    sources = {side[0].value.args[0] for side in sides if side}
    commutes = STEP_OPS.get(op_name(anchor.value)) in COMMUTES
    return anchor.value.args[1] if commutes and len(sources) == 1 else None


def match_unary(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """A widened int8 tensor, steps, int8."""
    if not is_widening(anchor.value) or is_constant(anchor.value.args[0]):
        return None
    after = graph.chain(anchor.var, squares=True)
    if len(after) < 2 or not is_narrowing(after[-1].value):
        return None
    return [anchor, *after]


def match_clamp(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """Maxima and minima of an int8 tensor with constants."""
    if as_step(anchor.value, "int8") is None:
        return None
    found = [anchor]
    while (user := graph.only_user(found[-1].var)) is not None and _is_clamp(user):
        found.append(user)
    return found


def _is_clamp(binding: Binding) -> bool:
    name = op_name(binding.value)
    return name in ("relax.maximum", "relax.minimum") and as_step(binding.value, "int8") is not None


# ---------------------------------------------------------------- reading
def read_binary(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Both operands as widened tensors with steps, then the operator and the epilogue."""
    values = {b.var: b.value for b in bindings}
    anchor = _anchor(bindings)
    chains = [_side_chain(values, arg) for arg in anchor.value.args]
    operands = list(dict.fromkeys(chain[0] for chain in chains))
    if any(is_constant(x) for x in operands):
        raise VTAError(CONSTANT_SIDE)
    op = BINARY[op_name(anchor.value)]
    if op == "mul" and not config.capabilities.mul:  # equal shapes would not help
        raise VTAError(NO_PRODUCT)
    shape, own = _common_shape([static_shape(x) for x in operands], config)
    prologues, tensors, ranges = [], [], []
    for source, steps in chains:
        side = own[operands.index(source)]
        reader = _reader(side, Range.int8(_channels(side)), config, "a side of the operator")
        reader.read(steps)
        if side != shape and any(s.is_tensor and s.operand != CHANNEL for s in reader.steps):
            raise VTAError(_repeated_with_constants(side, shape))
        prologues.append(Prologue(operands.index(source), tuple(reader.steps)))
        tensors += [_by_channel(x, side, shape) for x in reader.operands]
        ranges.append(_over(reader.range, _channels(shape), len(operands) == 1))
    joined = ranges[0].joined(op, ranges[1])
    reader = _reader(shape, joined, config, "the result", widened=False, other=ranges[1])
    reader.read(steps_of(bindings[bindings.index(anchor) + 1 :], anchor.value.args[1]))
    work = _workload(shape, tuple(prologues), op, reader)
    if {*own, *map(static_shape, operands)} != {shape}:  # each is packed by the result's axes
        shapes = tuple(canonical(each, NCHW) or work.out_shape for each in own)
        work = dataclasses.replace(work, shapes=shapes)
    return _parsed(work, operands, [*tensors, *reader.operands])


def read_unary(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """One side: all steps in the epilogue."""
    source = bindings[0].value.args[0]
    shape = static_shape(source)
    reader = _reader(shape, Range.int8(_channels(shape)), config, "the value")
    reader.read(steps_of(bindings[1:]))
    return _parsed(_workload(shape, (Prologue(0),), None, reader), [source], reader.operands)


def read_clamp(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Maxima and minima on int8, computed in int32."""
    steps = [as_step(b.value, "int8") for b in bindings]
    source = steps[0][2] if steps[0] else bindings[0].value.args[0]
    shape = static_shape(source)
    reader = _reader(shape, Range.int8(_channels(shape)), config, "the value")
    reader.read((s[0], s[1]) for s in steps if s)
    return _parsed(_workload(shape, (Prologue(0),), None, reader), [source], reader.operands)


def _anchor(bindings: Sequence[Binding]) -> Binding:
    """The operator of two computed values; no square is one."""
    return next(b for b in bindings if _is_binary(b.value) and not is_square(b.value))


def _is_binary(expr: relax.Expr) -> bool:
    return op_name(expr) in BINARY and as_step(expr) is None


def _side_chain(
    values: Mapping[relax.Var, relax.Expr], arg: relax.Expr
) -> tuple[relax.Expr, list[tuple[str, np.ndarray | str]]]:
    """The int8 tensor of one side and the steps on it, first step first."""
    steps: list[tuple[str, np.ndarray | str]] = []
    call = values[arg]
    while not is_widening(call):
        step = as_step(call)
        if step is None:
            assert is_square(call)
            steps.append(("mul", SELF))
            call = values[call.args[0]]
            continue
        steps.append((step[0], step[1]))
        call = values[step[2]]
    return call.args[0], steps[::-1]


def _common_shape(
    shapes: Sequence[tuple[int, ...]], config: VTAConfig
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The shape of the result, and those of the operands with as many axes.

    Operands are repeated as NumPy does it. Images share the lanes of a vector's batch, and nothing
    copies one to the others.
    """
    shape = tuple(int(size) for size in np.broadcast_shapes(*shapes))
    own = [(1,) * (len(shape) - len(each)) + tuple(each) for each in shapes]
    if config.batch > 1 and any(each[0] < shape[0] for each in own):
        raise VTAError(
            Refusal(
                "operands have shapes",
                " and ".join(map(str, shapes)),
                f"one image is not repeated on a machine with BATCH {config.batch}",
                "expand the smaller one in the model (the CPU writes the copies then)",
            )
        )
    return shape, own


def _repeated_with_constants(side: tuple[int, ...], shape: tuple[int, ...]) -> Refusal:
    return Refusal(
        "an operand is repeated from",
        f"{side} to {shape} behind constants per position",
        "behind single numbers and those per channel it is taken",
        "write the constants behind the operator",
    )


def _by_channel(values: np.ndarray, side: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """A step's constant for each channel of the result, of a side that may have one channel."""
    repeated = side != shape and _channels(side) < _channels(shape)
    return np.broadcast_to(values, (_channels(shape),)) if repeated else values


def _over(value: Range, channels: int, alone: bool) -> Range:
    """``value`` for each of ``channels``, of an operand with as many or with one.

    ``alone``: the operator reads no other tensor.
    """
    low, high = (np.broadcast_to(end, (channels,)) for end in (value.low, value.high))
    return Range(low, high, value.values if alone else None)


def _reader(
    shape: tuple[int, ...],
    value: Range,
    config: VTAConfig,
    what: str,
    widened: bool = True,
    other: Range | None = None,
) -> StepReader:
    if not 2 <= len(shape) <= 4:
        raise VTAError(
            Refusal(
                "the tensor has the shape", f"{shape}", "2 to 4 dimensions are taken", "reshape it"
            )
        )
    return StepReader(shape, axes_of(NCHW, len(shape)), value, config, what, widened, other)


def _channels(shape: tuple[int, ...]) -> int:
    return shape[1] if len(shape) > 1 else 1


def _workload(
    shape: tuple[int, ...], prologues: tuple[Prologue, ...], op: str | None, reader: StepReader
) -> ElementwiseWorkload:
    n, c, h, w = canonical(shape, NCHW) or (0, 0, 0, 0)
    return ElementwiseWorkload(n, c, h, w, prologues, op, Epilogue(tuple(reader.steps)))


def _parsed(
    work: ElementwiseWorkload,
    operands: Sequence[relax.Expr],
    tensors: Sequence[np.ndarray],
) -> Parsed:
    constants = {f"operand{i}": x for i, x in enumerate(tensors)}
    return Parsed(work, tuple(operands), constants)


def plan_elementwise(parsed: Parsed, config: VTAConfig) -> Plan:
    """On the vector ALU."""
    return simple_plan("elementwise", parsed.work, parsed.constants, config, "vector ALU")


ENTRIES = (
    PatternEntry("vta.binary", tuple(BINARY), match_binary, read_binary, plan_elementwise),
    PatternEntry("vta.unary", ("relax.astype",), match_unary, read_unary, plan_elementwise),
    PatternEntry(
        "vta.clamp", ("relax.maximum", "relax.minimum"), match_clamp, read_clamp, plan_elementwise
    ),
)
