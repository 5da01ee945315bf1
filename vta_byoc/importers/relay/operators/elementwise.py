"""Operators of one value at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from vta_byoc.importers.relay.operators.entry import Operator, Ref, Result, Site, scalar

INT32 = np.iinfo("int32")


def _unary(function: Callable[[relax.Expr], relax.Expr]) -> Operator:
    return Operator(lambda s: function(s.tensor(0)), 1, 1)


def _binary(function: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Operator:
    return Operator(lambda s: function(s.tensor(0), s.tensor(1)), 2, 2)


def round_away(s: Site, value: relax.Expr) -> relax.Expr:
    """Halves are rounded away from zero, as `round` of C does; Relax rounds them to even."""
    whole = s.emit(relax.op.trunc(value), "whole")
    rest = s.emit(relax.op.subtract(value, whole), "rest")
    twice = s.emit(relax.op.add(rest, rest), "twice")
    return relax.op.add(whole, s.emit(relax.op.trunc(twice), "step"))


def _round(s: Site) -> Result:
    return round_away(s, s.tensor(0)) if s.dtype().startswith("float") else s.tensor(0)


def integer_bounds(low: float, high: float, dtype: str) -> tuple[int, int]:
    """The bounds of a clip as integers: cut towards zero; what no value reaches is the limit."""
    limits = np.iinfo(dtype)
    return tuple(int(min(max(edge, limits.min), limits.max)) for edge in (low, high))  # type: ignore[return-value]


def _clip(s: Site) -> Result:
    low, high, dtype = s.number("a_min"), s.number("a_max"), s.dtype()
    if dtype.startswith("float"):
        return relax.op.clip(s.tensor(0), low, high)
    least, most = integer_bounds(low, high, dtype)
    ceiling = s.emit(relax.op.minimum(s.tensor(0), scalar(most, dtype)), "ceiling")
    return relax.op.maximum(ceiling, scalar(least, dtype))


def _relu(s: Site) -> Result:
    dtype = s.dtype()
    if dtype.startswith("float"):
        return relax.op.nn.relu(s.tensor(0))
    return relax.op.maximum(s.tensor(0), scalar(0, dtype))


def _cast(s: Site) -> Result:
    return relax.op.astype(s.tensor(0), s.text("dtype"))


def _cast_like(s: Site) -> Result:
    return relax.op.astype(s.tensor(0), s.dtype(1))


def _leaky_relu(s: Site) -> Result:
    return relax.op.nn.leakyrelu(s.tensor(0), s.number("alpha"))


def _prelu(s: Site) -> Result:
    return relax.op.nn.prelu(s.tensor(0), s.tensor(1), s.integer("axis"))


def _divide(s: Site) -> Result:
    return relax.op.divide(s.tensor(0), s.tensor(1))


def _logarithm(base: float) -> Callable[[Site], Result]:
    def convert(s: Site) -> Result:
        natural = s.emit(relax.op.log(s.tensor(0)), "log")
        return relax.op.divide(natural, scalar(np.log(base), s.dtype()))

    return convert


def _identity(s: Site) -> Result:
    return s.args[0]


def _where(s: Site) -> Result:
    condition = s.tensor(0)
    if s.dtype() != "bool":
        condition = s.emit(relax.op.not_equal(condition, scalar(0, s.dtype())), "condition")
    return relax.op.where(condition, s.tensor(1), s.tensor(2))


def _fixed_point(s: Site) -> Result:
    """`x * multiplier * 2**(shift - 31)`, rounded half up, in 64 bits."""
    multiplier, shift = s.integer("multiplier"), s.integer("shift")
    right = 31 - shift
    wide = s.emit(relax.op.astype(s.tensor(0), "int64"), "wide")
    product = s.emit(relax.op.multiply(wide, scalar(multiplier, "int64")), "product")
    if right > 0:
        half = scalar(1 << (right - 1), "int64")
        product = s.emit(relax.op.add(product, half), "rounded")
        product = s.emit(relax.op.right_shift(product, scalar(right, "int64")), "shifted")
    return relax.op.astype(product, s.dtype())


_UNARY = {
    **{n: getattr(relax.op, n) for n in ("abs", "ceil", "erf", "exp", "floor", "log", "negative")},
    **{n: getattr(relax.op, n) for n in ("rsqrt", "sigmoid", "sign", "sqrt", "tanh", "trunc")},
    **{n: getattr(relax.op, n) for n in ("sin", "cos", "tan", "sinh", "cosh", "asin", "acos")},
    **{n: getattr(relax.op, n) for n in ("atan", "asinh", "acosh", "atanh", "isnan")},
    **{n: getattr(relax.op, n) for n in ("logical_not", "bitwise_not", "isfinite", "isinf")},
    "fast_exp": relax.op.exp,
    "fast_tanh": relax.op.tanh,
    "fast_erf": relax.op.erf,
}
_BINARY = {
    **{n: getattr(relax.op, n) for n in ("add", "subtract", "multiply", "maximum", "minimum")},
    **{n: getattr(relax.op, n) for n in ("power", "mod", "floor_mod", "floor_divide")},
    **{n: getattr(relax.op, n) for n in ("equal", "not_equal", "less", "less_equal", "greater")},
    **{n: getattr(relax.op, n) for n in ("greater_equal", "logical_and", "logical_or")},
    **{n: getattr(relax.op, n) for n in ("logical_xor", "bitwise_and", "bitwise_or")},
    **{n: getattr(relax.op, n) for n in ("bitwise_xor", "left_shift", "right_shift")},
}
OPERATORS: dict[str, Operator] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _binary(function) for name, function in _BINARY.items()},
    "divide": Operator(_divide, 2, 2),
    "round": Operator(_round, 1, 1),
    "clip": Operator(_clip, 1, 1, {"a_min": 0.0, "a_max": 0.0}),
    "nn.relu": Operator(_relu, 1, 1),
    "nn.leaky_relu": Operator(_leaky_relu, 1, 1, {"alpha": 0.25}),
    "nn.prelu": Operator(_prelu, 2, 2, {"axis": 1}),
    "cast": Operator(_cast, 1, 1, {"dtype": ""}),
    "cast_like": Operator(_cast_like, 2, 2),
    "log2": Operator(_logarithm(2), 1, 1),
    "log10": Operator(_logarithm(10), 1, 1),
    "where": Operator(_where, 3, 3),
    "fixed_point_multiply": Operator(_fixed_point, 1, 1, {"multiplier": 0, "shift": 0}),
    "copy": Operator(_identity, 1, 1),
    "annotation.stop_fusion": Operator(_identity, 1, 1),
    "annotation.cast_hint": Operator(_identity, 1, 1, {"dtype": ""}),
    "annotation.compiler_begin": Operator(_identity, 1, 1, {"compiler": ""}),
    "annotation.compiler_end": Operator(_identity, 1, 1, {"compiler": ""}),
    "annotation.checkpoint": Operator(_identity, 1, 1),
    "on_device": Operator(
        _identity,
        1,
        1,
        {
            "virtual_device": Ref(),
            "device_type": 0,
            "constrain_result": False,
            "constrain_body": True,
            "is_fixed": False,
        },
    ),
    "annotation.bitpack_start": Operator(_identity, 1, 1),
    "annotation.bitpack_end": Operator(_identity, 1, 1),
}
"""Relay's name -> how it becomes Relax."""
