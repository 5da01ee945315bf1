"""Random layers of every kind on 1x16, a machine with a quarter of the SRAM, 4x8, bit for bit.

Kinds, forms and references are those of random_layers.py; half of the machines are in this file, so
that two processes share the work.
"""

from __future__ import annotations

import pytest
from layer_outcomes import EACH, check_executable, check_histogram, histogram, outcomes
from random_layers import KINDS

MACHINES = ("1x16", "quarter", "4x8")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("machine", MACHINES)
def test_bit_exact(machine: str, kind: str) -> None:
    assert len(outcomes(machine, kind)) == EACH


def test_executable_equals_the_reference_on_llvm() -> None:
    """A layer of each kind through the whole pipeline: host functions and reference by LLVM."""
    check_executable("4x8")


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    """What the layers are and how they are computed; printed."""
    counts, text = histogram(MACHINES)
    with capsys.disabled():
        print(f"\n{text}")
    check_histogram(counts, MACHINES)
