"""PyTorch operators as Relax, where TVM's importer computes something else or has no converter.

Operands are taken in the dtype that PyTorch promotes them to, results have the dtype that PyTorch
recorded for the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    import torch
    from torch.fx import Node
    from torch.fx.node import Argument
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

Converter = Callable[["Node", "ExportedProgramImporter"], relax.Expr]
"""(node of torch.fx, TVM's importer) -> the value, in the form of TVM's `custom_convert_map`."""


# ---------------------------------------------------------------- arguments
def argument(node: Node, position: int, name: str, default: Argument = None) -> Argument:
    """An argument, given by its place or by its name."""
    if len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def emit(importer: ExportedProgramImporter, expr: relax.Expr) -> relax.Var:
    return importer.block_builder.emit(expr)


def cast(importer: ExportedProgramImporter, value: relax.Expr, dtype: torch.dtype) -> relax.Expr:
    """`value` as `dtype`, a dtype of PyTorch."""
    name = str(dtype).removeprefix("torch.")
    return value if str(value.ty.dtype) == name else emit(importer, relax.op.astype(value, name))


def operand(importer: ExportedProgramImporter, value: Argument, dtype: torch.dtype) -> relax.Expr:
    """A tensor or a number as `dtype`."""
    if not hasattr(value, "op"):
        return relax.const(value, str(dtype).removeprefix("torch."))
    return cast(importer, importer.env[value], dtype)


def common_dtype(*values: Argument) -> torch.dtype:
    """The dtype that PyTorch computes an operator of nodes and numbers in."""
    import torch

    return torch.result_type(*(v.meta["val"] if hasattr(v, "op") else v for v in values))


# ---------------------------------------------------------------- two operands
def _binary(op: Callable[..., relax.Expr], *, to_float: bool = False) -> Converter:
    """Both operands in the dtype that PyTorch promotes them to; TVM casts a number to the dtype of
    the tensor beside it, and ignores alpha."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        left, right = node.args[:2]
        dtype = common_dtype(left, right)
        if to_float and not dtype.is_floating_point:
            dtype = _default_float()
        values = [operand(importer, value, dtype) for value in (left, right)]
        if str(dtype) == "torch.bool" and op in OF_BOOLEANS:
            return emit(importer, OF_BOOLEANS[op](*values))
        alpha = argument(node, 2, "alpha", 1)
        if alpha != 1:
            values[1] = emit(
                importer, relax.op.multiply(values[1], operand(importer, alpha, dtype))
            )
        return emit(importer, op(*values))

    return convert


OF_BOOLEANS: dict[Callable[..., relax.Expr], Callable[..., relax.Expr]] = {
    relax.op.add: relax.op.logical_or,
    relax.op.maximum: relax.op.logical_or,
    relax.op.minimum: relax.op.logical_and,
    relax.op.multiply: relax.op.logical_and,
}
"""What arithmetic means where all operands are booleans."""


def _default_float() -> torch.dtype:
    import torch

    return torch.float32


def _divided(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """div.Tensor_mode: rounded down, towards zero, or not at all."""
    left, right = node.args[:2]
    mode = argument(node, 2, "rounding_mode")
    dtype = common_dtype(left, right)
    if mode is None:
        return _binary(relax.op.divide, to_float=True)(node, importer)
    values = [operand(importer, value, dtype) for value in (left, right)]
    if mode == "floor":
        return emit(importer, relax.op.floor_divide(*values))
    quotient = emit(importer, relax.op.divide(*values))
    return emit(importer, relax.op.trunc(quotient)) if dtype.is_floating_point else quotient


_BINARY: dict[str, Callable[..., relax.Expr]] = {
    "add": relax.op.add,
    "bitwise_and": relax.op.bitwise_and,
    "bitwise_or": relax.op.bitwise_or,
    "bitwise_xor": relax.op.bitwise_xor,
    "eq": relax.op.equal,
    "fmod": relax.op.mod,
    "ge": relax.op.greater_equal,
    "gt": relax.op.greater,
    "le": relax.op.less_equal,
    "lt": relax.op.less,
    "mul": relax.op.multiply,
    "ne": relax.op.not_equal,
    "remainder": relax.op.floor_mod,
    "sub": relax.op.subtract,
}
"""Operators with an overload for two tensors and one for a tensor and a number."""


# ---------------------------------------------------------------- one operand
def _to_float(op: Callable[[relax.Expr], relax.Expr]) -> Converter:
    """Integers and booleans are computed in float32, as PyTorch does it."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        value = importer.env[node.args[0]]
        dtype = node.meta["val"].dtype
        return emit(importer, op(cast(importer, value, dtype)))

    return convert


def _clamp(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """clamp(x, low, high): high where low is above it; a fraction makes integers floats."""
    low, high = argument(node, 1, "min"), argument(node, 2, "max")
    dtype = node.meta["val"].dtype
    value = cast(importer, importer.env[node.args[0]], dtype)
    bounds = [bound for bound in (low, high) if bound is not None]
    if dtype.is_floating_point and len(bounds) == 2 and low <= high:
        return emit(importer, relax.op.clip(value, low, high))
    if low is not None:
        value = emit(importer, relax.op.maximum(value, operand(importer, low, dtype)))
    if high is not None:
        value = emit(importer, relax.op.minimum(value, operand(importer, high, dtype)))
    return value


def _where(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    condition, *values = node.args
    dtype = node.meta["val"].dtype
    return emit(
        importer,
        relax.op.where(importer.env[condition], *(operand(importer, v, dtype) for v in values)),
    )


def _concatenated(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """cat(tensors, axis) in the dtype that all are promoted to; tensors of one axis without
    elements do not count."""
    dtype, rank = node.meta["val"].dtype, node.meta["val"].ndim
    parts = [part for part in node.args[0] if part.meta["val"].ndim == rank]
    values = [operand(importer, part, dtype) for part in parts]
    return emit(importer, relax.op.concat(values, argument(node, 1, "dim", 0)))


def _squeeze(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """squeeze.dims drops those of the axes that have one element."""
    shape = node.meta["val"].shape
    return emit(importer, relax.op.reshape(importer.env[node.args[0]], list(shape)))


def _copied(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """copy(x, source): the source, in the dtype and shape of `x`."""
    value = node.meta["val"]
    source = cast(importer, importer.env[node.args[1]], value.dtype)
    return emit(importer, relax.op.broadcast_to(source, list(value.shape)))


def _scatter(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """scatter.src(x, axis, index, source): as much of the source as there are indices."""
    x, axis, index, source = node.args
    sizes = list(index.meta["val"].shape)
    updates = importer.env[source]
    if sizes != list(source.meta["val"].shape):
        axes = list(range(len(sizes)))
        updates = emit(importer, relax.op.strided_slice(updates, axes, [0] * len(axes), sizes))
    data, at = importer.env[x], importer.env[index]
    return emit(importer, relax.op.scatter_elements(data, at, updates, axis))


def _slice_scattered(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """slice_scatter(x, source, axis, start, end, step), limits as in Python."""
    data, source = (importer.env[arg] for arg in node.args[:2])
    axis, shape = argument(node, 2, "dim", 0), node.meta["val"].shape
    limits = slice(argument(node, 3, "start"), argument(node, 4, "end"), argument(node, 5, "step"))
    start, end, step = (relax.prim_value(v) for v in limits.indices(shape[axis]))
    return emit(importer, relax.op.slice_scatter(data, source, start, end, step, axis=axis))


# ---------------------------------------------------------------- resizing
def _resized(method: str) -> Converter:
    """upsample(x, sizes, [corners,] scales): PyTorch steps through the input by 1 / scale, TVM by
    the ratio of the sizes."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        has_corners = method == "linear"
        corners = has_corners and bool(argument(node, 2, "align_corners", False))
        scales = argument(node, 3 if has_corners else 2, "scale_factors")
        old, new = node.args[0].meta["val"].shape[2:], node.meta["val"].shape[2:]
        exact = [size * scale for size, scale in zip(old, scales or (), strict=False)]
        if not corners and any(a != b for a, b in zip(exact, new, strict=False)):
            raise VTAError(
                f'node "{node.name}" ({node.target.__name__}) scales the plane {tuple(old)} by '
                f"{tuple(scales)}; the result must have whole sizes; give sizes instead of scales"
            )
        mode = "half_pixel" if has_corners else "asymmetric"
        resized = relax.op.image.resize2d(
            importer.env[node.args[0]],
            relax.ShapeExpr(list(new)),
            layout="NCHW",
            method=method,
            coordinate_transformation_mode="align_corners" if corners else mode,
            rounding_method="" if has_corners else "floor",
        )
        return emit(importer, resized)

    return convert


def _grid_sample(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """grid_sampler_2d(x, grid, mode, padding, corners) with the grid as (N, H, W, 2)."""
    x, grid, mode, padding, corners = node.args
    sampled = relax.op.image.grid_sample(
        importer.env[x],
        emit(importer, relax.op.permute_dims(importer.env[grid], [0, 3, 1, 2])),
        method=("bilinear", "nearest", "bicubic")[mode],
        layout="NCHW",
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=corners,
    )
    return emit(importer, sampled)


# ---------------------------------------------------------------- reductions
def _any(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """any(x), any(x, axes, keepdim): whether an element is not zero."""
    import torch

    axes = argument(node, 1, "dim")
    value = importer.env[node.args[0]]
    is_set = cast(importer, cast(importer, value, torch.bool), torch.int8)
    largest = emit(
        importer, relax.op.max(is_set, axes, keepdims=bool(argument(node, 2, "keepdim")))
    )
    return cast(importer, largest, torch.bool)


def _in_result_dtype(op: Callable[..., relax.Expr]) -> Converter:
    """op(x, axis, keepdim) in the dtype of the result: integers are multiplied as int64."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        value = cast(importer, importer.env[node.args[0]], node.meta["val"].dtype)
        axis, keep = argument(node, 1, "dim"), bool(argument(node, 2, "keepdim", False))
        return emit(importer, op(value, axis, keepdims=keep))

    return convert


def _running(op: Callable[..., relax.Expr]) -> Converter:
    """cumsum(x, axis)."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        value = cast(importer, importer.env[node.args[0]], node.meta["val"].dtype)
        return emit(importer, op(value, argument(node, 1, "dim")))

    return convert


def _with_place(op: Callable[..., relax.Expr], place: Callable[..., relax.Expr]) -> Converter:
    """max.dim(x, axis, keepdim): the values, and where they are."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        value, axis = importer.env[node.args[0]], argument(node, 1, "dim")
        keep = bool(argument(node, 2, "keepdim", False))
        values = emit(importer, op(value, axis, keepdims=keep))
        return relax.Tuple([values, emit(importer, place(value, axis, keep))])

    return convert


def _average(rank: int) -> Converter:
    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        if argument(node, 6, "divisor_override") is not None:
            raise VTAError(
                f'node "{node.name}" ({node.target.__name__}) has a divisor_override; averages are '
                "divided by their number of elements; leave it out and multiply the result"
            )
        return getattr(importer, f"_avg_pool{rank}d")(node)

    return convert


def _maximal(rank: int) -> Converter:
    """max_pool with its indices, which are not computed; no stride is that of the window."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        if any(user.args[1] == 1 and user.users for user in node.users):
            raise VTAError(
                f'node "{node.name}" ({node.target.__name__}) has its second result read, the '
                "places of the maxima; only the maxima are imported; pool without return_indices"
            )
        pool = getattr(importer, f"_max_pool{rank}d_impl")
        x, kernel = importer.env[node.args[0]], node.args[1]
        padding, dilation = argument(node, 3, "padding", 0), argument(node, 4, "dilation", 1)
        stride = argument(node, 2, "stride") or kernel
        ceil = argument(node, 5, "ceil_mode", False)
        return relax.Tuple([emit(importer, pool(x, kernel, stride, padding, dilation, ceil))])

    return convert


def _norm(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """linalg_vector_norm of any order but 0, which counts."""
    if argument(node, 1, "ord", 2) == 0:
        raise VTAError(
            f'node "{node.name}" ({node.target.__name__}) has the order 0; orders other than 0 are '
            "imported; write it as (x != 0).sum()"
        )
    return importer._norm(node)


def _affine(
    importer: ExportedProgramImporter, value: Node | None, count: int, default: float
) -> relax.Expr:
    """A scale or a shift; none is a constant."""
    if value is not None:
        return importer.env[value]
    return relax.const(np.full(count, default, "float32"))


def _group_norm(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """native_group_norm(x, scale, shift, N, C, HxW, groups, eps), scale and shift may be None."""
    x, scale, shift, _batch, channels, _pixels, groups, eps = node.args
    data = importer.env[x]
    normal = relax.op.nn.group_norm(
        data,
        _affine(importer, scale, channels, 1),
        _affine(importer, shift, channels, 0),
        num_groups=groups,
        channel_axis=1,
        axes=list(range(2, data.ty.ndim)),
        epsilon=eps,
    )
    return relax.Tuple([emit(importer, normal)])


def _extreme(op: Callable[..., relax.Expr]) -> Converter:
    """amax(x, axes, keepdim)."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        axes = argument(node, 1, "dim") or None
        keep = bool(argument(node, 2, "keepdim", False))
        return emit(importer, op(importer.env[node.args[0]], axes, keepdims=keep))

    return convert


OVERRIDES: dict[str, Converter] = {
    **{
        f"{name}.{overload}": _binary(op)
        for name, op in _BINARY.items()
        for overload in ("Scalar", "Tensor")
    },
    **{
        f"{name}.default": _to_float(getattr(relax.op, name))
        for name in (
            *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp"),
            *("log", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
        )
    },
    "amax.default": _extreme(relax.op.max),
    "amin.default": _extreme(relax.op.min),
    "any.default": _any,
    "any.dim": _any,
    "any.dims": _any,
    "atan2.default": _binary(relax.op.atan2, to_float=True),
    "avg_pool2d.default": _average(2),
    "avg_pool3d.default": _average(3),
    "bmm.default": _binary(relax.op.matmul),
    "cat.default": _concatenated,
    "clamp.default": _clamp,
    "copy.default": _copied,
    "cumprod.default": _running(relax.op.cumprod),
    "cumsum.default": _running(relax.op.cumsum),
    "div.Scalar": _binary(relax.op.divide, to_float=True),
    "div.Tensor": _binary(relax.op.divide, to_float=True),
    "div.Tensor_mode": _divided,
    "grid_sampler_2d.default": _grid_sample,
    "linalg_vector_norm.default": _norm,
    "max.dim": _with_place(relax.op.max, relax.op.argmax),
    "max_pool2d_with_indices.default": _maximal(2),
    "max_pool3d_with_indices.default": _maximal(3),
    "maximum.default": _binary(relax.op.maximum),
    "min.dim": _with_place(relax.op.min, relax.op.argmin),
    "minimum.default": _binary(relax.op.minimum),
    "mm.default": _binary(relax.op.matmul),
    "native_group_norm.default": _group_norm,
    "pow.Scalar": _binary(relax.op.power),
    "pow.Tensor_Tensor": _binary(relax.op.power),
    "prod.default": _in_result_dtype(relax.op.prod),
    "prod.dim_int": _in_result_dtype(relax.op.prod),
    "scatter.src": _scatter,
    "slice_scatter.default": _slice_scattered,
    "squeeze.dims": _squeeze,
    "upsample_bilinear2d.vec": _resized("linear"),
    "upsample_nearest2d.vec": _resized("nearest_neighbor"),
    "where.self": _where,
}
"""Operator -> our converter, where TVM's computes something else or there is none."""
