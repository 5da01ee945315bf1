"""Empirical bias correction: quantized layers get the mean of the float ones, channel by channel.

Rounding weights shifts the mean of every output channel, rounding and saturating activations too.
The shift is measured on samples and taken off the layer's bias (Nagel et al., "Data-Free
Quantization Through Weight Equalization and Bias Correction", 2019).  All layers are corrected at
once, each by the error that it makes on the float module's inputs, rounded: what it inherits ends
when the layers before it are corrected.  What operators without bias add, as the rounding of
residual sums does, is left to the layer behind them.  A second round settles the rest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.progress import Progress
from vta_byoc.hw.errors import VTAError, VTAWarning
from vta_byoc.ir.bindings import (
    is_float32,
    op_name,
    source_name,
    static_shape,
    straight_bindings,
    users_of,
)
from vta_byoc.ir.clamps import interval_of
from vta_byoc.ir.observe import Observer
from vta_byoc.ir.quantization_record import active_ranges
from vta_byoc.quantization.calibration.samples import Sample, checked_samples
from vta_byoc.quantization.float_layers import FloatLayer, float_layers, only_user, with_constants
from vta_byoc.quantization.scales import quantized
from vta_byoc.quantization.tensor_pairs import Pair, Twin, paired, real, tensor_pairs, twins

Quantize = Callable[[tvm.IRModule], tvm.IRModule]
ROUNDS = 2
LEAST_SHARE = 0.25
"""An activation passes on this part of a channel's change at least; a channel that it cuts more
often is corrected by less than its error."""

PASSED_ON = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "mean", "reshape", "flatten", "squeeze", "nn.batch_flatten", "nn.relu"),
        *("nn.max_pool2d", "nn.avg_pool2d", "maximum", "minimum", "clip"),
    )
)
"""Operators whose result's channels have the mean errors of their inputs' channels, about."""


@dataclass(frozen=True)
class ComparedTensor:
    """A tensor of the float module whose channels, along `axis`, are compared.

    Attributes:
        low, high: what the layer's activations clamp it to.
    """

    var: relax.Var
    axis: int
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Moments:
    """Of each channel, over all samples: mean, mean square, share strictly between the clamps."""

    mean: np.ndarray
    power: np.ndarray
    share: np.ndarray


@dataclass(frozen=True)
class Errors:
    """Mean errors of each channel of a tensor, float64 [channels].

    Attributes:
        whole: of the quantized module.
        own: of the operator on the float module's inputs, rounded.
        added: the same, without what rounding its result adds.
    """

    whole: np.ndarray
    own: np.ndarray
    added: np.ndarray


@dataclass(frozen=True)
class Place:
    """A quantized layer: what it reads, and the result of its group."""

    layer: FloatLayer
    data: ComparedTensor
    result: ComparedTensor

    @property
    def name(self) -> str:
        """The source name of the layer."""
        return source_name(self.layer.var)

    def shift(self, own: np.ndarray, left: np.ndarray | None, moments: Moments) -> np.ndarray:
        """What the bias has to make up for, float64 [channels].

        Args:
            own: mean error of the result on inputs without error.
            left: mean error of the input that no correction ends; None or of another number of
                channels where it is not known.
            moments: of the result.
        """
        found = own / np.maximum(moments.share, LEAST_SHARE)
        channels = static_shape(self.data.var)[self.data.axis]
        return found if left is None or left.shape != (channels,) else found + self._inherited(left)

    def _inherited(self, error: np.ndarray) -> np.ndarray:
        """What a mean error of the input's channels makes of the output's."""
        weight, name = self.layer.weight.astype("float64"), op_name(self.layer.call)
        if name == "relax.matmul":
            return np.asarray(error @ weight)
        attrs = self.layer.call.attrs
        groups = int(attrs.groups)
        if name == "relax.nn.conv2d_transpose":  # every output reads one tap in so many
            taps = weight.sum(axis=(2, 3)) / math.prod(int(stride) for stride in attrs.strides)
            by_group = taps.reshape(groups, -1, taps.shape[1])
        else:
            taps = (weight * self._inside()).reshape(*weight.shape[:2], -1).sum(axis=2)
            by_group = taps.reshape(groups, -1, taps.shape[1]).transpose(0, 2, 1)
        return np.asarray((error.reshape(groups, 1, -1) @ by_group).reshape(-1))

    def _inside(self) -> np.ndarray:
        """For each tap the share of positions at which it does not read padding."""
        attrs, shares = self.layer.call.attrs, np.ones(())
        sizes, results = static_shape(self.data.var)[2:], static_shape(self.layer.var)[2:]
        for axis, (size, outputs) in enumerate(zip(sizes, results, strict=True)):
            taps = np.arange(self.layer.weight.shape[2 + axis]) * int(attrs.dilation[axis])
            starts = np.arange(outputs) * int(attrs.strides[axis]) - int(attrs.padding[axis])
            reads = starts[:, None] + taps
            shares = shares[..., None] * ((reads >= 0) & (reads < size)).mean(axis=0)
        return np.asarray(shares)


def correct_biases(
    mod: tvm.IRModule,
    quantize: Quantize,
    samples: Iterable[Sample],
    progress: Progress | None = None,
    *,
    rounds: int = ROUNDS,
) -> tvm.IRModule:
    """The float module with biases that make up for quantization.

    Args:
        mod: float module of `load_model`.
        quantize: what will quantize the result; called `rounds + 1` times.
        samples: read `rounds + 2` times: a list or another collection, not a generator.
        progress: called after each sample of each reading.
        rounds: how often the biases are moved.

    Returns:
        Of `mod` and the module after each round the one whose quantized layers are closest in
        their means to `mod`: `mod` itself if nothing helps, with a warning.

    Raises:
        VTAError: no samples, one that does not fit the model, or samples that can be read once.
    """
    if iter(samples) is samples:
        raise VTAError(
            f"bias correction reads the samples {rounds + 2} times and got a "
            f"{type(samples).__name__}, which can be read once; give a list"
        )
    total = len(samples) * (rounds + 2) if isinstance(samples, Sized) else None
    passes = _Passes(samples, progress, total)
    qmod = quantize(mod)
    places = _places(mod, twins(mod, qmod), active_ranges(qmod))
    wanted = passes.moments(mod, [place.result for place in places])
    between = _between(mod, places)
    corrections = {place.name: np.zeros(place.layer.channels) for place in places}
    current, best, least = mod, mod, math.inf
    for turn in range(rounds + 1 if places else 0):
        qmod = quantize(current) if turn else qmod
        errors = passes.errors(mod, qmod, [*(place.result for place in places), *between])
        whole = [errors[place.result].whole for place in places]
        distance = sum(map(_relative, whole, wanted))
        if distance < least:
            best, least = current, distance
        if turn < rounds:
            left = _left(mod, {t.var: errors[t].added for t in between})
            for place, moments in zip(places, wanted, strict=True):
                own, data = errors[place.result].own, left.get(place.data.var)
                corrections[place.name] -= place.shift(own, data, moments)
            current = _corrected(mod, places, corrections)
    if rounds and best is mod and 0 < least < math.inf:
        _warn_of_none(len(places))
    return best


def _warn_of_none(layers: int) -> None:
    text = (
        f"bias correction leaves all biases as they are: moved, they bring the means of {layers} "
        f"layer{'s' * (layers > 1)} no nearer to those of the float model; leave it out, or give "
        "more samples"
    )
    warnings.warn(text, VTAWarning, stacklevel=2)


class _Passes:
    """Reads the samples again and again, and counts them over all passes."""

    def __init__(
        self, samples: Iterable[Sample], progress: Progress | None, total: int | None
    ) -> None:
        self._samples, self._progress, self._total = samples, progress, total
        self._done = 0

    def _step(self, _done: int, _total: int | None) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)

    def moments(self, mod: tvm.IRModule, tensors: Sequence[ComparedTensor]) -> list[Moments]:
        """Of tensors of `mod`, as they are."""
        sums = [np.zeros((3, static_shape(t.var)[t.axis])) for t in tensors]
        runs = 0

        def receive(index: int, values: np.ndarray) -> None:
            tensor = tensors[index]
            rows = _channels(values, tensor.axis)
            inside = (rows > tensor.low) & (rows < tensor.high)
            sums[index] += rows.mean(axis=1), (rows**2).mean(axis=1), inside.mean(axis=1)

        observer = Observer(mod, [tensor.var for tensor in tensors], receive)
        for arrays in checked_samples(mod, self._samples, self._step):
            observer.run(arrays.values())
            runs += 1
        return [Moments(*(total / runs)) for total in sums]

    def errors(
        self, mod: tvm.IRModule, qmod: tvm.IRModule, tensors: Sequence[ComparedTensor]
    ) -> dict[ComparedTensor, Errors]:
        """Of tensors of `mod` as `qmod` has them; 0 for one that it has not."""
        pairs = {pair.source.var: pair for pair in tensor_pairs(mod, qmod)}
        module, shown = paired(mod, qmod, list(pairs.values()))
        versions = {var: shown[3 * number : 3 * number + 3] for number, var in enumerate(pairs)}
        compared = [tensor for tensor in tensors if tensor.var in pairs]
        sums = {t: np.zeros((4, static_shape(t.var)[t.axis])) for t in tensors}
        runs = 0

        def receive(index: int, values: np.ndarray) -> None:
            """Of a tensor: the source, then the quantized one, then its operator alone."""
            tensor, version = compared[index // 3], index % 3
            pair = pairs[tensor.var]
            reals = real(values, pair.quantized if version else pair.source)
            sums[tensor][version] += _channels(reals, tensor.axis).mean(axis=1)
            if not version:
                sums[tensor][3] += _channels(_rounded(reals, pair), tensor.axis).mean(axis=1)

        observer = Observer(module, [v for t in compared for v in versions[t.var]], receive)
        for arrays in checked_samples(mod, self._samples, self._step):
            observer.run(arrays.values())
            runs += 1
        means = {tensor: total / runs for tensor, total in sums.items()}
        return {
            tensor: Errors(whole - source, alone - source, alone - near)
            for tensor, (source, whole, alone, near) in means.items()
        }


def _places(
    mod: tvm.IRModule, twins: Mapping[relax.Var, Twin], active: Mapping[str, tuple[float, float]]
) -> list[Place]:
    """The layers whose result is the first tensor after them that the quantized module has.

    Beyond its active range it counts as clamped.
    """
    main = mod["main"]
    users = users_of(main)
    places = []
    for layer in float_layers(main):
        result, low, high = layer.end, -math.inf, math.inf
        while result not in twins and (user := only_user(users, result)) is not None:
            interval = interval_of(user, result)
            if interval is None:
                break
            low, high = max(low, interval[0]), min(high, interval[1])
            result = user.var
        least, largest = active.get(str(result.name), (low, high))
        low, high = max(low, least), min(high, largest)
        data = layer.call.args[0]
        if result in twins and isinstance(data, relax.Var):
            axis = layer.axis if op_name(layer.call) == "relax.matmul" else 1
            after = ComparedTensor(result, layer.axis, low, high)
            places.append(Place(layer, ComparedTensor(data, axis), after))
    return places


# ---------------------------------------------------------------- errors and corrections
def _between(mod: tvm.IRModule, places: Sequence[Place]) -> list[ComparedTensor]:
    """The tensors whose mean errors reach a layer's input, without the results of layers."""
    producers = {b.var: b.value for b in straight_bindings(mod["main"])}
    results = {place.result.var for place in places}
    axes: dict[relax.Var, int] = {}
    waiting = [(place.data.var, place.data.axis) for place in places]
    while waiting:
        var, axis = waiting.pop()
        if var in axes or var in results or not is_float32(var) or axis >= var.ty.ndim:
            continue
        axes[var] = axis
        # Where the rank changes channels are the second axis, as a mean or reshape leaves them.
        waiting += [
            (data, axis if data.ty.ndim == var.ty.ndim else 1)
            for data in _passed_on(producers.get(var))
            if is_float32(data)
        ]
    return [ComparedTensor(var, axis) for var, axis in axes.items()]


def _passed_on(value: relax.Expr | None) -> list[relax.Var]:
    """The operands whose mean errors an operator passes on."""
    if value is None or op_name(value) not in PASSED_ON:
        return []
    return [arg for arg in value.args if isinstance(arg, relax.Var)]


def _left(
    mod: tvm.IRModule, added: Mapping[relax.Var, np.ndarray]
) -> dict[relax.Var, np.ndarray]:
    """Which part of each tensor's mean error stays when all layers are corrected.

    Args:
        mod: the float module.
        added: what operators without bias add, in tensors of `_between`. Sums pass it on, as does
            an operator with one input of as many channels; beyond others nothing is known to stay.
    """
    main = mod["main"]
    left = {param: added[param] for param in main.params if param in added}
    for binding in straight_bindings(main):
        if binding.var in added:
            own = added[binding.var]
            parts = [left[data] for data in _passed_on(binding.value) if data in left]
            left[binding.var] = sum((part for part in parts if part.shape == own.shape), own)
    return left


def _channels(values: np.ndarray, axis: int) -> np.ndarray:
    """float64 [channels, values]: the channels along `axis`."""
    rows = np.moveaxis(values, axis, 0).astype("float64")
    return rows.reshape(rows.shape[0], -1)


def _rounded(values: np.ndarray, pair: Pair) -> np.ndarray:
    """Real values as the quantized module can hold them."""
    if not pair.is_int8:
        return values
    return real(quantized(values, pair.scale), pair.quantized)


def _relative(error: np.ndarray, moments: Moments) -> float:
    """The power of the mean error, as a part of the tensor's."""
    power = float(moments.power.sum())
    return float((error**2).sum()) / power if power else 0.0


def _corrected(
    mod: tvm.IRModule, places: Sequence[Place], corrections: Mapping[str, np.ndarray]
) -> tvm.IRModule:
    """`mod` with `corrections` added to the biases; a layer without one gets one."""
    constants: dict[relax.Var, np.ndarray] = {}
    added: dict[relax.Var, np.ndarray] = {}
    for place in places:
        layer, change = place.layer, corrections[place.name]
        if layer.biases:
            last = layer.biases[-1]
            constants[last.var] = layer.as_bias(layer.bias(last) + change)
        else:
            added[layer.var] = layer.as_bias(change)
    return with_constants(mod, constants, added)
