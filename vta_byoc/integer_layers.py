"""Layers with constant weights as integers: convolutions, transposed convolutions, matmul.

Each kind is one `Anchor`: what is taken, which axis of the result holds the channels, what
the weights can add up to, and how the group is written.  Everything else is shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from vta_byoc.bindings import is_constant, is_float32, op_name, source_name, static_shape
from vta_byoc.dialect import DialectWriter
from vta_byoc.epilogue import Epilogue, follow
from vta_byoc.scales import (
    INT8_LOW,
    WEIGHT_HIGH,
    Accumulator,
    Rescale,
    quantized,
    scale_exponent,
    shift_to,
)

if TYPE_CHECKING:
    from vta_byoc.quantize import Quantizer, Value

BIAS_BITS = 29
"""A quantized bias has at most this many bits."""
Write = Callable[..., relax.Var]


@dataclass(frozen=True)
class Anchor:
    """One kind of layer.

    Attributes:
        layouts: of data, weights and result; empty for matmul.
        rank: of the weights.
        axis: of the result that holds the channels.
        taps: (|weight| int8, attributes) -> largest sum of magnitudes that one element of
            each channel of the result reads, int64 [channels].
        write: (writer, data, weight, bias, attributes, rescale, name) -> the group.
    """

    layouts: tuple[str, ...]
    rank: int
    axis: int
    taps: Callable[[np.ndarray, Any], np.ndarray]
    write: Write

    def takes(self, call: relax.Call) -> bool:
        """Whether `call`, of this kind, has constant weights and the layouts of the dialect."""
        if not is_constant(call.args[1]) or not is_float32(call.args[0]):
            return False
        weight = call.args[1].value.shape
        if len(weight) != self.rank or 0 in weight or call.args[0].ty.ndim < 2:
            return False
        return not self.layouts or self.layouts == _layouts(call.attrs)


def _layouts(attrs: Any) -> tuple[str, ...]:
    data = str(attrs.data_layout)
    return data, str(attrs.kernel_layout), str(attrs.out_layout) or data


# ---------------------------------------------------------------- the kinds
def _conv_taps(weight: np.ndarray, attrs: Any) -> np.ndarray:
    """Every element of channel o reads all of weight[o], whatever the groups."""
    return weight.reshape(weight.shape[0], -1).sum(axis=1, dtype="int64")


def _matmul_taps(weight: np.ndarray, attrs: Any) -> np.ndarray:
    return weight.sum(axis=0, dtype="int64")


def transposed_taps(weight: np.ndarray, attrs: Any) -> np.ndarray:
    """Weights [I, O / groups, KH, KW].  An output element reads only the taps of its phase,
    those with tap * dilation congruent modulo the stride: the largest phase counts."""
    groups = int(attrs.groups)
    inputs, per_group, kh, kw = weight.shape
    sums = weight.reshape(groups, inputs // groups, per_group, kh, kw).sum(axis=1, dtype="int64")
    sums = sums.reshape(groups * per_group, kh, kw)
    rows, columns = (
        np.arange(size) * int(dilation) % int(stride)
        for size, dilation, stride in zip((kh, kw), attrs.dilation, attrs.strides, strict=True)
    )
    phases = [
        sums[:, rows == row][:, :, columns == column].sum(axis=(1, 2))
        for row in np.unique(rows)
        for column in np.unique(columns)
    ]
    return np.max(phases, axis=0)


def _write_matmul(
    write: DialectWriter,
    data: relax.Expr,
    weight: np.ndarray,
    bias: np.ndarray,
    attrs: Any,
    rescale: Rescale | None,
    name: str,
) -> relax.Var:
    return write.matmul(data, weight, bias, rescale, name)


ANCHORS: dict[str, Anchor] = {
    "relax.nn.conv1d": Anchor(("NCW", "OIW", "NCW"), 3, 1, _conv_taps, DialectWriter.conv1d),
    "relax.nn.conv2d": Anchor(("NCHW", "OIHW", "NCHW"), 4, 1, _conv_taps, DialectWriter.conv2d),
    "relax.nn.conv2d_transpose": Anchor(
        ("NCHW", "IOHW", "NCHW"), 4, 1, transposed_taps, DialectWriter.conv2d_transpose
    ),
    "relax.matmul": Anchor((), 2, -1, _matmul_taps, _write_matmul),
}
"""Operator -> kind."""


# ---------------------------------------------------------------- constants
@dataclass(frozen=True)
class _Layer:
    """Quantized constants of a layer.

    Attributes:
        weight: int8, in the layout of the float weights.
        weight_exponent, amax: of the weights.
        bias: int32 values [channels], without rounding constant.
        sums: largest magnitude of the products' sum [channels] for any int8 input.
        exponent: of the accumulator.
    """

    name: str
    weight: np.ndarray
    weight_exponent: int
    amax: float
    bias: np.ndarray
    sums: np.ndarray
    exponent: int

    def bound(self, rounding: int = 0) -> int:
        return int((self.sums + np.abs(self.bias + rounding)).max())

    def accumulator(self, rescale: Rescale) -> Accumulator:
        inputs = self.weight.size // self.bias.size
        fix = f"split its {inputs} inputs per output over two layers and add their results"
        return Accumulator(self.name, self.bound(rescale.rounding), rescale.shift, fix)


def _layer(
    anchor: Anchor, call: relax.Call, name: str, data: Value, channels: int, bias: Any
) -> _Layer:
    """Quantize weights and bias of a layer."""
    weight = call.args[1].value.numpy()
    bias = np.zeros(channels) if bias is None else bias
    amax = float(np.abs(weight).max(initial=0))
    exponent = scale_exponent(amax, f"{name} weight")
    largest = float(np.abs(bias).max(initial=0))
    if largest:
        # Weights too small to matter beside the bias: the bias must still fit the accumulator.
        exponent = max(exponent, math.frexp(largest)[1] - BIAS_BITS - data.exponent)
    ints = _int8_weight(weight, exponent)
    acc_exponent = data.exponent + exponent
    return _Layer(
        name,
        ints,
        exponent,
        amax,
        np.rint(bias * 2.0**-acc_exponent).astype("int64"),
        anchor.taps(np.abs(ints), call.attrs) * -INT8_LOW,
        acc_exponent,
    )


def _int8_weight(weight: np.ndarray, exponent: int) -> np.ndarray:
    """Row by row: a dense layer can have 10**8 weights, too many to hold as float64 at once."""
    ints = np.empty(weight.shape, "int8")
    for row, values in zip(ints, weight, strict=True):
        row[...] = quantized(values, exponent, -WEIGHT_HIGH, WEIGHT_HIGH)
    return ints


# ---------------------------------------------------------------- the handler
def convert_layer(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A layer with its bias and clamps; int32 to float where nothing integer reads it."""
    call, var = binding.value, binding.var
    if not takes_layer(call):
        return False
    anchor = ANCHORS[op_name(call)]
    data = q.value(call.args[0])
    x = q.int8(data)
    channels = static_shape(var)[anchor.axis]
    end = follow(q, var, (anchor.axis % var.ty.ndim, channels))
    layer = _layer(anchor, call, source_name(var), data, channels, end.bias)
    if not end.clamps and q.leaves_as_float(end.last):
        return _to_float(q, binding, anchor, layer, x, end)
    exponent, shift = shift_to(layer.exponent, q.ranges[end.last], layer.bound(), layer.name)
    rescale = end.rescale(shift, exponent)
    accumulator = layer.accumulator(rescale).checked()
    bias = layer.bias + rescale.rounding
    q.note_tensor(f"{layer.name}__weight", layer.weight_exponent, layer.amax)
    out = anchor.write(q.write, x, layer.weight, bias, call.attrs, rescale, layer.name)
    q.close_group(var, end.absorbed, out, exponent, accumulator)
    return True


def _to_float(
    q: Quantizer,
    binding: relax.VarBinding,
    anchor: Anchor,
    layer: _Layer,
    x: relax.Expr,
    end: Epilogue,
) -> bool:
    accumulator = layer.accumulator(Rescale(0)).checked()
    q.note_tensor(f"{layer.name}__weight", layer.weight_exponent, layer.amax)
    attrs = binding.value.attrs
    out = anchor.write(q.write, x, layer.weight, layer.bias, attrs, None, layer.name)
    real = q.write.dequantize(out, layer.exponent, layer.name)
    q.close_float_group(binding.var, end.absorbed, real, accumulator)
    return True


def takes_layer(call: relax.Call) -> bool:
    """Whether `call` is a layer that becomes integer."""
    anchor = ANCHORS.get(op_name(call))
    return anchor is not None and anchor.takes(call)
