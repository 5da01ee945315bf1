"""Quantize and dequantize operators of models that come quantized: they state scales."""

from __future__ import annotations

from tvm import relax

from vta_byoc.quantization.groups import rescaled
from vta_byoc.quantization.qdq import DEQUANTIZE, QUANTIZE, quantize_scale
from vta_byoc.quantization.quantizer import Quantizer, integer_op


@integer_op(QUANTIZE, asks=lambda q, binding: True, stated=True)
def convert_quantize(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A quantize operator of the model: of floats as it is, of int8 values a rescale."""
    scale = quantize_scale(binding.value)
    if scale is None:
        return False
    value = q.value(binding.value.args[0])
    if value.int8 is None:
        out = q.write.quantize(q.plain(binding.value.args[0]), scale, binding.var.name)
    else:
        out = rescaled(q, value, scale, binding.var.name)
    q.set_int8(binding.var, out, scale)
    return True


@integer_op(DEQUANTIZE, stated=True)
def convert_dequantize(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A dequantize operator of the model: the int8 value, at its scale."""
    scale = quantize_scale(binding.value)
    if scale is None:
        return False
    q.set_int8(binding.var, q.as_int8(q.value(binding.value.args[0])), scale)
    return True
