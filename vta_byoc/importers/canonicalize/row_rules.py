"""Rules that keep a row (1, C) a row where exporters see it with more axes of 1.

A step of a recurrent layer computes (1, C) and sees it as (1, 1, C): what works on each element, or
takes some of the columns, does so on the row, whose columns are channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax
from tvm.ir import Tuple

from vta_byoc.importers.canonicalize.calls import shape_of
from vta_byoc.importers.canonicalize.depth_rules import BINARY, ELEMENTWISE
from vta_byoc.importers.canonicalize.slice_rules import moved_layer, one_range
from vta_byoc.ir.bindings import SEPARATOR, constant_of, is_constant
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPES


def elementwise_of_row(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """op(reshape(row)) is reshape(op(row)), where each tensor is a row or a constant."""
    shape = shape_of(call)
    if shape is None or len(shape) < 3 or math.prod(shape[:-1]) != 1:
        return None
    args = [_row_of(rewriter, arg, shape[-1]) for arg in call.args]
    rows = [arg for arg in args if arg is not None]
    is_computed = any(not is_constant(arg) and shape_of(arg) is not None for arg in rows)
    if len(rows) != len(args) or not is_computed:
        return None
    made = relax.Call(call.op, rows, call.attrs, call.ty_args)
    value = rewriter.as_variable(made, f"{rewriter.name}{SEPARATOR}row")
    return relax.op.reshape(value, shape)


def _row_of(rewriter: Rewriter, arg: relax.Expr, columns: int) -> relax.Expr | None:
    """``arg`` as a row of so many columns, or what is no tensor; None where it is neither."""
    if not isinstance(arg.ty, relax.TensorType):
        return arg
    shape = shape_of(arg)
    if shape is None or math.prod(shape) not in (1, columns) or math.prod(shape[:-1]) != 1:
        return None
    if is_constant(arg):
        values = arg.value.numpy()
        return constant_of(values.reshape(() if values.size == 1 else (1, columns)))
    if shape == (1, columns):
        return arg
    view = rewriter.producer_of(arg, *RESHAPES)
    return view.args[0] if view is not None and shape_of(view.args[0]) == (1, columns) else None


def slice_of_row(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Columns of reshape(row) are reshape(columns of the row)."""
    view, shape = rewriter.producer_of(call.args[0], *RESHAPES), shape_of(call)
    if view is None or shape is None or len(shape) < 3 or math.prod(shape[:-1]) != 1:
        return None
    row, seen = shape_of(view.args[0]), shape_of(view)
    if row is None or seen is None or len(row) != 2 or row != (1, seen[-1]):
        return None
    columns = one_range(call)
    if columns is None or columns[0] != len(seen) - 1:
        return None
    part = relax.op.strided_slice(view.args[0], [1], [columns[1]], [columns[2]])
    value = rewriter.as_variable(part, f"{rewriter.name}{SEPARATOR}row")
    return relax.op.reshape(value, shape)


def columns_before_place(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Columns of one row of a layer's result are one row of the layer of these columns.

    The gates of a GRU are columns of the row that a step takes; all steps share the layers.
    """
    shape, row = shape_of(call), call.args[0]
    view = rewriter.producer_of(row, *RESHAPES)
    place = rewriter.producer_of(row if view is None else view.args[0], "relax.strided_slice")
    seen, data = shape_of(row), None if place is None else place.args[0]
    if shape is None or seen is None or place is None or data is None:
        return None
    whole, taken = shape_of(data), shape_of(place)
    if whole is None or taken is None or moved_layer(rewriter, data) is None:
        return None
    is_row = math.prod(seen[:-1]) == math.prod(taken[:-1]) == 1
    if not is_row or not seen[-1] == taken[-1] == whole[-1]:
        return None
    columns = one_range(call)
    if columns is None or columns[0] != len(seen) - 1:
        return None
    name = f"{rewriter.name}{SEPARATOR}"
    part = relax.op.strided_slice(data, [len(whole) - 1], [columns[1]], [columns[2]])
    narrow = rewriter.as_variable(part, f"{name}columns")
    part = relax.Call(place.op, [narrow, *place.args[1:]], place.attrs, place.ty_args)
    return relax.op.reshape(rewriter.as_variable(part, f"{name}place"), shape)


def constant_of_more_axes(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Where c of x + c has more axes than x, of 1: c with as many, and the sum reshaped."""
    data, constant = call.args
    before, shape = shape_of(data), shape_of(call)
    if not is_constant(constant) or is_constant(data) or before is None or shape is None:
        return None
    values = constant.value.numpy()
    extra = values.ndim - len(before)
    if extra <= 0 or set(values.shape[:extra]) != {1} or shape[extra:] != before:
        return None
    fewer = constant_of(values.reshape(values.shape[extra:]))
    made = relax.Call(call.op, [data, fewer], call.attrs, call.ty_args)
    value = rewriter.as_variable(made, f"{rewriter.name}{SEPARATOR}row")
    return relax.op.reshape(value, shape)


def concat_of_rows(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A concat of reshaped rows along their columns is the reshape of joined rows."""
    shape, joined = shape_of(call), call.args[0]
    if shape is None or len(shape) < 3 or math.prod(shape[:-1]) != 1:
        return None
    if not isinstance(joined, Tuple) or int(call.attrs.axis) % len(shape) != len(shape) - 1:
        return None
    sizes = [(shape_of(field) or (0,))[-1] for field in joined.fields]
    fields = zip(joined.fields, sizes, strict=True)
    found = [_row_of(rewriter, field, size) for field, size in fields]
    rows = [row for row in found if row is not None and not is_constant(row)]
    if len(rows) != len(found):
        return None
    whole = rewriter.as_variable(relax.op.concat(rows, 1), f"{rewriter.name}{SEPARATOR}row")
    return relax.op.reshape(whole, shape)


def product_of_row(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """matmul(reshape(row), w) is reshape(matmul(row, w)) for a matrix w."""
    shape, data = shape_of(call), shape_of(call.args[0])
    weight = call.args[1]
    if shape is None or data is None or len(shape) < 3 or math.prod(shape[:-1]) != 1:
        return None
    row = _row_of(rewriter, call.args[0], data[-1])
    if row is None or is_constant(row) or not is_constant(weight) or weight.ty.ndim != 2:
        return None
    made = relax.Call(call.op, [row, weight], call.attrs, call.ty_args)
    return relax.op.reshape(rewriter.as_variable(made, f"{rewriter.name}{SEPARATOR}row"), shape)


def weight_as_matrix(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Constant weights (1, ..., 1, K, M) are a matrix (K, M): a linear layer of moved tensors."""
    data, weight = shape_of(call.args[0]), call.args[1]
    shape = shape_of(weight)
    if data is None or shape is None or not is_constant(weight) or not 2 < len(shape) <= len(data):
        return None
    if math.prod(shape[:-2]) != 1:
        return None
    matrix = constant_of(weight.value.numpy().reshape(shape[-2:]))
    return relax.Call(call.op, [call.args[0], matrix], call.attrs, call.ty_args)


ROW_RULES: dict[str, Sequence[Rule]] = {
    "relax.concat": (concat_of_rows,),
    "relax.matmul": (weight_as_matrix, product_of_row),
    "relax.strided_slice": (columns_before_place, slice_of_row),
    **{name: (elementwise_of_row,) for name in ELEMENTWISE},
    **{name: (constant_of_more_axes, elementwise_of_row) for name in BINARY},
}
"""Operator -> its rules, in the order in which they are tried."""
