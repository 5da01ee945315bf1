"""Layers with constant weights as integers: convolutions, transposed convolutions, matmul.

Each kind is one `Anchor`: what is taken, which axis of the result holds the channels, what
the weights can add up to, and how the group is written.  Everything else is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.ir.bindings import is_constant, is_float32, op_name, source_name, static_shape
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.fused_ops import Epilogue, follow
from vta_byoc.quantization.requantize import FixedPoint
from vta_byoc.quantization.scales import (
    EXPONENT_LOW,
    INT8_LOW,
    INT32_HIGH,
    MAX_SHIFT,
    SILENT_SHIFT,
    TOO_FAR,
    WEIGHT_HIGH,
    Accumulator,
    Rescale,
    Scale,
    Unscalable,
    scale_exponent,
    shift_to,
)

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer, Value

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
        weight_axis: of the weights that holds them; with `shares_axis` those of one group.
        taps: (|weight| int8, attributes) -> largest sum of magnitudes that one element of
            each channel of the result reads, int64 [channels].
        write: (writer, data, weight, bias, attributes, rescale, name) -> the group.
    """

    layouts: tuple[str, ...]
    rank: int
    axis: int
    weight_axis: int
    taps: Callable[[np.ndarray, Attrs], np.ndarray]
    write: Write
    shares_axis: bool = False

    def takes(self, call: relax.Call) -> bool:
        """Whether `call`, of this kind, has constant weights and the layouts of the dialect."""
        if not is_constant(call.args[1]) or not is_float32(call.args[0]):
            return False
        weight = call.args[1].value.shape
        if len(weight) != self.rank or 0 in weight or call.args[0].ty.ndim < 2:
            return False
        return not self.layouts or self.layouts == _layouts(call.attrs)


def _layouts(attrs: Attrs) -> tuple[str, ...]:
    data = str(attrs.data_layout)
    return data, str(attrs.kernel_layout), str(attrs.out_layout) or data


# ---------------------------------------------------------------- the kinds
def _conv_taps(weight: np.ndarray, attrs: Attrs) -> np.ndarray:
    """Every element of channel o reads all of weight[o], whatever the groups."""
    return weight.reshape(weight.shape[0], -1).sum(axis=1, dtype="int64")


def _matmul_taps(weight: np.ndarray, attrs: Attrs) -> np.ndarray:
    return weight.sum(axis=0, dtype="int64")


def transposed_taps(weight: np.ndarray, attrs: Attrs) -> np.ndarray:
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
    attrs: Attrs,
    rescale: Rescale | FixedPoint | None,
    name: str,
) -> relax.Var:
    return write.matmul(data, weight, bias, rescale, name)


ANCHORS: dict[str, Anchor] = {
    "relax.nn.conv1d": Anchor(("NCW", "OIW", "NCW"), 3, 1, 0, _conv_taps, DialectWriter.conv1d),
    "relax.nn.conv2d": Anchor(("NCHW", "OIHW", "NCHW"), 4, 1, 0, _conv_taps, DialectWriter.conv2d),
    "relax.nn.conv2d_transpose": Anchor(
        ("NCHW", "IOHW", "NCHW"), 4, 1, 1, transposed_taps, DialectWriter.conv2d_transpose, True
    ),
    "relax.matmul": Anchor((), 2, -1, 1, _matmul_taps, _write_matmul),
}
"""Operator -> kind."""


# ---------------------------------------------------------------- constants
@dataclass(frozen=True)
class _Layer:
    """Quantized constants of a layer.

    Attributes:
        weight: int8, in the layout of the float weights.
        exponents: of the weights, int64 () or one for each channel.
        amax: of the weights.
        bias: int32 values [channels], without rounding constant.
        sums: largest magnitude of the products' sum [channels] for any int8 input.
        exponent: of the accumulator, like `exponents`.
    """

    name: str
    weight: np.ndarray
    exponents: np.ndarray
    amax: float
    bias: np.ndarray
    sums: np.ndarray
    exponent: np.ndarray

    def bound(self, rounding: np.ndarray | int = 0) -> int:
        return int((self.sums + np.abs(self.bias + rounding)).max())

    def accumulator(self, rounding: np.ndarray | int, shift: int) -> Accumulator:
        return layer_proof(self.name, self.weight, self.bias, self.bound(rounding), shift)


def layer_proof(
    name: str, weight: np.ndarray, bias: np.ndarray, bound: int, shift: int
) -> Accumulator:
    """The proof for a layer, with what its user can do if there is none."""
    inputs = weight.size // bias.shape[0]
    fix = f"split its {inputs} inputs per output over two layers and add their results"
    return Accumulator(name, bound, shift, fix)


def channel_peaks(anchor: Anchor, weight: np.ndarray, attrs: Attrs) -> np.ndarray:
    """The largest magnitude of the weights of each output channel, float64 [channels]."""
    magnitude = np.abs(np.moveaxis(weight, anchor.weight_axis, 0))
    groups = int(attrs.groups) if anchor.shares_axis else 1
    whole = magnitude.reshape(len(magnitude), groups, -1).max(axis=2, initial=0)
    return np.asarray(whole.T.reshape(-1), np.float64)


def per_weight(
    anchor: Anchor, values: np.ndarray, shape: Sequence[int], attrs: Attrs
) -> np.ndarray:
    """One value per output channel (or one for all), so that it broadcasts against the weights."""
    if values.ndim == 0:
        return values
    if not anchor.shares_axis:
        return values.reshape([-1 if i == anchor.weight_axis else 1 for i in range(len(shape))])
    groups = int(attrs.groups)
    rows = np.repeat(values.reshape(groups, -1), shape[0] // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (len(shape) - 2))


def _layer(
    q: Quantizer, anchor: Anchor, call: relax.Call, name: str, data: Value, end: Epilogue
) -> _Layer:
    """Quantize weights and bias of a layer."""
    weight = call.args[1].value.numpy()
    peaks = channel_peaks(anchor, weight, call.attrs)
    bias = np.zeros(len(peaks)) if end.bias is None else end.bias
    exponents = _weight_exponents(q, peaks, bias, data.scale.exponent, name, end)
    ints = int8_weight(
        weight, per_weight(anchor, np.ldexp(1.0, exponents), weight.shape, call.attrs)
    )
    acc = exponents + data.scale.exponent
    return _Layer(
        name,
        ints,
        exponents,
        float(peaks.max(initial=0)),
        np.rint(bias * np.ldexp(1.0, -acc)).astype("int64"),
        anchor.taps(np.abs(ints), call.attrs) * -INT8_LOW,
        acc,
    )


def _weight_exponents(
    q: Quantizer, peaks: np.ndarray, bias: np.ndarray, data: int, name: str, end: Epilogue
) -> np.ndarray:
    """One exponent for all channels, or one for each.

    Weights too small to matter beside the bias, or beside the result, are made coarser: the bias
    must fit the accumulator, and a shift has at most 31 bits.
    """
    if not q.arithmetic.per_channel:
        peaks, bias = peaks.max(initial=0), np.abs(bias).max(initial=0)
    least = np.where(bias != 0, np.frexp(np.abs(bias))[1] - BIAS_BITS - data, EXPONENT_LOW)
    found = np.array([scale_exponent(float(p), f"{name} weight") for p in np.ravel(peaks)])
    exponents = np.maximum(found.reshape(np.shape(peaks)), least)
    if exponents.ndim and end.last in q.ranges:
        result = q.target(end.last).exponent
        if exponents.max() + data >= result - MAX_SHIFT:
            exponents = np.maximum(exponents, result - MAX_SHIFT - data)
    same = exponents.ndim and (exponents == exponents[0]).all()
    return exponents[0] if same else exponents


def int8_weight(weight: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Weights over their steps (which broadcast), rounded half to even, -127..127.

    Row by row: a dense layer can have 10**8 weights, too many to hold as float64 at once.
    """
    ints = np.empty(weight.shape, "int8")
    steps = np.broadcast_to(steps, weight.shape)
    for row, values, step in zip(ints, weight, steps, strict=True):
        scaled = np.rint(np.float64(values) / step)
        row[...] = np.clip(scaled, -WEIGHT_HIGH, WEIGHT_HIGH)
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
    layer = _layer(q, anchor, call, source_name(var), data, end)
    if not end.clamps and q.leaves_as_float(end.last):
        return _to_float(q, binding, anchor, layer, x, end)
    rescale, exponent, proof = _rescale(q, layer, end)
    q.note_weight(layer.name, np.ldexp(1.0, layer.exponents), layer.amax)
    bias = layer.bias + (rescale.rounding if isinstance(rescale, Rescale) else rescale.offset)
    out = anchor.write(q.write, x, layer.weight, bias, call.attrs, rescale, layer.name)
    q.close_group(var, end.absorbed, out, Scale.power(exponent), proof)
    return True


def _rescale(
    q: Quantizer, layer: _Layer, end: Epilogue
) -> tuple[Rescale | FixedPoint, int, Accumulator]:
    """The rescale of an accumulator, the exponent of its result, and the proof."""
    amax, bound = q.ranges[end.last], layer.bound()
    if layer.exponent.ndim:
        return _channel_rescale(layer, amax, end)
    exponent, shift = shift_to(int(layer.exponent), amax, bound, layer.name)
    rescale = end.rescale(shift, exponent)
    return rescale, exponent, layer.accumulator(rescale.rounding, shift).checked()


def _channel_rescale(
    layer: _Layer, amax: float, end: Epilogue
) -> tuple[FixedPoint, int, Accumulator]:
    """A right shift for each channel; behind one left shift if a result is finer than its
    accumulator. Where that would leave int32, the result is coarser."""
    exponent = scale_exponent(amax, layer.name)
    if amax == 0:
        exponent = min(exponent, int(layer.exponent.min()) + SILENT_SHIFT)
    shifts = exponent - layer.exponent
    if shifts.max() > MAX_SHIFT:
        raise Unscalable(layer.name, TOO_FAR)
    left = max(0, -int(shifts.min()))
    excess = 0
    while left > excess and layer.bound() << (left - excess) > INT32_HIGH // 2:
        excess += 1
    left, shifts = left - excess, shifts + left
    rounding = np.where(shifts > 0, np.int64(1) << np.maximum(shifts - 1, 0), 0)
    steps: list[tuple[str, np.ndarray]] = [("right_shift", shifts)]
    if left:
        steps = [("left_shift", np.array(left)), ("add", rounding), *steps]
    offset = np.zeros_like(rounding) if left else rounding
    exponent += excess
    low, high = end.limits(Scale.power(exponent))
    proof = layer.accumulator(offset, int(shifts.max()) if not left else -left).checked()
    rescale = FixedPoint(offset, tuple(steps), low, high, proof.bound)
    return rescale, exponent, proof


def _to_float(
    q: Quantizer,
    binding: relax.VarBinding,
    anchor: Anchor,
    layer: _Layer,
    x: relax.Expr,
    end: Epilogue,
) -> bool:
    accumulator = layer.accumulator(0, 0).checked()
    q.note_weight(layer.name, np.ldexp(1.0, layer.exponents), layer.amax)
    attrs = binding.value.attrs
    out = anchor.write(q.write, x, layer.weight, layer.bias, attrs, None, layer.name)
    real = float_result(q, anchor, out, np.ldexp(1.0, layer.exponent), layer.name)
    q.close_float_group(binding.var, end.absorbed, real, accumulator)
    return True


def float_result(
    q: Quantizer, anchor: Anchor, out: relax.Var, steps: np.ndarray, name: str
) -> relax.Var:
    """int32 accumulators as float32; `steps` of all or of each channel."""
    if steps.ndim == 0:
        return q.write.dequantize(out, Scale(float(steps)), name)
    return q.write.dequantize(out, steps, name, axis=anchor.axis % out.ty.ndim)


def takes_layer(call: relax.Call) -> bool:
    """Whether `call` is a layer that becomes integer."""
    anchor = ANCHORS.get(op_name(call))
    return anchor is not None and anchor.takes(call)
