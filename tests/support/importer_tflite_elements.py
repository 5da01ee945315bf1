"""Cases of TFLite operators that compute each element by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from importer_tflite_graph import ACTIVATIONS, Generator, Lite


def unary(low: float = -4, high: float = 4, kind: str = "", **drawn: Any) -> Generator:
    def generate(g: Lite) -> None:
        options = {key: g.pick(*values) for key, values in drawn.items()}
        g.test(g.tensor(g.shape(1), low, high), kind=kind, **options)

    return generate


def binary(kind: str = "", low_right: float = -4) -> Generator:
    def generate(g: Lite) -> None:
        shape = g.shape(1)
        other = g.broadcast(shape) or (1,)
        options = {"fusedActivationFunction": g.pick(*ACTIVATIONS)} if kind else {}
        x = g.tensor(shape)
        values = g.floats(other, low_right)
        y = g.const(values, "float32") if g.flag() else g.tensor(other, low_right)
        g.test(*((y, x) if g.flag() and low_right < 0 else (x, y)), kind=kind, **options)

    return generate


def compared(g: Lite) -> None:
    """Values of which many are equal."""
    shape = g.shape(1)
    other = g.broadcast(shape) or (1,)
    x, y = (g.input(np.round(g.floats(s, -2, 2))) for s in (shape, other))
    g.test(x, y, dtype="bool")


def logical(g: Lite) -> None:
    shape = g.shape(1)
    other = g.broadcast(shape) or (1,)
    g.test(_bools(g, shape), _bools(g, other), dtype="bool")


def logical_not(g: Lite) -> None:
    g.test(_bools(g, g.shape(1)), dtype="bool")


def _bools(g: Lite, shape: tuple[int, ...]) -> int:
    return g.input(g.integers(shape, 0, 1).astype("bool"))


def power(g: Lite) -> None:
    shape = g.shape(1)
    g.test(g.tensor(shape, 0.2), g.tensor(g.broadcast(shape) or (1,), -2, 2))


def add_n(g: Lite) -> None:
    shape = g.shape(1)
    g.test(*(g.tensor(shape) for _ in range(g.size(2, 4))), kind="AddNOptions")


def cast(g: Lite) -> None:
    shape = g.shape(1)
    kind = {"kind": "CastOptions"}
    which = g.size(0, 2)
    if which == 0:
        g.test(g.tensor(shape), dtype=g.pick("int32", "int64"), **kind)
    elif which == 1:
        g.test(g.input(g.integers(shape, -9, 9).astype(g.pick("int32", "int64"))), **kind)
    else:
        g.test(_bools(g, shape), **kind)


def select(g: Lite) -> None:
    """Of several elements: the interpreter makes a scalar of a single one."""
    shape = (g.size(2, 5), *g.shape(0, 3))
    chosen = (shape[0],) if g.flag() else shape
    g.test(_bools(g, chosen), g.tensor(shape), g.tensor(shape), kind="SelectOptions")


def select_v2(g: Lite) -> None:
    shape = (g.size(2, 5), *g.shape(0, 3))
    others = [g.broadcast(shape) or (1,) for _ in range(2)]
    whole = _bools(g, shape)
    g.test(whole, *(g.tensor(other) for other in others), kind="SelectV2Options")


def prelu(g: Lite) -> None:
    shape = g.shape(1)
    g.test(g.tensor(shape), g.weights(*(g.broadcast(shape) or (1,))))


def quantization(g: Lite) -> None:
    """Both, one behind the other."""
    x = g.tensor(g.shape(1))
    q = g.quantized(0.05, g.size(-9, 9))
    g.node("QUANTIZE", [x], [q], "QuantizeOptions")
    g.outputs = [g._tensor((), "float32")]
    g.node("DEQUANTIZE", [q], g.outputs, "DequantizeOptions")


def spectrum(g: Lite) -> None:
    """A transform, often with an axis put before it, and what real numbers are made of it."""
    rows, columns = g.pick(1, 1, 2, 4), g.pick(2, 4, 8, 16)
    x = g.tensor((*g.shape(0, 1), g.size(1, 5), g.size(3, 17)))
    made = g.made_tensor((), "complex64")
    g.node("RFFT2D", [x, g.const([rows, columns])], [made], "Rfft2dOptions")
    if g.flag():
        moved = g.made_tensor((), "complex64")
        g.node("EXPAND_DIMS", [made, g.const(0)], [moved], "ExpandDimsOptions")
        made = moved
    taken = g.pick("REAL", "IMAG", "COMPLEX_ABS") if g.operator == "RFFT2D" else g.operator
    g.outputs = [g.made_tensor(())]
    g.node(taken, [made], g.outputs)
    g.text = f"{rows} x {columns}, {taken}"
