"""How each operator becomes integer: one table, operator name -> entry.

`convert` gets the quantizer and the operator's binding, writes the integer form, stores the
result's value and returns True; or it writes nothing and returns False, and the operator becomes
a float island.  `asks` says whether the operator will read its data as int8, now that nobody
asked for its result yet.  A new operator is one entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import relax
from tvm.ir import Call

from vta_byoc.bindings import op_name
from vta_byoc.integer_elementwise import (
    asks_arithmetic,
    asks_if_wanted,
    convert_arithmetic,
    convert_clamp,
    convert_leaky_relu,
)
from vta_byoc.integer_layers import ANCHORS, convert_layer, takes_layer
from vta_byoc.integer_moves import COPIES, MOVES, convert_concat, convert_move
from vta_byoc.integer_pool import convert_avg_pool2d, convert_mean, takes_avg_pool2d

if TYPE_CHECKING:
    from vta_byoc.quantize import Quantizer


@dataclass(frozen=True)
class IntegerOp:
    """The entry of one operator."""

    convert: Callable[[Quantizer, relax.VarBinding], bool]
    asks: Callable[[Quantizer, relax.VarBinding], bool] = asks_if_wanted


_LAYER = IntegerOp(convert_layer, lambda q, binding: takes_layer(binding.value))
_ARITHMETIC = IntegerOp(convert_arithmetic, asks_arithmetic)
_MEAN = IntegerOp(convert_mean, lambda q, binding: True)
_CLAMP = IntegerOp(convert_clamp)

OPERATORS: dict[str, IntegerOp] = {
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


def asks_for_int8(q: Quantizer, user: relax.VarBinding) -> bool:
    """Whether `user` will read its data as int8, now that nobody asked for its result yet."""
    if not isinstance(user.value, Call):
        return q.wants_int8(user.var)
    entry = OPERATORS.get(op_name(user.value))
    return entry is not None and entry.asks(q, user)


def kinds_of_reader(q: Quantizer, user: relax.VarBinding) -> frozenset[str]:
    """What `user` is, "float" or "integer"; for copies, and whatever is no operator, the
    kinds of their own readers."""
    name = op_name(user.value)
    if name in COPIES or not isinstance(user.value, Call):
        return q.readers(user.var)
    return frozenset({"integer" if name in OPERATORS else "float"})
