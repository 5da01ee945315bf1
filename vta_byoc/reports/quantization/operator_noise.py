"""One operator of a quantized module with what int8 costs it, and what is advised."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from vta_byoc.base.json_types import Json, JsonObject
from vta_byoc.validation.noise import Measures, WeightMeasures


@dataclass(frozen=True)
class Advice:
    """What to try against the noise of an operator, and why.

    Attributes:
        rule: the name of the rule.
        cause: what was measured.
        step: what to try.
    """

    rule: str
    cause: str
    step: str


@dataclass(frozen=True)
class Operator:
    """One operator (or group of operators) of the quantized module.

    Attributes:
        name: of the operator that begins the group.
        operators: source names of the group; the last one's result is compared.
        kind: "input", "layer" (with weights), "operator", "move" (moves int8 values), "float".
        shape: of the result.
        scale, zero_point: of an int8 result; None for float32.
        inputs: names of the operators whose results it reads.
        input_sqnr: of the worst of these, in dB; infinite without any.
        harm: its part of the noise that all operators add, each measured as a share of its own
            signal: 0 to 1. What an operator adds counts where it is added.
        macs: multiply-accumulates of a layer.
        narrowed: how many times smaller the step of a result without a zero point would be with
            one, where `zero_points="all"` gives it one; else None.
        advice: what the measures say and what to try.
    """

    name: str
    operators: tuple[str, ...]
    kind: str
    shape: tuple[int, ...]
    scale: float | None
    zero_point: int | None
    inputs: tuple[str, ...]
    measures: Measures
    input_sqnr: float
    harm: float
    macs: int = 0
    weights: WeightMeasures | None = None
    narrowed: float | None = None
    advice: tuple[Advice, ...] = ()

    @property
    def drop(self) -> float:
        """By how many dB the result is worse than the worst input.

        It is negative where the operator averages errors out, and NaN where one of both is not a
        number.
        """
        sqnr = self.measures.sqnr
        if math.isinf(self.input_sqnr):
            return 0.0 if math.isinf(sqnr) else math.nan
        return -math.inf if math.isinf(sqnr) else self.input_sqnr - sqnr

    def to_json(self) -> JsonObject:
        """For `--json`: docs/quantization-report.md explains the keys, which do not change."""
        found = asdict(self)
        measures = found.pop("measures")
        levels = measures.pop("levels")
        merged = {**found, **measures, "drop": self.drop, "levels": levels}
        return {key: json_value(value) for key, value in merged.items()}


def json_value(value: Json) -> Json:
    """Infinite becomes the text "exact", which no measure of an error is; NaN becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "exact"
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return value
