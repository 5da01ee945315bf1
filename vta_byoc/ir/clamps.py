"""Operators that clamp to an interval of constants."""

from __future__ import annotations

import math

from tvm import relax

from vta_byoc.ir.bindings import is_constant, op_name


def interval_of(binding: relax.VarBinding, data: relax.Var) -> tuple[float, float] | None:
    """The interval that `binding` clamps `data` to; None if it is something else."""
    interval = interval_of_call(binding.value)
    return interval if interval is not None and binding.var.ty.ndim == data.ty.ndim else None


def interval_of_call(call: relax.Call) -> tuple[float, float] | None:
    """The interval to which an operator clamps; None if it is no clamp by constants."""
    name = op_name(call)
    if name == "relax.nn.relu":
        return 0.0, math.inf
    if name == "relax.nn.relu6":
        return 0.0, 6.0
    if name == "relax.clip" and all(hasattr(arg, "value") for arg in call.args[1:]):
        return float(call.args[1].value), float(call.args[2].value)
    if name not in ("relax.maximum", "relax.minimum"):
        return None
    bounds = [arg for arg in call.args if is_constant(arg) and math.prod(arg.value.shape) == 1]
    if len(bounds) != 1:
        return None
    bound = float(bounds[0].value.numpy().reshape(()))
    if math.isnan(bound):
        return None
    return (bound, math.inf) if name == "relax.maximum" else (-math.inf, bound)
