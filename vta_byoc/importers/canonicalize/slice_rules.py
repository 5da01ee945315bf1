"""A slice of a layer's result is a layer with the weights of the slice.

Exporters compute queries, keys and values by one product of matrices and slice its result. Each
product alone has a result, and a scale, of its own, and nothing is copied.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.importers.canonicalize.calls import shape_of
from vta_byoc.importers.canonicalize.view_rules import chain_of_views, moved
from vta_byoc.ir.bindings import SEPARATOR, is_constant, is_float32, op_name, source_name
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPE, View, view_of

MATMUL, CONV, FLIP = "relax.matmul", "relax.nn.conv2d", "relax.flip"
JOINED = ("relax.concat", FLIP)
"""What slices of one place are brought in front of."""


@dataclass(frozen=True)
class MovedLayer:
    """A product with a constant matrix or a convolution, its bias, and the moves behind them.

    Attributes:
        layer: the variable of the product.
        call: the product.
        weight: float32; (inputs, columns) of a matrix, (columns, inputs, height, width) of kernels.
        bias: float32 (columns,): what is added to its columns, if anything.
        view: what becomes of the result, (..., columns) or (images, columns, rows, columns).
    """

    layer: relax.Var
    call: relax.Call
    weight: np.ndarray
    bias: np.ndarray | None
    view: View

    @property
    def data(self) -> relax.Expr:
        """The first operand of the product."""
        return self.call.args[0]

    @property
    def is_matrix(self) -> bool:
        """Whether it is a product with a matrix."""
        return self.weight.ndim == 2

    @property
    def axis(self) -> int:
        """The axis of the result that columns of the weight are."""
        return len(self.view.source) - 1 if self.is_matrix else 1

    def of_columns(self, rewriter: Rewriter, columns: np.ndarray, view: View) -> relax.Expr:
        """The layer of some columns, behind the moves of `view`; once for all that ask for it."""
        part = self.weight[:, columns] if self.is_matrix else self.weight[columns]
        weight = np.ascontiguousarray(part)
        bias = None if self.bias is None else self.bias[columns]
        arrays = [each.tobytes() for each in (weight, bias) if each is not None]
        key = (self.layer, *(hashlib.sha256(each).digest() for each in arrays))
        name = f"{source_name(self.layer)}{SEPARATOR}{columns[0]}"
        value = rewriter.made_once(key, lambda: self._layer(rewriter, weight, bias, name))
        return moved(rewriter, value, view, str(rewriter.name))

    def _layer(
        self, rewriter: Rewriter, weight: np.ndarray, bias: np.ndarray | None, name: str
    ) -> relax.Expr:
        call = relax.Call(self.call.op, [self.data, relax.const(weight)], self.call.attrs)
        value = rewriter.as_variable(call, name)
        if bias is not None:
            bias = bias if self.is_matrix else bias.reshape(1, -1, 1, 1)
            sum_ = relax.op.add(value, relax.const(bias))
            value = rewriter.as_variable(sum_, f"{name}{SEPARATOR}bias")
        return value


def moved_layer(rewriter: Rewriter, value: relax.Expr) -> MovedLayer | None:
    """The layer that `value` is the moved result of; None where it is none."""
    source, chain = chain_of_views(rewriter, value)
    view, layer, bias = view_of(source, chain), source, None
    total = rewriter.producer_of(source, "relax.add")
    if total is not None and is_constant(total.args[1]):
        bias, layer = total.args[1].value.numpy(), total.args[0]
    call = rewriter.producer_of(layer, MATMUL, CONV)
    if view is None or call is None or shape_of(call) != shape_of(source):
        return None
    if not is_constant(call.args[1]) or not is_float32(call.args[1]):
        return None
    found = MovedLayer(layer, call, call.args[1].value.numpy(), None, view)
    if op_name(call) == CONV and not (_is_plain(call) and chain and not rewriter.is_shared(source)):
        return None
    if bias is None or found.weight.ndim not in (2, 4):
        return found if found.weight.ndim in (2, 4) else None
    rank, columns = len(view.source), view.source[found.axis]
    whole = (1,) * (rank - bias.ndim) + bias.shape
    if bias.size != columns or whole[found.axis] != columns:
        return None
    return dataclasses.replace(found, bias=bias.reshape(-1))


def _is_plain(conv: relax.Call) -> bool:
    """Whether a convolution has one group, and its channels second."""
    layouts = (str(conv.attrs.data_layout), str(conv.attrs.kernel_layout))
    return layouts == ("NCHW", "OIHW") and int(conv.attrs.groups) == 1


def slice_of_layer(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """slice(move(x · W + b)) is move(x · W' + b') where it takes whole columns of W.

    So is that of a convolution whose channels have been parted; channels in a row are copied.
    """
    part = places_of(call)
    found = None if part is None else moved_layer(rewriter, call.args[0])
    if part is None or found is None:
        return None
    narrow = _narrowed(found, *part)
    return None if narrow is None else found.of_columns(rewriter, *narrow)


def slice_before_view(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """One place of an axis of reshape(x) that is an axis of x, too, is a place of that one.

    Steps of a recurrent layer are slices of (T, 1, C), which a layer has made as (1, T, C).
    """
    part, shape = one_range(call), shape_of(call)
    source, chain = chain_of_views(rewriter, call.args[0])
    view = view_of(source, chain) if chain else None
    if part is None or shape is None or view is None or part[2] - part[1] != 1:
        return None
    axis, first, last = part
    if [kind for kind, _ in view.moves()] != [RESHAPE] or len(view.axes[axis]) != 1:
        return None
    own = [i for i, digits in enumerate(View.of(view.source).axes) if digits == view.axes[axis]]
    if not own:
        return None
    narrow = relax.op.strided_slice(source, own, [first], [last])
    value = rewriter.as_variable(narrow, f"{rewriter.name}{SEPARATOR}place")
    return relax.op.reshape(value, shape)


def slice_of_concat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """What a slice takes of one tensor among those that are joined, it takes of that one.

    One place of another axis it takes of each. The last step of a recurrent layer is taken of all
    that have been joined, in both directions.
    """
    part, joined = one_range(call), rewriter.producer_of(call.args[0], "relax.concat")
    if part is None or joined is None or not isinstance(joined.args[0], Tuple):
        return None
    axis, first, last = part
    along, fields = int(joined.attrs.axis) % call.ty.ndim, list(joined.args[0].fields)
    if along != axis:
        sources = [chain_of_views(rewriter, field)[0] for field in fields]
        if last - first != 1 or any(rewriter.producer_of(s, *JOINED) is None for s in sources):
            return None
        slices = [relax.op.strided_slice(field, [axis], [first], [last]) for field in fields]
        name = f"{rewriter.name}{SEPARATOR}part"
        parts = [rewriter.as_variable(each, f"{name}{i}") for i, each in enumerate(slices)]
        return relax.op.concat(parts, along)
    begin = 0
    for field in fields:
        shape = shape_of(field)
        if shape is None:
            return None
        end = begin + shape[axis]
        if begin <= first and last <= end:
            return relax.op.strided_slice(field, [axis], [first - begin], [last - begin])
        begin = end
    return None


def slice_of_flip(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """One place of a tensor backwards is the place as far from its end."""
    part, turned = one_range(call), rewriter.producer_of(call.args[0], FLIP)
    shape = shape_of(call.args[0])
    if part is None or turned is None or shape is None or part[2] - part[1] != 1:
        return None
    axis, first, _ = part
    if int(turned.attrs.axis) % len(shape) != axis:
        return None
    place = shape[axis] - 1 - first
    return relax.op.strided_slice(turned.args[0], [axis], [place], [place + 1])


def one_range(call: relax.Call) -> tuple[int, int, int] | None:
    """Axis, begin and end of a slice along one axis in steps of 1; None for any other."""
    found = places_of(call)
    if found is None or found[1].step != 1:
        return None
    return found[0], found[1].start, found[1].stop


def places_of(call: relax.Call) -> tuple[int, range] | None:
    """Axis and places of a slice along one axis in steps of 1 or more; None for any other."""
    shape = shape_of(call.args[0])
    if shape is None or any(len(arg.fields) != 1 for arg in call.args[1:]):
        return None
    numbers = [getattr(arg.fields[0], "value", None) for arg in call.args[1:]]
    if any(number is None for number in numbers):
        return None
    axis, begin, end, *step = (int(number) for number in numbers if number is not None)
    axis %= len(shape)
    if step and step[0] < 1:
        return None
    places = range(shape[axis])[slice(begin, end, *step)]
    return (axis, places) if places else None


def _narrowed(
    layer: MovedLayer, axis: int, wanted: range
) -> tuple[np.ndarray, View] | None:
    """The columns of the layer that the slice takes, and the moves of these alone.

    None where the slice takes rows, or a part of the columns that is no range of one digit.
    """
    view = layer.view
    if view.source_axis(axis) != layer.axis:
        return None
    (digit,) = view.axes[axis]
    places = np.arange(view.source[layer.axis])
    values = places * math.prod(view.source[layer.axis + 1 :]) // digit.stride % digit.size
    columns = places[np.isin(values, wanted)]
    narrow = view.resized(axis, len(wanted))
    return None if narrow is None else (columns, narrow)


SLICE_RULES: dict[str, Sequence[Rule]] = {
    "relax.strided_slice": (slice_of_layer, slice_of_concat, slice_of_flip, slice_before_view)
}
"""Operator -> its rules, in the order in which they are tried."""
