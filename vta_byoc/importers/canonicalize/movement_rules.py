"""Rules that bring biases, clamps and quantize in front of operators that only move values.

Exporters put reshapes and permutations between a layer and what belongs to it: PyTorch computes a
linear layer of (N, T, C) as reshape, product of matrices, bias, reshape; what follows it (a clamp,
the quantize that says the scale of its result) stands behind the last reshape.  A movement commutes
with all of them, exactly; in front of it they belong to the layer's group again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.qdq_rules import DEQUANTIZE, MOVES, QUANTIZE, quantization
from vta_byoc.importers.canonicalize.view_rules import chain_of_views
from vta_byoc.ir.bindings import SEPARATOR, constant_of, is_constant, op_name, static_shape
from vta_byoc.ir.clamps import interval_of_call
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPE, RESHAPES, VIEWS, view_of
from vta_byoc.quantization.float_layers import KERNELS
from vta_byoc.quantization.ops.table import OPERATORS

SUMS = ("relax.add", "relax.subtract")


# ---------------------------------------------------------------- where a chain begins
def _before_moves(rewriter: Rewriter, value: relax.Expr, moves: Sequence[str]) -> relax.Expr:
    """What a chain of moves begins with."""
    while (inner := rewriter.producer_of(value, *moves)) is not None:
        value = inner.args[0]
    return value


def _is_layer(rewriter: Rewriter, value: relax.Expr) -> bool:
    """Whether `value` is a layer with constant weights, moved, with biases and clamps."""
    call: relax.Expr = rewriter.producer(_before_moves(rewriter, value, VIEWS))
    while _bias(call) is not None or (call is not None and interval_of_call(call)):
        call = rewriter.producer(_before_moves(rewriter, call.args[0], VIEWS))
    return op_name(call) in KERNELS and _is_constant(rewriter, call.args[1])


def _is_constant(rewriter: Rewriter, value: relax.Expr) -> bool:
    """Whether `value` is a constant, of floats or of integers."""
    made = rewriter.producer_of(value, DEQUANTIZE)
    return is_constant(value) or (made is not None and is_constant(made.args[0]))


def _bias(call: relax.Expr | None) -> np.ndarray | None:
    """The float constant that `call` adds to, or subtracts from, its first operand."""
    if call is None or op_name(call) not in SUMS or not is_constant(call.args[1]):
        return None
    return np.asarray(call.args[1].value.numpy())


# ---------------------------------------------------------------- rules
def quantize_before_moves(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """quantize(move(x)) is quantize(move(dequantize(quantize(x)))) for one scale.

    So x, if an operator makes it that can be integer, learns its scale.
    """
    q, data = quantization(call), call.args[0]
    source = _before_moves(rewriter, data, MOVES)
    made = rewriter.producer(source)
    if q is None or q.scale.ndim or q.zero.ndim or source.same_as(data):
        return None
    if op_name(made) in MOVES or not _becomes_integer(rewriter, made):
        return None
    name = rewriter.name
    integers = rewriter.as_variable(q.quantize(source), f"{name}{SEPARATOR}stated")
    value = rewriter.as_variable(q.dequantize(integers), f"{name}{SEPARATOR}float")
    if value.same_as(source):
        return None  # it has the scale already: a padding of integers, for instance
    return q.quantize(_moved(rewriter, data, source, value))


def _becomes_integer(rewriter: Rewriter, call: relax.Expr | None) -> bool:
    """Whether `call` has an integer form; a product of matrices has one with constant weights."""
    if call is None:
        return False
    name = op_name(call)
    if name == "relax.matmul":
        return _is_constant(rewriter, call.args[1])
    entry = OPERATORS.get(name)
    is_any = entry is not None and entry.refuses is None
    return is_any and name not in (QUANTIZE, DEQUANTIZE)


def _moved(
    rewriter: Rewriter, data: relax.Expr, source: relax.Expr, value: relax.Expr
) -> relax.Expr:
    """The moves from `source` to `data`, of `value`."""
    if data.same_as(source):
        return value
    call: relax.Expr = rewriter.producer(data)
    inner = _moved(rewriter, call.args[0], source, value)
    moved = relax.Call(call.op, [inner, *call.args[1:]], call.attrs, call.ty_args)
    return rewriter.as_variable(moved, str(data.name))


def clamp_before_moves(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """clamp(reshape(layer)) is reshape(clamp(layer)); of permutations too."""
    inner = rewriter.producer_of(call.args[0], *VIEWS)
    if inner is None or interval_of_call(call) is None or not _is_layer(rewriter, inner.args[0]):
        return None
    bounds = [
        constant_of(arg.value.numpy().reshape(())) if is_constant(arg) else arg
        for arg in call.args[1:]
    ]
    if static_shape(call) != static_shape(inner):
        return None
    return _exchanged(rewriter, call, inner, bounds)


def bias_before_moves(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """reshape(layer) + bias is reshape(layer + bias) for a constant of one axis.

    The reshape must keep that axis. The same holds for permutations and for differences.
    """
    inner, bias = rewriter.producer_of(call.args[0], *VIEWS), _bias(call)
    if inner is None or bias is None or static_shape(call) != static_shape(inner):
        return None
    moved = _before(bias, inner) if _is_layer(rewriter, inner.args[0]) else None
    return None if moved is None else _exchanged(rewriter, call, inner, [constant_of(moved)])


def _exchanged(
    rewriter: Rewriter, call: relax.Call, move: relax.Call, others: Sequence[relax.Expr]
) -> relax.Expr:
    """`move` of `call`, which had read its result."""
    name = str(call.args[0].name)
    inner = relax.Call(call.op, [move.args[0], *others], call.attrs, call.ty_args)
    value = rewriter.as_variable(inner, rewriter.name)
    rewriter.name = name
    return relax.Call(move.op, [value, *move.args[1:]], move.attrs, move.ty_args)


def _before(constant: np.ndarray, move: relax.Call) -> np.ndarray | None:
    """Bring a constant that broadcasts against the result of `move` in front of it.

    None if it varies along more than one axis, or along one that the move takes apart.
    """
    old, new = static_shape(move.args[0]), static_shape(move)
    shape = (1,) * (len(new) - constant.ndim) + constant.shape
    long = [axis for axis, size in enumerate(shape) if size > 1]
    if not long:
        return constant.reshape(())
    if len(long) > 1 or len(shape) > len(new):
        return None
    axis = _axis_before(move, long[0], old, new)
    if axis is None:
        return None
    return constant.reshape([-1 if i == axis else 1 for i in range(len(old))])


def _axis_before(move: relax.Call, axis: int, old: Sequence[int], new: Sequence[int]) -> int | None:
    """Which axis of the operand of `move` has become `axis`."""
    if op_name(move) == "relax.permute_dims":
        order = move.attrs.axes
        return len(new) - 1 - axis if order is None else int(order[axis]) % len(new)
    before = math.prod(new[:axis])
    found = (i for i, size in enumerate(old) if size == new[axis])
    return next((i for i in found if math.prod(old[:i]) == before), None)


def product_of_rows(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """matmul(reshape(x), w) is reshape(matmul(x, w)) for constant w (K, M).

    The reshape, or a permutation of axes of 1, may only join or part axes of rows.
    """
    source, chain = chain_of_views(rewriter, call.args[0])
    if not chain or not _is_constant(rewriter, call.args[1]) or call.args[1].ty.ndim != 2:
        return None
    view, new = view_of(source, chain), static_shape(call)
    if view is None or len(view.source) < max(2, len(new)) or view.source[-1] != view.shape[-1]:
        return None
    if [kind for kind, _ in view.moves()] != [RESHAPE]:
        return None
    product = relax.Call(call.op, [source, call.args[1]], call.attrs, call.ty_args)
    return relax.op.reshape(rewriter.as_variable(product, rewriter.name), new)


def rows_as_tokens(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """reshape(matmul(move(x), w) + bias) to (1, ..., T, M) is that of rows (1, ..., T, K).

    Heads are merged to (T, K) by exporters, whose tensors are (1, T, C) otherwise. One row stays a
    row: a step of a recurrent layer.
    """
    new, old = static_shape(call), static_shape(call.args[0])
    if len(old) != 2 or len(new) < 3 or new[-2:] != old or old[0] == 1:
        return None
    value, steps = call.args[0], []
    while (step := rewriter.producer_of(value, *SUMS)) is not None and _bias(step) is not None:
        steps.append((value, step))
        value = step.args[0]
        if static_shape(value) != old:
            return None
    layer = rewriter.producer_of(value, "relax.matmul")
    if any(rewriter.is_shared(var) for var in (value, *(var for var, _ in steps))):
        return None
    if layer is None or not _is_constant(rewriter, layer.args[1]):
        return None
    if rewriter.producer_of(layer.args[0], *VIEWS) is None:
        return None
    name = str(value.name)
    rows = relax.op.reshape(layer.args[0], (*new[:-1], static_shape(layer.args[0])[-1]))
    rows = rewriter.as_variable(rows, f"{name}{SEPARATOR}rows")
    made = relax.Call(layer.op, [rows, layer.args[1]], layer.attrs, layer.ty_args)
    for var, step in reversed(steps):
        inner = rewriter.as_variable(made, name)
        made = relax.Call(step.op, [inner, step.args[1]], step.attrs, step.ty_args)
        name = str(var.name)
    rewriter.name = name
    return made


MOVE_RULES: dict[str, Sequence[Rule]] = {
    QUANTIZE: (quantize_before_moves,),
    "relax.matmul": (product_of_rows,),
    **{name: (rows_as_tokens,) for name in RESHAPES},
    **{name: (bias_before_moves,) for name in SUMS},
    **{
        f"relax.{name}": (clamp_before_moves,)
        for name in ("nn.relu", "nn.relu6", "clip", "maximum", "minimum")
    },
}
"""Operator -> its rules; they come last."""
