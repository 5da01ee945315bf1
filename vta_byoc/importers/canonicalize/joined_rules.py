"""Slices of one layer that are joined again: a layer whose columns have another order.

Rotary positions multiply the halves of each head, exchanged, by a sine: concat(-x[..., D/2:],
x[..., :D/2]), or every other column of it: stack(-x[..., 1::2], x[..., ::2]). Both halves are
layers of some columns; so is what they are joined to, with signs in the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.importers.canonicalize.slice_rules import MovedLayer, moved_layer
from vta_byoc.importers.canonicalize.view_rules import chain_of_views
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import View, behind

NEGATIVE = "relax.negative"


def joined_layers(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Concat of moved layers of the same rows, along their columns, is one of them."""
    if not isinstance(call.args[0], Tuple) or len(call.args[0].fields) < 2:
        return None
    axis = int(call.attrs.axis) % call.ty.ndim
    parts = [_part(rewriter, field) for field in call.args[0].fields]
    layers = [part for part in parts if part is not None]
    if len(layers) != len(parts) or any(not p.data.same_as(layers[0].data) for p in layers):
        return None
    columns, views = zip(*(_joined(part, axis, layers) for part in layers), strict=True)
    view = views[0]
    if view is None or any(each != columns[0] for each in columns):
        return None
    if any(each != view for each in views):
        return None
    higher, lower = columns[0]
    sizes = [part.view.shape[axis] for part in layers]

    def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
        parted = [
            a.reshape(*a.shape[:-1], higher, n, lower) for a, n in zip(arrays, sizes, strict=True)
        ]
        whole = np.concatenate(parted, axis=-2)
        return np.ascontiguousarray(whole.reshape(*whole.shape[:-3], -1))

    biases = [part.bias for part in layers if part.bias is not None]
    if len(biases) not in (0, len(layers)):
        return None
    whole = replace(
        layers[0],
        weight=joined([part.weight for part in layers]),
        bias=joined(biases) if biases else None,
    )
    return whole.of_columns(rewriter, np.arange(whole.weight.shape[1]), view)


def _part(rewriter: Rewriter, value: relax.Expr) -> MovedLayer | None:
    """A moved product with a matrix, or the moved negative of one."""
    source, chain = chain_of_views(rewriter, value)
    negative = rewriter.producer_of(source, NEGATIVE)
    found = moved_layer(rewriter, value if negative is None else negative.args[0])
    if found is None or not found.is_matrix:
        return None
    if negative is None:
        return found
    view = behind(found.view, chain)
    bias = None if found.bias is None else -found.bias
    return None if view is None else replace(found, weight=-found.weight, bias=bias, view=view)


def _joined(
    part: MovedLayer, axis: int, layers: Sequence[MovedLayer]
) -> tuple[tuple[int, int], View | None]:
    """How many columns of the layer count higher and lower than `axis`, and the moves of the whole.

    There are none where rows count there, too.
    """
    view, total = part.view, part.weight.shape[1]
    if all(not layer.view.axes[axis] for layer in layers):
        return (total, 1), view.parted(axis, len(layers))
    if len(view.axes[axis]) != 1:
        return (0, 0), None
    (digit,) = view.axes[axis]
    if total % (digit.stride * digit.size):
        return (0, 0), None
    size = sum(layer.view.shape[axis] for layer in layers)
    return (total // (digit.stride * digit.size), digit.stride), view.resized(axis, size)


JOINED_RULES: dict[str, Sequence[Rule]] = {"relax.concat": (joined_layers,)}
"""Operator -> its rules, in the order in which they are tried."""
