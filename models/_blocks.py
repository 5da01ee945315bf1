"""Blocks of networks after 2018: gates, inverted residuals, splits, resizing, layer norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models._activations import RELU, Activation
from models._build import Tensor, oriented_filters, random_filters
from models._exact import (
    F32,
    conv2d,
    conv_transpose2d,
    on_grid,
    on_int8_grid,
    per_channel,
    round_bits,
)
from models._filters import depthwise_filters
from models._fit import AMAX, peak
from models._layers import LayerBuilder, _magnitude
from models._smooth import GELU, SIGMOID, SILU

SHARED_BIAS = 0.1
"""Largest bias of a convolution in front of a BatchNorm, which takes it away again."""
LAYER_NORM_EPSILON = 1e-6


class BlockBuilder(LayerBuilder):
    """LayerBuilder with the blocks of newer networks."""

    # ------------------------------------------------------------ convolutions
    def conv_bn(
        self,
        x: Tensor,
        name: str,
        channels: int,
        kernel: int = 1,
        *,
        activation: Activation | None = RELU,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
        pooled: bool = False,
    ) -> Tensor:
        """Convolution that keeps the size (over `stride`), BatchNorm, and an activation if any."""
        y = self.conv(
            x, name, self.drawn(x, name, channels, kernel, groups), stride=stride,
            pad=kernel // 2 * dilation, groups=groups, dilation=dilation,
        )  # fmt: skip
        if activation is None:
            return self.bn(y, f"{name}.bn")
        return self.bn_act(y, f"{name}.bn", f"{name}.act", activation, pooled=pooled)

    def drawn(self, x: Tensor, name: str, channels: int, kernel: int, groups: int = 1) -> F32:
        """OIHW filters for `x`: of colours, of single channels, of groups, or of all."""
        rng, inputs = self.rng(name), x.data.shape[1]
        if x is self.input and inputs == 3:
            return oriented_filters(rng, channels, kernel)
        if groups == inputs == channels:
            return depthwise_filters(rng, x.data, kernel)
        if groups > 1 or x is self.input:
            return random_filters(rng, (channels, inputs // groups, kernel, kernel))
        return self.filters(x, name, channels, kernel)

    def small_bias(self, name: str, channels: int) -> F32:
        """A bias (channels,) on the grid of activations."""
        values = self.rng(f"{name}.bias").uniform(-SHARED_BIAS, SHARED_BIAS, channels)
        return on_grid(values).astype(np.float32)

    def level_conv(
        self,
        x: Tensor,
        name: str,
        w: F32,
        *,
        stride: int = 1,
        pad: int = 0,
        groups: int = 1,
        bias: F32 | None = None,
    ) -> Tensor:
        """Convolution with nothing behind it: a power of two brings it near the usual peak."""
        reached = _magnitude(conv2d(x.data, w, stride=stride, pad=pad, groups=groups))
        w = w * np.float32(2.0 ** np.rint(np.log2(AMAX / reached)))
        return self.conv(x, name, w, stride=stride, pad=pad, groups=groups, bias=bias)

    def wide_conv(
        self, x: Tensor, name: str, w: F32, *, stride: int = 1, pad: int = 0, groups: int = 1
    ) -> Tensor:
        """The same with bias."""
        bias = self.small_bias(name, len(w))
        return self.level_conv(x, name, w, stride=stride, pad=pad, groups=groups, bias=bias)

    def up_conv(self, x: Tensor, name: str, w: F32) -> Tensor:
        """Transposed convolution with bias to `w`'s kernel times the size; near the usual peak."""
        stride = w.shape[2]
        reached = _magnitude(conv_transpose2d(x.data, w, stride=stride, pad=0))
        w = w * np.float32(2.0 ** np.rint(np.log2(AMAX / reached)))
        bias = self.small_bias(name, w.shape[1])
        data = conv_transpose2d(x.data, w, stride=stride, pad=0) + per_channel(bias)
        stored = [self._weight(f"{name}.weight", w), self._weight(f"{name}.bias", bias)]
        return self._node(
            "ConvTranspose", name, [x.name, *stored], data,
            kernel_shape=[stride] * 2, strides=[stride] * 2, pads=[0] * 4,
        )  # fmt: skip

    # ------------------------------------------------------------ along one axis
    def conv1d(self, x: Tensor, name: str, w: F32, *, stride: int, bias: F32) -> Tensor:
        """Convolution along the last axis; `w` is (O, I, 1, K). Maps are (N, C, 1, L) in memory."""
        rows = x.data.reshape(len(x.data), x.data.shape[1], 1, -1)
        data = conv2d(rows, w, stride=stride) + per_channel(bias)
        stored = [self._weight(f"{name}.weight", w[:, :, 0]), self._weight(f"{name}.bias", bias)]
        return self._node(
            "Conv", name, [x.name, *stored], data,
            kernel_shape=w.shape[3:], strides=[stride], pads=[0, 0], group=1,
        )  # fmt: skip

    def max_pool1d(self, x: Tensor, name: str, *, kernel: int) -> Tensor:
        """Maximum over windows that do not overlap; what is left over is dropped."""
        whole = x.data.shape[3] // kernel * kernel
        data = x.data[..., :whole].reshape(*x.data.shape[:3], -1, kernel).max(axis=4)
        return self._node(
            "MaxPool", name, [x.name], data, kernel_shape=[kernel], strides=[kernel], pads=[0, 0]
        )

    # ------------------------------------------------------------ gates
    def squeeze_excite(
        self,
        x: Tensor,
        name: str,
        squeezed: int,
        *,
        activation: Activation = RELU,
        gate: Activation = SIGMOID,
    ) -> Tensor:
        """Channels times a gate that two layers compute from their averages."""
        y = self.global_average_pool(x, f"{name}.avgpool")
        w = self.filters(y, f"{name}.fc1", squeezed, 1)
        y = self.conv_act(y, f"{name}.fc1", w, f"{name}.act", activation)
        w = self.filters(y, f"{name}.fc2", x.data.shape[1], 1)
        y = self.conv_act(y, f"{name}.fc2", w, f"{name}.gate", gate)
        return self._node("Mul", f"{name}.mul", [x.name, y.name], on_grid(x.data * y.data))

    def activate(self, x: Tensor, name: str, activation: Activation) -> Tensor:
        """The activation, as the operators that PyTorch writes for it."""
        data = activation.apply(x.data)
        if activation is SILU:
            self._add("Sigmoid", f"{name}.sigmoid", [x.name], f"{name}.sigmoid")
            return self._node("Mul", name, [x.name, f"{name}.sigmoid"], data)
        if activation is GELU:
            return self._gelu(x, name, data)
        return super().activate(x, name, activation)

    def _gelu(self, x: Tensor, name: str, data: F32) -> Tensor:
        root, one, half = (
            self._scalar(f"gelu.{part}", value)
            for part, value in (("root", float(np.sqrt(2))), ("one", 1.0), ("half", 0.5))
        )
        steps = (
            ("Div", "div", x.name, root),
            ("Erf", "erf", f"{name}.div"),
            ("Add", "add", f"{name}.erf", one),
            ("Mul", "mul", x.name, f"{name}.add"),
        )
        for op, part, *inputs in steps:
            self._add(op, f"{name}.{part}", inputs, f"{name}.{part}")
        return self._node("Mul", name, [f"{name}.mul", half], data)

    def _scalar(self, name: str, value: float) -> str:
        if name not in {weight.name for weight in self.weights}:
            self._weight(name, np.asarray(value, np.float32))
        return name

    # ------------------------------------------------------------ without parameters
    def add(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        """The sum of two maps."""
        return self._node("Add", name, [x.name, y.name], x.data + y.data)

    def average_pool(self, x: Tensor, name: str, *, kernel: int) -> Tensor:
        """The average of windows that do not overlap."""
        n, c, h, w = x.data.shape
        windows = x.data.reshape(n, c, h // kernel, kernel, w // kernel, kernel)
        data = on_grid(windows.mean(axis=(3, 5), dtype=np.float64))
        attrs = {"kernel_shape": [kernel] * 2, "strides": [kernel] * 2}
        return self._node("AveragePool", name, [x.name], data.astype(np.float32), **attrs)

    def halves(self, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """The first and the second half of the channels."""
        parts = np.split(x.data, 2, axis=1)
        sizes = self._weight(f"{name}.sizes", np.array([p.shape[1] for p in parts], np.int64))
        names = [f"{name}.{i}" for i in range(2)]
        self.append("Split", name, [x.name, sizes], names, axis=1)
        first, second = (Tensor(n, data) for n, data in zip(names, parts, strict=True))
        return first, second

    def reshape(self, x: Tensor, name: str, shape: Sequence[int]) -> Tensor:
        """The same values in another shape of one sample."""
        wanted = self._weight(f"{name}.shape", np.array([1, *shape], np.int64))
        data = x.data.reshape(len(x.data), *shape)
        return self._node("Reshape", name, [x.name, wanted], data)

    def permute(self, x: Tensor, name: str, axes: Sequence[int]) -> Tensor:
        """The axes in another order."""
        return self._node("Transpose", name, [x.name], x.data.transpose(axes), perm=list(axes))

    def channel_shuffle(self, x: Tensor, name: str, groups: int = 2) -> Tensor:
        """The channels of the groups in turn."""
        _, c, h, w = x.data.shape
        y = self.reshape(x, f"{name}.split", (groups, c // groups, h, w))
        y = self.permute(y, f"{name}.turn", (0, 2, 1, 3, 4))
        return self.reshape(y, name, (c, h, w))

    def bilinear(self, x: Tensor, name: str, size: tuple[int, int]) -> Tensor:
        """Bilinear resizing to `size` with half-pixel centres."""
        shape = (1, x.data.shape[1], *size)
        sizes = self._weight(f"{name}.sizes", np.array(shape, np.int64))
        rows, columns = (_linear_weights(x.data.shape[2 + i], size[i]) for i in range(2))
        data = on_grid(rows @ x.data.astype(np.float64) @ columns.T).astype(np.float32)
        return self._node(
            "Resize", name, [x.name, "", "", sizes], data,
            mode="linear", coordinate_transformation_mode="half_pixel",
        )  # fmt: skip

    # ------------------------------------------------------------ channels last
    def layer_norm(self, x: Tensor, name: str) -> Tensor:
        """Layer normalization over the last axis."""
        rng, width = self.rng(name), x.data.shape[-1]
        weight = round_bits(rng.uniform(0.75, 1.25, width))
        bias = round_bits(rng.uniform(-0.1, 0.1, width))
        wide = x.data.astype(np.float64)
        wide = wide - wide.mean(axis=-1, keepdims=True)
        wide /= np.sqrt((wide**2).mean(axis=-1, keepdims=True) + LAYER_NORM_EPSILON)
        data = on_grid(wide * weight + bias).astype(np.float32)
        stored = [self._weight(f"{name}.weight", weight), self._weight(f"{name}.bias", bias)]
        attrs = {"axis": -1, "epsilon": LAYER_NORM_EPSILON}
        return self._node("LayerNormalization", name, [x.name, *stored], data, **attrs)

    def linear(self, x: Tensor, name: str, features: int) -> Tensor:
        """Fully connected layer of the last axis, its largest magnitude at the usual peak."""
        rng = self.rng(name)
        w = on_int8_grid(rng.uniform(-1, 1, (x.data.shape[-1], features)))
        values = x.data.astype(np.float64) @ w.astype(np.float64)
        prior = rng.uniform(-0.5, 0.5, features) * values.std()
        gain = round_bits(AMAX / peak(_tops(values + prior)))
        bias = round_bits(gain * prior)
        data = on_grid(values * gain + bias).astype(np.float32)
        weight = self._weight(f"{name}.weight", w * gain)
        self._add("MatMul", f"{name}.matmul", [x.name, weight], f"{name}.matmul")
        stored = self._weight(f"{name}.bias", bias)
        return self._node("Add", name, [stored, f"{name}.matmul"], data)

    def scaled(self, x: Tensor, name: str) -> Tensor:
        """Channels times a parameter each (C, 1, 1)."""
        weight = per_channel(round_bits(self.rng(name).uniform(0.3, 0.7, x.data.shape[1])))
        stored = self._weight(f"{name}.weight", weight)
        return self._node("Mul", name, [stored, x.name], on_grid(x.data * weight))

    def append(
        self, op: str, name: str, inputs: list[str], outputs: list[str], **attrs: Any
    ) -> None:
        """A node of several outputs."""
        self._add(op, name, inputs, outputs[0], **attrs)
        self.nodes[-1].output.extend(outputs[1:])


def _linear_weights(old: int, new: int) -> np.ndarray:
    """(new, old) weights of half-pixel linear resizing; beyond the edge the edge is read."""
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.minimum(at.astype(np.int64), max(old - 2, 0))
    high = np.minimum(low + 1, old - 1)
    weights = np.zeros((new, old))
    np.add.at(weights, (np.arange(new), low), 1 - (at - low))
    np.add.at(weights, (np.arange(new), high), at - low)
    return weights


def _tops(values: np.ndarray) -> np.ndarray:
    """(N, 1): the largest magnitude of each sample."""
    return np.abs(values).reshape(len(values), -1).max(axis=1, keepdims=True)
