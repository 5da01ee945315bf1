"""Rows and columns exchanged on VTA: what the simulator computes is what the definition says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.attention.transpose import TRANSPOSE, matrices
from vta_byoc.strategies.base import LayerWork
from vta_byoc.testing.strategies import check_strategy
from vta_byoc.workload.products import TransposeWorkload

MACHINES = tuple(VTAConfig.preset(name) for name in ("sim", "1x32"))
SIM = MACHINES[0]


def work_of(groups: int, tokens: int, channels: int, config: VTAConfig) -> TransposeWorkload:
    """So many matrices, sizes in blocks."""
    k = config.block
    return TransposeWorkload(
        batch=1,
        in_channels=groups * channels * k,
        out_channels=groups * tokens * k,
        height=1,
        width=channels * k,
        kernel=(1, 1),
        groups=groups,
    )


def drawn(
    rng: np.random.Generator, config: VTAConfig
) -> tuple[TransposeWorkload, Mapping[str, np.ndarray]]:
    """Any number of matrices, tokens and channels; one block of tokens as often as more."""
    groups, channels, tokens = (int(rng.integers(1, high)) for high in (14, 6, 12))
    return work_of(groups, tokens if rng.integers(2) else 1, channels, config), {}


def test_drawn_matrices() -> None:
    """Bit for bit, verified, and the estimate near the timing model."""
    check_strategy(TRANSPOSE, drawn, machines=MACHINES, cases=16, factor=2.2)


def test_a_matrix_larger_than_sram_is_turned_in_parts() -> None:
    """The accumulators of 160 blocks of tokens would fill SRAM more than once."""
    check_strategy(TRANSPOSE, lambda _rng, config: (work_of(1, 160, 1, config), {}), cases=1)


@pytest.mark.parametrize("groups", [1, 12])
def test_the_identity_is_one_block_for_all_matrices(groups: int) -> None:
    work = work_of(groups, 1, 4, SIM)
    assert matrices(work, SIM) == (groups, (4, 1))
    schedule = TRANSPOSE.choose(LayerWork(work), SIM)
    (units,) = TRANSPOSE.weights(schedule, {}, SIM)
    assert np.array_equal(units.reshape(SIM.block, SIM.block), np.eye(SIM.block))
