"""Tokens joined with constant ones, and some of the tokens: copies between layouts.

A class token stands before the patches that a convolution made, and is taken again behind the last
block. Both are copies of whole vectors, between the planes of an image, tokens as columns and rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph, dtype_of
from vta_byoc.ir.views import RESHAPES
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.partitioning.moved import ANCHORS, MOVES
from vta_byoc.partitioning.movement import plan_move, slice_ranges
from vta_byoc.strategies.movement.gather import gathered_by
from vta_byoc.strategies.movement.join import JOINED
from vta_byoc.workload.layout import NCHW, ROWS, canonical, fits_tokens, tokens

TOKEN_AXIS, RANK = 1, 3


def _check_tokens(shape: Sequence[int], config: VTAConfig) -> None:
    if not fits_tokens(shape, config):
        raise VTAError(
            Refusal(
                f"a tensor of shape {tuple(shape)} is not packed with tokens as columns",
                "by its layers",
                "tokens that fill whole blocks of a machine with BATCH 1 are",
                "leave it to the CPU",
            )
        )


def _columns(numbers: np.ndarray, config: VTAConfig) -> np.ndarray:
    """Numbers (1, T, C) as those of (1, C', 1, T'), -1 in lanes that do not exist."""
    shape = canonical(numbers.shape, tokens(config.block))
    assert shape is not None
    full = np.full(shape, -1, np.int64)
    full[0, : numbers.shape[2], 0, : numbers.shape[1]] = numbers[0].T
    return full


# ---------------------------------------------------------------- constant tokens
def match_joined(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """Constant tokens joined with what an image's planes are seen as."""
    call = anchor.value
    fields = list(call.args[0].fields) if isinstance(call.args[0], Tuple) else []
    computed = [part for part in fields if not is_constant(part)]
    shape = static_shape(anchor.var)
    if dtype_of(anchor.var) != "int8" or len(shape) != RANK or shape[0] != 1:
        return None
    if int(call.attrs.axis) % RANK != TOKEN_AXIS or len(computed) != 1 or len(fields) < 2:
        return None
    found, value = [anchor], computed[0]
    while (before := graph.defined.get(value)) is not None and op_name(before.value) in ANCHORS:
        if graph.only_user(before.var) is None:
            return None
        found.insert(0, before)
        value = before.value.args[0]
    is_image = len(static_shape(value)) == 4 and dtype_of(value) == "int8"
    return found if len(found) > 1 and is_image and not is_constant(value) else None


def read_joined(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Planes of an image and constant tokens, as columns."""
    *moves, last = bindings
    source = moves[0].value.args[0]
    _check_tokens(static_shape(last.var), config)
    before = canonical(static_shape(source), NCHW)
    assert before is not None
    numbers = np.arange(math.prod(before)).reshape(static_shape(source))
    for binding in moves:
        move = MOVES.get(op_name(binding.value))
        numbers = numbers if move is None else move(binding.value, numbers)
        numbers = numbers.reshape(static_shape(binding.var))
    fields = list(last.value.args[0].fields)
    given = [part.value.numpy() for part in fields if is_constant(part)]
    joined = np.concatenate(given, TOKEN_AXIS)
    beside = np.arange(joined.size).reshape(joined.shape[2], joined.shape[1]).T[None]
    beside = beside + math.prod(before)
    parts, first = [], 0
    for part in fields:
        count = static_shape(part)[TOKEN_AXIS]
        parts.append(beside[:, first : first + count] if is_constant(part) else numbers)
        first += count if is_constant(part) else 0
    shape = (1, joined.shape[2], 1, joined.shape[1])
    places = _columns(np.concatenate(parts, TOKEN_AXIS), config)
    work = gathered_by([before, shape], places, config)
    constant = joined.transpose(0, 2, 1).reshape(shape).astype(np.int8)
    return Parsed(work, (source,), {JOINED: constant}, tokens(config.block), (NCHW,))


def plan_joined(parsed: Parsed, config: VTAConfig) -> Plan:
    """Vectors of the planes and of the constant, copied."""
    how = "joined with constant tokens by the GEMM core"
    return simple_plan("join", parsed.work, parsed.constants, config, how)


# ---------------------------------------------------------------- some tokens
def match_token_slice(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """A slice of tokens that the model computes, and the view of one of them as a row."""
    data = anchor.value.args[0]
    if dtype_of(data) != "int8" or is_constant(data) or len(static_shape(data)) != RANK:
        return None
    ranges = [each for each in slice_ranges(anchor.value) if each[0] % RANK != TOKEN_AXIS]
    shapes = static_shape(data), static_shape(anchor.var)
    kept = all(a == b for i, (a, b) in enumerate(zip(*shapes, strict=True)) if i != TOKEN_AXIS)
    if shapes[0][0] != 1 or not kept or ranges:
        return None
    user = graph.only_user(anchor.var)
    is_row = user is not None and static_shape(user.var) == (1, shapes[1][-1])
    seen = user if is_row and user is not None and op_name(user.value) in RESHAPES else None
    return [anchor] if seen is None else [anchor, seen]


def read_token_slice(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Tokens as columns, or as rows where they are few."""
    call, layout = bindings[0].value, tokens(config.block)
    data: relax.Expr = call.args[0]
    shape = static_shape(data)
    result = NCHW if len(bindings) > 1 else ROWS  # that of a matrix is one for all
    if not fits_tokens(shape, config):
        return _rows_slice(call, result, config)
    before = canonical(shape, layout)
    assert before is not None
    numbers = np.arange(math.prod(before)).reshape(before)[0, : shape[2], 0, : shape[1]].T[None]
    numbers = MOVES[op_name(call)](call, numbers)
    if fits_tokens(numbers.shape, config):
        work = gathered_by([before], _columns(numbers, config), config)
        return Parsed(work, (data,), {}, layout)
    after = canonical(numbers.shape, ROWS)
    assert after is not None
    work = gathered_by([before], numbers.reshape(after), config)
    return Parsed(work, (data,), {}, result, (layout,))


def _rows_slice(call: relax.Call, result: str, config: VTAConfig) -> Parsed:
    """Rows of a matrix, some of those that it has, in the layout ``result``."""
    shape = static_shape(call.args[0])
    before, after = canonical(shape, ROWS), canonical(static_shape(call), ROWS)
    assert before is not None and after is not None
    numbers = MOVES[op_name(call)](call, np.arange(math.prod(shape)).reshape(shape))
    work = gathered_by([before], numbers.reshape(after), config)
    return Parsed(work, (call.args[0],), {}, result, (ROWS,))


SLICE = "relax.strided_slice"
ENTRIES = (
    PatternEntry(
        "vta.token_concat", ("relax.concat",), match_joined, read_joined, plan_joined, moves=True
    ),
    PatternEntry(
        "vta.token_slice",
        (SLICE,),
        match_token_slice,
        read_token_slice,
        plan_move,
        moves=True,
        between=True,
    ),
)
