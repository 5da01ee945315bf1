"""What a quantized tensor of a model file may look like, in one place for every format.

A pre-quantized model is imported to *QDQ Relax*: float operators between `relax.dequantize` and
`relax.quantize`.  Quantized tensors are int8 or uint8 with one positive scale and one zero point;
constants may have one of each per channel; biases are int32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import is_constant, op_name, straight_bindings

ACTIVATIONS = ("int8", "uint8")
BIASES = ("int32",)


@dataclass(frozen=True)
class Quantization:
    """real = scale * (integer - zero).

    Attributes:
        dtype: of the integers.
        scale: float32, () or one per channel.
        zero: int64, () or one per channel.
        axis: of the channels, from 0.
    """

    dtype: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int = 0

    def quantize(self, value: relax.Expr) -> relax.Expr:
        """float32 -> `dtype`."""
        scale, zero = self._constants()
        return relax.op.quantize(value, scale, zero, axis=self.axis, out_dtype=self.dtype)

    def dequantize(self, value: relax.Expr) -> relax.Expr:
        """`dtype` -> float32."""
        scale, zero = self._constants()
        return relax.op.dequantize(value, scale, zero, axis=self.axis)

    def _constants(self) -> tuple[relax.Expr, relax.Expr]:
        scale = relax.const(np.asarray(self.scale, "float32"))
        return scale, relax.const(np.asarray(self.zero, self.dtype))


def checked(
    tensor: str,
    dtype: str,
    scale: np.ndarray,
    zero: np.ndarray | None,
    *,
    axis: int = 0,
    rank: int,
    constant: bool,
) -> Quantization:
    """The quantization of `tensor`, after checking it; single values become scalars.

    Args:
        tensor: its name in the model, for the errors.
        dtype: of the integers.
        scale: float32, one number or one per channel.
        zero: integers, one or one per channel; None stands for 0.
        axis: of the channels; negative counts from the end.
        rank: number of dimensions of the tensor.
        constant: whether it is a weight or a bias; only these may be int32 or per channel.

    Raises:
        VTAError: another dtype; a scale that is 0, negative, infinite or no number; a zero point
            outside the dtype; scales per channel of something that is not constant.
    """
    _check_dtype(tensor, dtype, constant)
    scale = _single(np.asarray(scale))
    zero = _single(np.zeros((), "int64") if zero is None else np.asarray(zero).astype("int64"))
    _check_scale(tensor, scale)
    limits = np.iinfo(dtype)
    wrong = zero[(zero < limits.min) | (zero > limits.max)]
    if wrong.size:
        raise VTAError(
            f'tensor "{tensor}" has the zero point {wrong.flat[0]}; {dtype} holds {limits.min} to '
            f"{limits.max}; quantize the model again"
        )
    if scale.ndim == 0 and zero.ndim == 0:
        return Quantization(dtype, scale, zero)
    if not constant:
        raise VTAError(
            f'tensor "{tensor}" has {max(scale.size, zero.size)} scales, one per channel; only '
            "constants (weights and biases) may have that; quantize activations per tensor"
        )
    if scale.ndim > 1 or zero.ndim > 1 or not -rank <= axis < max(rank, 1):
        raise VTAError(
            f'tensor "{tensor}" of rank {rank} has scales of the shape {scale.shape} for axis '
            f"{axis}; scales must be one number or one per channel; quantize the model per tensor "
            "or per channel"
        )
    if (zero == zero.flat[0]).all():
        zero = zero.flat[0]
    return Quantization(dtype, scale, np.asarray(zero), axis % max(rank, 1))


def _single(values: np.ndarray) -> np.ndarray:
    return values.reshape(()) if values.size == 1 else values


def _check_dtype(tensor: str, dtype: str, constant: bool) -> None:
    allowed = ACTIVATIONS + BIASES if constant else ACTIVATIONS
    if dtype in allowed:
        return
    raise VTAError(
        f'tensor "{tensor}" is quantized to {dtype}; only int8 and uint8 are compiled, and int32 '
        "for biases; quantize the model to 8 bits"
    )


def _check_scale(tensor: str, scale: np.ndarray) -> None:
    if str(scale.dtype) != "float32":
        raise VTAError(
            f'tensor "{tensor}" has a scale of dtype {scale.dtype}; it must be float32; '
            "export the model in float32 before quantizing it"
        )
    wrong = scale[~(np.isfinite(scale) & (scale > 0))]
    if wrong.size:
        raise VTAError(
            f'tensor "{tensor}" has the quantization scale {wrong.flat[0]}; scales must be '
            "positive and finite; quantize the model again with data that reaches this tensor"
        )


def check_module(mod: tvm.IRModule) -> None:
    """Check every quantize and dequantize of `main`; a tensor is called after its variable.

    Raises:
        VTAError: see `checked`; a scale or zero point that is not constant.
    """
    for binding in straight_bindings(mod["main"]):
        if op_name(binding.value) not in ("relax.quantize", "relax.dequantize"):
            continue
        call, name = binding.value, str(binding.var.name)
        data, scale, zero = call.args
        if not is_constant(scale) or not is_constant(zero):
            raise VTAError(
                f'tensor "{name}" has a scale that is computed while the model runs (dynamic '
                "quantization); scales must be constants; quantize the model statically"
            )
        makes_integers = op_name(call) == "relax.quantize"
        checked(
            name,
            str((binding.var if makes_integers else data).ty.dtype),
            scale.value.numpy(),
            zero.value.numpy(),
            axis=int(call.attrs.axis),
            rank=data.ty.ndim,
            constant=is_constant(data),
        )
