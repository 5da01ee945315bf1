"""Every operator's integer form: one table, operator name -> entry.

A new operator is one entry here, with a handler for each form of scales (`ops.multiplier_table` has
the handlers for any scale).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tvm import relax

from vta_byoc.quantization.ops.base import IntegerOp
from vta_byoc.quantization.ops.elementwise import (
    asks_arithmetic,
    convert_arithmetic,
    convert_clamp,
    convert_leaky_relu,
)
from vta_byoc.quantization.ops.layers import ANCHORS, convert_layer, takes_layer
from vta_byoc.quantization.ops.movement import MOVES, convert_concat, convert_move
from vta_byoc.quantization.ops.pooling import convert_avg_pool2d, convert_mean, takes_avg_pool2d

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer

Convert: TypeAlias = "Callable[[Quantizer, relax.VarBinding], bool]"


@dataclass(frozen=True)
class Handlers:
    """How each kind of operator is written (`IntegerOp.convert`)."""

    layer: Convert
    arithmetic: Convert
    clamp: Convert
    leaky_relu: Convert
    mean: Convert
    avg_pool2d: Convert
    concat: Convert
    move: Convert


def operator_table(handlers: Handlers) -> Mapping[str, IntegerOp]:
    """Operator -> entry."""
    layer = IntegerOp(handlers.layer, lambda q, binding: takes_layer(binding.value))
    arithmetic = IntegerOp(handlers.arithmetic, asks_arithmetic)
    mean = IntegerOp(handlers.mean, lambda q, binding: True)
    clamp, leaky_relu = IntegerOp(handlers.clamp), IntegerOp(handlers.leaky_relu)
    return {
        **{name: layer for name in ANCHORS},
        "relax.add": arithmetic,
        "relax.subtract": arithmetic,
        "relax.multiply": arithmetic,
        "relax.divide": arithmetic,
        "relax.negative": arithmetic,
        "relax.maximum": arithmetic,
        "relax.minimum": arithmetic,
        "relax.nn.relu": clamp,
        "relax.nn.relu6": clamp,
        "relax.clip": clamp,
        "relax.nn.leakyrelu": leaky_relu,
        "relax.nn.prelu": leaky_relu,
        "relax.mean": mean,
        "relax.nn.adaptive_avg_pool2d": mean,
        "relax.nn.avg_pool2d": IntegerOp(
            handlers.avg_pool2d, lambda q, binding: takes_avg_pool2d(binding.value)
        ),
        "relax.concat": IntegerOp(handlers.concat),
        **{name: IntegerOp(handlers.move) for name in MOVES},
    }


OPERATORS = operator_table(
    Handlers(
        convert_layer,
        convert_arithmetic,
        convert_clamp,
        convert_leaky_relu,
        convert_mean,
        convert_avg_pool2d,
        convert_concat,
        convert_move,
    )
)
"""The forms at power-of-two scales, where a rescale is a shift."""
