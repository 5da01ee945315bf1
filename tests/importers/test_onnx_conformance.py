"""ONNX's own tests of its operators: each is computed as ONNX says, or refused with an error."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest
from importer_runs import EQUAL, WRONG
from onnx_conformance import KNOWN, RECORDED, node_tests, verdicts

EVERY = 11
"""One test of so many is run here; `benchmarks/conformance.py` runs all."""
KEPT = (
    *("isinf", "pow", "celu", "swiglu", "eyelike", "rms_normalization_2d", "3d_causal", "window"),
    *("col2im", "cumprod", "dft", "l1norm", "l2norm", "lpnorm", "maxpool_with", "reversesequence"),
    "spacetodepth_crd",
)
"""Tests with these in their names were wrong, or refused, once."""


pytestmark = pytest.mark.skipif(
    not onnx.__version__.startswith(f"{RECORDED}."),
    reason=f"differences are known for the tests of onnx {RECORDED}",
)


def chosen() -> list[str]:
    names = sorted(node_tests())
    return [n for i, n in enumerate(names) if i % EVERY == 0 or any(key in n for key in KEPT)]


def test_results_are_those_of_onnx_or_there_is_an_error() -> None:
    found = verdicts(chosen())
    wrong = {name: each.text for name, each in found.items() if each.kind == WRONG}
    assert not {name: text for name, text in wrong.items() if name not in KNOWN}
    assert [name for name in found if name in KNOWN and found[name].kind == EQUAL] == []
    kinds = Counter(each.kind for each in found.values())
    assert kinds[EQUAL] > sum(kinds.values()) / 2


def test_known_differences_are_tests_of_onnx() -> None:
    assert set(KNOWN) <= set(node_tests())


@pytest.mark.parametrize("name", ["test_celu", "test_isinf_negative", "test_attention_3d_causal"])
def test_is_computed(name: str) -> None:
    (outcome,) = verdicts([name]).values()
    assert outcome.kind == EQUAL, outcome.text
