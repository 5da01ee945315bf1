"""Every operator's integer form at power-of-two scales: one table, operator name -> entry.

A new operator is one entry here.
"""

from __future__ import annotations

from collections.abc import Mapping

from vta_byoc.integer_elementwise import (
    asks_arithmetic,
    convert_arithmetic,
    convert_clamp,
    convert_leaky_relu,
)
from vta_byoc.integer_layers import ANCHORS, convert_layer, takes_layer
from vta_byoc.integer_moves import MOVES, convert_concat, convert_move
from vta_byoc.integer_op import IntegerOp
from vta_byoc.integer_pool import convert_avg_pool2d, convert_mean, takes_avg_pool2d

_LAYER = IntegerOp(convert_layer, lambda q, binding: takes_layer(binding.value))
_ARITHMETIC = IntegerOp(convert_arithmetic, asks_arithmetic)
_MEAN = IntegerOp(convert_mean, lambda q, binding: True)
_CLAMP = IntegerOp(convert_clamp)

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
    "relax.nn.leakyrelu": IntegerOp(convert_leaky_relu),
    "relax.nn.prelu": IntegerOp(convert_leaky_relu),
    "relax.mean": _MEAN,
    "relax.nn.adaptive_avg_pool2d": _MEAN,
    "relax.nn.avg_pool2d": IntegerOp(
        convert_avg_pool2d, lambda q, binding: takes_avg_pool2d(binding.value)
    ),
    "relax.concat": IntegerOp(convert_concat),
    **{name: IntegerOp(convert_move) for name in MOVES},
}
"""Operator -> entry."""
