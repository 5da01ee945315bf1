"""Random layers of every kind on 2x16, 1x32, bit for bit.

Kinds, forms and references are those of random_layers.py; half of the machines are in this file, so
that two processes share the work.
"""

from __future__ import annotations

import pytest
from layer_outcomes import EACH, check_executable, check_histogram, histogram, outcomes
from random_layers import KINDS

MACHINES = ("2x16", "1x32")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("machine", MACHINES)
def test_bit_exact(machine: str, kind: str) -> None:
    assert len(outcomes(machine, kind)) == EACH


def test_executable_equals_the_reference_on_llvm() -> None:
    """A layer of each kind through the whole pipeline: host functions and reference by LLVM."""
    check_executable("2x16")


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    """What the layers are and how they are computed; printed."""
    counts, text = histogram(MACHINES)
    with capsys.disabled():
        print(f"\n{text}")
    check_histogram(counts, MACHINES)
