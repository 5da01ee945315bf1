"""What rules of integer operators are written with (`register_integer_op`).

A rule gets the quantizer and the binding of its operator. `Quantizer.value` gives what an argument
has become, `Quantizer.int8` its int8 tensor and `Quantizer.scale` that tensor's step and zero
point; `Quantizer.write` writes operators of the integer dialect (`DialectWriter`), and `close`
stores the result. `examples/plugin_hardswish` is a whole rule.
"""

from __future__ import annotations

from vta_byoc.ir.bindings import source_name
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.dialect_builder import const
from vta_byoc.quantization.fused_ops import FusedOperators, follow
from vta_byoc.quantization.groups import close, moves_as_int8, result_scale
from vta_byoc.quantization.linear import LinearCombination, Operand, linear
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.requantize import FixedPoint, requantizer
from vta_byoc.quantization.scales import Scale

__all__ = [
    "DialectWriter",
    "FixedPoint",
    "FusedOperators",
    "LinearCombination",
    "Operand",
    "Quantizer",
    "Scale",
    "close",
    "const",
    "follow",
    "linear",
    "moves_as_int8",
    "requantizer",
    "result_scale",
    "source_name",
]
