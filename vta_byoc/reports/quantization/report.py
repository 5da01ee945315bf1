"""Quantization report: what int8 costs, tensor by tensor, where it comes from, and what to try.

Tensors of the quantized module are compared with those of the module that was quantized, on the
same samples.  For a model that came quantized that is the model as it came, its float operators
between quantize and dequantize: what its own scales cost was decided when it was made, and is not
in these metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import tvm

from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.progress import Progress
from vta_byoc.ir.bindings import source_name, static_shape
from vta_byoc.ir.observe import Observer
from vta_byoc.ir.quantization_record import symmetric
from vta_byoc.quantization import qdq
from vta_byoc.quantization.calibration.samples import Sample, checked_samples
from vta_byoc.quantization.float_layers import FloatLayer, float_layers
from vta_byoc.quantization.group_scales import with_groups
from vta_byoc.quantization.tensor_pairs import Pair, paired, quantization_record, tensor_pairs
from vta_byoc.reports.quantization.advice import advice
from vta_byoc.reports.quantization.operator_noise import Operator, json_value
from vta_byoc.validation.noise import Measures, Tally, WeightMeasures, layer_macs, weight_measures

__all__ = ["Operator", "QuantizationReport", "quantization_report"]


@dataclass(frozen=True)
class Remedy:
    """One thing to try, the operators that it is for, and their part of all noise."""

    step: str
    operators: tuple[str, ...]
    harm: float


@dataclass(frozen=True)
class QuantizationReport:
    """All operators in the order of execution.

    Attributes:
        samples: how many were run.
        came_quantized: the model stated its scales.
    """

    operators: tuple[Operator, ...]
    samples: int
    came_quantized: bool

    @property
    def harmful(self) -> list[Operator]:
        """Operators that add noise, the most harmful first."""
        return sorted((op for op in self.operators if op.harm > 0), key=lambda op: -op.harm)

    @property
    def silent(self) -> list[str]:
        """Operators whose source is zero on every sample: their metrics say nothing."""
        return [op.name for op in self.operators if op.measures.silent]

    @property
    def remedies(self) -> list[Remedy]:
        """What to try for several operators at once, for the most noise first."""
        steps: dict[str, list[Operator]] = {}
        for op in self.harmful:
            for each in op.advice:
                steps.setdefault(each.step, []).append(op)
        found = [
            Remedy(step, tuple(op.name for op in ops), sum(op.harm for op in ops))
            for step, ops in steps.items()
        ]
        return sorted(found, key=lambda remedy: -remedy.harm)

    @property
    def results(self) -> list[Operator]:
        """Operators that nothing else reads."""
        read = {name for op in self.operators for name in op.inputs}
        return [op for op in self.operators if op.name not in read]

    def to_json(self) -> JsonObject:
        """The object of `--json`; docs/quantization-report.md explains its keys."""
        return {
            "samples": self.samples,
            "compared_with": "the model as it came" if self.came_quantized else "float",
            "results": {op.name: json_value(op.measures.sqnr) for op in self.results},
            "most_harmful": [op.name for op in self.harmful],
            "remedies": [json_value(asdict(remedy)) for remedy in self.remedies],
            "silent": self.silent,
            "operators": [op.to_json() for op in self.operators],
        }


def quantization_report(
    mod: tvm.IRModule,
    qmod: tvm.IRModule,
    samples: Iterable[Sample],
    progress: Progress | None = None,
) -> QuantizationReport:
    """Compare a quantized module with what was quantized.

    Args:
        mod: what `quantize` was given. If it equalized, give the module of `equalize` instead:
            equalization changes the tensors between layers on purpose.
        qmod: its result.
        samples: inputs of the model; read once, one at a time. Others than the calibration's show
            what the scales do not cover.
        progress: called after each sample.

    Raises:
        VTAError: the modules do not belong together, or a sample does not fit.
    """
    pairs = tensor_pairs(mod, qmod)
    tallies = [Tally(pair) for pair in pairs]
    both, tensors = paired(mod, qmod, pairs)
    held: list[np.ndarray] = []

    def receive(index: int, values: np.ndarray) -> None:
        if index % 3 < 2:
            held.append(values)
            return
        source, quantized = held
        tallies[index // 3].add(source, quantized, values)
        held.clear()

    observer, count = Observer(both, tensors, receive), 0
    for arrays in checked_samples(mod, samples, progress):
        observer.run(arrays.values())
        count += 1
    came_quantized = qdq.is_quantized(mod)
    operators = _operators(mod, qmod, pairs, [tally.measures() for tally in tallies])
    operators = [_advised(op, operators, came_quantized) for op in operators]
    return QuantizationReport(tuple(operators), count, came_quantized)


def _operators(
    mod: tvm.IRModule, qmod: tvm.IRModule, pairs: Sequence[Pair], measures: Sequence[Measures]
) -> list[Operator]:
    layers = _layers(with_groups(mod, qmod))
    tensors, narrowed = quantization_record(qmod)["tensors"], symmetric(qmod)
    inputs = {source_name(param) for param in mod["main"].params}
    added = [_added(pair, found) for pair, found in zip(pairs, measures, strict=True)]
    total = sum(added)
    found = []
    for pair, measured, noise in zip(pairs, measures, added, strict=True):
        layer, entry = layers.get(pair.name), tensors.get(f"{pair.name}__weight")
        weights = weight_measures(layer, entry) if layer is not None and entry else None
        scale = pair.scale if pair.is_int8 else None
        found.append(
            Operator(
                name=pair.name,
                operators=pair.operators,
                kind=_kind(pair, weights, inputs),
                shape=static_shape(pair.quantized.var),
                scale=None if scale is None else scale.step,
                zero_point=None if scale is None else scale.zero,
                inputs=tuple(pairs[i].name for i in pair.inputs),
                measures=measured,
                input_sqnr=_worst([measures[i].sqnr for i in pair.inputs]),
                harm=noise / total if total else 0.0,
                macs=layer_macs(layer) if weights and layer else 0,
                weights=weights,
                narrowed=None if scale is None else narrowed.get(str(pair.source.var.name)),
            )
        )
    return found


def _layers(mod: tvm.IRModule) -> dict[str, FloatLayer]:
    if qdq.is_quantized(mod):
        mod, _ = qdq.resolved(mod)
    return {source_name(layer.var): layer for layer in float_layers(mod["main"])}


def _added(pair: Pair, measured: Measures) -> float:
    """The noise that an operator adds, as a share of its signal; moves add none."""
    return measured.own_noise if pair.is_group and math.isfinite(measured.own_sqnr) else 0.0


def _worst(sqnr: Sequence[float]) -> float:
    return min((value for value in sqnr if not math.isnan(value)), default=math.inf)


def _kind(pair: Pair, weights: WeightMeasures | None, inputs: set[str]) -> str:
    if pair.name in inputs:
        return "input"
    if weights is not None:
        return "layer"
    if pair.is_group:
        return "operator"
    return "move" if pair.is_int8 else "float"


def _advised(op: Operator, every: Sequence[Operator], came_quantized: bool) -> Operator:
    return replace(op, advice=advice(op, every, came_quantized))
