"""Any legal schedule of a tile space gives a program that is verified and bit-exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from schedule_cases import KINDS, check_exact, random_schedule

from vta_byoc.hw.config import VTAConfig
from vta_byoc.tuning.schedule import Schedule

MACHINES = ("sim", "2x16", "1x32")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, derandomize=True, database=None)
@given(seed=st.integers(0, 10**9), machine=st.sampled_from(MACHINES))
def test_a_legal_schedule_is_exact(kind: str, seed: int, machine: str) -> None:
    config = VTAConfig.preset(machine)
    schedule = random_schedule(kind, config, np.random.default_rng(seed))
    assume(schedule is not None)
    assert schedule is not None
    assert Schedule.from_json(schedule.to_json()) == schedule
    check_exact(schedule, config, seed)
