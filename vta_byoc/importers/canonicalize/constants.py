"""Operators of constants, computed in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.calls import shape_of
from vta_byoc.ir.bindings import is_constant, op_name
from vta_byoc.ir.rewriter import Rewriter
from vta_byoc.ir.views import RESHAPES, axes_of


def fold_constant(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Operators of constants in NumPy; FoldConstant would compile each of them (0.1 s)."""
    return folded(call)


def folded(call: relax.Call) -> relax.Expr | None:
    """The constant that a call of known type makes of constants; None where it makes none."""
    function = _FOLDERS.get(op_name(call))
    shape = shape_of(call)
    if function is None or shape is None:
        return None
    tensors = [arg for arg in call.args if isinstance(arg.ty, relax.TensorType)]
    if not tensors or not all(is_constant(arg) for arg in tensors):
        return None
    result = function(call, shape, *(arg.value.numpy() for arg in tensors))
    dtype = str(call.ty.dtype)  # said aloud: relax.const makes int32 of int64
    return relax.const(np.ascontiguousarray(result, dtype).reshape(shape), dtype)


def _chosen(
    call: relax.Call, shape: tuple[int, ...], condition: np.ndarray, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    return np.where(condition, x, y)


_FOLDERS: dict[str, Callable[..., np.ndarray]] = {
    **{name: lambda call, shape, x: x.reshape(shape) for name in RESHAPES},
    "relax.permute_dims": lambda call, shape, x: x.transpose(axes_of(call)),
    "relax.broadcast_to": lambda call, shape, x: np.broadcast_to(x, shape),
    "relax.astype": lambda call, shape, x: x,
    "relax.negative": lambda call, shape, x: -x,
    "relax.sqrt": lambda call, shape, x: np.sqrt(x),
    "relax.less": lambda call, shape, x, y: x < y,
    "relax.where": _chosen,
    "relax.add": lambda call, shape, x, y: x + y,
    "relax.subtract": lambda call, shape, x, y: x - y,
    "relax.multiply": lambda call, shape, x, y: x * y,
}
"""Operator -> (call, shape of the result, arrays) -> the result; cast to the call's dtype."""
