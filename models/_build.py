"""Machinery for networks made from code: ONNX nodes with calibrated BatchNorm parameters.

A :class:`ModelBuilder` emits ONNX nodes and, in the same call, runs each of them on a few seeded
images (:func:`sample_inputs`). BatchNorm statistics are the true ones of these images, as after
training; `models._fit` tells how gamma and beta are chosen, `models._exact` why the result has the
same bytes on every machine.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models._exact import (
    F32,
    F64,
    Pads,
    all_pads,
    channel_moments,
    conv2d,
    max_pool2d,
    on_grid,
    on_int8_grid,
    per_channel,
    round_bits,
)
from models._fit import (
    AMAX,
    GROUP,
    LOGIT_AMAX,
    POOLED_REACH,
    REACH,
    SPREAD,
    ResidualFit,
    channel_gains,
    channel_heights,
    peak,
)
from models._images import CALIBRATION_SEED, sample_inputs

__all__ = [
    "CALIBRATION_SEED",
    "ModelBuilder",
    "Tensor",
    "build_images",
    "calibration_inputs",
    "oriented_filters",
    "random_filters",
    "sample_inputs",
]

OPSET = 17
IR_VERSION = 8
EPSILON = 1e-5
INHIBITION = 0.9
"""Negative mean of filter taps, as a share of deviation / sqrt(number of taps).

Activations are not negative, so a place or an image with more of them would drive all channels the
same way, and all images to similar logits (cosines of 0.9 and more without this, 0.1 with it).
"""


@dataclass(frozen=True)
class Tensor:
    """A value of the graph: its ONNX name, and its float32 data for the build images."""

    name: str
    data: F32


@dataclass(frozen=True)
class _Normalised:
    """Output of a convolution, and `z`: the same less mean, over deviation, per channel."""

    source: Tensor
    mean: F32
    var: F32
    z: F32


def calibration_inputs(size: int, n: int = GROUP) -> F32:
    """Images to calibrate quantization with, float32 (n, 3, size, size): the first build images.

    With up to 8 of them each layer's largest magnitude lies where the builder meant it, just below
    a power-of-two scale's limit. Other images may exceed the limit a little, which saturates a few
    values; but a scale chosen from their largest magnitude may double.
    """
    return sample_inputs(n, CALIBRATION_SEED, size)


def build_images(size: int, most: int = 32) -> F32:
    """The images to build on: `most` at 224x224 or less, fewer at larger sizes to bound memory."""
    n = int(np.clip(most * (224 / size) ** 2, GROUP, most))
    return sample_inputs(n, CALIBRATION_SEED, size)


def random_filters(rng: np.random.RandomState, shape: tuple[int, int, int, int]) -> F32:
    """OIHW filters: uniform taps, which int8 holds better than normal ones, mean below zero."""
    o, i, kh, kw = shape
    taps = i * kh * kw
    w = rng.uniform(-1, 1, shape) * rng.uniform(0.75, 1.25, (o, 1, kh, kw))
    w -= w.mean(axis=(1, 2, 3), keepdims=True) + INHIBITION / np.sqrt(3 * taps)
    return on_int8_grid(w * np.sqrt(6 / taps))


def oriented_filters(rng: np.random.RandomState, count: int, kernel: int) -> F32:
    """OIHW filters on colour images: Gabor patches of random direction, period and colour."""
    at = np.arange(kernel) - (kernel - 1) / 2
    angle, phase = rng.uniform(0, np.pi, (2, count, 1, 1))
    period = rng.uniform(0.85, 2.85, (count, 1, 1)) * kernel
    width = rng.uniform(0.23, 0.4, (count, 1, 1)) * kernel
    along = np.cos(angle) * at[None, None, :] + np.sin(angle) * at[None, :, None]
    across = np.cos(angle) * at[None, :, None] - np.sin(angle) * at[None, None, :]
    wave = np.cos(2 * np.pi * along / period + 2 * phase)
    patch = wave * np.exp(-(along**2 + across**2) / (2 * width**2))
    # Grey outweighs colour: filters that cancel most of an image would need huge gains.
    colour = rng.uniform(-1, 1, (count, 3, 1, 1)) + rng.choice([-0.5, 0.5], (count, 1, 1, 1))
    w = colour * patch[:, None]
    w /= np.abs(w).max(axis=(1, 2, 3), keepdims=True)
    return on_int8_grid(w + 0.15 * rng.uniform(-1, 1, w.shape))


class ModelBuilder:
    """Emits ONNX nodes and computes each on `images`; a node's output has the node's name."""

    def __init__(self, name: str, *, seed: int, input_name: str, images: F32) -> None:
        self.name = name
        self.seed = seed
        self.input = Tensor(input_name, images)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def rng(self, name: str) -> np.random.RandomState:
        """The random stream of one layer; RandomState because its streams are frozen (NEP 19)."""
        return np.random.RandomState([self.seed, zlib.crc32(name.encode())])

    def conv(
        self,
        x: Tensor,
        name: str,
        w: F32,
        *,
        stride: int = 1,
        pad: int | Pads = 0,
        groups: int = 1,
        dilation: int = 1,
        bias: F32 | None = None,
    ) -> Tensor:
        """Convolution; `w` is OIHW on an 8-bit grid, `bias` (O,) on the grid of activations."""
        data = conv2d(x.data, w, stride=stride, pad=pad, groups=groups, dilation=dilation)
        inputs = [x.name, self._weight(f"{name}.weight", w)]
        if bias is not None:
            data = data + per_channel(bias)
            inputs.append(self._weight(f"{name}.bias", bias))
        dilated = {} if dilation == 1 else {"dilations": [dilation] * 2}
        return self._node(
            "Conv", name, inputs, data, kernel_shape=w.shape[2:], strides=[stride] * 2,
            pads=all_pads(pad), group=groups, **dilated,
        )  # fmt: skip

    def bn_relu(self, x: Tensor, bn: str, relu: str) -> Tensor:
        """BatchNorm and relu with the largest output at AMAX."""
        n = self._normalise(x)
        offset, reach = self._channel_shape(bn, n, SPREAD, REACH)
        peaks = n.z.max(axis=(2, 3)) + offset
        gamma = channel_gains(reach, channel_heights(peaks, n.z[:, 0].size))
        gamma *= AMAX / peak(peaks * gamma)
        return self.relu(self._batch_norm(n, bn, gamma, gamma * offset), relu)

    def bn(self, x: Tensor, name: str, *, share: float = 1.0) -> Tensor:
        """BatchNorm without relu, its largest magnitude at `share` of AMAX."""
        n = self._normalise(x)
        offset, reach = self._channel_shape(name, n, (-0.3, 0.3), REACH)
        peaks = np.abs(n.z).max(axis=(2, 3)) + np.abs(offset)
        gamma = channel_gains(reach, channel_heights(peaks, n.z[:, 0].size))
        gamma *= share * AMAX / peak(peaks * gamma)
        return self._batch_norm(n, name, gamma, gamma * offset)

    def bn_add_relu(
        self, x: Tensor, identity: Tensor, bn: str, add: str, relu: str, *, pooled: bool = False
    ) -> Tensor:
        """BatchNorm on `x`, plus `identity`, then relu, with the largest output at AMAX * 2**k.

        `pooled`: a global average pooling follows, and its output shall fill the range too.
        """
        n = self._normalise(x)
        fit = ResidualFit(n.z, identity.data)
        if pooled:
            solution = fit.pooled(lambda spread: self._channel_shape(bn, n, spread, POOLED_REACH))
        else:
            solution = fit.balanced(*self._channel_shape(bn, n, SPREAD, REACH))
        y = self._batch_norm(n, bn, *solution)
        total = self._node("Add", add, [y.name, identity.name], y.data + identity.data)
        return self.relu(total, relu)

    def relu(self, x: Tensor, name: str) -> Tensor:
        return self._node("Relu", name, [x.name], np.maximum(x.data, 0))

    def max_pool(
        self,
        x: Tensor,
        name: str,
        *,
        kernel: int,
        stride: int,
        pad: int | Pads = 0,
        ceil: bool = False,
    ) -> Tensor:
        """`pad`: on every side, or (top, left, bottom, right). `ceil`: no input is left over."""
        pads = all_pads(pad)
        top, left, bottom, right = pads
        if ceil:
            bottom += (kernel - x.data.shape[2] - top - bottom) % stride
            right += (kernel - x.data.shape[3] - left - right) % stride
        filled = (top, left, bottom, right)
        data = max_pool2d(x.data, kernel=kernel, stride=stride, pads=filled)
        attrs = {"ceil_mode": 1} if ceil else {}
        return self._node(
            "MaxPool", name, [x.name], data,
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, **attrs,
        )  # fmt: skip

    def global_average_pool(self, x: Tensor, name: str) -> Tensor:
        data = on_grid(x.data.mean(axis=(2, 3), keepdims=True, dtype=np.float64))
        return self._node("GlobalAveragePool", name, [x.name], data)

    def flatten(self, x: Tensor, name: str, *, output: str | None = None) -> Tensor:
        """(N, C, H, W) to (N, C*H*W); `output`: its name, if the network ends here."""
        self._add("Flatten", name, [x.name], output or name, axis=1)
        return Tensor(output or name, x.data.reshape(len(x.data), -1))

    def dense(self, x: Tensor, name: str, *, features: int, output: str) -> Tensor:
        """Fully connected layer; its bias removes what all images have in common."""
        rng = self.rng(name)
        w = on_int8_grid(rng.uniform(-1, 1, (features, x.data.shape[1])))
        common = x.data.mean(axis=0, dtype=np.float64)
        prior = rng.uniform(-0.5, 0.5, features)
        values = (x.data - common) @ w.T.astype(np.float64)
        prior *= values.std()
        gain = round_bits(LOGIT_AMAX / peak(np.abs(values + prior)))
        bias = round_bits(gain * (prior - w.astype(np.float64) @ common))
        w *= gain
        data = x.data @ w.T.astype(np.float64) + bias
        weight, offset = self._weight(f"{name}.weight", w), self._weight(f"{name}.bias", bias)
        self._add("Gemm", name, [x.name, weight, offset], output, transB=1)
        return Tensor(output, data.astype(np.float32))

    def build(self, *outputs: Tensor) -> onnx.ModelProto:
        """The checked model, batch 1, from the input to `outputs`."""
        ends = [
            helper.make_tensor_value_info(end.name, TensorProto.FLOAT, (1, *end.data.shape[1:]))
            for end in (self.input, *outputs)
        ]
        graph = helper.make_graph(self.nodes, self.name, ends[:1], ends[1:])
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
        while self.weights:  # one copy at a time: VGG-16 has 553 MB of them
            model.graph.initializer.append(self.weights.pop(0))
        onnx.checker.check_model(model, full_check=True)
        return model

    def _normalise(self, x: Tensor) -> _Normalised:
        mean, var = map(round_bits, channel_moments(x.data))
        z = x.data - per_channel(mean)
        z *= per_channel(1 / np.sqrt(var.astype(np.float64) + EPSILON))
        return _Normalised(x, mean, var, z)

    def _batch_norm(self, n: _Normalised, name: str, gamma: F64, beta: F64) -> Tensor:
        weight, bias = round_bits(gamma), round_bits(beta)
        parts = {"weight": weight, "bias": bias, "running_mean": n.mean, "running_var": n.var}
        stored = [self._weight(f"{name}.{part}", values) for part, values in parts.items()]
        data = n.z * per_channel(weight)
        data += per_channel(bias)
        inputs = [n.source.name, *stored]
        return self._node("BatchNormalization", name, inputs, on_grid(data), epsilon=EPSILON)

    def _channel_shape(
        self, name: str, n: _Normalised, spread: tuple[float, float], reach: tuple[float, float]
    ) -> tuple[F64, F64]:
        """Random offset (mean / deviation) and reach (share of the largest) of each channel."""
        rng, channels = self.rng(name), len(n.mean)
        return rng.uniform(*spread, channels), rng.uniform(*reach, channels)

    def _node(self, op: str, name: str, inputs: list[str], data: F32, **attrs: Any) -> Tensor:
        self._add(op, name, inputs, name, **attrs)
        return Tensor(name, data)

    def _add(self, op: str, name: str, inputs: list[str], output: str, **attrs: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attrs))

    def _weight(self, name: str, values: F32) -> str:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name
