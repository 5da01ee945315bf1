"""Rules for leaky relus that exporters write as several operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.calls import same_type
from vta_byoc.ir.bindings import is_constant, is_float32, known_shape
from vta_byoc.ir.rewriter import Rewriter, Rule


def chosen_slope(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """where(x > 0, x, x * slopes), as PyTorch writes PReLU, is a leaky relu or prelu."""
    condition, above, below = call.args
    compared = rewriter.producer_of(condition, "relax.greater", "relax.greater_equal")
    scaled = rewriter.producer_of(below, "relax.multiply")
    if compared is None or scaled is None or not _is_zero(compared.args[1]):
        return None
    if not (compared.args[0].same_as(above) and scaled.args[0].same_as(above)):
        return None
    return _leaky(call, above, scaled.args[1])


def summed_slope(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """relu(x) + minimum(x, 0) * slopes, as TFLite defines PRELU, is a leaky relu or prelu."""
    above = rewriter.producer_of(call.args[0], "relax.nn.relu")
    scaled = rewriter.producer_of(call.args[1], "relax.multiply")
    below = None if scaled is None else rewriter.producer_of(scaled.args[0], "relax.minimum")
    if above is None or scaled is None or below is None or not _is_zero(below.args[1]):
        return None
    data = above.args[0]
    return _leaky(call, data, scaled.args[1]) if below.args[0].same_as(data) else None


def _is_zero(expr: relax.Expr) -> bool:
    return is_constant(expr) and not np.any(expr.value.numpy())


def _leaky(call: relax.Call, data: relax.Expr, slopes: relax.Expr) -> relax.Expr | None:
    """The leaky relu of float32 `data`; None where the slopes are not of one axis."""
    shape = known_shape(data.ty)
    if shape is None or not is_constant(slopes) or not is_float32(data):
        return None
    if not same_type(call, data):
        return None
    values = slopes.value.numpy()
    if values.size == 1:
        return relax.op.nn.leakyrelu(data, float(values.reshape(())))
    wide = [len(shape) - values.ndim + axis for axis, size in enumerate(values.shape) if size > 1]
    if len(wide) != 1:
        return None
    return relax.op.nn.prelu(data, relax.const(values.reshape(-1)), wide[0])


SLOPE_RULES: dict[str, Sequence[Rule]] = {
    "relax.where": (chosen_slope,),
    "relax.add": (summed_slope,),
}
"""Operator -> its rules, in the order in which they are tried."""
