"""Indices of imported models: none leaves its axis.

TVM computes `take` and its kin with whatever address an index gives: a negative index, which every
source format counts from the end, reads memory in front of the tensor.  `bound_indices` runs once
on every imported module, whatever its format.  Constant indices are checked and made non-negative.
Indices that are computed while the model runs count from the end where they are negative, and are
then limited to their axis: a valid index gives what the source runtime gives, an invalid one, for
which that runtime stops with an error, gives an element of the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.canonicalize.constants import fold_constant
from vta_byoc.ir.bindings import (
    SEPARATOR,
    constant_of,
    is_constant,
    op_name,
    static_shape,
    straight_bindings,
    with_main,
)
from vta_byoc.ir.rewriter import Rewriter

INDEX = 1
"""Every operator of the table reads its indices, a tensor or a tuple of tensors, as argument 1."""
COMPUTED_IN = ("int32", "int64")


# ---------------------------------------------------------------- the axes that indices point into
def _one_axis(call: relax.Call) -> list[np.ndarray]:
    shape, axis = static_shape(call.args[0]), call.attrs.axis
    return [np.asarray(math.prod(shape) if axis is None else shape[int(axis)])]


def _leading_axes(call: relax.Call) -> list[np.ndarray]:
    """The last axis of the indices holds one coordinate for each of the leading axes."""
    first = int(getattr(call.attrs, "batch_dims", 0))
    count = static_shape(call.args[INDEX])[-1]
    return [np.asarray(static_shape(call.args[0])[first : first + count])]


def _axis_each(call: relax.Call) -> list[np.ndarray]:
    sizes = static_shape(call.args[0])
    return [np.asarray(size) for size, _ in zip(sizes, _indices(call), strict=False)]


SIZES: dict[str, Callable[[relax.Call], list[np.ndarray]]] = {
    "relax.gather_elements": _one_axis,
    "relax.gather_nd": _leading_axes,
    "relax.index_put": _axis_each,
    "relax.index_tensor": _axis_each,
    "relax.scatter_elements": _one_axis,
    "relax.scatter_nd": _leading_axes,
    "relax.take": _one_axis,
}
"""Operator with indices -> for each tensor of indices, the sizes that limit its values: a number,
or one for each element of its last axis."""


def _indices(call: relax.Call) -> list[relax.Expr]:
    given = call.args[INDEX]
    return list(given.fields) if isinstance(given, Tuple) else [given]


# ---------------------------------------------------------------- proofs
Producer = Callable[[relax.Expr], "relax.Expr | None"]
"""Variable -> what it is bound to."""


def unproven_indices(mod: tvm.IRModule) -> list[str]:
    """The variables of `main` whose operator reads an index that may leave its axis."""
    made = {binding.var: binding.value for binding in straight_bindings(mod["main"])}
    return [
        str(var.name)
        for var, value in made.items()
        if op_name(value) in SIZES and not all(_are_proven(value, made.get))
    ]


def _are_proven(call: relax.Call, producer: Producer) -> Iterator[bool]:
    for index, size in zip(_indices(call), SIZES[op_name(call)](call), strict=True):
        if is_constant(index):
            value = index.value.numpy()
            yield bool(((value >= 0) & (value < size)).all())
        else:
            yield _is_limited(index, size, producer)


def _is_limited(index: relax.Expr, size: np.ndarray, producer: Producer) -> bool:
    """Whether `index` is minimum(maximum(anything, 0), size - 1)."""
    upper = producer(index)
    if upper is None or op_name(upper) != "relax.minimum" or not is_constant(upper.args[1]):
        return False
    lower = producer(upper.args[0])
    if lower is None or op_name(lower) != "relax.maximum" or not is_constant(lower.args[1]):
        return False
    above = bool((lower.args[1].value.numpy() >= 0).all())
    return above and bool((upper.args[1].value.numpy() <= size - 1).all())


# ---------------------------------------------------------------- the rewriting
def bound_indices(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with every index of `main` inside its axis; a constant scalar index becomes a slice.

    Raises:
        VTAError: a constant index outside its axis, or an axis without elements.
    """
    return with_main(mod, Rewriter(mod["main"], _rules).run())


def _rules(name: str) -> tuple[Callable[..., relax.Expr | None], ...]:
    if name not in SIZES:
        return (fold_constant,)
    return (fold_constant, _bounded, *_FORMS.get(name, ()))


def _bounded(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    if all(_are_proven(call, rewriter.producer)):
        return None
    sizes = SIZES[op_name(call)](call)
    bounded = [
        _inside(rewriter, call, index, size)
        for index, size in zip(_indices(call), sizes, strict=True)
    ]
    is_tuple = isinstance(call.args[INDEX], Tuple)
    args = list(call.args)
    args[INDEX] = Tuple(bounded) if is_tuple else bounded[0]
    return relax.Call(call.op, args, call.attrs, call.ty_args)


def _inside(
    rewriter: Rewriter, call: relax.Call, index: relax.Expr, size: np.ndarray
) -> relax.Expr:
    if not size.all():
        raise _error(
            rewriter, call, "an axis without elements; an index must have something to point at; "
            "remove the operator"
        )  # fmt: skip
    if is_constant(index):
        return _constant_inside(rewriter, call, index, size)
    return _limited(rewriter, index, size)


def _constant_inside(
    rewriter: Rewriter, call: relax.Call, index: relax.Expr, size: np.ndarray
) -> relax.Expr:
    value = index.value.numpy()
    outside = (value < -size) | (value >= size)
    if outside.any():
        first = int(value[outside].reshape(-1)[0])
        limit = int(np.broadcast_to(size, value.shape)[outside].reshape(-1)[0])
        raise _error(
            rewriter, call, f"the index {first}; its axis has {limit} elements, so {-limit} to "
            f"{limit - 1} can be read; correct the index"
        )  # fmt: skip
    return constant_of(np.where(value < 0, value + size, value))


def _limited(rewriter: Rewriter, index: relax.Expr, size: np.ndarray) -> relax.Expr:
    """minimum(maximum(index + size where index is negative, 0), size - 1)."""

    def emit(expr: relax.Expr) -> relax.Expr:
        return rewriter.emit(expr, f"{rewriter.name}{SEPARATOR}index")

    dtype = str(index.ty.dtype)
    if dtype not in COMPUTED_IN:
        dtype = "int64"
        index = emit(relax.op.astype(index, dtype))
    zero, count, last = (relax.const(np.asarray(v), dtype) for v in (0, size, size - 1))
    is_negative = emit(relax.op.less(index, zero))
    from_end = emit(relax.op.add(index, count))
    counted = emit(relax.op.where(is_negative, from_end, index))
    return emit(relax.op.minimum(emit(relax.op.maximum(counted, zero)), last))


def _element_as_slice(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """One element of an axis, a proven constant, is a slice without that axis: VTA copies it."""
    index, axis = call.args[INDEX], call.attrs.axis
    if axis is None or not is_constant(index) or index.ty.ndim:
        return None
    at = int(index.value.numpy())
    piece = relax.op.strided_slice(call.args[0], [int(axis)], [at], [at + 1])
    return relax.op.squeeze(rewriter.emit(piece, f"{rewriter.name}{SEPARATOR}slice"), [int(axis)])


def _clipped(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """The same elements: no index is outside, and TVM does not warn of what would happen then."""
    if str(call.attrs.mode) != "fast":
        return None
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return relax.op.take(call.args[0], call.args[INDEX], axis, mode="clip")


def _scatter_into_part(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Indices of fewer rows than the data point into the first of these.

    TVM would take the shape of the indices for that of the data.
    """
    data, index, updates = call.args
    axis, shape, part = int(call.attrs.axis), static_shape(data), static_shape(index)
    smaller = (i for i in range(len(shape)) if i != axis % len(shape) and part[i] < shape[i])
    along = next(smaller, None)
    if along is None:
        return None

    def rows(first: int, last: int) -> relax.Var:
        piece = relax.op.strided_slice(data, [along], [first], [last])
        return rewriter.emit(piece, f"{rewriter.name}{SEPARATOR}rows")

    size = part[along]
    scattered = relax.Call(call.op, [rows(0, size), index, updates], call.attrs, call.ty_args)
    written = rewriter.as_variable(scattered, f"{rewriter.name}{SEPARATOR}scatter")
    return relax.op.concat([written, rows(size, shape[along])], along)


_FORMS = {
    "relax.scatter_elements": (_scatter_into_part,),
    "relax.take": (_element_as_slice, _clipped),
}
"""Operator -> rules for what TVM computes wrongly, or VTA better."""


def _error(rewriter: Rewriter, call: relax.Call, text: str) -> VTAError:
    """An error that names the operator and goes on with `text`."""
    name = str(rewriter.name).split(SEPARATOR)[0]
    return VTAError(f'node "{name}" ({op_name(call).removeprefix("relax.")}) has {text}')
