"""Pooling: maxima over windows, averages over windows, and over the plane (means)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import is_constant, static_shape
from vta_byoc.ir.chains import KEPT, Binding, Graph, dtype_of, is_narrowing, is_widening
from vta_byoc.partitioning import digits
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import check_layout, match_layer, simple_plan, weight_of
from vta_byoc.partitioning.steps import Range, StepReader, axes_of
from vta_byoc.strategies.pooling.sum import digits_of
from vta_byoc.workload.borders import boxes
from vta_byoc.workload.layout import NCHW, ROWS, canonical, fits_tokens, tokens
from vta_byoc.workload.workloads import Epilogue, PoolWorkload

MOST_FACTOR = 2**15 - 1
"""Of what the GEMM core multiplies by in place of MUL."""


# ---------------------------------------------------------------- maxima
def match_max_pool(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """max_pool2d of int8."""
    data = anchor.value.args[0]
    return [anchor] if dtype_of(data) == "int8" and not is_constant(data) else None


def read_max_pool(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """The window; more rows or columns than the padding says (ceil mode) are padding too."""
    call = bindings[0].value
    attrs, data = call.attrs, call.args[0]
    if str(attrs.layout) != "NCHW":
        raise VTAError(
            Refusal("data has the layout", f"{attrs.layout}", "NCHW is taken", "transpose it")
        )
    n, c, height, width = static_shape(data)
    _, _, rows, cols = static_shape(call)
    kernel, strides = tuple(map(int, attrs.pool_size)), tuple(map(int, attrs.strides))
    dilation = tuple(map(int, attrs.dilation))
    top, left, bottom, right = map(int, attrs.padding)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    bottom = max(bottom, (rows - 1) * strides[0] + reach[0] - height - top)
    right = max(right, (cols - 1) * strides[1] + reach[1] - width - left)
    work = PoolWorkload(
        "max",
        n,
        c,
        height,
        width,
        (kernel[0], kernel[1]),
        (strides[0], strides[1]),
        (top, left, bottom, right),
        (dilation[0], dilation[1]),
    )
    return Parsed(work, (data,), {})


# ---------------------------------------------------------------- means
def match_mean(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """int32 sum of a widened int8 tensor over the plane, steps, int8."""
    widened = graph.defined.get(anchor.value.args[0])
    if widened is None or not is_widening(widened.value):
        return None
    after = digits.chain(graph, anchor.var)
    return [widened, anchor, *after]


def read_mean(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """A sum over rows, columns or both, or over tokens, as pooling with windows of all of them."""
    source, call = bindings[0].value.args[0], bindings[1].value
    shape = static_shape(source)
    axes = sorted(int(a) % len(shape) for a in call.attrs.axis or range(len(shape)))
    of_tokens = axes == [1] and len(shape) == 3 and fits_tokens(shape, config)
    of_tokens = of_tokens and shape[-1] % config.block == 0
    is_whole = len(shape) in (3, 4) and axes == list(range(2, len(shape)))
    is_part = len(shape) == 4 and axes in ([2], [3]) and bool(call.attrs.keepdims)
    if not (of_tokens or is_whole or is_part):
        raise VTAError(
            Refusal(
                "sum over the axes",
                f"{axes} of a tensor {shape}",
                "the sum over rows and columns of (N, C, H, W) is taken, or over one of these axes "
                "that is kept",
                "transpose it",
            )
        )
    if not is_narrowing(bindings[-1].value):
        raise VTAError(
            Refusal(
                "a sum that stays int32",
                limit="a mean that is rescaled and saturated to int8 is taken",
                remedy="end it with astype int8",
            )
        )
    if of_tokens:
        return _sum_of_tokens(source, bindings, config)
    n, c, *plane = shape
    height, width = (1, *plane)[-2:]
    window = (1 if is_part and axes == [3] else height, 1 if is_part and axes == [2] else width)
    work = PoolWorkload("sum", n, c, height, width, window)
    return _summed(work, source, bindings[1:], config)


def _sum_of_tokens(source: relax.Expr, bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """The sum of the columns that (1, T, C) has as tokens; its channels fill whole blocks."""
    layout, (_, count, channels) = tokens(config.block), static_shape(source)
    whole = canonical(static_shape(source), layout)
    assert whole is not None
    width = whole[-1]
    work = PoolWorkload("sum", 1, channels, 1, width, (1, count), (1, width))
    parsed = _summed(work, source, bindings[1:], config, ROWS)
    result = NCHW if len(static_shape(bindings[-1].var)) == 2 else ROWS
    return dataclasses.replace(parsed, layout=result, layouts=(layout,))


# ---------------------------------------------------------------- averages over windows
def match_average(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """Sums of the windows of each channel by a convolution with ones, steps, int8."""
    layer = match_layer(graph, anchor)
    if layer is None or len(layer) < 2 or not is_narrowing(layer[-1].value):
        return None
    weight = weight_of(layer)
    channels = static_shape(anchor.value.args[0])[1]
    one_each = weight.shape[:2] == (channels, 1) == (int(anchor.value.attrs.groups), 1)
    return layer if one_each and math.prod(weight.shape[2:]) > 1 and (weight == 1).all() else None


def read_average(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """The window, and the division as steps."""
    call = bindings[0].value
    check_layout(call, ("NCHW", "OIHW"))
    attrs = call.attrs
    kernel, strides, dilation = (
        (int(a), int(b)) for a, b in (static_shape(call.args[1])[2:], attrs.strides, attrs.dilation)
    )
    top, left, bottom, right = map(int, attrs.padding)
    n, c, height, width = static_shape(call.args[0])
    padding = (top, left, bottom, right)
    work = PoolWorkload("sum", n, c, height, width, kernel, strides, padding, dilation)
    return _summed(work, call.args[0], bindings, config)


def _summed(
    work: PoolWorkload,
    source: relax.Expr,
    bindings: Sequence[Binding],
    config: VTAConfig,
    layout: str = NCHW,
) -> Parsed:
    """``work`` with the steps of ``bindings``, whose first is the sum.

    Without MUL the first step, where it multiplies all sums by one number, is the GEMM core's.
    """
    steps = list(digits.steps_of(bindings[1:]))
    factors = (1,) if config.capabilities.mul else _factors(steps, work)
    result, reach = static_shape(bindings[0].var), math.prod(work.kernel) * max(factors)
    shape = (work.channels,)
    value = Range(np.full(shape, -128 * reach, np.int64), np.full(shape, 127 * reach, np.int64))
    reader = StepReader(result, axes_of(layout, len(result)), value, config, "the sum")
    reader.read(steps[1:] if factors != (1,) else steps)
    if len(factors) > 1:
        work = dataclasses.replace(work, factors=factors)
    else:
        work = dataclasses.replace(work, factor=factors[0])
    work = dataclasses.replace(work, epilogue=Epilogue(tuple(reader.steps)))
    return Parsed(work, (source,), {f"operand{i}": x for i, x in enumerate(reader.operands)})


def _factors(steps: Sequence[tuple[str, np.ndarray | str]], work: PoolWorkload) -> tuple[int, ...]:
    """What all sums are multiplied by before anything else, or those of each box; 1 where neither.

    A box has the positions that see the same taps.
    """
    op, by = steps[0] if steps else ("", KEPT)
    if op != "mul" or isinstance(by, str):
        return (1,)
    found: list[np.ndarray] = [by.reshape(-1)]
    if np.ptp(by) != 0:
        if by.shape != (1, 1, *work.out_shape[2:]):
            return (1,)
        found = [
            by[0, 0, top:bottom, left:right].reshape(-1)
            for (top, bottom), (left, right) in boxes(work.window)
        ]
    factors = tuple(int(values[0]) for values in found)
    alike = all((values == values[0]).all() for values in found)
    taken = alike and min(factors) >= 1 and max(factors) <= MOST_FACTOR
    return factors if taken and digits_of(factors) is not None else (1,)


def plan_pool(parsed: Parsed, config: VTAConfig) -> Plan:
    """Maxima on the vector ALU; sums by the GEMM core with weights of one."""
    how = "vector ALU" if parsed.work.kind == "max" else "identity GEMM"
    return simple_plan("pool", parsed.work, parsed.constants, config, how)


ENTRIES = (
    PatternEntry(
        "vta.max_pool2d", ("relax.nn.max_pool2d",), match_max_pool, read_max_pool, plan_pool
    ),
    PatternEntry("vta.avg_pool2d", ("relax.nn.conv2d",), match_average, read_average, plan_pool),
    PatternEntry("vta.mean", ("relax.sum",), match_mean, read_mean, plan_pool),
)
