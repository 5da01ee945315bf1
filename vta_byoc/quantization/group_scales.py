"""Groups of channels that a normalization reads reach equally far.

What a group normalization computes of a group does not change when the whole group is multiplied by
a positive number, but for epsilon. One scale for all of a tensor is coarse where its groups differ:
a channel of a hundredth of the largest one's range has a step or two of int8, which an instance
normalization then spreads over the whole range. So the layer in front of it has the weights of each
group multiplied until all groups reach as far as the largest one.

A group is left alone where epsilon counts: where its variance in some sample is less than
`LEAST_VARIANCE` epsilons. That bounds the change of a result by a part of `1 / (2 *
LEAST_VARIANCE)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.progress import Progress
from vta_byoc.ir.bindings import op_name, source_name, users_of
from vta_byoc.ir.observe import Observer
from vta_byoc.ir.quantization_record import group_factors
from vta_byoc.quantization.calibration.samples import Sample, checked_samples
from vta_byoc.quantization.float_layers import (
    FloatLayer,
    float_layers,
    only_user,
    with_constants,
)
from vta_byoc.quantization.ops.norms import GROUP_NORM

OUTPUTS_FIRST = ("relax.nn.conv1d", "relax.nn.conv2d")
"""Layers whose weights have their outputs first."""
LEAST_VARIANCE = 500.0
"""Of a group that is scaled, in epsilons."""


@dataclass(frozen=True)
class NormedLayer:
    """A layer whose result a group normalization alone reads.

    Attributes:
        layer: the layer.
        groups: of its channels.
        epsilon: of the normalization.
    """

    layer: FloatLayer
    groups: int
    epsilon: float

    def parted(self, values: np.ndarray) -> np.ndarray:
        """(N, C, ...) as (N, groups, elements)."""
        return values.reshape(values.shape[0], self.groups, -1)


def normed_layers(main: relax.Function) -> list[NormedLayer]:
    """All of a module, in order of execution."""
    users, found = users_of(main), []
    for layer in float_layers(main):
        user = only_user(users, layer.end)
        if user is None or op_name(user.value) != GROUP_NORM or layer.axis != 1:
            continue
        if op_name(layer.call) in OUTPUTS_FIRST and user.value.args[0].same_as(layer.end):
            attrs = user.value.attrs
            found.append(NormedLayer(layer, int(attrs.num_groups), float(attrs.epsilon)))
    return found


def factors_of_groups(
    mod: tvm.IRModule,
    samples: Sequence[Sample],
    progress: Progress | None = None,
    *,
    per_channel: bool,
) -> dict[str, tuple[float, ...]]:
    """What the channels of layers in front of group normalizations are to be multiplied by.

    Args:
        mod: float module of `load_model`.
        samples: read once more than calibration does.
        progress: called after each sample.
        per_channel: whether each channel of the weights has a scale; without, no weight becomes
            larger than the largest of its layer.

    Returns:
        The factor of each channel by the name of the layer's result; layers without any are left
        out. With them the module computes the same up to rounding and a thousandth of a result.
    """
    layers = normed_layers(mod["main"])
    reach = [np.zeros(each.groups) for each in layers]
    least = [np.full(each.groups, np.inf) for each in layers]

    def receive(index: int, values: np.ndarray) -> None:
        parted = layers[index].parted(values.astype(np.float64))
        np.maximum(reach[index], np.abs(parted).max(axis=(0, 2)), out=reach[index])
        np.minimum(least[index], parted.var(axis=2).min(axis=0), out=least[index])

    observer = Observer(mod, [each.layer.end for each in layers], receive)
    for arrays in checked_samples(mod, samples, progress):
        observer.run(arrays.values())
    found: dict[str, tuple[float, ...]] = {}
    for each, most, variance in zip(layers, reach, least, strict=True):
        is_free = (most > 0) & (variance >= LEAST_VARIANCE * each.epsilon)
        factor = np.where(is_free, most.max(initial=0) / np.where(most > 0, most, 1.0), 1.0)
        factor = factor if per_channel else _without_larger_weights(each, factor)
        if np.isfinite(factor).all() and (factor != 1).any():
            channels = np.repeat(factor, each.layer.channels // each.groups)
            found[source_name(each.layer.end)] = tuple(channels.tolist())
    return found


def _without_larger_weights(each: NormedLayer, factor: np.ndarray) -> np.ndarray:
    """The factors, or as much of them as leaves the largest weight of the layer the largest."""
    own = np.abs(each.layer.weight.astype(np.float64)).reshape(each.groups, -1).max(axis=1)
    room = own.max(initial=0) / np.where(own > 0, own, np.inf)
    return np.maximum(1.0, np.minimum(factor, room))


def with_factors(mod: tvm.IRModule, factors: Mapping[str, Sequence[float]]) -> tvm.IRModule:
    """The float module with weights and biases times the factors of `factors_of_groups`."""
    constants: dict[relax.Var, np.ndarray] = {}
    for layer in (each.layer for each in normed_layers(mod["main"])):
        channels = np.asarray(factors.get(source_name(layer.end), ()), np.float64)
        if channels.size:
            weight = layer.weight.astype(np.float64)
            scaled = weight * channels.reshape(-1, *[1] * (weight.ndim - 1))
            constants[layer.var] = scaled.astype(np.float32)
            for bias in layer.biases:
                constants[bias.var] = layer.as_bias(layer.bias(bias) * channels)
    return with_constants(mod, constants)


def with_groups(mod: tvm.IRModule, qmod: tvm.IRModule) -> tvm.IRModule:
    """The float module with the weights that were quantized: `mod`, and what `qmod` records."""
    return with_factors(mod, group_factors(qmod))
