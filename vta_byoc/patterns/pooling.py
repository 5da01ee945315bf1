"""Pooling: maxima over windows, and sums over the plane (means)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vta_byoc.bindings import is_constant, static_shape
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.layout import NCHW
from vta_byoc.workload import Epilogue, PoolWorkload

from .base import Parsed, PatternEntry, Plan
from .graph import Binding, Graph, dtype_of, is_narrowing, is_widening, steps_of
from .layers import simple_plan
from .steps import Range, StepReader, axes_of


def match_max_pool(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """max_pool2d of int8."""
    data = anchor.value.args[0]
    return [anchor] if dtype_of(data) == "int8" and not is_constant(data) else None


def read_max_pool(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """The window; more rows or columns than the padding says (ceil mode) are padding too."""
    call = bindings[0].value
    attrs, data = call.attrs, call.args[0]
    if str(attrs.layout) != "NCHW":
        raise VTAError(f"data has the layout {attrs.layout}; NCHW is taken; transpose it")
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


def match_mean(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """int32 sum of a widened int8 tensor over the plane, steps, int8."""
    widened = graph.defined.get(anchor.value.args[0])
    if widened is None or not is_widening(widened.value):
        return None
    after = graph.chain(anchor.var)
    return [widened, anchor, *after]


def read_mean(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """A sum over rows and columns as pooling with one window."""
    source, call = bindings[0].value.args[0], bindings[1].value
    shape = static_shape(source)
    axes = sorted(int(a) % len(shape) for a in call.attrs.axis or range(len(shape)))
    if len(shape) not in (3, 4) or axes != list(range(2, len(shape))):
        raise VTAError(
            f"sum over the axes {axes} of a tensor {shape}; the sum over rows and columns of "
            "(N, C, H, W) is taken; transpose it"
        )
    if not is_narrowing(bindings[-1].value):
        raise VTAError(
            "a sum that stays int32; a mean that is rescaled and saturated to int8 is taken; end "
            "it with astype int8"
        )
    n, c, *plane = shape
    height, width = (1, *plane)[-2:]
    result = static_shape(call)
    count = height * width
    value = Range(np.full(c, -128 * count, np.int64), np.full(c, 127 * count, np.int64))
    reader = StepReader(result, axes_of(NCHW, len(result)), value, config, "the sum")
    reader.read(steps_of(bindings[2:]))
    work = PoolWorkload(
        "sum",
        n,
        c,
        height,
        width,
        (height, width),
        epilogue=Epilogue(tuple(reader.steps)),
    )
    constants = {f"operand{i}": x for i, x in enumerate(reader.operands)}
    return Parsed(work, (source,), constants)


def plan_pool(parsed: Parsed, config: VTAConfig, hosted: bool) -> Plan:
    note = "vector ALU" if parsed.work.kind == "max" else "identity GEMM"
    return simple_plan("pool", parsed.work, parsed.constants, config, note)



ENTRIES = (
    PatternEntry(
        "vta.max_pool2d", ("relax.nn.max_pool2d",), match_max_pool, read_max_pool, plan_pool
    ),
    PatternEntry("vta.mean", ("relax.sum",), match_mean, read_mean, plan_pool),
)
