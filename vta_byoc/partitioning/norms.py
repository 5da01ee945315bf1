"""Normalizations over one axis or of groups of channels, as the integer dialect writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.hw.isa import IMMEDIATE_HIGH, IMMEDIATE_LOW
from vta_byoc.ir.bindings import op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph, is_narrowing, is_square, is_widening
from vta_byoc.ir.norms import (
    FACTOR,
    MOST_ELEMENTS,
    OFFSET,
    SQUARES,
    SUM,
    X,
    elements,
    statistics,
)
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import check_sizes, simple_plan
from vta_byoc.partitioning.program_walk import Users, Walk, readers_in
from vta_byoc.partitioning.steps import NO_MUL
from vta_byoc.workload.layout import NCHW, ROWS, canonical, fits_tokens, tokens
from vta_byoc.workload.workloads import GroupNormWorkload, NormWorkload

SUM_OP, RESHAPE = "relax.sum", "relax.reshape"
GROUPED = ("N", "groups", "channels", "positions")
GROUP_AXES = (2, 3)
"""What a group sums up of a tensor with the axes `GROUPED`."""
LAST = 3
"""The last instructions of an element have numbers of their own: a shift and two limits."""


@dataclass(frozen=True)
class _Norm:
    """What the bindings of a normalization compute.

    Attributes:
        bindings: all of them, those that read the data first and the result last.
        data: the int8 operand.
        axis: the axis that is normalized; None of groups of channels with all their positions.
        shape: of what is widened: the data's, or (N, groups, channels, positions).
        centred: whether the mean is taken off.
        epsilon: added to the sum of the squares.
        factor: int64, () or [channels].
        offset: int64, () or [channels].
        numbers: the shift and the two limits of the result.
    """

    bindings: list[Binding]
    data: relax.Expr
    axis: int | None
    shape: tuple[int, ...]
    centred: bool
    epsilon: int
    factor: np.ndarray
    offset: np.ndarray
    numbers: tuple[int, int, int]


def _found(users: Users, defined: Mapping[relax.Var, Binding], anchor: Binding) -> _Norm | None:
    """The normalization whose squares `anchor` adds up."""
    squared = defined.get(anchor.value.args[0])
    if squared is None or not is_square(squared.value):
        return None
    wide = defined.get(squared.value.args[0])
    axes = _axes(anchor.value)
    if wide is None or not is_widening(wide.value) or axes is None:
        return None
    shape = static_shape(wide.var)
    channels = math.prod(shape[axis] for axis in axes)
    ends = _groups(defined, wide) if axes == GROUP_AXES else None
    if channels > MOST_ELEMENTS or (ends is None and len(axes) > 1):
        return None
    totals = [b for b in users.get(wide.var, ()) if b and _is_sum(b, axes)]
    for total in (*totals, None):
        values: dict[str, relax.Expr] = {X: wide.var, SQUARES: anchor.var}
        sums = [squared, anchor] if total is None else [total, squared, anchor]
        values |= {} if total is None else {SUM: total.var}
        walk = Walk(users, values)
        found = _walked(walk, channels, total is not None)
        if found is None:
            continue
        epsilon, numbers = found
        end = next((b for b in users.get(walk.bindings[-1].var, ()) if b), None)
        if end is None or not is_narrowing(end.value):
            continue
        every = [wide, *sums, *walk.bindings, end]
        data = wide.value.args[0]
        if ends is not None:
            back = next((b for b in users.get(end.var, ()) if b), None)
            data = ends.value.args[0]
            if back is None or not _is_back(back, data):
                continue
            every = [ends, *every, back]
        factor, offset = (
            np.asarray(values[name].value.numpy(), np.int64).reshape(-1)
            for name in (FACTOR, OFFSET)
        )
        axis = None if ends is not None else axes[0]
        centred = total is not None
        return _Norm(every, data, axis, shape, centred, epsilon, factor, offset, numbers)
    return None


def _groups(defined: Mapping[relax.Var, Binding], wide: Binding) -> Binding | None:
    """What gives int8 (N, C, ...) the shape (N, groups, channels of one, positions)."""
    found = defined.get(wide.value.args[0])
    if found is None or op_name(found.value) != RESHAPE:
        return None
    before, shape = static_shape(found.value.args[0]), static_shape(found.var)
    if len(shape) != len(GROUPED) or len(before) < len(GROUP_AXES):
        return None
    is_parted = before[0] == shape[0] and before[1] == shape[1] * shape[2]
    return found if is_parted else None


def _is_back(binding: Binding, data: relax.Expr) -> bool:
    return op_name(binding.value) == RESHAPE and static_shape(binding.var) == static_shape(data)


def _walked(walk: Walk, channels: int, centred: bool) -> tuple[int, tuple[int, int, int]] | None:
    """Epsilon, and the shift and limits, of the bindings that compute a token and its elements."""
    forms = [statistics(channels, epsilon, centred=centred) for epsilon in (0, 1)]
    place = next(i for i, (a, b) in enumerate(zip(*forms, strict=True)) if a != b)
    start = dict(walk.values)
    epsilon = [0] if walk.follow(forms[0]) is not None else None
    if epsilon is None:
        walk.values.clear()
        walk.values.update(start)
        walk.bindings.clear()
        epsilon = walk.follow(forms[1], (place,))
    last = elements(0, 0, 0, centred=centred)
    count = len(last)
    free = range(count - LAST, count)
    numbers = walk.follow(last, free) if epsilon is not None else None
    if epsilon is None or numbers is None:
        return None
    shift, low, high = numbers
    return epsilon[0], (shift, low, high)


def _is_sum(binding: Binding, axes: tuple[int, ...]) -> bool:
    return op_name(binding.value) == SUM_OP and _axes(binding.value) == axes


def _axes(call: relax.Call) -> tuple[int, ...] | None:
    """The one axis of a sum that keeps it, or those of a group, from the front."""
    axes = call.attrs.axis
    if axes is None or not call.attrs.keepdims:
        return None
    found = tuple(sorted(int(axis) % call.ty.ndim for axis in axes))
    return found if len(found) == 1 or found == GROUP_AXES else None


def match_norm(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """The sums of int8 tokens and of their squares, and the programs behind them."""
    found = _found(graph.users, graph.defined, anchor)
    return None if found is None else found.bindings


def read_norm(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Channels second, or last: then tokens are columns where they fill them, else rows."""
    defined = {b.var: b for b in bindings}
    sums = [b for b in bindings if op_name(b.value) == SUM_OP]
    anchor = next(b for b in sums if is_square(defined[b.value.args[0]].value))
    norm = _found(readers_in(bindings), defined, anchor)
    assert norm is not None, "the bindings were matched"
    if not config.capabilities.mul:
        raise VTAError(
            Refusal(
                "the squares of a normalization and its reciprocal root multiply; the machine has",
                NO_MUL,
                remedy="use a machine with MUL or leave it to the CPU",
            )
        )
    shape = static_shape(norm.data)
    if norm.axis is None:
        return _parsed_groups(norm, shape, config)
    layout = _layout(shape, norm.axis, config)
    view = None if layout is None else canonical(shape, layout)
    if layout is None or view is None:
        raise VTAError(
            Refusal(
                f"a tensor of shape {shape} is normalized along axis",
                f"{norm.axis}",
                "the last axis is taken, or the second of up to four",
                "transpose it in the model",
            )
        )
    return _parsed(norm, shape, layout, view, config)


def _layout(shape: Sequence[int], axis: int, config: VTAConfig) -> str | None:
    """How a tensor is packed so that `axis` is its channels."""
    if axis == len(shape) - 1 and len(shape) > 2:
        return tokens(config.block) if fits_tokens(shape, config) else ROWS
    return NCHW if axis == 1 else None


def _parsed(
    norm: _Norm,
    shape: Sequence[int],
    layout: str,
    view: tuple[int, int, int, int],
    config: VTAConfig,
) -> Parsed:
    assert norm.axis is not None, "groups are read apart"
    summed = shape[norm.axis]
    given, constants = _constants(norm, view[1], summed, config)
    work = NormWorkload(
        *view,
        summed,
        norm.centred,
        norm.epsilon,
        given[FACTOR],
        given[OFFSET],
        *norm.numbers,
    )
    check_sizes(work)
    return Parsed(work, (norm.data,), constants, layout)


def _parsed_groups(norm: _Norm, shape: Sequence[int], config: VTAConfig) -> Parsed:
    _, groups, size, positions = norm.shape
    view = canonical(shape, NCHW)
    if view is None or (groups > 1 and size % config.block and config.block % size):
        raise VTAError(
            Refusal(
                f"a tensor of shape {tuple(shape)} is normalized in groups of",
                f"{size} channels",
                f"a part or a multiple of the machine's {config.block} lanes is taken, of a tensor "
                "of up to four dimensions",
                "choose another number of groups",
            )
        )
    given, constants = _constants(norm, view[1], view[1], config)
    work = GroupNormWorkload(
        *view,
        size * positions,
        norm.centred,
        norm.epsilon,
        given[FACTOR],
        given[OFFSET],
        *norm.numbers,
        groups=groups,
    )
    check_sizes(work)
    return Parsed(work, (norm.data,), constants, NCHW)


def _constants(
    norm: _Norm, channels: int, own: int, config: VTAConfig
) -> tuple[dict[str, int | None], dict[str, np.ndarray]]:
    """Factor and offset where they are one number, and the operands of those that are not.

    Args:
        norm: what was matched.
        channels: of the packed tensor.
        own: how many of them have values; the lanes behind get zeros.
        config: the machine.
    """
    constants: dict[str, np.ndarray] = {}
    given: dict[str, int | None] = {}
    for name, values in ((FACTOR, norm.factor), (OFFSET, norm.offset)):
        is_one = values.size == 1 and not own % config.block
        is_one = is_one and IMMEDIATE_LOW <= int(values[0]) <= IMMEDIATE_HIGH
        given[name] = int(values[0]) if is_one else None
        if given[name] is None:
            whole = np.zeros(channels, np.int64)
            whole[:own] = values
            constants[f"operand{len(constants)}"] = whole
    return given, constants


def plan_norm(parsed: Parsed, config: VTAConfig) -> Plan:
    """Sums on the GEMM core, the rest on the ALU."""
    how = "sums by GEMM, reciprocal root by the ALU"
    name = "group_norm" if isinstance(parsed.work, GroupNormWorkload) else "norm"
    return simple_plan(name, parsed.work, parsed.constants, config, how)


ENTRIES = (PatternEntry("vta.norm", (SUM_OP,), match_norm, read_norm, plan_norm),)
