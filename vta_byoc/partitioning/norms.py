"""Normalizations over one axis, as the integer dialect writes them."""

from __future__ import annotations

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
    MOST_CHANNELS,
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
from vta_byoc.workload.workloads import NormWorkload

SUM_OP = "relax.sum"
LAST = 3
"""The last instructions of an element have numbers of their own: a shift and two limits."""


@dataclass(frozen=True)
class _Norm:
    """What the bindings of a normalization compute.

    Attributes:
        bindings: all of them, the widening first and the result last.
        data: the int8 operand.
        axis: the axis that is normalized.
        centred: whether the mean is taken off.
        epsilon: added to the sum of the squares.
        factor: int64, () or [channels].
        offset: int64, () or [channels].
        numbers: the shift and the two limits of the result.
    """

    bindings: list[Binding]
    data: relax.Expr
    axis: int
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
    axis = _axis(anchor.value)
    if wide is None or not is_widening(wide.value) or axis is None:
        return None
    channels = static_shape(wide.var)[axis]
    if channels > MOST_CHANNELS:
        return None
    totals = [b for b in users.get(wide.var, ()) if b and _is_sum(b, axis)]
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
        factor, offset = (
            np.asarray(values[name].value.numpy(), np.int64).reshape(-1)
            for name in (FACTOR, OFFSET)
        )
        return _Norm(
            every, wide.value.args[0], axis, total is not None, epsilon, factor, offset, numbers
        )
    return None


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


def _is_sum(binding: Binding, axis: int) -> bool:
    return op_name(binding.value) == SUM_OP and _axis(binding.value) == axis


def _axis(call: relax.Call) -> int | None:
    """The only axis of a sum that keeps it, from the front."""
    axes = call.attrs.axis
    if axes is None or len(axes) != 1 or not call.attrs.keepdims:
        return None
    return int(axes[0]) % call.ty.ndim


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
    summed = shape[norm.axis]
    batch, channels, height, width = view
    constants: dict[str, np.ndarray] = {}
    given: dict[str, int | None] = {}
    for name, values in ((FACTOR, norm.factor), (OFFSET, norm.offset)):
        is_one = values.size == 1 and not summed % config.block
        is_one = is_one and IMMEDIATE_LOW <= int(values[0]) <= IMMEDIATE_HIGH
        given[name] = int(values[0]) if is_one else None
        if given[name] is None:
            own = np.zeros(channels, np.int64)
            own[:summed] = values
            constants[f"operand{len(constants)}"] = own
    work = NormWorkload(
        batch,
        channels,
        height,
        width,
        summed,
        norm.centred,
        norm.epsilon,
        given[FACTOR],
        given[OFFSET],
        *norm.numbers,
    )
    check_sizes(work)
    return Parsed(work, (norm.data,), constants, layout)


def plan_norm(parsed: Parsed, config: VTAConfig) -> Plan:
    """Sums on the GEMM core, the rest on the ALU."""
    how = "sums by GEMM, reciprocal root by the ALU"
    return simple_plan("norm", parsed.work, parsed.constants, config, how)


ENTRIES = (PatternEntry("vta.norm", (SUM_OP,), match_norm, read_norm, plan_norm),)
