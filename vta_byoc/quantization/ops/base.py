"""The entry of one operator in a table of integer forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import relax

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer


def asks_if_wanted(q: Quantizer, binding: relax.VarBinding) -> bool:
    """An operator that takes its data as it comes asks if its own readers do."""
    return q.wants_int8(binding.var)


@dataclass(frozen=True)
class IntegerOp:
    """How an operator becomes integer.

    Attributes:
        convert: gets the quantizer and the operator's binding, writes the integer form, stores
            the result's value and returns True; or it writes nothing that is read and returns
            False, or raises Unscalable, and the operator becomes a float island.
        asks: whether the operator will read its data as int8, now that nobody asked for its
            result yet.
    """

    convert: Callable[[Quantizer, relax.VarBinding], bool]
    asks: Callable[[Quantizer, relax.VarBinding], bool] = asks_if_wanted
