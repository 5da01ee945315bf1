"""Draws of QNN operators: scales that are no powers of two, so that nothing lies on a half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from importer_draws import Draw
from importer_relay_layers import conv, conv_transpose, pool

Drawn = tuple[Any, ...]


def _ints(d: Draw, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return d.integers(shape, int(limits.min), int(limits.max)).astype(dtype)


def _scale(d: Draw, low: float = 0.01, high: float = 0.1) -> str:
    return f"{d.rng.uniform(low, high):.8f}f"


def _zero(d: Draw, dtype: str) -> str:
    zero = d.size(100, 140) if dtype == "uint8" else d.size(-9, 9)
    return f"{zero} /* ty=int32 */"


def _quantize(d: Draw) -> Drawn:
    dtype = d.pick("int8", "uint8")
    args = f"%x0, {_scale(d)}, {_zero(d, dtype)}"
    return (
        [d.rng.standard_normal(d.shape()).astype("float32") * 4],
        {"out_dtype": f'"{dtype}"'},
        args,
    )


def _dequantize(d: Draw) -> Drawn:
    dtype = d.pick("int8", "uint8")
    return [_ints(d, d.shape(), dtype)], {}, f"%x0, {_scale(d)}, {_zero(d, dtype)}"


def _requantize(d: Draw) -> Drawn:
    dtype, to = d.pick("int8", "uint8"), d.pick("int8", "uint8")
    args = f"%x0, {_scale(d)}, {_zero(d, dtype)}, {_scale(d)}, {_zero(d, to)}"
    return [_ints(d, d.shape(), dtype)], {"out_dtype": f'"{to}"'}, args


def _layer(draw: Callable[[Draw], Drawn]) -> Callable[[Draw], Drawn]:
    def drawn(d: Draw) -> Drawn:
        (data, weight), attrs = draw(d)
        while "NHWC" in str(attrs):
            (data, weight), attrs = draw(d)
        attrs = {k: v for k, v in attrs.items() if k != "out_dtype"}
        dtype = d.pick("int8", "uint8")
        data, weight = _ints(d, data.shape, dtype), _ints(d, weight.shape, "int8")
        first, second = d.rng.uniform(0.01, 0.1, 2).round(6)
        args = f"%x0, %x1, {_zero(d, dtype)}, 0 /* ty=int32 */, {first}f, {second}f"
        return [data, weight], {**attrs, "out_dtype": '"int32"'}, args

    return drawn


def _dense(d: Draw) -> Drawn:
    inner, units = d.size(1, 9), d.size()
    first, second = d.rng.uniform(0.01, 0.1, 2).round(6)
    args = f"%x0, %x1, {_zero(d, 'int8')}, 0 /* ty=int32 */, {first}f, {second}f"
    weights = _ints(d, (units, inner), "int8")
    data = _ints(d, (d.size(), inner), "int8")
    return [data, weights], {"units": str(units), "out_dtype": '"int32"'}, args


def _batch_matmul(d: Draw) -> Drawn:
    n, inner = d.size(1, 3), d.size(1, 6)
    left, right = (_ints(d, (n, d.size(), inner), "int8") for _ in range(2))
    args = f"%x0, %x1, {_zero(d, 'int8')}, {_zero(d, 'int8')}, {_scale(d)}, {_scale(d)}"
    return [left, right], {"out_dtype": '"int32"'}, args


def _binary(d: Draw) -> Drawn:
    dtype, shape = d.pick("int8", "uint8"), d.shape(1, 4)
    rest = ", ".join(f"{_scale(d)}, {_zero(d, dtype)}" for _ in range(3))
    return [_ints(d, shape, dtype), _ints(d, shape, dtype)], {}, f"%x0, %x1, {rest}"


def _unary(positive: bool = False) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        zero = "-128 /* ty=int32 */" if positive else _zero(d, "int8")
        x = _ints(d, d.shape(), "int8")
        x = np.maximum(x, -120).astype("int8") if positive else x
        return [x], {}, f"%x0, {_scale(d)}, {zero}, {_scale(d)}, {_zero(d, 'int8')}"

    return draw


def _with(attrs: dict[str, str]) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        inputs, _, args = _unary()(d)
        return inputs, attrs, args

    return draw


def _average(d: Draw) -> Drawn:
    inputs, attrs = pool(2, average=True)(d)
    x = _ints(d, inputs[0].shape, "int8")
    args = f"%x0, {_scale(d)}, {_zero(d, 'int8')}, {_scale(d)}, {_zero(d, 'int8')}"
    return [x], {k: v for k, v in attrs.items() if k != "count_include_pad"}, args


def _concatenate(d: Draw) -> Drawn:
    shape = d.shape(2, 4)
    scales = f"({_scale(d)}, {_scale(d)})"
    zeros = f"({_zero(d, 'int8')}, {_zero(d, 'int8')})"
    args = f"(%x0, %x1), {scales}, {zeros}, {_scale(d)}, {_zero(d, 'int8')}"
    parts = [_ints(d, shape, "int8"), _ints(d, shape, "int8")]
    return parts, {"axis": str(d.axis(len(shape)))}, args


QNN: dict[str, Callable[[Draw], Drawn]] = {
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    "qnn.conv2d": _layer(conv(2)),
    "qnn.conv2d_transpose": _layer(conv_transpose(2)),
    "qnn.dense": _dense,
    "qnn.batch_matmul": _batch_matmul,
    **{f"qnn.{n}": _binary for n in ("add", "subtract", "mul")},
    **{f"qnn.{n}": _unary() for n in ("sigmoid", "tanh", "exp", "erf", "abs")},
    **{f"qnn.{n}": _unary(positive=True) for n in ("sqrt", "rsqrt", "log")},
    "qnn.leaky_relu": _with({"alpha": "0.1f"}),
    "qnn.softmax": _with({}),
    "qnn.avg_pool2d": _average,
    "qnn.concatenate": _concatenate,
}
"""Operator -> inputs, attributes and operands of one draw."""
