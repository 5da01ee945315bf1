"""Empirical bias correction: quantized layers get the mean of the float ones, channel by channel.

Rounding weights shifts the mean of every output channel, rounding and saturating activations too.
The shift is measured on samples and taken off the layer's bias (Nagel et al., "Data-Free
Quantization Through Weight Equalization and Bias Correction", 2019).  All layers are corrected at
once: what a layer's error inherits from layers before, the sum of its weights times the mean error
of its input, ends when those are corrected and is not its own.  What operators without bias add, as
the rounding of residual sums does, is left to the layer behind them.  A few rounds settle the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.progress import Progress
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import (
    SEPARATOR,
    is_float32,
    op_name,
    sanitized,
    source_name,
    static_shape,
    straight_bindings,
    users_of,
)
from vta_byoc.ir.clamps import interval_of
from vta_byoc.ir.names import is_step
from vta_byoc.ir.observe import Observer
from vta_byoc.ir.quantization_record import QUANTIZATION
from vta_byoc.ir.records import text_of
from vta_byoc.quantization.calibration.samples import Sample, checked_samples
from vta_byoc.quantization.float_layers import FloatLayer, float_layers, only_user, with_constants

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
class Twin:
    """A tensor of the quantized module: (value - zero_point) * scale is the float value."""

    var: relax.Var
    scale: float = 1.0
    zero_point: float = 0.0


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

    def own_error(self, error: np.ndarray, settled: np.ndarray, moments: Moments) -> np.ndarray:
        """What the bias has to make up for, float64 [channels].

        Args:
            error: of the result.
            settled: the part of the input's error that corrections of other layers end.
            moments: of the result.
        """
        return error / np.maximum(moments.share, LEAST_SHARE) - self._inherited(settled)

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
        their means to `mod`: `mod` itself if nothing helps.

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
    places = _places(mod, twins(mod, qmod))
    tensors = list(dict.fromkeys(t for place in places for t in (place.data, place.result)))
    wanted = dict(zip(tensors, passes.moments(mod, tensors), strict=True))
    corrections = {place.name: np.zeros(place.layer.channels) for place in places}
    current, best, least = mod, mod, math.inf
    for turn in range(rounds + 1):
        qmod = quantize(current) if turn else qmod
        errors = _errors(passes, qmod, wanted, twins(mod, qmod))
        distance = sum(_relative(errors[p.result], wanted[p.result]) for p in places)
        if distance < least:
            best, least = current, distance
        if turn < rounds:
            settled = _Settled(mod, {p.result.var: errors[p.result] for p in places})
            for place in places:
                inherited = settled.of(place.data.var, errors[place.data])
                moments = wanted[place.result]
                corrections[place.name] -= place.own_error(errors[place.result], inherited, moments)
            current = _corrected(mod, places, corrections)
    return best


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
            rows = np.moveaxis(values, tensor.axis, 0).astype("float64")
            rows = rows.reshape(rows.shape[0], -1)
            inside = (rows > tensor.low) & (rows < tensor.high)
            sums[index] += rows.mean(axis=1), (rows**2).mean(axis=1), inside.mean(axis=1)

        observer = Observer(mod, [tensor.var for tensor in tensors], receive)
        for arrays in checked_samples(mod, self._samples, self._step):
            observer.run(arrays.values())
            runs += 1
        return [Moments(*(total / runs)) for total in sums]


# ---------------------------------------------------------------- what corresponds to what
def twins(mod: tvm.IRModule, qmod: tvm.IRModule) -> dict[relax.Var, Twin]:
    """Variable of the float module -> the tensor of the quantized module with its value.

    A group of operators bears the name of its first and has the value of its last.  Where groups
    compute parts of one operator, such as the steps of a recurrent layer, the record says which
    value each has; the operator's result then has a twin, and what a step hands on.  An operator
    whose result only moves to become the source's (a mean, reshaped) stands there with the moved
    tensor.
    """
    record = json.loads(text_of(qmod.attrs[QUANTIZATION]))
    named: dict[str, list[relax.Var]] = {sanitized(p.name): [p] for p in mod["main"].params}
    for binding in straight_bindings(mod["main"]):
        named.setdefault(source_name(binding.var), []).append(binding.var)
    found: dict[relax.Var, Twin] = {}
    moved: dict[relax.Var, Twin] = {}
    steps = {str(v.name): v for variables in named.values() for v in variables if is_step(v)}
    parts = record.get("results", {})
    in_parts = {record["sources"][name][-1] for name in parts}
    for binding in straight_bindings(qmod["main"]):
        name = str(binding.var.name)
        source = record["sources"].get(name, [name.removesuffix(f"{SEPARATOR}int8")])[-1]
        twin = _twin_of(binding.var, record["tensors"].get(name))
        if twin is None:
            continue
        if (step := steps.get(parts.get(name, name))) is not None:
            found[step] = twin
            continue
        var = _result_of(source, named.get(source, []), binding.var)
        if source in in_parts and (var is None or parts.get(name, source) != var.name):
            continue
        if var is not None:
            found.setdefault(var, twin)
        else:
            source = source_name(binding.var)
            var = _result_of(source, named.get(source, []), binding.var)
            if var is not None and sanitized(var.name) == source:
                moved.setdefault(var, twin)
    replaced = {source_name(var) for var in moved.keys() - found.keys()}
    kept = {v: twin for v, twin in found.items() if is_step(v) or source_name(v) not in replaced}
    return {**moved, **kept}


def _twin_of(var: relax.Var, entry: Mapping[str, float] | None) -> Twin | None:
    """A tensor of the quantized module; `entry` is what its record says of it."""
    if is_float32(var):
        return Twin(var)
    if entry is None:
        return None
    return Twin(var, float(entry["scale"]), float(entry.get("zero", 0)))


def _result_of(source: str, variables: Sequence[relax.Var], like: relax.Var) -> relax.Var | None:
    """Which of an operator's `variables` is its result, in the shape of `like`.

    It is the one of the operator's own name, else the last.
    """
    tensors = [var for var in variables if isinstance(var.ty, relax.TensorType)]
    if not isinstance(like.ty, relax.TensorType):
        return None
    fitting = [var for var in tensors if static_shape(var) == static_shape(like)]
    own = [var for var in fitting if sanitized(var.name) == source]
    return next(reversed(own or fitting), None)


def _places(mod: tvm.IRModule, twins: Mapping[relax.Var, Twin]) -> list[Place]:
    """The layers whose result is the first tensor after them that the quantized module has."""
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
        data = layer.call.args[0]
        if result in twins and isinstance(data, relax.Var):
            axis = layer.axis if op_name(layer.call) == "relax.matmul" else 1
            after = ComparedTensor(result, layer.axis, low, high)
            places.append(Place(layer, ComparedTensor(data, axis), after))
    return places


# ---------------------------------------------------------------- errors and corrections
def _errors(
    passes: _Passes,
    qmod: tvm.IRModule,
    wanted: Mapping[ComparedTensor, Moments],
    twins: Mapping[relax.Var, Twin],
) -> dict[ComparedTensor, np.ndarray]:
    """The mean of each channel minus the wanted one; 0 for a tensor that stayed as it was."""
    errors = {tensor: np.zeros_like(moments.mean) for tensor, moments in wanted.items()}
    compared = [tensor for tensor in wanted if tensor.var in twins]
    integers = [ComparedTensor(twins[tensor.var].var, tensor.axis) for tensor in compared]
    for tensor, moments in zip(compared, passes.moments(qmod, integers), strict=True):
        twin = twins[tensor.var]
        errors[tensor] = (moments.mean - twin.zero_point) * twin.scale - wanted[tensor].mean
    return errors


class _Settled:
    """Which part of a tensor's mean error ends when all layers are corrected.

    Args:
        errors: of the results of layers: they end. Sums pass them on, as does an operator with one
            input of as many channels; beyond others nothing is known to end.
    """

    def __init__(self, mod: tvm.IRModule, errors: Mapping[relax.Var, np.ndarray]) -> None:
        self._producers = {b.var: b.value for b in straight_bindings(mod["main"])}
        self._parts = dict(errors)

    def of(self, var: relax.Var, like: np.ndarray) -> np.ndarray:
        """float64 [channels], in the shape of `like`."""
        if var not in self._parts:
            value = self._producers.get(var)
            data = [a for a in getattr(value, "args", ()) if isinstance(a, relax.Var)]
            parts = [self.of(a, like) for a in data] if op_name(value) in PASSED_ON else []
            self._parts[var] = np.sum(parts, axis=0) if parts else np.zeros_like(like)
        part = self._parts[var]
        return part if part.shape == like.shape else np.zeros_like(like)


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
