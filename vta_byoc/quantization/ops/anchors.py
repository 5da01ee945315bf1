"""Layers with constant weights: kinds, and arithmetic on their weights channel by channel.

Each kind is one `Anchor`: what is taken, which axis of the result holds the channels, what
the weights can add up to, and how the group is written.  Everything else is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.ir.bindings import is_constant, is_float32
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.scales import WEIGHT_HIGH

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
    """The `taps` of a transposed convolution with weights [I, O / groups, KH, KW].

    An output element reads only the taps of its phase, those with tap * dilation congruent modulo
    the stride: the largest phase counts.
    """
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


ANCHORS: dict[str, Anchor] = {
    "relax.nn.conv1d": Anchor(("NCW", "OIW", "NCW"), 3, 1, 0, _conv_taps, DialectWriter.conv1d),
    "relax.nn.conv2d": Anchor(("NCHW", "OIHW", "NCHW"), 4, 1, 0, _conv_taps, DialectWriter.conv2d),
    "relax.nn.conv2d_transpose": Anchor(
        ("NCHW", "IOHW", "NCHW"), 4, 1, 1, transposed_taps, DialectWriter.conv2d_transpose, True
    ),
    "relax.matmul": Anchor(
        (),
        2,
        -1,
        1,
        _matmul_taps,
        lambda write, data, weight, bias, attrs, rescale, name: write.matmul(
            data, weight, bias, rescale, name
        ),
    ),
}
"""Operator -> kind."""


# ---------------------------------------------------------------- weights by channel
def channel_absmax(anchor: Anchor, weight: np.ndarray, attrs: Attrs) -> np.ndarray:
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
