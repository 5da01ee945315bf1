"""What to try for an operator that quantization harms: one table of rules.

A rule compares one measured metric with its threshold.  An operator gets the advice of every rule
that holds; how much it harms decides its place in the list, not the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vta_byoc.reports.quantization.operator_noise import Advice, Operator

ENOUGH_DB = 40.0
"""An operator that adds less noise than this needs advice about saturation and silence only."""


@dataclass(frozen=True)
class Rule:
    """A cause of noise that can be measured, and what to try against it.

    Attributes:
        metric: (operator, all operators) -> what is measured; None where it does not apply.
        threshold: the rule holds for metrics of at least this.
        cause: with `{metric}` and `{threshold}` in it.
        step: with `{name}` in it.
        for_any: holds for models that came quantized too, and however little noise is added.
    """

    name: str
    metric: Callable[[Operator, Sequence[Operator]], float | None]
    threshold: float
    cause: str
    step: str
    for_any: bool = False

    def advice(self, op: Operator, every: Sequence[Operator]) -> Advice | None:
        """The advice of this rule for ``op``; None where it does not hold."""
        metric = self.metric(op, every)
        if metric is None or not metric >= self.threshold:
            return None
        texts = {"metric": metric, "threshold": self.threshold, "name": op.operators[0]}
        return Advice(self.name, self.cause.format(**texts), self.step.format(**texts))


def advice(op: Operator, every: Sequence[Operator], came_quantized: bool) -> tuple[Advice, ...]:
    """Of all rules that hold, in the order of the table."""
    is_quiet = not op.measures.own_sqnr < ENOUGH_DB
    rules = [rule for rule in RULES if rule.for_any or not (came_quantized or is_quiet)]
    found = (rule.advice(op, every) for rule in rules)
    return tuple(each for each in found if each is not None)


# ---------------------------------------------------------------- metrics
def _silent(op: Operator, every: Sequence[Operator]) -> float | None:
    return float(op.measures.silent)


def _saturated(op: Operator, every: Sequence[Operator]) -> float | None:
    return None if op.measures.levels is None else 100 * op.measures.levels.saturated


def _channel_gain(op: Operator, every: Sequence[Operator]) -> float | None:
    weights = op.weights
    return None if weights is None or weights.per_channel else weights.channel_gain


def _outliers(op: Operator, every: Sequence[Operator]) -> float | None:
    levels = op.measures.levels
    if levels is None or not levels.tail_start or levels.saturated:
        return None
    return 1 / levels.tail_start


def _unused(op: Operator, every: Sequence[Operator]) -> float | None:
    """Of a power-of-two scale: how much smaller it could be."""
    if op.scale is None or op.measures.levels is None or not op.measures.levels.reach:
        return None
    is_power = math.frexp(op.scale)[0] == 0.5
    return 1 / op.measures.levels.reach if is_power and op.kind != "move" else None


def _one_sided(op: Operator, every: Sequence[Operator]) -> float | None:
    return None if op.kind == "move" else op.narrowed


def _mean_shift(op: Operator, every: Sequence[Operator]) -> float | None:
    return 100 * op.measures.mean_shift if op.kind == "layer" else None


def _harm_for_its_size(op: Operator, every: Sequence[Operator]) -> float | None:
    """Harm in percent, of a layer with few of the MACs."""
    total = sum(each.macs for each in every)
    is_small = op.kind == "layer" and op.macs <= SMALL_SHARE * total
    return 100 * op.harm if is_small else None


SMALL_SHARE = 0.05
"""A layer with at most this share of the MACs costs little on the CPU."""

RULES: tuple[Rule, ...] = (
    Rule(
        "silent",
        _silent,
        1.0,
        "zero on every sample",
        "give samples that excite it; its range is not known",
        for_any=True,
    ),
    Rule(
        "saturation",
        _saturated,
        0.1,
        "{metric:.2g} % of its values saturate (limit {threshold:g} %)",
        "calibrate on samples like these, or --method minmax or mse, or a higher --percentile",
        for_any=True,
    ),
    Rule(
        "channel spread",
        _channel_gain,
        6.0,
        "all channels share a weight scale; one for each would give them {metric:.1f} dB more on "
        "average (limit {threshold:g})",
        "--per-channel, or --equalize",
    ),
    Rule(
        "outliers",
        _outliers,
        2.0,
        "0.1 % of its values stretch the range {metric:.1f} times (limit {threshold:g})",
        "--method mse or percentile",
    ),
    Rule(
        "unused range",
        _unused,
        1.5,
        "its power-of-two scale is {metric:.2f} times as large as needed (limit {threshold:g})",
        "--scales mul",
    ),
    Rule(
        "one-sided range",
        _one_sided,
        1.3,
        "a zero point would make its scale {metric:.2f} times smaller (limit {threshold:g})",
        "--zero-points all",
    ),
    Rule(
        "mean shift",
        _mean_shift,
        25.0,
        "{metric:.0f} % of what it adds are shifted channel means (limit {threshold:g} %)",
        "--bias-correction",
    ),
    Rule(
        "small and harmful",
        _harm_for_its_size,
        20.0,
        "{metric:.0f} % of all noise (limit {threshold:g} %) from at most 5 % of the MACs",
        "--keep-float {name}",
    ),
)
