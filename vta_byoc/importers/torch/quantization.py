"""Quantization operators of pt2e, which TVM's importer does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.torch.arguments import Converter, emit

if TYPE_CHECKING:
    from torch.fx import Node
    from torch.fx.node import Argument
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter


def _quantize_per_tensor(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """quantize_per_tensor(x, scale, zero, low, high, dtype)."""
    data, scale, zero, low, high, dtype = _arguments(node, importer)
    limits = np.iinfo(dtype)
    if (low, high) != (limits.min, limits.max):
        data = emit(importer, _limited(node, data, scale, zero, (low, high)))
    scale, zero = _parameters(importer, scale, zero, dtype)
    return emit(importer, relax.op.quantize(data, scale, zero, 0, dtype))


def _limited(
    node: Node,
    data: relax.Expr,
    scale: relax.Expr | float,
    zero: relax.Expr | float,
    limits: tuple[int, int],
) -> relax.Expr:
    """Fewer integers than the dtype has: the floats they stand for are clipped before."""
    if not isinstance(scale, float) or not isinstance(zero, int):
        raise VTAError(
            f'node "{node.name}" ({node.target.__name__}) is limited to {limits[0]} to {limits[1]} '
            "and has a tensor as its scale; such a scale must be a number; quantize to all 8 bits"
        )
    low, high = (float(np.float32(limit - zero) * np.float32(scale)) for limit in limits)
    return relax.op.clip(data, low, high)


def _dequantize_per_tensor(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """dequantize_per_tensor(x, scale, zero, low, high, dtype)."""
    data, scale, zero, _low, _high, dtype = _arguments(node, importer)
    scale, zero = _parameters(importer, scale, zero, dtype)
    return emit(importer, relax.op.dequantize(data, scale, zero, 0))


def _quantize_per_channel(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """quantize_per_channel(x, scales, zeros, axis, low, high, dtype)."""
    data, scale, zero, axis, _low, _high, dtype = _arguments(node, importer)
    scale, zero = _parameters(importer, scale, zero, dtype)
    return emit(importer, relax.op.quantize(data, scale, zero, axis, dtype))


def _dequantize_per_channel(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """dequantize_per_channel(x, scales, zeros or None, axis, low, high, dtype)."""
    data, scale, zero, axis, _low, _high, dtype = _arguments(node, importer)
    scale, zero = _parameters(importer, scale, 0 if zero is None else zero, dtype)
    return emit(importer, relax.op.dequantize(data, scale, zero, axis))


def _arguments(node: Node, importer: ExportedProgramImporter) -> list[relax.Expr | Argument]:
    """The arguments, tensors as Relax, the dtype as its name."""
    args = [importer.env.get(arg, arg) if hasattr(arg, "op") else arg for arg in node.args]
    return [str(arg).removeprefix("torch.") if _is_dtype(arg) else arg for arg in args]


def _is_dtype(value: object) -> bool:
    return type(value).__name__ == "dtype"


def _parameters(
    importer: ExportedProgramImporter,
    scale: relax.Expr | float,
    zero: relax.Expr | float,
    dtype: str,
) -> tuple[relax.Expr, relax.Expr]:
    """Scale and zero point as float32 and `dtype`; PyTorch keeps them in wider types."""
    return _as(importer, scale, "float32"), _as(importer, zero, dtype)


def _as(importer: ExportedProgramImporter, value: relax.Expr | float, dtype: str) -> relax.Expr:
    if not isinstance(value, relax.Expr):
        return relax.const(np.asarray(value, dtype))
    if str(value.ty.dtype) == dtype:
        return value
    return emit(importer, relax.op.astype(value, dtype))


QUANTIZATION: dict[str, Converter] = {
    "dequantize_per_channel.default": _dequantize_per_channel,
    "dequantize_per_tensor.default": _dequantize_per_tensor,
    "dequantize_per_tensor.tensor": _dequantize_per_tensor,
    "quantize_per_channel.default": _quantize_per_channel,
    "quantize_per_tensor.default": _quantize_per_tensor,
    "quantize_per_tensor.tensor": _quantize_per_tensor,
}
"""Operator of pt2e -> converter, in the form of TVM's `custom_convert_map`."""
