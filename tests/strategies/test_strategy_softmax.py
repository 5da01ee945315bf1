"""A softmax on VTA: what the simulator computes is what the definition computes on llvm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from draws import draws
from softmax_cases import softmax_of

from vta_byoc.hw.config import VTAConfig
from vta_byoc.quantization.scales import Scale
from vta_byoc.strategies.softmax.softmax import SOFTMAX
from vta_byoc.testing.strategies import check_strategy
from vta_byoc.workload.workloads import SoftmaxWorkload

MACHINES = tuple(VTAConfig.preset(name) for name in ("sim", "2x16", "1x32"))


def drawn(
    rng: np.random.Generator, _config: VTAConfig
) -> tuple[SoftmaxWorkload, Mapping[str, np.ndarray]]:
    """Rows and columns of any plane; places behind the last key."""
    axis = int(rng.integers(2, 4))
    shape = [int(rng.integers(1, high)) for high in (4, 60, 20, 20)]
    keys = int(rng.integers(1, 70))
    shape[axis] = keys + int(rng.integers(2) * rng.integers(1, 16))
    step = float(2 ** rng.uniform(-12, -1))
    zero = int(rng.choice([-128, 0]))
    softmax = softmax_of(keys, step, Scale(1 / (127 - zero), zero))
    return SoftmaxWorkload(*shape, axis, keys, softmax.numbers), {}


def test_drawn_softmaxes() -> None:
    """Bit for bit, verified, and the estimate within twice of the timing model."""
    check_strategy(SOFTMAX, drawn, machines=MACHINES, cases=draws(8, 16), factor=2.2)
