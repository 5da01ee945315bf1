"""Rules for quantize and dequantize: the form that every pre-quantized model is brought to.

Weights stay integers: what an exporter does to `dequantize(constant)` (transpose, reshape) is done
to the integers.  Integers that are only moved are moved as floats, so that between a dequantize
and a quantize there are float operators and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import tvm
from tvm import relax

from vta_byoc.importers.quantized_tensor import Quantization
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    constant_of,
    is_constant,
    op_name,
    straight_bindings,
    substituted,
    vars_in,
    with_main,
)
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPES

QUANTIZE = "relax.quantize"
DEQUANTIZE = "relax.dequantize"
MOVES = (
    *RESHAPES,
    *(f"relax.{n}" for n in ("permute_dims", "strided_slice", "repeat", "tile", "flip")),
    *(f"relax.{n}" for n in ("broadcast_to", "nn.max_pool2d", "max", "min")),
)
"""Operators of one tensor that only choose among its values, in the same order for integers and
for what they stand for."""

SHAPES = ("relax.shape_of", "relax.shape_to_tensor", "relax.tensor_to_shape")


def quantization(call: relax.Call) -> Quantization | None:
    """The parameters of a quantize or dequantize; None if they are not constants."""
    data, scale, zero = call.args[:3]
    if not is_constant(scale) or not is_constant(zero):
        return None
    dtype = str(call.attrs.out_dtype if op_name(call) == QUANTIZE else data.ty.dtype)
    step, point = (_single(array.value.numpy()) for array in (scale, zero))
    channels = step.ndim or point.ndim  # an axis of one scale means nothing, and may not move
    axis = int(call.attrs.axis) % max(data.ty.ndim, 1) if channels else 0
    return Quantization(dtype, step, point.astype("int64"), axis)


def same(left: Quantization | None, right: Quantization | None) -> bool:
    """Whether both are known and stand for the same numbers."""
    if left is None or right is None or left.dtype != right.dtype:
        return False
    scalar = left.scale.ndim == left.zero.ndim == 0
    return (
        np.array_equal(left.scale, right.scale)
        and np.array_equal(left.zero, right.zero)
        and (scalar or left.axis == right.axis)
    )


def _single(values: np.ndarray) -> np.ndarray:
    return values.reshape(()) if values.size == 1 else values


# ---------------------------------------------------------------- constants
def quantized_constant(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """quantize(float constant) is an integer constant: half to even, saturated."""
    q = quantization(call)
    if q is None or not is_constant(call.args[0]):
        return None
    values = call.args[0].value.numpy()
    scale, zero = (_along(array, q.axis, values.ndim) for array in (q.scale, q.zero))
    limits = np.iinfo(q.dtype)
    rounded = np.rint(values / np.float32(scale)) + zero
    return relax.const(np.clip(rounded, limits.min, limits.max).astype(q.dtype))


def centred_constant(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """dequantize(constant) without a zero point, as int8, where the differences fit."""
    q = quantization(call)
    is_centred = q is None or (q.dtype != "uint8" and q.zero.ndim == 0 and not q.zero)
    if q is None or is_centred or not is_constant(call.args[0]):
        return None
    values = call.args[0].value.numpy()
    moved = values.astype("int64") - _along(q.zero, q.axis, values.ndim)
    dtype = "int32" if q.dtype == "int32" else "int8"
    limits = np.iinfo(dtype)
    if moved.size and (moved.min() < limits.min or moved.max() > limits.max):
        return None
    centred = Quantization(dtype, q.scale, np.zeros((), "int64"), q.axis)
    return centred.dequantize(relax.const(moved.astype(dtype)))


def _along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """One value per channel in a shape that broadcasts over `rank` dimensions."""
    if values.ndim == 0:
        return values
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


def moved_constant(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """permute_dims or reshape of dequantize(constant): the same of the integers."""
    inner = rewriter.producer_of(call.args[0], DEQUANTIZE)
    q = None if inner is None else quantization(inner)
    if inner is None or q is None or not is_constant(inner.args[0]):
        return None
    values = inner.args[0].value.numpy()
    if op_name(call) == "relax.permute_dims":
        rank = values.ndim
        order = [int(a) % rank for a in call.attrs.axes or reversed(range(rank))]
        moved = values.transpose(order)
        axis: int | None = order.index(q.axis) if rank else 0
    else:
        shape = [int(dim.value) for dim in call.ty.shape]
        moved, axis = values.reshape(shape), _moved_axis(values.shape, shape, q)
    if axis is None:
        return None
    kept = Quantization(q.dtype, q.scale, q.zero, axis)
    return kept.dequantize(constant_of(moved))


def sliced_constant(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """strided_slice of dequantize(constant): the same of the integers and of their scales."""
    inner = rewriter.producer_of(call.args[0], DEQUANTIZE)
    q = None if inner is None else quantization(inner)
    if inner is None or q is None or not is_constant(inner.args[0]):
        return None
    axes, begin, end, *steps = ([int(item.value) for item in arg.fields] for arg in call.args[1:])
    values = inner.args[0].value.numpy()
    cut = [slice(None)] * values.ndim
    for i, axis in enumerate(axes):
        cut[axis] = slice(begin[i], end[i], steps[0][i] if steps else 1)
    part = values[tuple(cut)]
    if part.shape != tuple(int(dim.value) for dim in call.ty.shape):
        return None
    scale, zero = (v[cut[q.axis]] if v.ndim else v for v in (q.scale, q.zero))
    kept = Quantization(q.dtype, scale, zero, q.axis)
    return kept.dequantize(constant_of(part))


def _moved_axis(old: Sequence[int], new: Sequence[int], q: Quantization) -> int | None:
    """The axis of the channels after a reshape; None if it took them apart."""
    if q.scale.ndim == q.zero.ndim == 0:
        return 0
    before, size = math.prod(old[: q.axis]), old[q.axis]
    for axis, dim in enumerate(new):
        if dim == size and math.prod(new[:axis]) == before:
            return axis
    return None


# ---------------------------------------------------------------- pairs
def drop_requantize(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """quantize(dequantize(x)) with the same parameters is x."""
    inner = rewriter.producer_of(call.args[0], DEQUANTIZE)
    if inner is None or not same(quantization(call), quantization(inner)):
        return None
    return inner.args[0]


def drop_pair_after_pad(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """dequantize(quantize(pad(x, 0))) is the pad if x is what such a dequantize gave, moved.

    Zeros lie on the grid, and a convolution behind it can take the pad.
    """
    inner = rewriter.producer_of(call.args[0], QUANTIZE)
    pad = None if inner is None else rewriter.producer_of(inner.args[0], "relax.nn.pad")
    if inner is None or pad is None:
        return None
    source: relax.Expr = rewriter.producer(pad.args[0])
    while op_name(source) in MOVES:
        source = rewriter.producer(source.args[0])
    if op_name(source) != DEQUANTIZE:
        return None
    q = quantization(call)
    if not same(q, quantization(inner)) or not same(q, quantization(source)):
        return None
    zero = str(pad.attrs.pad_mode) == "constant" and float(pad.attrs.pad_value) == 0
    return inner.args[0] if zero else None


# ---------------------------------------------------------------- integers that are moved
def move_as_floats(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """move(x) of a quantized tensor is quantize(move(dequantize(x))), for one scale."""
    q = _made_with(rewriter, call.args[0])
    if q is None:
        return None
    value = _named(rewriter, q.dequantize(call.args[0]), "float")
    moved = relax.Call(call.op, [value, *call.args[1:]], call.attrs, call.ty_args)
    return q.quantize(_named(rewriter, moved, "moved"))


def pad_as_floats(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """The same of a pad; its value becomes what it stands for."""
    q = _made_with(rewriter, call.args[0])
    if q is None:
        return None
    filling = float((call.attrs.pad_value - float(q.zero)) * float(q.scale))
    mode, widths = str(call.attrs.pad_mode), [int(width) for width in call.attrs.pad_width]
    value = _named(rewriter, q.dequantize(call.args[0]), "float")
    moved = relax.op.nn.pad(value, widths, mode, filling)
    return q.quantize(_named(rewriter, moved, "moved"))


def dequantize_first(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """dequantize(move(integers)) is move(dequantize(integers)), for one scale.

    What is moved was an input of the model.
    """
    inner = rewriter.producer_of(call.args[0], *MOVES)
    q = quantization(call)
    if inner is None or q is None or q.scale.ndim or q.zero.ndim or is_constant(inner.args[0]):
        return None
    value = _named(rewriter, q.dequantize(inner.args[0]), "float")
    return relax.Call(inner.op, [value, *inner.args[1:]], inner.attrs, inner.ty_args)


def _made_with(rewriter: Rewriter, integers: relax.Expr) -> Quantization | None:
    """The one scale and zero point of integers that a quantize made."""
    inner = rewriter.producer_of(integers, QUANTIZE)
    q = None if inner is None else quantization(inner)
    return None if q is None or q.scale.ndim or q.zero.ndim else q


def _named(rewriter: Rewriter, call: relax.Expr, part: str) -> relax.Expr:
    return rewriter.as_variable(call, f"{rewriter.name}{SEPARATOR}{part}")


# ---------------------------------------------------------------- operands
def dequantized_last(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """dequantize(constant) + x is x + dequantize(constant): a bias stands on the right."""
    left, right = call.args
    if not _is_constant(rewriter, left) or _is_constant(rewriter, right) or is_constant(right):
        return None
    return relax.Call(call.op, [right, left], call.attrs, call.ty_args)


def _is_constant(rewriter: Rewriter, value: relax.Expr) -> bool:
    inner = rewriter.producer_of(value, DEQUANTIZE)
    return inner is not None and is_constant(inner.args[0])


QDQ_RULES: dict[str, Sequence[Rule]] = {
    **{name: (moved_constant, move_as_floats) for name in (*RESHAPES, "relax.permute_dims")},
    **{name: (move_as_floats,) for name in MOVES if name not in (*RESHAPES, "relax.permute_dims")},
    "relax.strided_slice": (sliced_constant, move_as_floats),
    "relax.nn.pad": (pad_as_floats,),
    "relax.add": (dequantized_last,),
    "relax.multiply": (dequantized_last,),
    QUANTIZE: (quantized_constant, drop_requantize),
    DEQUANTIZE: (centred_constant, drop_pair_after_pad, dequantize_first),
}
"""Operator -> its rules here; `rules.RULES` come after them."""


# ---------------------------------------------------------------- whole functions
def merge_repeated(mod: tvm.IRModule) -> tvm.IRModule:
    """One quantize and one dequantize for each value and parameters."""
    main, writer = mod["main"], FunctionWriter()
    if not any(op_name(b.value) in (QUANTIZE, DEQUANTIZE) for b in straight_bindings(main)):
        return mod
    env: dict[relax.Var, relax.Expr] = {}
    known: dict[Hashable, relax.Var] = {}
    for binding in straight_bindings(main):
        value = substituted(binding.value, env)
        key = _key(value)
        if key is not None and key in known:
            env[binding.var] = known[key]
            continue
        env[binding.var] = writer.emit(value, binding.var.name)
        if key is not None:
            known[key] = env[binding.var]
    return with_main(mod, writer.finish(main, substituted(main.body.body, env)))


def _key(value: relax.Expr) -> Hashable:
    """The same for calls that compute the same; None for other operators and for constants."""
    if op_name(value) not in (QUANTIZE, DEQUANTIZE) or is_constant(value.args[0]):
        return None
    q = quantization(value)
    if q is None:
        return None
    return op_name(value), value.args[0], q.dtype, q.scale.tobytes(), q.zero.tobytes(), q.axis


def fold_floats(mod: tvm.IRModule) -> tvm.IRModule:
    """Run FoldConstant without dequantize(constant), which would leave float weights.

    The integers are parameters while it runs. It lowers every operator before it looks for
    constants, so it is left out where it has nothing to find.
    """
    main, lifted = _with_parameters(mod["main"])
    if not any(_may_fold(binding.value) for binding in straight_bindings(main)):
        return mod
    folded = relax.transform.FoldConstant()(with_main(mod, main))
    if not lifted:
        return folded
    return with_main(mod, _without_parameters(mod["main"], folded["main"], lifted))


def _may_fold(value: relax.Expr) -> bool:
    """Whether FoldConstant could compute `value`: it reads no variable, or makes a shape."""
    return op_name(value) in SHAPES or not any(True for _ in vars_in(value))


def _with_parameters(main: relax.Function) -> tuple[relax.Function, list[relax.Expr]]:
    """`main` with one more parameter for each constant that a dequantize reads."""
    writer = FunctionWriter()
    constants: list[relax.Expr] = []
    params: list[relax.Var] = []
    env: dict[relax.Var, relax.Expr] = {}
    for binding in straight_bindings(main):
        value = substituted(binding.value, env)
        if op_name(value) == DEQUANTIZE and is_constant(value.args[0]):
            constants.append(value.args[0])
            params.append(relax.Var(f"constant{len(params)}", value.args[0].ty))
            value = relax.Call(value.op, [params[-1], *value.args[1:]], value.attrs, value.ty_args)
        env[binding.var] = writer.emit(value, binding.var.name)
    if not constants:
        return main, constants
    result = writer.finish(main, substituted(main.body.body, env))
    params = [*main.params, *params]
    return relax.Function(params, result.body, result.ret_ty, attrs=main.attrs), constants


def _without_parameters(
    source: relax.Function, folded: relax.Function, constants: Sequence[relax.Expr]
) -> relax.Function:
    env: dict[relax.Var, relax.Expr] = dict(
        zip(folded.params, [*source.params, *constants], strict=True)
    )
    writer = FunctionWriter()
    for binding in straight_bindings(folded):
        env[binding.var] = writer.emit(substituted(binding.value, env), binding.var.name)
    return writer.finish(source, substituted(folded.body.body, env))
