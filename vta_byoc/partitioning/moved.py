"""Operators in a row that only move elements, as one copy: permutations, reshapes, gathers.

What the chain does to the numbers of the elements says where each comes from. Between operators on
VTA it is a copy by the GEMM core; what leaves all vectors in place is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph
from vta_byoc.ir.views import RESHAPES
from vta_byoc.partitioning.entry import Parsed, PatternEntry
from vta_byoc.partitioning.movement import (
    PAD,
    PERMUTE,
    check_size,
    match_one,
    match_shuffle,
    padded,
    plan_move,
    slice_ranges,
)
from vta_byoc.strategies.movement.gather import gathered_by
from vta_byoc.workload.layout import NCHW, canonical


def _taken(call: relax.Call, numbers: np.ndarray) -> np.ndarray:
    indices = call.args[1]
    if not is_constant(indices):
        raise VTAError(
            Refusal(
                "the elements that are taken are",
                "computed by the model",
                "constant indices are taken",
                "leave it to the CPU",
            )
        )
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return np.take(numbers, indices.value.numpy().astype(np.int64), axis=axis)


def _permuted(call: relax.Call, numbers: np.ndarray) -> np.ndarray:
    axes = [int(axis) for axis in call.attrs.axes or ()]
    return numbers.transpose(axes or None)


def _sliced(call: relax.Call, numbers: np.ndarray) -> np.ndarray:
    found = [slice(None)] * numbers.ndim
    for axis, first, last, by in slice_ranges(call):
        found[axis % numbers.ndim] = slice(first, last, by)
    return numbers[tuple(found)]


def is_fixed(argument: relax.Expr) -> bool:
    """Whether an operand behind the first is known before the model runs, as ranges always are."""
    return not isinstance(argument, relax.Var)


def moved_numbers(binding: Binding, numbers: np.ndarray) -> np.ndarray:
    """Where each element of a movement's result is from, whose operand's are from ``numbers``."""
    move = {**MOVES, PAD: padded}.get(op_name(binding.value))
    moved = numbers if move is None else move(binding.value, numbers)
    return moved.reshape(static_shape(binding.var))


MOVES: Mapping[str, Callable[[relax.Call, np.ndarray], np.ndarray]] = {
    PERMUTE: _permuted,
    "relax.flip": lambda call, x: np.flip(x, int(call.attrs.axis)),
    "relax.strided_slice": _sliced,
    "relax.take": _taken,
}
"""What each operator does to the numbers of the elements; RESHAPES write them as they are."""


def match_moved(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """The longest chain of movements whose result has a packed layout, and no view.

    A matrix is left out: dense layers read flattened tensors in place.
    """
    if (
        match_one(graph, anchor) is None
        or canonical(static_shape(anchor.value.args[0]), NCHW) is None
    ):
        return None
    found = [anchor]
    while (user := graph.only_user(found[-1].var)) is not None and op_name(user.value) in ANCHORS:
        if not user.value.args[0].same_as(found[-1].var) or match_shuffle(graph, user) is not None:
            break
        found.append(user)
    if len(found) == 1 and _begins_shuffle(graph, anchor):
        return None
    while found and len(static_shape(found[-1].var)) not in (3, 4):
        found.pop()
    return found if found and not _is_view(found) else None


def _begins_shuffle(graph: Graph, anchor: Binding) -> bool:
    user = graph.only_user(anchor.var)
    return user is not None and match_shuffle(graph, user) is not None


def _is_view(bindings: Sequence[Binding]) -> bool:
    """Whether the packed tensor stays as it is."""
    if any(op_name(b.value) not in RESHAPES for b in bindings):
        return False
    shapes = static_shape(bindings[0].value.args[0]), static_shape(bindings[-1].var)
    return canonical(shapes[0], NCHW) == canonical(shapes[1], NCHW)


def read_moved(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """The copy that the chain is, of elements numbered in row-major order."""
    source, result = bindings[0].value.args[0], bindings[-1].var
    before, after = (canonical(static_shape(x), NCHW) for x in (source, result))
    assert before is not None and after is not None
    check_size(max(math.prod(before), math.prod(after)))
    numbers = np.arange(math.prod(before)).reshape(static_shape(source))
    for binding in bindings:
        numbers = moved_numbers(binding, numbers)
    return Parsed(gathered_by([before], numbers.reshape(after), config), (source,), {})


ANCHORS = (*RESHAPES, *MOVES)
ENTRIES = (
    PatternEntry("vta.move", ANCHORS, match_moved, read_moved, plan_move, moves=True, between=True),
)
