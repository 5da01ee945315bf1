"""What calibration says of tensors with NaN, and how samples are shared among workers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from small_models import Graph

from vta_byoc.quantization.calibration.statistics import (
    LEAST_SAMPLES,
    MOST_PARTS,
    _parts,
    tensor_statistics,
)


def test_a_tensor_with_nan_reaches_both_infinities() -> None:
    """A root of negative numbers that the model hides: it stays float, whatever else it holds."""
    g = Graph((1, 4))
    root = g.op("sqrt", g.params[0], name="root")
    kept = g.op("where", g.op("greater", g.params[0], g.const(0)), root, g.const(0), name="kept")
    found = tensor_statistics(g.module(kept), [np.array([[4, -1, 9, 1]], "float32")])
    seen = {tensor.name: each for tensor, each in found.items()}
    root_seen, kept_seen = seen["root"], seen["kept"]
    assert (root_seen.low, root_seen.high, root_seen.amax) == (-math.inf, math.inf, math.inf)
    assert (kept_seen.low, kept_seen.high, kept_seen.amax) == (0, 3, 3)


@pytest.mark.parametrize("count", (1, 7, 8, 9, 512, 513, 1000))
def test_parts_are_not_too_many_and_not_too_short(count: int) -> None:
    """All samples in their order, in at most 64 parts; only the last may be short."""
    g = Graph((1, 2))
    samples = [{"x0": np.array([[i, 0]], "float32")} for i in range(count)]
    parts = _parts(g.module(g.op("nn.relu", g.params[0])), samples, False)
    assert [s for part in parts for s in part.samples] == samples
    assert [part.first for part in parts] == [
        sum(len(before.samples) for before in parts[:i]) for i in range(len(parts))
    ]
    assert len(parts) <= MOST_PARTS
    assert all(len(part.samples) >= LEAST_SAMPLES for part in parts[:-1])
