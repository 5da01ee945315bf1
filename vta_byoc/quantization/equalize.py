"""Cross-layer equalization: channels of consecutive convolutions get weights of like size.

One scale for all weights of a layer is coarse when its channels differ much, as in depthwise
networks.  Between two convolutions with nothing but operators that commute with positive factors,
channel c can be divided by s[c] in the first (weights and bias) and multiplied by s[c] in the
second: the network computes the same.  s makes both weights of a channel reach equally far (Nagel
et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019); pairs
overlap, so they are visited until nothing moves.

A clamp such as relu6 does not commute.  It stays as it is, and calibration decides channel by
channel:

- the clamp cuts the channel: its factor stays 1;
- it does not: the factor is bounded so that it still does not.

The same bound keeps every channel within the range that the tensor had, since activations share
one scale too; a channel that is always zero keeps its factor.  On the calibration samples the
network is the same up to rounding.  On others it can differ only in a channel that is clamped there
and was not in calibration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.progress import Progress
from vta_byoc.ir.bindings import op_name, users_of
from vta_byoc.ir.clamps import interval_of
from vta_byoc.ir.observe import Observer
from vta_byoc.quantization.calibration.samples import Sample, checked_samples
from vta_byoc.quantization.float_layers import (
    FloatLayer,
    Users,
    float_layers,
    only_user,
    with_constants,
)

HOMOGENEOUS = frozenset(
    ("relax.nn.relu", "relax.nn.leakyrelu", "relax.nn.max_pool2d", "relax.nn.avg_pool2d")
)
"""f(s * x) = s * f(x) for s > 0, channel by channel."""
SWEEPS = 100
TOLERANCE = 1e-3
"""Sweeps end when no factor changes by more than this part."""


@dataclass(frozen=True)
class Pair:
    """Two convolutions whose channels in between can be scaled.

    Attributes:
        limited: the tensor that decides how far: what the clamp cuts, or what `second` reads.
        ceiling: of the clamp in between; infinite without.
    """

    first: FloatLayer
    second: FloatLayer
    limited: relax.Var
    ceiling: float

    def least_factors(self, absmax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The least factor of each channel, and whether it may have any but 1.

        `absmax` are the largest values of its channels in calibration, magnitudes without a clamp.
        """
        limit = min(self.ceiling, float(absmax.max(initial=0)))
        is_free = (absmax > 0) & (absmax <= self.ceiling)
        return np.where(is_free, absmax / (limit or 1.0), 1.0), is_free


def equalize(
    mod: tvm.IRModule, samples: Iterable[Sample], progress: Progress | None = None
) -> tvm.IRModule:
    """The float module with equalized weights; the same function on `samples` up to rounding.

    Args:
        mod: float module of `load_model`: its layers contain the batch normalization.
        samples: read once; they bound the factors (see above).
        progress: called after each sample.

    Raises:
        VTAError: no samples, or one that does not fit the model.
    """
    pairs = equalizable(mod["main"])
    if not pairs:
        return mod
    absmax = _channel_absmax(mod, pairs, samples, progress)
    layers = [layer for pair in pairs for layer in (pair.first, pair.second)]
    weights = {layer.var: layer.weight.astype("float64") for layer in layers}
    factors = _balance(pairs, absmax, weights)
    constants = {var: weight.astype("float32") for var, weight in weights.items()}
    for pair, factor in zip(pairs, factors, strict=True):
        for bias in pair.first.biases:
            constants[bias.var] = pair.first.as_bias(pair.first.bias(bias) / factor)
    return with_constants(mod, constants)


def equalizable(main: relax.Function) -> list[Pair]:
    """All pairs, in order of execution."""
    layers = {e.var: e for e in float_layers(main) if op_name(e.call) == "relax.nn.conv2d"}
    users = users_of(main)
    pairs = (_pair(layer, layers, users) for layer in layers.values())
    return [pair for pair in pairs if pair is not None]


def _pair(first: FloatLayer, layers: dict[relax.Var, FloatLayer], users: Users) -> Pair | None:
    data, limited, ceiling = first.end, first.end, math.inf
    while (user := only_user(users, data)) is not None:
        if user.var in layers:
            limited = limited if math.isfinite(ceiling) else data
            return Pair(first, layers[user.var], limited, ceiling)
        if op_name(user.value) not in HOMOGENEOUS:
            interval = interval_of(user, data)
            if interval is None or interval[0] not in (0.0, -math.inf) or interval[1] <= 0:
                return None
            if math.isinf(ceiling):
                limited = data
            ceiling = min(ceiling, interval[1])
        data = user.var
    return None


def _channel_absmax(
    mod: tvm.IRModule, pairs: list[Pair], samples: Iterable[Sample], progress: Progress | None
) -> list[np.ndarray]:
    """How far each channel of `limited` reaches: upwards if it is clamped, else either way."""
    absmax = [np.zeros(pair.first.channels) for pair in pairs]

    def receive(index: int, values: np.ndarray) -> None:
        upwards = values if math.isfinite(pairs[index].ceiling) else np.abs(values)
        np.maximum(absmax[index], upwards.max(axis=(0, 2, 3)), out=absmax[index])

    observer = Observer(mod, [pair.limited for pair in pairs], receive)
    for arrays in checked_samples(mod, samples, progress):
        observer.run(arrays.values())
    return absmax


def _balance(
    pairs: list[Pair], absmax: list[np.ndarray], weights: dict[relax.Var, np.ndarray]
) -> list[np.ndarray]:
    """Scale `weights` in place; the factors of each pair."""
    least = [pair.least_factors(most) for pair, most in zip(pairs, absmax, strict=True)]
    factors = [np.ones(pair.first.channels) for pair in pairs]
    for _ in range(SWEEPS):
        moved = 0.0
        for index, pair in enumerate(pairs):
            low, is_free = least[index]
            first, second = weights[pair.first.var], weights[pair.second.var]
            wanted = factors[index] * _step(first, second, pair.second)
            factor = np.where(is_free, np.maximum(wanted, low), 1.0)
            step = factor / factors[index]
            first /= step.reshape(-1, 1, 1, 1)
            second *= _by_input(step, pair.second)
            factors[index] = factor
            moved = max(moved, float(np.abs(step - 1).max()))
        if moved < TOLERANCE:
            break
    return factors


def _step(first: np.ndarray, second: np.ndarray, layer: FloatLayer) -> np.ndarray:
    """What makes both weights of each channel reach equally far; 1 where either has none."""
    made, read = np.abs(first).max(axis=(1, 2, 3)), _input_ranges(second, layer)
    both = (made > 0) & (read > 0)
    return np.sqrt(np.where(both, made, 1.0) / np.where(both, read, 1.0))


def _input_ranges(weight: np.ndarray, layer: FloatLayer) -> np.ndarray:
    """The largest magnitude that each input channel is multiplied by."""
    groups = int(layer.call.attrs.groups)
    grouped = np.abs(weight).reshape(groups, -1, *weight.shape[1:])
    return np.asarray(grouped.max(axis=(1, 3, 4)).reshape(-1))


def _by_input(factor: np.ndarray, layer: FloatLayer) -> np.ndarray:
    """A factor per input channel in a shape that broadcasts over the weights (O, I / groups, ...).

    Group g makes outputs g * O / groups and following from inputs g * I / groups and following.
    """
    groups = int(layer.call.attrs.groups)
    per_group = factor.reshape(groups, 1, -1)
    outputs = layer.channels // groups
    rows = np.broadcast_to(per_group, (groups, outputs, per_group.shape[2]))
    return rows.reshape(layer.channels, -1, 1, 1)
