"""The choice is the same, whether all tiles are looked at or only those that may be the best."""

from __future__ import annotations

import numpy as np
import pytest
from alu_cases import GEOMETRIES
from conv_cases import random_work

from vta_byoc.cost import candidates
from vta_byoc.cost.objective import Objective, aiming
from vta_byoc.cost.search import best
from vta_byoc.strategies.conv.grouping import groupings
from vta_byoc.strategies.conv.tile_space import conv_space

AIMS = (
    Objective(),
    Objective("cycles", tolerance=0.01),
    Objective("both", cycles_limit=0.02),
    Objective("both", 0.3, 0.01),
)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("calls", [1, 3])
def test_tiles_that_are_left_out_are_not_the_best(
    name: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, rng = GEOMETRIES[name], np.random.default_rng(len(name) + calls)
    for number in range(12):
        work = random_work(rng)
        space = conv_space(work, groupings(work, config)[0], config, calls=calls)
        with aiming(AIMS[number % len(AIMS)]):
            monkeypatch.setattr(candidates, "FEW", 1 << 30)
            every = best(space, config)
            monkeypatch.setattr(candidates, "FEW", 16)
            monkeypatch.setattr(candidates, "TRIED", 1 + number)
            assert best(space, config) == every
