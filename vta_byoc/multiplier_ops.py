"""Every operator's integer form at any scales: one table, operator name -> entry.

Used for models that come quantized, and for `scales="mul"`.  `integer_ops` has the same operators
at power-of-two scales, where a rescale is one shift.
"""

from __future__ import annotations

from collections.abc import Mapping

from vta_byoc.integer_elementwise import asks_arithmetic
from vta_byoc.integer_layers import ANCHORS, takes_layer
from vta_byoc.integer_moves import MOVES
from vta_byoc.integer_op import IntegerOp
from vta_byoc.integer_pool import takes_avg_pool2d
from vta_byoc.multiplier_elementwise import (
    convert_arithmetic,
    convert_clamp,
    convert_leaky_relu,
)
from vta_byoc.multiplier_layers import convert_layer
from vta_byoc.multiplier_moves import (
    convert_concat,
    convert_dequantize,
    convert_move,
    convert_quantize,
)
from vta_byoc.multiplier_pool import convert_avg_pool2d, convert_mean
from vta_byoc.qdq import DEQUANTIZE, QUANTIZE

_LAYER = IntegerOp(convert_layer, lambda q, binding: takes_layer(binding.value))
_ARITHMETIC = IntegerOp(convert_arithmetic, asks_arithmetic)
_MEAN = IntegerOp(convert_mean, lambda q, binding: True)
_CLAMP = IntegerOp(convert_clamp)
_LEAKY_RELU = IntegerOp(convert_leaky_relu)

OPERATORS: Mapping[str, IntegerOp] = {
    **{name: _LAYER for name in ANCHORS},
    "relax.add": _ARITHMETIC,
    "relax.subtract": _ARITHMETIC,
    "relax.multiply": _ARITHMETIC,
    "relax.divide": _ARITHMETIC,
    "relax.negative": _ARITHMETIC,
    "relax.maximum": _ARITHMETIC,
    "relax.minimum": _ARITHMETIC,
    "relax.nn.relu": _CLAMP,
    "relax.nn.relu6": _CLAMP,
    "relax.clip": _CLAMP,
    "relax.nn.leakyrelu": _LEAKY_RELU,
    "relax.nn.prelu": _LEAKY_RELU,
    "relax.mean": _MEAN,
    "relax.nn.adaptive_avg_pool2d": _MEAN,
    "relax.nn.avg_pool2d": IntegerOp(
        convert_avg_pool2d, lambda q, binding: takes_avg_pool2d(binding.value)
    ),
    "relax.concat": IntegerOp(convert_concat),
    **{name: IntegerOp(convert_move) for name in MOVES},
    QUANTIZE: IntegerOp(convert_quantize, lambda q, binding: True),
    DEQUANTIZE: IntegerOp(convert_dequantize),
}
"""Operator -> entry."""
