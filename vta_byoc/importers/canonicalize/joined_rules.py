"""Slices of one layer that are joined again: a layer whose columns have another order.

Rotary positions multiply the halves of each head, exchanged, by a sine: concat(-x[..., D/2:],
x[..., :D/2]). Both halves are layers of some columns; so is what they are joined to, with signs in
the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.importers.canonicalize.slice_rules import MovedLayer, moved_layer
from vta_byoc.ir.rewriter import Rewriter, Rule

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
    columns = [_columns(part, axis) for part in layers]
    known = [each for each in columns if each is not None]
    if len(known) != len(columns) or any(each != known[0] for each in known[1:]):
        return None
    higher, lower = known[0]
    sizes = [part.view.shape[axis] for part in layers]
    view, *others = (part.view.resized(axis, sum(sizes)) for part in layers)
    if view is None or any(other != view for other in others):
        return None

    def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
        parted = [
            a.reshape(*a.shape[:-1], higher, n, lower) for a, n in zip(arrays, sizes, strict=True)
        ]
        whole = np.concatenate(parted, axis=-2)
        return np.ascontiguousarray(whole.reshape(*whole.shape[:-3], -1))

    biases = [part.bias for part in layers if part.bias is not None]
    if len(biases) not in (0, len(layers)):
        return None
    whole = dataclasses.replace(
        layers[0],
        weight=joined([part.weight for part in layers]),
        bias=joined(biases) if biases else None,
    )
    return whole.of_columns(rewriter, np.arange(whole.weight.shape[1]), view)


def _part(rewriter: Rewriter, value: relax.Expr) -> MovedLayer | None:
    """A moved product with a matrix, or the negative of one."""
    negative = rewriter.producer_of(value, NEGATIVE)
    found = moved_layer(rewriter, value if negative is None else negative.args[0])
    if found is None or not found.is_matrix:
        return None
    if negative is None:
        return found
    bias = None if found.bias is None else -found.bias
    return dataclasses.replace(found, weight=-found.weight, bias=bias)


def _columns(part: MovedLayer, axis: int) -> tuple[int, int] | None:
    """How many columns of the layer count higher and lower than `axis`; None if rows do too."""
    if len(part.view.axes[axis]) != 1:
        return None
    (digit,) = part.view.axes[axis]
    total = part.weight.shape[1]
    if total % (digit.stride * digit.size):
        return None
    return total // (digit.stride * digit.size), digit.stride


JOINED_RULES: dict[str, Sequence[Rule]] = {"relax.concat": (joined_layers,)}
"""Operator -> its rules, in the order in which they are tried."""
