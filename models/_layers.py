"""Layers of the model zoo: activations, biases in place of BatchNorm, transposed convolutions.

They follow the two rules of `models._build`: what a layer computes is exact, and its parameters
are chosen so that its output uses the int8 range.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from models._activations import RELU, Activation
from models._build import EPSILON, ModelBuilder, Tensor, _Normalised
from models._exact import F32, F64, conv2d, conv_transpose2d, on_grid, per_channel, round_bits
from models._filters import SPARE, depthwise_filters, strong_filters
from models._fit import (
    AMAX,
    LOGIT_AMAX,
    POOLED_BOTTOM,
    POOLED_REACH,
    REACH,
    ResidualFit,
    bisect,
    channel_gains,
    channel_heights,
    octave_above,
    peak,
)

Range = tuple[float, float]

SPREAD: Range = (0.25, 1.25)
"""Range of (mean / deviation) of channels before an activation: 11 to 40 % zeros after a relu.

More zeros, as in `models._fit`, let rounding errors grow by an eighth in each layer, which is too
much for fifty of them.
"""
LINEAR_SPREAD: Range = (-0.3, 0.3)
"""The same where no activation follows."""
RESIDUAL_FITS: tuple[tuple[Range, int], ...] = (
    (SPREAD, 1),
    ((0.0, 1.0), 1),
    ((-0.25, 0.5), 1),
    (SPREAD, 2),
)
"""Spreads of a residual sum, and factors of its peak to the identity's, until one gives both"""
BRANCH_SHARE = 0.5
"""as typical deviation of the branch, as a share of the identity's, and"""
BRANCH_VALUES = 120
"""int8 values that the branch uses."""
TOPS: Range = (0.05, 6.0)
"""Where the upper end of the spread before a global average pooling is sought."""
DENSE_ROWS = 512
"""Rows of a fully connected layer's weights that are float64 at a time."""


class LayerBuilder(ModelBuilder):
    """ModelBuilder with the layers of the zoo; `spare` as in `models._filters`."""

    def __init__(
        self, name: str, *, seed: int, input_name: str, images: F32, spare: float = SPARE
    ) -> None:
        super().__init__(name, seed=seed, input_name=input_name, images=images)
        self.spare = spare

    def filters(self, x: Tensor, name: str, channels: int, kernel: int) -> F32:
        """OIHW filters on all channels of `x`."""
        return strong_filters(self.rng(name), x.data, channels, kernel, spare=self.spare)

    def depthwise(self, x: Tensor, name: str, *, kernel: int, stride: int) -> Tensor:
        """A convolution of each channel on its own, without bias."""
        w = depthwise_filters(self.rng(name), x.data, kernel)
        return self.conv(x, name, w, stride=stride, pad=kernel // 2, groups=x.data.shape[1])

    # ------------------------------------------------------------ BatchNorm
    def bn_act(
        self, x: Tensor, bn: str, name: str, activation: Activation, *, pooled: bool = False
    ) -> Tensor:
        """BatchNorm and `activation`, its largest input at the activation's peak.

        `pooled`: a global average pooling follows, and its output shall fill the range too.
        """
        n = self._normalise(x)
        y = self._batch_norm(n, bn, *self._fitted(n, bn, activation, pooled=pooled))
        return self.activate(y, name, activation)

    def bn_add(self, x: Tensor, identity: Tensor, bn: str, add: str) -> Tensor:
        """BatchNorm on `x`, plus `identity`, with sqrt(2) times the identity's magnitude.

        That doubles the variance: the branch matters as much as all before it.
        """
        n = self._normalise(x)
        offset, reach = self._channel_shape(bn, n, LINEAR_SPREAD, REACH)
        peaks = np.abs(n.z).max(axis=(2, 3)) + np.abs(offset)
        shape = channel_gains(reach, channel_heights(peaks, n.z[:, 0].size))
        branch = (n.z + per_channel(offset)) * per_channel(shape)
        half_octaves = np.rint(2 * np.log2(_magnitude(identity.data) / AMAX))
        target = float(AMAX * 2.0 ** ((half_octaves + 1) / 2))

        def height(factor: float) -> float:
            return _magnitude(branch * np.float32(factor) + identity.data)

        gamma = bisect(height, target, target / 256, target * 4, steps=10) * shape
        y = self._batch_norm(n, bn, gamma, gamma * offset)
        return self._node("Add", add, [y.name, identity.name], y.data + identity.data)

    def bn_add_act(
        self,
        x: Tensor,
        identity: Tensor,
        bn: str,
        add: str,
        name: str,
        activation: Activation,
        *,
        pooled: bool = False,
    ) -> Tensor:
        """BatchNorm on `x`, plus `identity`, then `activation`, with its peak at AMAX * 2**k.

        Unlike `bn_add_relu` with as few zeros as there can be.
        """
        n = self._normalise(x)
        fit = ResidualFit(n.z, identity.data)

        def solution(spread: Range, factor: int = 1) -> tuple[F64, F64]:
            return fit.solve(*self._channel_shape(bn, n, spread, REACH), factor * fit.base)

        def pooled_peak(top: float) -> float:
            output = activation.apply(fit.sum_of(*solution((POOLED_BOTTOM, top))))
            return peak(output.mean(axis=(2, 3), dtype=np.float64))

        if pooled:
            target = octave_above(pooled_peak(TOPS[0]))
            spread = (POOLED_BOTTOM, bisect(pooled_peak, target, *TOPS, steps=8))
            gamma, beta = solution(spread)
        else:
            for spread, factor in RESIDUAL_FITS:
                gamma, beta = solution(spread, factor)
                if _is_balanced(fit, gamma, beta, factor):
                    break
        y = self._batch_norm(n, bn, gamma, beta)
        total = self._node("Add", add, [y.name, identity.name], y.data + identity.data)
        return self.activate(total, name, activation)

    # ------------------------------------------------------------ bias
    def conv_act(
        self,
        x: Tensor,
        name: str,
        w: F32,
        act: str,
        activation: Activation,
        *,
        stride: int = 1,
        pad: int = 0,
        pooled: bool = False,
    ) -> Tensor:
        """Convolution with bias and `activation`; `w` is OIHW on an 8-bit grid."""
        n = self._normalise(Tensor(name, conv2d(x.data, w, stride=stride, pad=pad)))
        fitted = self._fitted(n, name, activation, pooled=pooled)
        y = self._biased(x, n, w, *fitted, stride=stride, pad=pad)
        return self.activate(y, act, activation)

    def conv_head(self, x: Tensor, name: str, w: F32, *, output: str) -> Tensor:
        """1x1 convolution with bias as an output of the network."""
        n = self._normalise(Tensor(name, conv2d(x.data, w)))
        shape = self._channel_shape(name, n, LINEAR_SPREAD, REACH)
        y = self._biased(x, n, w, *_affine(n, *shape, top=LOGIT_AMAX, signed=True))
        return self._as_output(y, output)

    def dense_act(
        self, x: Tensor, name: str, act: str, activation: Activation = RELU, *, features: int
    ) -> Tensor:
        """Fully connected layer and `activation`; its bias removes what all images share."""
        rng = self.rng(name)
        w = rng.randint(-127, 128, (features, x.data.shape[1]), dtype=np.int8)
        values = _products(x.data, w)
        common = values.mean(axis=0)
        offset = rng.uniform(*SPREAD, features) * (values - common).std() - common
        gain = round_bits(AMAX / peak(values + offset))
        bias = round_bits(gain * offset)
        data = on_grid(values * gain + bias)
        weight = w.astype(np.float32)
        weight *= gain
        stored = [self._weight(f"{name}.weight", weight), self._weight(f"{name}.bias", bias)]
        y = self._node("Gemm", name, [x.name, *stored], data, transB=1)
        return self.activate(y, act, activation)

    # ------------------------------------------------------------ transposed convolution
    def conv_transpose(self, x: Tensor, name: str, w: F32, *, stride: int, pad: int) -> Tensor:
        """Transposed convolution without bias; `w` is IOHW on an 8-bit grid."""
        data = conv_transpose2d(x.data, w, stride=stride, pad=pad)
        return self._transposed(x, name, w, data, stride, pad)

    def conv_transpose_act(
        self, x: Tensor, name: str, w: F32, act: str, activation: Activation,
        *, stride: int, pad: int, output: str,
    ) -> Tensor:  # fmt: skip
        """The same as output, with the largest input of `activation` at its peak."""
        data = conv_transpose2d(x.data, w, stride=stride, pad=pad)
        gain = round_bits(activation.peak / _magnitude(data))
        y = self._transposed(x, name, w * gain, on_grid(data * gain), stride, pad)
        return self._as_output(self.activate(y, act, activation), output)

    def _transposed(self, x: Tensor, name: str, w: F32, data: F32, stride: int, pad: int) -> Tensor:
        return self._node(
            "ConvTranspose", name, [x.name, self._weight(f"{name}.weight", w)], data,
            kernel_shape=w.shape[2:], strides=[stride] * 2, pads=[pad] * 4,
        )  # fmt: skip

    # ------------------------------------------------------------ without parameters
    def activate(self, x: Tensor, name: str, activation: Activation) -> Tensor:
        stored = {weight.name for weight in self.weights}
        for constant, value in activation.constants:
            if constant not in stored:
                self._weight(constant, np.asarray(value, np.float32))
        inputs = [x.name, *(constant for constant, _ in activation.constants)]
        data = activation.apply(x.data)
        return self._node(activation.op, name, inputs, data, **dict(activation.attrs))

    def concat(self, parts: Sequence[Tensor], name: str) -> Tensor:
        """Along the channels."""
        data = np.concatenate([part.data for part in parts], axis=1)
        return self._node("Concat", name, [part.name for part in parts], data, axis=1)

    def upsample(self, x: Tensor, name: str) -> Tensor:
        """Nearest neighbour, twice the height and width."""
        scales = self._weight(f"{name}.scales", np.array([1, 1, 2, 2], np.float32))
        return self._node(
            "Resize", name, [x.name, "", scales], x.data.repeat(2, axis=2).repeat(2, axis=3),
            mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip

    # ------------------------------------------------------------ fitting
    def _fitted(
        self, n: _Normalised, name: str, activation: Activation, *, pooled: bool
    ) -> tuple[F64, F64]:
        """Gamma and beta that bring the largest input of `activation` to its peak."""

        def solution(spread: Range, reach: Range) -> tuple[F64, F64]:
            shape = self._channel_shape(name, n, spread, reach)
            return _affine(n, *shape, top=activation.peak, signed=activation.signed)

        def pooled_peak(top: float) -> float:
            gamma, beta = solution((POOLED_BOTTOM, top), POOLED_REACH)
            output = activation.apply(n.z * per_channel(gamma) + per_channel(beta))
            return peak(output.mean(axis=(2, 3), dtype=np.float64))

        if not pooled:
            return solution(SPREAD, REACH)
        target = octave_above(pooled_peak(TOPS[0]))
        top = bisect(pooled_peak, target, *TOPS, steps=8)
        return solution((POOLED_BOTTOM, top), POOLED_REACH)

    def _biased(
        self,
        x: Tensor,
        n: _Normalised,
        w: F32,
        gamma: F64,
        beta: F64,
        *,
        stride: int = 1,
        pad: int = 0,
    ) -> Tensor:
        """The convolution `n` of `x` with gamma and beta in its weights and bias."""
        name = n.source.name
        gain = round_bits(gamma / np.sqrt(n.var.astype(np.float64) + EPSILON))
        bias = round_bits(beta - gain.astype(np.float64) * n.mean)
        data = on_grid(n.source.data * per_channel(gain) + per_channel(bias))
        weight = self._weight(f"{name}.weight", w * gain[:, None, None, None])
        inputs = [x.name, weight, self._weight(f"{name}.bias", bias)]
        return self._node(
            "Conv", name, inputs, data,
            kernel_shape=w.shape[2:], strides=[stride] * 2, pads=[pad] * 4, group=1,
        )  # fmt: skip

    def _as_output(self, x: Tensor, output: str) -> Tensor:
        """The result of the last node as an output of the network."""
        self.nodes[-1].output[0] = output
        return Tensor(output, x.data)


def _affine(
    n: _Normalised, offset: F64, reach: F64, *, top: float, signed: bool
) -> tuple[F64, F64]:
    """Gamma and beta that bring channels to `reach`, the largest value to `top`."""
    peaks = n.z.max(axis=(2, 3)) + offset
    if signed:
        peaks = np.maximum(peaks, -n.z.min(axis=(2, 3)) - offset)
    gamma = channel_gains(reach, channel_heights(peaks, n.z[:, 0].size))
    gamma *= top / peak(peaks * gamma)
    return gamma, gamma * offset


def _is_balanced(fit: ResidualFit, gamma: F64, beta: F64, factor: int) -> bool:
    """Whether the branch matters, uses its range, and the sum lies where it was meant to."""
    return bool(
        np.median(gamma / np.sqrt(fit.var)) >= BRANCH_SHARE
        and fit.branch_values(gamma, beta) >= BRANCH_VALUES
        and peak(fit.sum_of(gamma, beta).max(axis=(2, 3))) <= 1.01 * factor * fit.base
    )


def _magnitude(x: F32) -> float:
    return peak(np.abs(x).max(axis=(2, 3)))


def _products(x: F32, w: npt.NDArray[np.int8]) -> F64:
    """`x` (N, K) times the transpose of int8 `w` (M, K), exact."""
    parts = range(0, len(w), DENSE_ROWS)
    return np.concatenate([x @ w[i : i + DENSE_ROWS].T.astype(np.float64) for i in parts], axis=1)
