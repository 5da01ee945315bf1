"""A slice of a layer's result is a layer with the weights of the slice.

Exporters compute queries, keys and values by one product of matrices and slice its result. Each
product alone has a result, and a scale, of its own, and nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.calls import RESHAPES, axes_of, shape_of
from vta_byoc.ir.bindings import SEPARATOR, is_constant, is_float32, source_name
from vta_byoc.ir.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class _Sliced:
    """A product of matrices, its bias, and the moves between it and a slice.

    Attributes:
        layer: the variable of the product.
        call: the product.
        bias: what is added to its columns, if anything.
        shape: what it is reshaped to, if it is.
        order: how that is permuted, if it is.
    """

    layer: relax.Var
    call: relax.Call
    bias: np.ndarray | None
    shape: tuple[int, ...] | None
    order: list[int] | None


def slice_of_layer(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """slice(move(x · W + b)) is move(x · W' + b') where it takes whole columns of W."""
    found, part = _sliced(rewriter, call.args[0]), _part(call)
    if found is None or part is None or len(call.args) > 4:
        return None
    axis, first, last = part
    columns = _columns(found, axis, first, last)
    if columns is None:
        return None
    weight = found.call.args[1].value.numpy()
    name = f"{source_name(found.layer)}{SEPARATOR}{columns[0]}"
    narrow = relax.op.matmul(found.call.args[0], relax.const(weight[:, columns]))
    value = rewriter.as_variable(narrow, name)
    if found.bias is not None:
        bias = relax.const(found.bias[columns])
        value = rewriter.as_variable(relax.op.add(value, bias), f"{name}{SEPARATOR}bias")
    if found.shape is not None:
        shape = list(found.shape)
        shape[axis if found.order is None else found.order[axis]] = last - first
        name = f"{rewriter.name}{SEPARATOR}reshape"
        value = rewriter.as_variable(relax.op.reshape(value, shape), name)
    return value if found.order is None else relax.op.permute_dims(value, found.order)


def _sliced(rewriter: Rewriter, value: relax.Expr) -> _Sliced | None:
    order = shape = bias = None
    inner = rewriter.producer_of(value, "relax.permute_dims")
    if inner is not None:
        order, value = axes_of(inner), inner.args[0]
    inner = rewriter.producer_of(value, *RESHAPES)
    if inner is not None:
        shape, value = shape_of(inner), inner.args[0]
    if order is not None and shape is None:
        return None
    inner = rewriter.producer_of(value, "relax.add")
    if inner is not None and is_constant(inner.args[1]):
        bias, value = inner.args[1].value.numpy(), inner.args[0]
    layer = rewriter.producer_of(value, "relax.matmul")
    if layer is None or not is_constant(layer.args[1]) or not is_float32(layer.args[1]):
        return None
    if len(layer.args[1].value.shape) != 2 or shape_of(layer) is None:
        return None
    if bias is not None and bias.shape != (int(layer.args[1].value.shape[1]),):
        return None
    return _Sliced(value, layer, bias, shape, order)


def _part(call: relax.Call) -> tuple[int, int, int] | None:
    """Axis, begin and end of a slice along one axis; None for any other."""
    shape = shape_of(call.args[0])
    if shape is None or any(len(arg.fields) != 1 for arg in call.args[1:4]):
        return None
    numbers = [getattr(arg.fields[0], "value", None) for arg in call.args[1:4]]
    if any(number is None for number in numbers):
        return None
    axis, begin, end = (int(number) for number in numbers if number is not None)
    axis %= len(shape)
    first, last, _ = slice(begin, end).indices(shape[axis])
    return (axis, first, last) if first < last else None


def _columns(found: _Sliced, axis: int, first: int, last: int) -> np.ndarray | None:
    """The columns of the weights that the slice takes; None where it cuts other axes too."""
    rows = shape_of(found.call)
    assert rows is not None
    shape = rows if found.shape is None else found.shape
    axis = axis if found.order is None else found.order[axis]
    prefixes = [p for p in range(axis + 1) if math.prod(shape[:p]) == math.prod(rows[:-1])]
    if not prefixes:
        return None
    inner = shape[prefixes[-1] :]
    columns = np.arange(rows[-1]).reshape(inner)
    return columns.take(range(first, last), axis - prefixes[-1]).reshape(-1)


SLICE_RULES: dict[str, Sequence[Rule]] = {"relax.strided_slice": (slice_of_layer,)}
"""Operator -> its rules, in the order in which they are tried."""
