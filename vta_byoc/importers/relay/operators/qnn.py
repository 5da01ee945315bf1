"""QNN operators: the float operators between dequantize and quantize, with the scales they state.

Sums of products stay floats on the way to their requantize (`Scaled`); integers are what quantize
makes at the end, as for the other formats of models that come quantized.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from vta_byoc.importers.quantized_tensor import Quantization, checked
from vta_byoc.importers.relay.operators import layers, movement, reduction, selection
from vta_byoc.importers.relay.operators.entry import (
    Attributes,
    Operator,
    Quantized,
    Ref,
    Result,
    Scaled,
    Site,
    scalar,
)
from vta_byoc.ir.bindings import is_constant

CLOSE = 1e-4
"""How far the scale that a requantize states may be from the one of the sums it reads."""


# ---------------------------------------------------------------- operands
def _stated(
    s: Site, operand: int, scale: int, zero: int, axis: int = 0, dtype: str = ""
) -> Quantization:
    """The quantization that the operands `scale` and `zero` state for `operand`."""
    value = s.args[operand]
    rank = value.floats.ty.ndim if isinstance(value, Scaled) else len(s.shape(operand))
    is_scaled = isinstance(value, Scaled)
    kind = dtype or ("int32" if is_scaled else s.dtype(operand))
    constant = is_scaled or kind == "int32" or is_constant(s.tensor(operand))
    return checked(
        f"{s.name}, operand {operand}",
        kind,
        s.array(scale).astype("float32"),
        s.array(zero),
        axis=axis,
        rank=max(rank, 1),
        constant=constant,
    )


def _real(s: Site, operand: int, scale: int, zero: int, axis: int = 0) -> relax.Expr:
    """An operand as floats."""
    value = s.args[operand]
    if isinstance(value, Scaled):
        return _rescaled(s, value, _stated(s, operand, scale, zero, axis), operand)
    integers = s.tensor(operand)
    q = _stated(s, operand, scale, zero, axis)
    return s.emit(q.dequantize(integers), f"float{operand}")


def _rescaled(s: Site, value: Scaled, stated: Quantization, operand: int) -> relax.Expr:
    """Sums that are read at the scale that they have; any other one is a factor."""
    have, want = value.quantization.scale, stated.scale
    if np.allclose(have, want, rtol=CLOSE, atol=0) and not np.any(stated.zero):
        return value.floats
    if have.ndim or want.ndim or np.any(stated.zero != value.quantization.zero):
        raise s.error(
            f"reads sums at the scale {want} that have the scale {have}; correct the module"
        )
    factor = scalar(float(want / have), "float32")
    return s.emit(relax.op.multiply(value.floats, factor), f"rescaled{operand}")


def _quantized(s: Site, value: relax.Expr, scale: int, zero: int, dtype: str) -> Quantized:
    """Floats as integers of 8 bits with the scale that operands state."""
    q = checked(
        s.name, dtype, s.array(scale).astype("float32"), s.array(zero),
        rank=max(value.ty.ndim, 1) if isinstance(value, relax.Var) else 1, constant=False,
    )  # fmt: skip
    bound = value if isinstance(value, relax.Var) else s.emit(value, "result")
    return Quantized(q.quantize(bound), q)


# ---------------------------------------------------------------- quantize and its kin
def _quantize(s: Site) -> Result:
    return _quantized(s, s.tensor(0), 1, 2, s.text("out_dtype"))


def _dequantize(s: Site) -> Result:
    axis = s.integer("axis")
    rank = len(s.shape(0)) if not isinstance(s.args[0], Scaled) else s.args[0].floats.ty.ndim
    return _real(s, 0, 1, 2, axis % max(rank, 1))


def _requantize(s: Site) -> Result:
    """To 8 bits; int32 is what PyTorch's importer clips and casts behind."""
    value = s.args[0]
    rank = value.floats.ty.ndim if isinstance(value, Scaled) else len(s.shape(0))
    axis = s.integer("axis") % max(rank, 1)
    floats, dtype = _real(s, 0, 1, 2, axis), s.text("out_dtype")
    if dtype != "int32":
        return _quantized(s, floats, 3, 4, dtype)
    scale, zero = (np.asarray(s.array(i)).reshape(()) for i in (3, 4))
    return Scaled(floats, Quantization("int32", scale.astype("float32"), zero.astype("int64")))


# ---------------------------------------------------------------- layers
def _layer(make: Callable[[Site], Result]) -> Callable[[Site], Result]:
    """A convolution; operands: data, weights, their zero points, their scales."""

    def convert(s: Site) -> Result:
        data = _real(s, 0, 4, 2)
        weight = _real(s, 1, 5, 3, s.text("kernel_layout").index("O"))
        product = make(s.on([data, weight]))
        return Scaled(product, _of_sums(s, s.text("data_layout").index("C")))

    return convert


def _of_sums(s: Site, axis: int) -> Quantization:
    scale = np.asarray(s.array(4) * s.array(5), "float32")
    scale = scale.reshape(()) if scale.size == 1 else scale.reshape(-1)
    return Quantization("int32", scale, np.zeros((), "int64"), axis)


def _dense(s: Site) -> Result:
    data, weight = _real(s, 0, 4, 2), _real(s, 1, 5, 3)
    turned = s.emit(relax.op.permute_dims(weight, [1, 0]), "weight")
    return Scaled(relax.op.matmul(data, turned), _of_sums(s, data.ty.ndim - 1))


def _batch_matmul(s: Site) -> Result:
    left, right = _real(s, 0, 4, 2), _real(s, 1, 5, 3)
    rank = right.ty.ndim
    order = [*range(rank - 2), rank - 1, rank - 2]
    turned = s.emit(relax.op.permute_dims(right, order), "turned")
    return Scaled(relax.op.matmul(left, turned), _of_sums(s, left.ty.ndim - 1))


# ---------------------------------------------------------------- elementwise
def _binary(function: Callable[..., relax.Expr]) -> Callable[[Site], Result]:
    """Operands: both sides, scale and zero point of each, and of the result."""

    def convert(s: Site) -> Result:
        total = function(_real(s, 0, 2, 3), _real(s, 1, 4, 5))
        return _quantized(s, total, 6, 7, s.dtype())

    return convert


def _unary(function: Callable[[relax.Expr], relax.Expr]) -> Callable[[Site], Result]:
    """Operands: data, its scale and zero point, and the result's."""
    return lambda s: _quantized(s, function(_real(s, 0, 1, 2)), 3, 4, s.dtype())


def _leaky_relu(s: Site) -> Result:
    made = relax.op.nn.leakyrelu(_real(s, 0, 1, 2), s.number("alpha"))
    return _quantized(s, made, 3, 4, s.dtype())


def _softmax(s: Site) -> Result:
    made = relax.op.nn.softmax(_real(s, 0, 1, 2), axis=s.integer("axis"))
    return _quantized(s, made, 3, 4, s.dtype())


def _average(s: Site) -> Result:
    inner = s.on([_real(s, 0, 1, 2)])
    made = layers.OPERATORS["nn.avg_pool2d"].convert(inner)
    return _quantized(s, made, 3, 4, s.dtype())


def _concatenate(s: Site) -> Result:
    parts = s.tensors(0)
    fields = [
        checked(s.name, str(part.ty.dtype), np.asarray(scale.value.numpy(), "float32"),
                zero.value.numpy(), rank=part.ty.ndim, constant=is_constant(part))
        for part, scale, zero in zip(parts, s.tensors(1), s.tensors(2), strict=True)
    ]  # fmt: skip
    floats = [
        s.emit(q.dequantize(part), f"float{i}")
        for i, (q, part) in enumerate(zip(fields, parts, strict=True))
    ]
    joined = relax.op.concat(floats, s.axis(s.integer("axis"), parts[0].ty.ndim))
    return _quantized(s, joined, 3, 4, str(parts[0].ty.dtype))


# ---------------------------------------------------------------- what follows sums
def _constant_added(s: Site, value: Scaled, constant: np.ndarray, axis: int) -> Result:
    """A bias in int32: a constant at the scale of the sums."""
    q = value.quantization
    bias = Quantization("int32", q.scale, np.zeros((), "int64"), axis)
    integers = relax.const(constant.astype("int32"))
    real = s.emit(bias.dequantize(integers), "bias")
    return Scaled(relax.op.add(value.floats, real), q)


def _add(s: Site, value: Scaled) -> Result:
    constant = s.array(1)
    return _constant_added(
        s, value, constant, value.quantization.axis - (value.floats.ty.ndim - constant.ndim)
    )


def _bias_add(s: Site, value: Scaled) -> Result:
    rank = value.floats.ty.ndim
    axis = s.axis(s.integer("axis"), rank)
    bias = s.array(1)
    return _constant_added(s, value, bias.reshape([-1] + [1] * (rank - axis - 1)), 0)


def _clip(s: Site, value: Scaled) -> Result:
    return _clamped(s, value, s.number("a_min"), s.number("a_max"))


def _relu(s: Site, value: Scaled) -> Result:
    return _clamped(s, value, 0.0, np.inf)


def _clamped(s: Site, value: Scaled, low: float, high: float) -> Result:
    """Bounds of the integers as bounds of the floats; what saturates anyway needs none."""
    q = value.quantization
    if q.scale.ndim:
        if low or q.zero.any() or high != np.inf:
            raise s.error("clips sums that have a scale per channel; put it behind the requantize")
        return Scaled(relax.op.nn.relu(value.floats), q)
    step, zero = float(q.scale), int(q.zero)
    edges = [float(np.float32(step * (edge - zero))) for edge in (low, high)]
    if low == zero and high == np.inf:
        clipped = relax.op.nn.relu(value.floats)
    else:
        clipped = relax.op.clip(value.floats, edges[0], min(edges[1], 3e38))
    return _as_it_was(s, Scaled(clipped, q))


def _as_it_was(s: Site, value: Scaled) -> Result:
    """Integers of 8 bits again, where the operand was that."""
    q = value.quantization
    if q.dtype == "int32":
        return value
    return Quantized(q.quantize(s.emit(value.floats, "result")), q)


def _cast(s: Site, value: Scaled) -> Result:
    q, dtype = value.quantization, s.text("dtype")
    kept = Quantization(dtype, q.scale, q.zero, q.axis)
    if dtype == "int32":
        return Scaled(value.floats, kept)
    if dtype not in ("int8", "uint8") or q.scale.ndim:
        raise s.error(f"casts sums of QNN to {dtype}; int8, uint8 and int32 are taken")
    return Quantized(kept.quantize(value.floats), kept)


def _of_floats(convert: Callable[[Site], Result]) -> Callable[[Site, Scaled], Result]:
    """The operator itself, on the floats."""

    def on_scaled(s: Site, value: Scaled) -> Result:
        made = convert(s.on([value.floats, *s.args[1:]]))
        return _as_it_was(s, Scaled(made, value.quantization))

    return on_scaled


OF_SCALED: dict[str, Callable[[Site, Scaled], Result]] = {
    "add": _add,
    "nn.bias_add": _bias_add,
    "clip": _clip,
    "nn.relu": _relu,
    "cast": _cast,
    **{
        name: _of_floats(table[name].convert)
        for table, names in (
            (layers.OPERATORS, ("nn.avg_pool2d", "nn.global_avg_pool2d", "nn.max_pool2d",
                                "nn.adaptive_avg_pool2d")),
            (movement.OPERATORS, ("reshape", "transpose", "squeeze", "nn.batch_flatten",
                                  "expand_dims")),
            (selection.OPERATORS, ("image.resize2d",)),
            (reduction.OPERATORS, ("mean",)),
        )
        for name in names
    },
}  # fmt: skip
"""What integers that stand for floats go through -> how the floats do."""
KEEPS = frozenset(
    ("reshape", "transpose", "squeeze", "expand_dims", "nn.batch_flatten", "nn.max_pool2d",
     "strided_slice", "copy", "annotation.stop_fusion", "layout_transform")
)  # fmt: skip
"""Operators that only choose among integers: the result has their scale."""

_RESULT: Attributes = {"out_dtype": "int8", "axis": -1}
_UNARIES: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    **{n: getattr(relax.op, n) for n in ("sigmoid", "tanh", "exp", "sqrt", "rsqrt", "log", "abs")},
    "erf": relax.op.erf,
}
OPERATORS: dict[str, Operator] = {
    "qnn.quantize": Operator(_quantize, 3, 3, _RESULT),
    "qnn.dequantize": Operator(_dequantize, 3, 3, {"axis": -1, "out_dtype": "float32"}),
    "qnn.requantize": Operator(
        _requantize, 5, 5, {**_RESULT, "rounding": "UPWARD", "compute_dtype": "int64"}
    ),
    "qnn.conv2d": Operator(
        _layer(layers.OPERATORS["nn.conv2d"].convert), 6, 6, layers.conv_attrs(2)
    ),
    "qnn.conv2d_transpose": Operator(
        _layer(layers.OPERATORS["nn.conv2d_transpose"].convert),
        6,
        6,
        layers.OPERATORS["nn.conv2d_transpose"].attrs,
    ),
    "qnn.dense": Operator(_dense, 6, 6, {"units": Ref(), "out_dtype": ""}),
    "qnn.batch_matmul": Operator(
        _batch_matmul, 6, 6, {"out_dtype": "", "transpose_a": False, "transpose_b": True}
    ),
    **{
        f"qnn.{name}": Operator(
            _binary(getattr(relax.op, function)), 8, 8, {"lhs_axis": -1, "rhs_axis": -1}
        )
        for name, function in (("add", "add"), ("subtract", "subtract"), ("mul", "multiply"))
    },
    **{f"qnn.{name}": Operator(_unary(f), 5, 5) for name, f in _UNARIES.items()},
    "qnn.leaky_relu": Operator(_leaky_relu, 5, 5, {"alpha": 0.25}),
    "qnn.softmax": Operator(_softmax, 5, 5, {"axis": -1}),
    "qnn.avg_pool2d": Operator(_average, 5, 5, layers.OPERATORS["nn.avg_pool2d"].attrs),
    "qnn.concatenate": Operator(_concatenate, 5, 5, {"axis": 0}),
}
"""Relay's name -> how it becomes Relax."""
