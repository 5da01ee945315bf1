"""A slice of a layer's result is a layer with the weights of the slice.

Exporters compute queries, keys and values by one product of matrices and slice its result. Each
product alone has a result, and a scale, of its own, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.calls import shape_of
from vta_byoc.importers.canonicalize.view_rules import chain_of_views, moved, view_of
from vta_byoc.importers.canonicalize.views import View
from vta_byoc.ir.bindings import SEPARATOR, is_constant, is_float32, source_name
from vta_byoc.ir.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class MovedLayer:
    """A product with a constant matrix, its bias, and the moves behind them.

    Attributes:
        layer: the variable of the product.
        data: its first operand.
        weight: float32 (inputs, columns).
        bias: float32 (columns,): what is added to its columns, if anything.
        view: what becomes of the result, (..., columns).
    """

    layer: relax.Var
    data: relax.Expr
    weight: np.ndarray
    bias: np.ndarray | None
    view: View

    def of_columns(self, rewriter: Rewriter, columns: np.ndarray, view: View) -> relax.Expr:
        """The layer of some columns, behind the moves of `view`."""
        name = f"{source_name(self.layer)}{SEPARATOR}{columns[0]}"
        narrow = relax.op.matmul(self.data, relax.const(self.weight[:, columns]))
        value = rewriter.as_variable(narrow, name)
        if self.bias is not None:
            sum_ = relax.op.add(value, relax.const(self.bias[columns]))
            value = rewriter.as_variable(sum_, f"{name}{SEPARATOR}bias")
        return moved(rewriter, value, view, str(rewriter.name))


def moved_layer(rewriter: Rewriter, value: relax.Expr) -> MovedLayer | None:
    """The layer that `value` is the moved result of; None where it is none."""
    source, chain = chain_of_views(rewriter, value)
    view, layer, bias = view_of(source, chain), source, None
    total = rewriter.producer_of(source, "relax.add")
    if total is not None and is_constant(total.args[1]):
        bias, layer = total.args[1].value.numpy(), total.args[0]
    call = rewriter.producer_of(layer, "relax.matmul")
    if view is None or call is None or shape_of(call) != shape_of(source):
        return None
    if not is_constant(call.args[1]) or not is_float32(call.args[1]):
        return None
    weight = call.args[1].value.numpy()
    if weight.ndim != 2:
        return None
    if bias is not None:
        if bias.size != weight.shape[1] or bias.shape[-1:] != (bias.size,):
            return None
        bias = bias.reshape(-1)
    return MovedLayer(layer, call.args[0], weight, bias, view)


def slice_of_layer(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """slice(move(x · W + b)) is move(x · W' + b') where it takes whole columns of W."""
    part = _part(call)
    found = None if part is None else moved_layer(rewriter, call.args[0])
    if part is None or found is None:
        return None
    narrow = _narrowed(found.view, *part)
    return None if narrow is None else found.of_columns(rewriter, *narrow)


def _part(call: relax.Call) -> tuple[int, int, int] | None:
    """Axis, begin and end of a slice along one axis in steps of 1; None for any other."""
    shape = shape_of(call.args[0])
    if shape is None or any(len(arg.fields) != 1 for arg in call.args[1:]):
        return None
    numbers = [getattr(arg.fields[0], "value", None) for arg in call.args[1:]]
    if any(number is None for number in numbers):
        return None
    axis, begin, end, *step = (int(number) for number in numbers if number is not None)
    axis %= len(shape)
    first, last, _ = slice(begin, end).indices(shape[axis])
    return (axis, first, last) if first < last and step in ([], [1]) else None


def _narrowed(view: View, axis: int, first: int, last: int) -> tuple[np.ndarray, View] | None:
    """The columns of the layer that the slice takes, and the moves of these alone.

    None where the slice takes rows, or a part of the columns that is no range of one digit.
    """
    total = view.source[-1]
    if len(view.axes[axis]) != 1:
        return None
    (digit,) = view.axes[axis]
    if digit.stride * digit.size > total or total % (digit.stride * digit.size):
        return None
    places = np.arange(total)
    values = places // digit.stride % digit.size
    columns = places[(first <= values) & (values < last)]
    narrow = view.resized(axis, last - first)
    return None if narrow is None else (columns, narrow)


SLICE_RULES: dict[str, Sequence[Rule]] = {"relax.strided_slice": (slice_of_layer,)}
"""Operator -> its rules, in the order in which they are tried."""
