"""Layers with the same weights: an unrolled recurrent layer's steps, towers of a Siamese network.

What such layers compute, and what follows them alike, plays the same part in the network each time.
It gets one scale where its ranges are near each other.  The steps are then the same kernels, with
one program of each function, and a value that goes from step to step keeps its scale.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence

import tvm
from tvm import relax
from tvm.ir import GenericConst

from vta_byoc.ir.bindings import is_constant, op_name, straight_bindings, vars_in
from vta_byoc.quantization.ops.anchors import ANCHORS
from vta_byoc.quantization.ops.movement import COPIES
from vta_byoc.quantization.value import Span

DEPTH = 8
"""Operators behind a layer that are compared: a step of an LSTM has as many."""
NEAR = 0.5
"""A range of at least this share of the group's largest takes the largest: it loses one bit or
less."""


def share_ranges(
    mod: tvm.IRModule, ranges: dict[relax.Var, float], intervals: dict[relax.Var, Span]
) -> None:
    """Give tensors of one part the largest of their ranges, where theirs are near it.

    Args:
        mod: the float module.
        ranges: tensor -> the largest magnitude that int8 has to represent; changed in place.
        intervals: tensor -> from where to where its values lie; changed in place.
    """
    for group in _groups(mod):
        known = [var for var in group if var in ranges]
        largest = max((ranges[var] for var in known), default=math.inf)
        if not math.isfinite(largest):  # values that are NaN or infinite; the tensors stay float
            continue
        near = [var for var in known if ranges[var] >= NEAR * largest]
        spans = [intervals[var] for var in near if var in intervals]
        for var in near:
            ranges[var] = largest
            if var in intervals:
                intervals[var] = min(s[0] for s in spans), max(s[1] for s in spans)


def _groups(mod: tvm.IRModule) -> Iterator[list[relax.Var]]:
    """Tensors of `mod` that play one part, where there are several."""
    bindings = straight_bindings(mod["main"])
    digests = _Digests()
    tied = _tied(bindings, digests)
    if not tied:
        return
    reads = {b.var: list(vars_in(b.value)) for b in bindings}
    own = {b.var: _own_label(b.value, digests) for b in bindings}
    labels, near = own, set(tied)
    for _ in range(DEPTH):
        labels = {
            var: own[var] if var in tied else hash((own[var], *(labels.get(r) for r in read)))
            for var, read in reads.items()
        }
        near |= {var for var, read in reads.items() if not near.isdisjoint(read)}
    groups: dict[Hashable, list[relax.Var]] = defaultdict(list)
    for var in (b.var for b in bindings if b.var in near):
        groups[labels[var]].append(var)
    yield from (group for group in groups.values() if len(group) > 1)


def _tied(bindings: Sequence[relax.VarBinding], digests: _Digests) -> set[relax.Var]:
    """Layers with the weights of another; only those of equal shapes are compared."""
    layers = [b for b in bindings if _is_layer(b.value)]
    kinds = Counter(_kind(b.value) for b in layers)
    several = [b for b in layers if kinds[_kind(b.value)] > 1]
    uses = Counter(_own_label(b.value, digests) for b in several)
    return {b.var for b in several if uses[_own_label(b.value, digests)] > 1}


def _is_layer(value: relax.Expr) -> bool:
    return op_name(value) in ANCHORS and any(is_constant(arg) for arg in value.args)


def _kind(call: relax.Call) -> Hashable:
    return op_name(call), *(str(arg.ty) for arg in call.args)


class _Digests:
    """What constants are told apart by; each is read once."""

    def __init__(self) -> None:
        self._known: dict[GenericConst, bytes] = {}

    def of(self, constant: GenericConst) -> bytes:
        if constant not in self._known:
            data = constant.value.numpy().tobytes()
            self._known[constant] = hashlib.blake2b(data, digest_size=16).digest()
        return self._known[constant]


def _own_label(value: relax.Expr, digests: _Digests) -> Hashable:
    """The operator, its shapes and constants; where a copy takes its part is left out."""
    name = op_name(value)
    if name in COPIES or not isinstance(value, relax.Call):
        return name, type(value).__name__, str(value.ty)
    args = tuple(_own_argument(arg, digests) for arg in value.args)
    return name, str(value.ty), str(value.attrs), args


def _own_argument(arg: relax.Expr, digests: _Digests) -> Hashable:
    """A constant or a number; None where tensors are read, which have labels of their own."""
    if is_constant(arg):
        return digests.of(arg)
    return str(arg) if next(vars_in(arg), None) is None else None
