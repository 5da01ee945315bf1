"""Products with repeated matrices as products of more rows: heads that share keys and values.

Grouped queries read keys and values of fewer heads than there are queries. Exporters repeat the
keys for them. The queries of all heads that read the same keys are rows of one product instead:

    (B, G·R, T, D) @ repeat(B, G, D, S) is (B, G, R·T, D) @ (B, G, D, S)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tvm import relax

from vta_byoc.importers.canonicalize.calls import shape_of
from vta_byoc.importers.canonicalize.view_rules import moved
from vta_byoc.ir.bindings import SEPARATOR, op_name
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import PERMUTE_DIMS, VIEWS, Digit, View, axes_of

BROADCAST, CALL_TIR = "relax.broadcast_to", "relax.call_tir"
_TILE = re.compile(r"tile\d*")
"""Names of the functions that TVM's ONNX frontend writes for Tile."""


def rows_of_groups(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """X @ repeat(y) is one product of each matrix of y with all rows that read it."""
    left, right = call.args
    found, shape, result = _repeated(rewriter, right), shape_of(left), shape_of(call)
    if found is None or shape is None or result is None or shape[:-2] != result[:-2]:
        return None
    base, view = found
    # Digits of the batches of `right`: others may only follow the repeated one as rows.
    digits = [digit for axis in view.axes[:-2] for digit in axis]
    if not digits or digits[-1].stride or any(d.stride == 0 for d in digits[:-1]):
        return None
    if any(d.stride == 0 for axis in view.axes[-2:] for d in axis):
        return None
    times, batches = digits[-1].size, tuple(d.size for d in digits[:-1])
    batches = _batches(shape[:-2], times) or batches
    parted = _parted(digits[:-1], batches)
    if parted is None:
        return None
    plain = View(view.source, (*batches, *view.shape[-2:]), (*parted, *view.axes[-2:]))
    name = str(rewriter.name)
    once = rewriter.as_variable(moved(rewriter, base, plain, f"{name}{SEPARATOR}once"), name)
    rows = relax.op.reshape(left, [*batches, times * shape[-2], shape[-1]])
    rows = rewriter.as_variable(rows, f"{name}{SEPARATOR}rows")
    product = relax.Call(call.op, [rows, once], call.attrs, call.ty_args)
    product = rewriter.as_variable(product, f"{name}{SEPARATOR}groups")
    return relax.op.reshape(product, result)


def _batches(shape: Sequence[int], times: int) -> tuple[int, ...] | None:
    """The leading axes without what is repeated, where the last of them has it."""
    return (*shape[:-1], shape[-1] // times) if shape and shape[-1] % times == 0 else None


def _parted(digits: Sequence[Digit], batches: Sequence[int]) -> list[tuple[Digit, ...]] | None:
    """The digits of each leading axis; None where one belongs to two."""
    rest, axes = list(digits), []
    for size in batches:
        taken: list[Digit] = []
        while rest and math.prod(d.size for d in taken) < size:
            taken.append(rest.pop(0))
        if math.prod(d.size for d in taken) != size:
            return None
        axes.append(tuple(taken))
    return axes


def _repeated(rewriter: Rewriter, value: relax.Expr) -> tuple[relax.Expr, View] | None:
    """What a chain of moves and repetitions of whole axes begins with, and what it does."""
    chain: list[relax.Call] = []
    while (call := rewriter.producer_of(value, *VIEWS, BROADCAST, CALL_TIR)) is not None:
        if op_name(call) == CALL_TIR and not _TILE.fullmatch(str(call.args[0].name_hint)):
            break
        chain.insert(0, call)
        value = call.args[1].fields[0] if op_name(call) == CALL_TIR else call.args[0]
    shape = shape_of(value)
    view = None if shape is None else View.of(shape)
    for call in chain:
        shape = shape_of(call)
        if view is None or shape is None:
            return None
        if op_name(call) == PERMUTE_DIMS:
            view = view.permuted(axes_of(call))
        elif op_name(call) in VIEWS:
            view = view.reshaped(shape)
        else:
            view = view.repeated(shape) if _repeats_units(view.shape, shape) else None
    if view is None or all(digit.stride for digit in view.digits):
        return None
    return value, view


def _repeats_units(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether only axes of 1 became longer."""
    return len(old) == len(new) and all(a in (1, b) for a, b in zip(old, new, strict=True))


GROUP_RULES: dict[str, Sequence[Rule]] = {"relax.matmul": (rows_of_groups,)}
"""Operator -> its rules, in the order in which they are tried."""
