"""Every operator's integer form at any scales, and quantize and dequantize operators themselves.

Used for models that come quantized, and for `scales="mul"`.
"""

from __future__ import annotations

from collections.abc import Mapping

from vta_byoc.quantization.ops.base import IntegerOp
from vta_byoc.quantization.ops.multiplier_elementwise import (
    convert_arithmetic,
    convert_clamp,
    convert_leaky_relu,
)
from vta_byoc.quantization.ops.multiplier_layers import convert_layer
from vta_byoc.quantization.ops.multiplier_movement import (
    convert_concat,
    convert_dequantize,
    convert_move,
    convert_quantize,
)
from vta_byoc.quantization.ops.multiplier_pooling import convert_avg_pool2d, convert_mean
from vta_byoc.quantization.ops.table import Handlers, operator_table
from vta_byoc.quantization.qdq import DEQUANTIZE, QUANTIZE

HANDLERS = Handlers(
    convert_layer,
    convert_arithmetic,
    convert_clamp,
    convert_leaky_relu,
    convert_mean,
    convert_avg_pool2d,
    convert_concat,
    convert_move,
)
OPERATORS: Mapping[str, IntegerOp] = {
    **operator_table(HANDLERS),
    QUANTIZE: IntegerOp(convert_quantize, lambda q, binding: True),
    DEQUANTIZE: IntegerOp(convert_dequantize),
}
"""Operator -> entry."""
