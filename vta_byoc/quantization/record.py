"""The quantization record while it is written; reports and later stages read its JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import SEPARATOR
from vta_byoc.ir.quantization_record import (
    FactorEntry,
    FunctionEntry,
    QuantizationRecord,
    TensorEntry,
)
from vta_byoc.quantization.scales import Scale


@dataclass
class Record:
    """What reports need to know, and the proofs; in the order of execution.

    Attributes:
        tensors: int8 variable, or `<layer>__weight` -> its scale and largest float magnitude.
        accumulators: layer -> proven bound of its int32 values, and its shift.
        sources: layer -> source names of the operators that its group holds.
        results: layer -> the variable of the source module whose value it has; of layers that
            compute a part of an operator alone, left out if empty.
        float_regions: source name -> the Refusal of an operator that could not become integer; left
            out if empty.
        factors: layer -> form of its factor without a multiplier, and its largest error in steps
            of the result; left out if empty.
        functions: layer -> the program of a function of one operand: its operators, its largest
            error in steps, the share of exact results, cycles a vector; left out if empty.
        exact: layer -> why its results are not its runtime's to the bit; "" where they are. Left
            out without `exact_rescale`.
        absorbed: source name -> the layer whose group computes it, and its kind; left out if empty.
        symmetric: variable of the source module -> how many times smaller the step of a tensor
            without a zero point would be with `zero_points="all"`; left out if empty.
        active_ranges: variable of the source module -> from where to where its readers tell values
            of it apart, if it reaches further; left out if empty.
    """

    tensors: dict[str, TensorEntry] = field(default_factory=dict)
    accumulators: dict[str, dict[str, int]] = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    float_regions: dict[str, dict[str, str]] = field(default_factory=dict)
    factors: dict[str, FactorEntry] = field(default_factory=dict)
    functions: dict[str, FunctionEntry] = field(default_factory=dict)
    exact: dict[str, str] = field(default_factory=dict)
    absorbed: dict[str, list[str]] = field(default_factory=dict)
    symmetric: dict[str, float] = field(default_factory=dict)
    active_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> str:
        """The record as `quantization_record.QuantizationRecord` describes it."""
        optional = self.__dict__.keys() - QuantizationRecord.__annotations__
        layers = Counter(sources[-1] for sources in self.sources.values())
        parts = {k: v for k, v in self.results.items() if layers[self.sources[k][-1]] > 1}
        said = self.__dict__ | {"results": parts}
        return json.dumps({k: v for k, v in said.items() if v or k not in optional})

    def note_float(self, name: str, reason: Refusal) -> None:
        """Note why an operator, by its source name, stays float."""
        self.float_regions[name] = dataclasses.asdict(reason)

    def note_tensor(self, name: str, scale: Scale, amax: float | None) -> None:
        """Note the scale of an int8 variable, and its largest float magnitude."""
        self.tensors[name] = {"scale": scale.step, "amax": amax or 0.0}
        if scale.zero:
            self.tensors[name]["zero"] = scale.zero

    def note_weight(self, name: str, steps: np.ndarray, amax: float) -> None:
        """Note the step, () or [channels], of a layer's weights, and their largest magnitude."""
        steps = np.asarray(steps, np.float64)
        entry: TensorEntry = {"scale": float(steps.max()), "amax": amax}
        if (steps != steps.reshape(-1)[0]).any():
            entry["scales"] = steps.tolist()
        self.tensors[f"{name}{SEPARATOR}weight"] = entry
