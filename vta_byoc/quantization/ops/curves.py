"""Operators that functions of one operand are made of, and what they compute of real values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import is_float32, op_name
from vta_byoc.unary.functions import ERF, FUNCTIONS

Evaluate = Callable[..., np.ndarray]
ACTIVATIONS: Mapping[str, Evaluate] = {
    "relax.sigmoid": FUNCTIONS["sigmoid"],
    "relax.tanh": np.tanh,
    "relax.nn.silu": FUNCTIONS["silu"],
    "relax.nn.gelu": FUNCTIONS["gelu"],
    "relax.nn.gelu_tanh": FUNCTIONS["gelu_tanh"],
    "relax.nn.softplus": FUNCTIONS["softplus"],
}
"""Curves that read int8 wherever their result is read as int8."""
CURVES: Mapping[str, Evaluate] = {
    **ACTIVATIONS,
    "relax.exp": np.exp,
    "relax.erf": ERF,
    "relax.abs": np.abs,
    "relax.ceil": np.ceil,
    "relax.floor": np.floor,
    "relax.log": np.log,
    "relax.power": np.power,
    "relax.round": np.rint,
    "relax.rsqrt": lambda x: 1.0 / np.sqrt(x),
    "relax.sign": np.sign,
    "relax.sqrt": np.sqrt,
    "relax.square": np.square,
    "relax.trunc": np.trunc,
    **{f"relax.{name}": getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh")},
    **{
        f"relax.{name}": getattr(np, name.replace("a", "arc", 1))
        for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
    },
    "relax.where": np.where,
    **{
        f"relax.{name}": getattr(np, name)
        for name in ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
    },
    **{
        f"relax.logical_{name}": getattr(np, f"logical_{name}")
        for name in ("and", "or", "xor", "not")
    },
    **{f"relax.{name}": getattr(np, name) for name in ("isfinite", "isinf", "isnan")},
}
"""Operators that nothing else here makes integer; of those with truth values as results only
operators of the same group read these."""
SIMPLE: Mapping[str, Evaluate] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.negative": np.negative,
    "relax.nn.relu": lambda x: np.maximum(x, 0.0),
    "relax.nn.relu6": FUNCTIONS["relu6"],
}
"""Operators that become integer by themselves, and belong to a group beside a curve, or a product
or quotient of two values of it."""


def is_evaluated(binding: relax.VarBinding) -> bool:
    """Whether `evaluate` knows the operator: it gives float32, or truth values."""
    name = op_name(binding.value)
    if name == "relax.astype":  # of truth values: they alone are no float32 inside a group
        return is_float32(binding.var) and not is_float32(binding.value.args[0])
    taken = name in CURVES or name in SIMPLE or name in ("relax.clip", "relax.nn.leakyrelu")
    return taken and (is_float32(binding.var) or str(binding.var.ty.dtype) == "bool")


def evaluate(call: relax.Call, args: Sequence[np.ndarray]) -> np.ndarray:
    """What an operator of a function computes of `args`, its tensors and numbers as float64."""
    if op_name(call) == "relax.clip":
        return np.clip(args[0], float(call.args[1].value), float(call.args[2].value))
    if op_name(call) == "relax.astype":
        return args[0].astype(np.float64)
    if op_name(call) == "relax.nn.leakyrelu":
        return np.where(args[0] > 0, args[0], args[0] * float(call.attrs.alpha))
    return (CURVES.get(op_name(call)) or SIMPLE[op_name(call)])(*args)
