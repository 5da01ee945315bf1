"""Elementwise operators of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import relax

from vta_byoc.importers.torch.arguments import (
    Converter,
    argument,
    cast,
    common_dtype,
    emit,
    operand,
)

if TYPE_CHECKING:
    import torch
    from torch.fx import Node
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter


# ---------------------------------------------------------------- two operands
def _binary(op: Callable[..., relax.Expr], *, to_float: bool = False) -> Converter:
    """Both operands in the dtype that PyTorch promotes them to.

    TVM casts a number to the dtype of the tensor beside it, and ignores alpha.
    """

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        left, right = node.args[:2]
        dtype = common_dtype(left, right)
        if to_float and not dtype.is_floating_point:
            dtype = _default_float()
        values = [operand(importer, value, dtype) for value in (left, right)]
        if str(dtype) == "torch.bool" and op in OF_BOOLEANS:
            return emit(importer, OF_BOOLEANS[op](*values))
        alpha = argument(node, 2, "alpha", 1)
        if alpha != 1:
            values[1] = emit(
                importer, relax.op.multiply(values[1], operand(importer, alpha, dtype))
            )
        return emit(importer, op(*values))

    return convert


OF_BOOLEANS: dict[Callable[..., relax.Expr], Callable[..., relax.Expr]] = {
    relax.op.add: relax.op.logical_or,
    relax.op.maximum: relax.op.logical_or,
    relax.op.minimum: relax.op.logical_and,
    relax.op.multiply: relax.op.logical_and,
}
"""What arithmetic means where all operands are booleans."""


def _default_float() -> torch.dtype:
    import torch

    return torch.float32


def _divided(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """div.Tensor_mode: rounded down, towards zero, or not at all."""
    left, right = node.args[:2]
    mode = argument(node, 2, "rounding_mode")
    dtype = common_dtype(left, right)
    if mode is None:
        return _binary(relax.op.divide, to_float=True)(node, importer)
    values = [operand(importer, value, dtype) for value in (left, right)]
    if mode == "floor":
        return emit(importer, relax.op.floor_divide(*values))
    quotient = emit(importer, relax.op.divide(*values))
    return emit(importer, relax.op.trunc(quotient)) if dtype.is_floating_point else quotient


_BINARY: dict[str, Callable[..., relax.Expr]] = {
    "add": relax.op.add,
    "bitwise_and": relax.op.bitwise_and,
    "bitwise_or": relax.op.bitwise_or,
    "bitwise_xor": relax.op.bitwise_xor,
    "eq": relax.op.equal,
    "fmod": relax.op.mod,
    "ge": relax.op.greater_equal,
    "gt": relax.op.greater,
    "le": relax.op.less_equal,
    "lt": relax.op.less,
    "mul": relax.op.multiply,
    "ne": relax.op.not_equal,
    "remainder": relax.op.floor_mod,
    "sub": relax.op.subtract,
}
"""Operators with an overload for two tensors and one for a tensor and a number."""


# ---------------------------------------------------------------- one operand
def _to_float(op: Callable[[relax.Expr], relax.Expr]) -> Converter:
    """Integers and booleans are computed in float32, as PyTorch does it."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        value = importer.env[node.args[0]]
        dtype = node.meta["val"].dtype
        return emit(importer, op(cast(importer, value, dtype)))

    return convert


def _clamp(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """clamp(x, low, high): high where low is above it; a fraction makes integers floats.

    The bounds are numbers, or tensors that may be larger than ``x``.
    """
    low, high = argument(node, 1, "min"), argument(node, 2, "max")
    dtype = node.meta["val"].dtype
    value = cast(importer, importer.env[node.args[0]], dtype)
    numbers = all(isinstance(bound, int | float) for bound in (low, high))
    if dtype.is_floating_point and numbers and low <= high:
        return emit(importer, relax.op.clip(value, low, high))
    if low is not None:
        value = emit(importer, relax.op.maximum(value, operand(importer, low, dtype)))
    if high is not None:
        value = emit(importer, relax.op.minimum(value, operand(importer, high, dtype)))
    return value


def _where(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    condition, *values = node.args
    dtype = node.meta["val"].dtype
    return emit(
        importer,
        relax.op.where(importer.env[condition], *(operand(importer, v, dtype) for v in values)),
    )


def _elu(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """elu(x, alpha, scale, input_scale), which is SELU and CELU too; TVM reads alpha alone."""
    x = importer.env[node.args[0]]
    names = ("alpha", "scale", "input_scale")
    alpha, scale, inner = (float(argument(node, i, n, 1)) for i, n in enumerate(names, 1))
    # Where the operand is turned, the curve of its negative part is no relu of what is left of 1.
    bent = relax.op.minimum(x, _same(x, 0)) if inner < 0 else x
    bent = bent if inner == 1 else relax.op.multiply(bent, _same(x, inner))
    below = relax.op.subtract(_same(x, 1), relax.op.exp(bent))
    below = below if inner < 0 else relax.op.nn.relu(below)
    above = relax.op.nn.relu(x)
    if scale != 1:
        above = relax.op.multiply(above, _same(x, scale))
    return emit(importer, relax.op.add(relax.op.multiply(_same(x, -alpha * scale), below), above))


def _same(x: relax.Expr, number: float) -> relax.Constant:
    return relax.const(number, str(x.ty.dtype))


ELEMENTWISE: dict[str, Converter] = {
    **{
        f"{name}.{overload}": _binary(op)
        for name, op in _BINARY.items()
        for overload in ("Scalar", "Tensor")
    },
    **{
        f"{name}.default": _to_float(getattr(relax.op, name))
        for name in (
            *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp"),
            *("log", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
        )
    },
    "atan2.default": _binary(relax.op.atan2, to_float=True),
    "bmm.default": _binary(relax.op.matmul),
    "clamp.Tensor": _clamp,
    "clamp.default": _clamp,
    "div.Scalar": _binary(relax.op.divide, to_float=True),
    "div.Tensor": _binary(relax.op.divide, to_float=True),
    "div.Tensor_mode": _divided,
    "elu.default": _elu,
    "maximum.default": _binary(relax.op.maximum),
    "minimum.default": _binary(relax.op.minimum),
    "mm.default": _binary(relax.op.matmul),
    "pow.Scalar": _binary(relax.op.power),
    "pow.Tensor_Tensor": _binary(relax.op.power),
    "where.self": _where,
}
"""Operator -> its converter."""
