"""Which of several measured schedules is the best."""

from __future__ import annotations

import re

import pytest

from vta_byoc.cost.objective import (
    DEFAULT as CHOSEN,
)
from vta_byoc.cost.objective import (
    NAMED,
    OBJECTIVES,
    Measured,
    Objective,
    aiming,
    current,
    objective_of,
)
from vta_byoc.hw.errors import VTAError

DEFAULT = Measured(1000, 4000)
FOUND = [
    DEFAULT,
    Measured(900, 6000),
    Measured(910, 3000),
    Measured(1500, 1000),
    Measured(900, 5000),
]


@pytest.mark.parametrize(
    ("objective", "best"),
    [
        (Objective(), 4),  # 900 cycles twice: the fewer bytes
        (Objective("dram-bytes"), 3),
        (Objective("both", 0.0), 4),
        (Objective("both", 1.0), 3),
        # 0.5 of cycles / 1000 and 0.5 of bytes / 4000: 1, 1.2, 0.83, 0.875, 1.075
        (Objective("both", 0.5), 2),
        # 0.9 and 0.1: 1, 0.96, 0.894, 1.375, 0.935
        (Objective("both", 0.1), 2),
        (Objective(tolerance=0.01), 4),  # up to 909 cycles
        (Objective(tolerance=0.02), 2),  # up to 918
        (Objective(tolerance=0.7), 3),  # up to 1,530
        (Objective("dram-bytes", cycles_limit=0.02), 2),  # up to 918 cycles
        (Objective("dram-bytes", cycles_limit=0.0), 4),
        (Objective("both", 0.5, cycles_limit=0.01), 4),  # up to 909
    ],
)
def test_the_best(objective: Objective, best: int) -> None:
    assert objective.best(FOUND, DEFAULT) == best


def test_the_first_of_equal_ones() -> None:
    assert Objective().best([DEFAULT, DEFAULT], DEFAULT) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "energy"}, "objective 'energy' is none; known: cycles, dram-bytes, both; "),
        ({"bytes_weight": 1.5}, "bytes weight 1.5; it is a share from 0 to 1; give another"),
        ({"tolerance": -0.1}, "tolerance -0.1; it is a share from 0 to 1; give another"),
        ({"cycles_limit": -0.5}, "cycles limit -0.5; it is a share from 0 to 1; give another"),
        ({"tolerance": float("nan")}, "tolerance nan; it is a share from 0 to 1; give another"),
    ],
)
def test_what_is_no_objective(fields: dict[str, object], message: str) -> None:
    with pytest.raises(VTAError, match=f"^{re.escape(message)}"):
        Objective(**fields)  # type: ignore[arg-type]


def test_what_a_compilation_is_given() -> None:
    assert current() == CHOSEN == objective_of("both") == Objective("both", 0.5, cycles_limit=0.02)
    with aiming(Objective("both", 0.3)):
        assert current() == Objective("both", 0.3)
        with aiming(Objective("dram-bytes")):
            assert current().weight == 1
        assert current().weight == 0.3
    assert current() == CHOSEN


def test_a_name_or_a_value() -> None:
    assert objective_of("cycles") == Objective(tolerance=0.01)
    assert objective_of("dram-bytes") == Objective("dram-bytes")
    assert [aim.name for aim in NAMED.values()] == list(NAMED) == list(OBJECTIVES)
    assert objective_of(Objective("both", 0.1)).bytes_weight == 0.1
    with pytest.raises(VTAError, match="^objective 'energy' is none; known: cycles, dram-bytes, "):
        objective_of("energy")
    with pytest.raises(VTAError, match="^objective 3 is none; known: cycles, dram-bytes, both; "):
        objective_of(3)  # type: ignore[arg-type]
