"""The numbers of a softmax that stands alone, for any step of its scores."""

from __future__ import annotations

import dataclasses

from vta_byoc.ir.softmax import MOST_SCORE, Softmax
from vta_byoc.quantization.ops.exponential import attention_of, exponential_of
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, Scale


def softmax_of(keys: int, step: float, target: Scale) -> Softmax:
    """Of so many scores in such steps, with results at a scale."""
    exponential, limits = exponential_of(step, MOST_SCORE, "softmax"), (INT8_LOW, INT8_HIGH)
    numbers = attention_of(keys, exponential, 1 / MOST_SCORE, target, limits, "softmax")
    return Softmax(keys, dataclasses.astuple(numbers)[1:])
