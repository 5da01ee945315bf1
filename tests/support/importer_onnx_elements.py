"""Generators of ONNX cases: elementwise families, reductions, bits, quantization and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from importer_onnx_graph import FLOATS, INT32, INT64, Generator, Onnx
from onnx import TensorProto


# ---------------------------------------------------------------- families
def unary(
    low: float = -4, high: float = 4, *dtypes: int, opset: int = 0, **drawn: Any
) -> Generator:
    """One tensor, of floats or of one of `dtypes`; attributes are drawn from tuples."""

    def generate(n: Onnx) -> None:
        n.opset = opset or n.opset
        x = n.input(n.floats(n.shape(0), low, high), n.pick(FLOATS, *dtypes))
        n.test(x, **{key: n.pick(*values) for key, values in drawn.items()})

    return generate


def special(n: Onnx) -> None:
    """Numbers, infinities and what is no number."""
    x = n.node("Log", n.tensor(n.shape(0), -1, 1))
    signs = ("detect_negative", "detect_positive") if n.operator == "IsInf" else ()
    n.test(n.node("Mul", x, n.const(n.pick(1, -1))), **{sign: n.pick(None, 0, 1) for sign in signs})


def binary(
    *dtypes: int, low: float = -4, low_right: float = -4, opset: int = 0, **drawn: Any
) -> Generator:
    def generate(n: Onnx) -> None:
        n.opset = opset or n.opset
        shape, dtype = n.shape(0), n.pick(*(dtypes or (FLOATS, INT32, INT64)))
        shapes = [shape, n.broadcast(shape)]
        if n.flag():
            shapes.reverse()
        left = n.input(n.floats(shapes[0], low), dtype)
        right = n.input(n.floats(shapes[1], low_right), dtype)
        n.test(left, right, **{key: n.pick(*values) for key, values in drawn.items()})

    return generate


def several(n: Onnx) -> None:
    shape = n.shape(0)
    shapes = [shape, *(n.broadcast(shape) for _ in range(n.size(0, 2)))]
    dtype = n.pick(FLOATS, INT32) if n.operator in ("Max", "Min") else FLOATS
    n.test(*(n.input(n.floats(s), dtype) for s in shapes))


def reduction(n: Onnx) -> None:
    """Axes as an attribute or an input, none, or none on purpose."""
    shape = n.shape(1)
    axes, keep = n.axes(len(shape)), n.pick(None, 0, 1)
    positive = n.operator in ("ReduceLogSum",)
    x = n.tensor(shape, 0.5 if positive else -2, 2)
    as_input = n.opset >= (13 if n.operator == "ReduceSum" else 18)
    if n.size(1, 4) == 1:
        n.test(x, keepdims=keep, noop_with_empty_axes=n.pick(0, 1) if as_input else None)
    elif as_input:
        n.test(x, n.const(axes, "int64"), keepdims=keep)
    else:
        n.test(x, axes=axes, keepdims=keep)


def extreme(n: Onnx) -> None:
    shape = n.shape(1)
    x = n.input(n.rng.permutation(int(np.prod(shape))).reshape(shape).astype("float32"))
    if n.flag():
        x = n.input(n.floats(shape))
        n.feed, n.nodes = [n.feed[-1]], []
        x = "x1"
    n.test(
        x,
        axis=n.axis(len(shape)),
        keepdims=n.pick(None, 0, 1),
        select_last_index=n.pick(None, 0, 1),
    )


def along(**drawn: Any) -> Generator:
    """One tensor and an axis, which may be left out."""

    def generate(n: Onnx) -> None:
        shape = n.shape(1)
        axis = n.pick(None, n.axis(len(shape)))
        n.test(n.tensor(shape), axis=axis, **{k: n.pick(*v) for k, v in drawn.items()})

    return generate


# ---------------------------------------------------------------- single operators
def quantization(n: Onnx) -> None:
    """Both, as no model may end in between."""
    kind, axis = n.pick("int8", "uint8"), None
    scale, zero = n.const(0.05), n.const(n.size(0, 9), kind)
    q = n.node("QuantizeLinear", n.tensor(n.shape(1)), scale, zero, axis=axis)
    n.outputs = [n.node("DequantizeLinear", q, scale, zero, axis=axis)]


def shrink(n: Onnx) -> None:
    n.test(n.tensor(n.shape(0)), lambd=n.pick(None, 1.0), bias=n.pick(None, 0.5))


def dropout(n: Onnx) -> None:
    n.test(n.tensor(n.shape(0)), *n.pick([], [n.const(0.3)]))


def bit_shift(n: Onnx) -> None:
    shape = n.shape(0)
    x, y = (n.input(np.round(n.floats(shape, 0)), TensorProto.UINT8) for _ in range(2))
    n.test(x, y, direction=n.pick("LEFT", "RIGHT"))


def bitwise_not(n: Onnx) -> None:
    n.opset = 18
    n.test(n.input(n.floats(n.shape(0)), INT32))


def mod(n: Onnx) -> None:
    shape, whole = n.shape(0), n.flag()
    dtype = n.pick(INT32, INT64) if whole else FLOATS
    right = n.input(n.floats(n.broadcast(shape), 1), dtype)
    n.test(n.input(n.floats(shape), dtype), right, fmod=n.pick(0, 1) if whole else 1)


def sequence(n: Onnx) -> None:
    """Made and taken apart in one model."""
    shape = n.shape(1)
    x, y = n.tensor(shape), n.tensor(shape)
    both = n.node("SequenceConstruct", x, y)
    at = n.const(n.size(-2, 1), "int64")
    if n.operator == "SequenceErase":
        both = n.node("SequenceErase", both, at)
    elif n.operator == "SequenceInsert":
        both = n.node("SequenceInsert", both, x, *n.pick([], [at]))
    elif n.operator == "SplitToSequence":
        both = n.node("SplitToSequence", x, n.const([1] * shape[0], "int64"), axis=0)
    if n.operator == "SequenceLength":
        length = n.node("Cast", n.node("SequenceLength", both), to=FLOATS)
        n.outputs = [n.node("Add", x, length)]
    elif n.operator == "SequenceAt":
        n.outputs = [n.node("SequenceAt", both, at)]
    else:
        n.outputs = [n.node("ConcatFromSequence", both, axis=0, new_axis=n.pick(None, 0, 1))]


def optional(n: Onnx) -> None:
    n.opset = 18
    x = n.tensor(n.shape(0))
    some = n.node("Optional", x)
    if n.operator == "OptionalHasElement":
        there = n.node("Cast", n.node("OptionalHasElement", some), to=FLOATS)
        n.outputs = [n.node("Add", x, there)]
    else:
        n.outputs = [n.node("OptionalGetElement", some)]


def integer_product(n: Onnx) -> None:
    x, w = n.floats((3, 4)), n.const(n.integers((4, 2), -9, 9), "int16")
    n.test(n.input(x, TensorProto.INT16), w, domain="com.microsoft")


def lp_norm(n: Onnx) -> None:
    shape = n.shape(1)
    x = n.floats(shape)
    x[:1] *= n.size(0, 1)
    n.test(n.input(x), axis=n.pick(None, n.axis(len(shape))), p=n.pick(None, 1, 2))


def dft(n: Onnx) -> None:
    n.opset = n.pick(17, 20)
    is_inverse, is_onesided = n.flag(), n.flag()
    parts = n.size(1, 2) if not is_onesided else 1 + is_inverse
    rank = n.size(3, 4) if n.opset == 20 else 3
    shape = (*(n.size(1, 4) for _ in range(rank - 2)), n.size(3, 7), parts)
    attrs = {"inverse": n.pick(None, 0) if not is_inverse else 1, "onesided": int(is_onesided)}
    axis = n.size(0, rank - 2) if n.opset == 20 and n.flag() else None
    of = shape[rank - 2 if axis is None else axis]
    length = n.size(3, 8)
    if is_inverse and is_onesided:
        length = 2 * of - n.size(1, 2)  # ONNX Runtime 1.32 is wrong for other lengths
    sizes = [n.const(length, "int64")] if of == 1 or n.flag() else []
    if axis is not None:
        sizes = [*(sizes or [""]), n.const(n.pick(axis, axis - rank), "int64")]
    n.test(n.tensor(shape), *sizes, **attrs)
