"""Rules that write operators of one spatial axis, and reductions, as operators of planes.

A tensor (N, C, W) is a plane of one row: pooling and transposed convolution along W are those of
the plane, which the accelerator has.  The largest value of a plane is its pooling by one window;
one place of an axis is a slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from vta_byoc.importers.canonicalize.channel_rules import LAST, before_last
from vta_byoc.ir.bindings import SEPARATOR, is_constant, is_float32, known_shape, op_name
from vta_byoc.ir.rewriter import Rewriter, Rule

POOLS = {
    "relax.nn.max_pool1d": relax.op.nn.max_pool2d,
    "relax.nn.avg_pool1d": relax.op.nn.avg_pool2d,
}

MERGED = {
    "relax.mean": relax.op.mean,
    "relax.sum": relax.op.sum,
    "relax.max": relax.op.max,
    "relax.min": relax.op.min,
}
"""Reductions in a row that are one over all of their axes."""


def pool_of_one_row(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Pooling along the last axis of (N, C, W) pools a plane of one row."""
    attrs, shape = call.attrs, known_shape(call.ty)
    if shape is None or (str(attrs.layout), str(attrs.out_layout)) != ("NCW", "NCW"):
        return None
    before, after = (int(width) for width in attrs.padding)
    pooled = POOLS[op_name(call)](
        _as_plane(rewriter, call.args[0]),
        [1, int(attrs.pool_size[0])],
        strides=[1, int(attrs.strides[0])],
        padding=[0, before, 0, after],
        dilation=[1, int(attrs.dilation[0])],
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )
    return _of_plane(rewriter, pooled, shape)


def transposed_of_one_row(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A transposed convolution along W with constant weights is one of a plane of one row."""
    attrs, shape, weight = call.attrs, known_shape(call.ty), call.args[1]
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if shape is None or layouts != ("NCW", "IOW", "NCW") or not is_constant(weight):
        return None
    before, after = (int(width) for width in attrs.padding)
    kernel = weight.value.numpy()
    result = relax.op.nn.conv2d_transpose(
        _as_plane(rewriter, call.args[0]),
        relax.const(kernel[:, :, None, :]),
        strides=[1, int(attrs.strides[0])],
        padding=[0, before, 0, after],
        output_padding=[0, int(attrs.output_padding[0])],
        dilation=[1, int(attrs.dilation[0])],
        groups=int(attrs.groups),
    )
    return _of_plane(rewriter, result, shape)


def _as_plane(rewriter: Rewriter, data: relax.Expr) -> relax.Expr:
    """(N, C, W) as (N, C, 1, W)."""
    batch, channels, width = known_shape(data.ty) or ()
    plane = relax.op.reshape(data, (batch, channels, 1, width))
    return rewriter.as_variable(plane, f"{rewriter.name}{SEPARATOR}plane")


def _of_plane(rewriter: Rewriter, plane: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """The plane in the shape that was asked for."""
    last = str(op_name(plane)).split(".")[-1]
    value = rewriter.as_variable(plane, f"{rewriter.name}{SEPARATOR}{last}")
    return relax.op.reshape(value, tuple(shape))


def max_of_plane(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """The maximum over all axes behind the channels is max pooling by one window."""
    data, result = call.args[0], known_shape(call.ty)
    shape = known_shape(data.ty)
    if shape is None or result is None or len(shape) not in (3, 4) or call.attrs.axis is None:
        return None
    if sorted(int(a) % len(shape) for a in call.attrs.axis) != list(range(2, len(shape))):
        return None
    if len(shape) == 3:
        data = _as_plane(rewriter, data)
    window = [1, *shape[2:]][-2:]
    return _of_plane(rewriter, relax.op.nn.max_pool2d(data, window, strides=window), result)


def merge_reductions(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """mean(mean(x, 2), 3) is mean(x, (2, 3)), if no other reads the inner one; sums alike."""
    inner = rewriter.producer_of(call.args[0], op_name(call))
    if inner is None or rewriter.is_shared(call.args[0]):
        return None
    shape, result = known_shape(inner.args[0].ty), known_shape(call.ty)
    if shape is None or result is None or None in (inner.attrs.axis, call.attrs.axis):
        return None
    first = {int(axis) % len(shape) for axis in inner.attrs.axis}
    left = [axis for axis in range(len(shape)) if inner.attrs.keepdims or axis not in first]
    axes = sorted(first | {left[int(axis)] for axis in call.attrs.axis})
    whole = MERGED[op_name(call)](inner.args[0], axes, keepdims=True)
    value = rewriter.as_variable(whole, f"{rewriter.name}{SEPARATOR}whole")
    return relax.op.reshape(value, result)


def reduction_of_one(_rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A reduction over axes of one place each is a reshape.

    Of floats alone: guards of a softmax reduce truth values, and are known by that.
    """
    data = call.args[0]
    shape, result, axes = known_shape(data.ty), known_shape(call.ty), call.attrs.axis
    if shape is None or result is None or axes is None or not is_float32(data):
        return None
    is_one = all(shape[int(axis) % len(shape)] == 1 for axis in axes)
    return relax.op.reshape(data, result) if is_one else None


def mean_of_rows_and_columns(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """The mean of planes whose channels are last, as that of planes or of tokens.

    Of (N, C, H, W) that was permuted it is the mean of the planes; else a row of (N, H, W, C) is
    as good as any other token.
    """
    data, axes = call.args[0], call.attrs.axis
    shape, result = known_shape(data.ty), known_shape(call.ty)
    if shape is None or result is None or axes is None or len(shape) != len(LAST):
        return None
    if sorted(int(axis) % len(shape) for axis in axes) != [1, 2]:
        return None
    planes = before_last(rewriter, data)
    if planes is not None:
        mean = relax.op.mean(planes, [2, 3], keepdims=False)
    else:
        rows = relax.op.reshape(data, (shape[0], shape[1] * shape[2], shape[3]))
        tokens = rewriter.as_variable(rows, f"{rewriter.name}{SEPARATOR}tokens")
        mean = relax.op.mean(tokens, [1], keepdims=False)
    value = rewriter.as_variable(mean, f"{rewriter.name}{SEPARATOR}mean")
    return relax.op.reshape(value, result)


def take_as_slice(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """take(x, i) with one constant index is a slice of one place."""
    data, index = call.args
    shape, result = known_shape(data.ty), known_shape(call.ty)
    if shape is None or result is None or not is_constant(index) or call.attrs.axis is None:
        return None
    places = index.value.numpy()
    axis = int(call.attrs.axis) % len(shape)
    if places.size != 1 or math.prod(result) * shape[axis] != math.prod(shape):
        return None
    place = int(places.reshape(())) + (shape[axis] if places.min() < 0 else 0)
    part = relax.op.strided_slice(data, [axis], [place], [place + 1])
    value = rewriter.as_variable(part, f"{rewriter.name}{SEPARATOR}place")
    return relax.op.reshape(value, result)


AXIS_RULES: dict[str, Sequence[Rule]] = {
    **{name: (pool_of_one_row,) for name in POOLS},
    "relax.nn.conv1d_transpose": (transposed_of_one_row,),
    **{name: (reduction_of_one, merge_reductions) for name in MERGED},
    "relax.mean": (reduction_of_one, merge_reductions, mean_of_rows_and_columns),
    "relax.max": (reduction_of_one, merge_reductions, max_of_plane),
    "relax.take": (take_as_slice,),
}
