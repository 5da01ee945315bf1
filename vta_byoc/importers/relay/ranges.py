"""The least and the greatest value that integer tensors can take, channel by channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import dtype_of

BITS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "bool": 1}
"""Types whose ranges are known; sums of products of them fit int64."""
KEEPS = frozenset(
    f"relax.{name}"
    for name in (
        *("nn.max_pool2d", "nn.max_pool1d", "reshape", "permute_dims", "strided_slice", "take"),
        *("squeeze", "expand_dims", "broadcast_to", "repeat", "tile", "flip", "max", "min"),
    )
)
"""Operators whose result holds no value that their first operand does not hold."""
LAYERS = frozenset(("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv2d_transpose"))
PRODUCTS = LAYERS | {"relax.matmul"}


@dataclass(frozen=True)
class Range:
    """Bounds, int64, in a shape that broadcasts to the tensor."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, low: int, high: int) -> Range:
        """The same bounds for all elements."""
        return cls(np.array(low, np.int64), np.array(high, np.int64))

    @classmethod
    def of_dtype(cls, dtype: str) -> Range | None:
        """All values of a type; None where sums of them may leave int64."""
        if dtype == "bool":
            return cls.of(0, 1)
        if dtype not in BITS:
            return None
        return cls.of(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))

    @property
    def whole(self) -> Range:
        """One pair of bounds for all elements."""
        return Range.of(int(self.low.min()), int(self.high.max()))

    def fits(self, dtype: str) -> bool:
        """Whether no value leaves a type."""
        limits = np.iinfo(dtype)
        return bool(self.low.min() >= limits.min and self.high.max() <= limits.max)


Ends = Callable[[np.ndarray, np.ndarray], np.ndarray]
MONOTONE: dict[str, Ends] = {
    "relax.add": np.add,
    "relax.multiply": np.multiply,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.left_shift": np.left_shift,
    "relax.right_shift": np.right_shift,
}
"""Operators whose extremes lie at the extremes of their operands."""


def exact_range(call: relax.Expr, known: Mapping[relax.Var, Range]) -> Range | None:
    """What the result of a call is before it is cut to its type; None where nobody knows."""
    name = op_name(call)
    if name in PRODUCTS:
        return _product(call, known)
    operands = [range_of(arg, known) for arg in call.args] if name else []
    if name in MONOTONE or name == "relax.subtract":
        left, right = operands
        return None if left is None or right is None else _binary(name, left, right)
    if name == "relax.concat":
        return _union(call.args[0], known)
    first = operands[0] if operands else None
    if name == "relax.clip" and dtype_of(call).startswith("float"):
        low, high = (float(arg.value) for arg in call.args[1:])
        return Range.of(int(np.ceil(low)), int(np.floor(high))) if abs(low) < 2**31 else None
    if first is None:
        return None
    if name == "relax.astype":
        return first
    if name in KEEPS:
        return first.whole
    if name == "relax.sum":
        elements = int(np.prod(static_shape(call.args[0])))
        count = elements // max(int(np.prod(static_shape(call))), 1)
        return Range(first.whole.low * count, first.whole.high * count)
    return None


def range_of(expr: relax.Expr, known: Mapping[relax.Var, Range]) -> Range | None:
    """Of an operand: a variable or a constant."""
    if is_constant(expr):
        value = np.asarray(expr.value.numpy())
        is_known = str(value.dtype) in BITS
        return Range(value.astype(np.int64), value.astype(np.int64)) if is_known else None
    return known.get(expr) if isinstance(expr, relax.Var) else None


def _binary(name: str, left: Range, right: Range) -> Range:
    if name == "relax.subtract":
        return Range(left.low - right.high, left.high - right.low)
    if name.endswith("_shift"):
        right = Range(np.clip(right.low, 0, 31), np.clip(right.high, 0, 31))
    function = MONOTONE[name]
    ends = [function(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return Range(np.minimum.reduce(ends), np.maximum.reduce(ends))


def _union(parts: relax.Expr, known: Mapping[relax.Var, Range]) -> Range | None:
    fields = list(parts.fields) if isinstance(parts, Tuple) else [parts]
    ranges = [range_of(field, known) for field in fields]
    if not ranges or any(item is None for item in ranges):
        return None
    low = min(int(item.low.min()) for item in ranges if item is not None)
    return Range.of(low, max(int(item.high.max()) for item in ranges if item is not None))


def _product(call: relax.Call, known: Mapping[relax.Var, Range]) -> Range | None:
    """Of sums of products with constant weights, for each output channel."""
    data, weight = call.args
    bounds = range_of(data, known)
    if bounds is None or not is_constant(weight) or dtype_of(weight) not in BITS:
        return None
    whole = bounds.whole
    low, high = min(int(whole.low), 0), max(int(whole.high), 0)  # padding is 0
    sums = _by_channel(call, np.asarray(weight.value.numpy()).astype(np.int64))
    positive, negative = (
        limit(sums, 0).sum(axis=1, dtype=np.int64) for limit in (np.maximum, np.minimum)
    )
    least, most = low * positive + high * negative, high * positive + low * negative
    rank, axis = call.ty.ndim, _channel_axis(call)
    shape = [-1 if i == axis else 1 for i in range(rank)]
    return Range(least.reshape(shape), most.reshape(shape))


def _channel_axis(call: relax.Call) -> int:
    if op_name(call) == "relax.matmul":
        return int(call.ty.ndim) - 1
    return str(call.attrs.data_layout).index("C")


def _by_channel(call: relax.Call, weight: np.ndarray) -> np.ndarray:
    """The weights that meet in one sum, (output channels, n)."""
    if op_name(call) == "relax.matmul":
        return np.atleast_2d(np.moveaxis(weight, -1, 0).reshape(weight.shape[-1], -1))
    layout = str(call.attrs.kernel_layout)
    output = np.moveaxis(weight, layout.index("O"), 0)
    flat = output.reshape(len(output), -1)
    transposed_groups = int(call.attrs.groups) if op_name(call).endswith("transpose") else 1
    if transposed_groups > 1:  # a bound of all groups serves each
        flat = np.tile(flat, (transposed_groups, 1))
    return flat
