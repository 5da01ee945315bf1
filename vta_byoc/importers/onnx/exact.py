"""ONNX operators that TVM's importer computes otherwise than ONNX says: exact here, or refused."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
import onnx
from onnx.helper import tensor_dtype_to_np_dtype
from tvm import relax

from vta_byoc.importers.onnx.node import Converter, NodeAttributes, values_of
from vta_byoc.ir.bindings import constant_of, is_constant, static_shape


# ---------------------------------------------------------------- indices
def _slice(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Constant limits beyond the axis, int32 limits, steps backwards."""
    data = inputs[0]
    first, last = values_of(inputs[1]), values_of(inputs[2])
    is_tensor = isinstance(data.ty, relax.TensorType)
    if not is_tensor or is_constant(data) or first is None or last is None:
        return None
    shape = static_shape(data)
    start, end = ([int(value) for value in limit.reshape(-1)] for limit in (first, last))
    axes, steps = values_of(inputs[3]), values_of(inputs[4])
    if (inputs[3] is not None and axes is None) or (inputs[4] is not None and steps is None):
        return None
    chosen = [int(a) % len(shape) for a in (range(len(start)) if axes is None else axes)]
    step = [1] * len(start) if steps is None else [int(value) for value in steps]
    bounds = [
        slice(*pair).indices(shape[axis])
        for pair, axis in zip(zip(start, end, step, strict=True), chosen, strict=True)
    ]
    for axis, bound in zip(chosen, bounds, strict=True):
        if not len(range(*bound)):
            raise ValueError(f"it takes no element of axis {axis}, which has {shape[axis]}")
    # A step backwards that ends in front of the axis: TVM counts its end from the other side.
    ends = [
        to if to >= 0 else -shape[axis] - 1 for (_, to, _), axis in zip(bounds, chosen, strict=True)
    ]
    return relax.op.strided_slice(data, chosen, [start for start, _, _ in bounds], ends, step)


def _gather(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Constant indices as they are: `bound_indices` checks them, TVM would wrap them."""
    data, index = inputs[:2]
    is_tensor = isinstance(data.ty, relax.TensorType)
    if not is_tensor or is_constant(data) or not is_constant(index):
        return None
    return relax.op.take(data, index, int(attrs.get("axis", 0)))


def _one_hot(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Indices from -depth, in the dtype of the values; TVM knows neither."""
    depth, values = values_of(inputs[1]), values_of(inputs[2])
    if depth is None or values is None:
        return None
    index, count = relax.op.astype(inputs[0], "int64"), int(np.reshape(depth, -1)[0])
    rank = inputs[0].ty.ndim + 1
    axis = int(attrs.get("axis", -1)) % rank
    shape = [count if i == axis else 1 for i in range(rank)]
    places = relax.const(np.arange(count).reshape(shape), "int64")
    from_end = relax.op.add(index, relax.const(count, "int64"))
    wrapped = relax.op.where(relax.op.less(index, relax.const(0, "int64")), from_end, index)
    is_hot = relax.op.equal(relax.op.expand_dims(wrapped, axis), places)
    off, on = (constant_of(value) for value in values)
    return relax.op.where(is_hot, on, off)


def _sequence_insert(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """A negative position counts from the end, as for a list; TVM counts one too far."""
    fields = list(inputs[0])
    position = None if inputs[2] is None else values_of(inputs[2])
    if inputs[2] is not None and position is None:
        return None
    at = len(fields) if position is None else int(np.reshape(position, -1)[0])
    if not -len(fields) <= at <= len(fields):
        raise ValueError(f"position {at} is outside a sequence of {len(fields)}")
    fields.insert(at, inputs[1])
    return relax.Tuple(fields)


# ---------------------------------------------------------------- elements
def _is_inf(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Infinities of one sign, or of none; TVM tells all of them."""
    signs = [sign for sign, key in _INFINITIES if attrs.get(key, 1)]
    if len(signs) == len(_INFINITIES):
        return None
    if not signs:
        return relax.op.zeros_like(inputs[0], "bool")
    return relax.op.equal(inputs[0], relax.const(np.float32(signs[0] * np.inf)))


_INFINITIES: tuple[tuple[int, Literal["detect_negative", "detect_positive"]], ...] = (
    (-1, "detect_negative"),
    (1, "detect_positive"),
)


def _pow(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Exponents of another dtype than the base; powers of integers are products."""
    base, exponent = inputs[:2]
    if base.ty.dtype == "float32":
        if exponent.ty.dtype == "float32":
            return None
        return relax.op.power(base, relax.op.astype(exponent, "float32"))
    values = values_of(exponent)
    powers = set() if values is None else set(values.reshape(-1).tolist())
    if len(powers) != 1 or not powers <= {*range(MOST_FACTORS + 1)}:
        raise ValueError(f"the exponent of integers must be one constant from 0 to {MOST_FACTORS}")
    ones = relax.op.ones_like(base)
    return functools.reduce(relax.op.multiply, [base] * int(powers.pop()), ones)


MOST_FACTORS = 64
"""Of a product that is a power; the largest one of 64-bit integers but for the bases 0 and 1."""


def _bit_shift(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """By less than the width; runtimes differ in what others give."""
    amount, width = values_of(inputs[1]), np.dtype(str(inputs[0].ty.dtype)).itemsize * 8
    if amount is not None and amount.size and not 0 <= amount.min() <= amount.max() < width:
        raise ValueError(
            f"it shifts by {amount.min()} to {amount.max()}; 0 to {width - 1} is taken"
        )


def _eye_like(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr:
    """A constant of the operand's shape; TVM wants its dtype too."""
    kind = attrs.get("dtype")
    dtype = np.dtype(str(inputs[0].ty.dtype)) if kind is None else tensor_dtype_to_np_dtype(kind)
    rows, columns = static_shape(inputs[0])
    ones = np.eye(rows, columns, attrs.get("k", 0)).astype(dtype)
    return relax.const(ones, str(dtype))


def _cast(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """To a dtype that tensors of run time can have."""
    _check_dtype(onnx.TensorProto.DataType.Name(attrs["to"]).lower())


def _cast_like(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    _check_dtype(str(inputs[1].ty.dtype))


def _check_dtype(dtype: str) -> None:
    name = {"float": "float32"}.get(dtype, dtype)
    if name not in DTYPES:
        raise ValueError(f"its result is of dtype {name}; taken are {', '.join(DTYPES)}")


DTYPES = (
    *("float32", "bool", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)
"""Of results of Cast; other floats have become float32 when the file was read."""


# ---------------------------------------------------------------- reductions
def _of_numbers(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    if inputs[0].ty.dtype == "bool":
        raise ValueError("it reduces booleans; only numbers are reduced")


def _reduced_inside(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """TVM leaves out what is computed before the sum where nothing is summed."""
    axes = values_of(inputs[1]) if inputs[1] is not None else attrs.get("axes", ())
    if attrs.get("noop_with_empty_axes", 0) and axes is not None and not len(axes):
        raise ValueError("noop_with_empty_axes is 1 and there are no axes")


# ---------------------------------------------------------------- images
def _affine_grid(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    size = values_of(inputs[1])
    if attrs.get("align_corners", 0) and size is not None and min(size[2:]) < 2:
        raise ValueError(f"align_corners is 1 and an axis of {size[2:].tolist()} has one element")


def _roi_align(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """TVM moves boxes by half a pixel before it scales them, ONNX after."""
    scale = attrs.get("spatial_scale", 1.0)
    mode = attrs.get("coordinate_transformation_mode", b"half_pixel").decode()
    if scale != 1 and mode != "output_half_pixel":
        raise ValueError(f"spatial_scale is {scale:g} and the coordinates are {mode}")


def _mean_variance(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr:
    """The variance is the mean of squared deviations, as in ONNX Runtime.

    TVM subtracts the square of the mean from the mean of the squares, which cancel where values are
    close together.
    """
    axes = [int(axis) for axis in attrs.get("axes", (0, 2, 3))]
    apart = relax.op.subtract(inputs[0], relax.op.mean(inputs[0], axes, keepdims=True))
    squares = relax.op.mean(relax.op.multiply(apart, apart), axes, keepdims=True)
    return relax.op.divide(apart, relax.op.sqrt(squares))


EXACT: dict[str, Converter] = {
    "AffineGrid": _affine_grid,
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "EyeLike": _eye_like,
    "Gather": _gather,
    "IsInf": _is_inf,
    "MeanVarianceNormalization": _mean_variance,
    "OneHot": _one_hot,
    "Pow": _pow,
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _of_numbers),
    **{
        f"Reduce{name}": _reduced_inside
        for name in ("L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    },
    "RoiAlign": _roi_align,
    "SequenceInsert": _sequence_insert,
    "Slice": _slice,
}
"""ONNX operator -> our converter; None as its result lets TVM's converter do the work."""
