"""Every operator of every importer computes what its own runtime does, or is refused.

The operators are read from the importers, the cases are drawn (`importer_onnx`, `importer_tflite`,
`importer_torch`); `benchmarks/importers.py` draws more of them.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from importer_runs import EQUAL, NO_MODEL, REFUSED, WRONG, Outcome
from importer_tables import IMPORTERS, Importer

DRAWS = 1
JOINED = 60
by_name = pytest.mark.parametrize("importer", IMPORTERS, ids=lambda importer: importer.name)


def _need(importer: Importer) -> None:
    if not importer.is_installed:
        pytest.skip(f"{importer.package} is not installed: nothing to compare {importer.name} with")


@by_name
def test_every_operator_has_cases(importer: Importer) -> None:
    _need(importer)
    assert set(importer.module.CASES) == importer.operators()


@by_name
def test_operators_equal_their_runtime(importer: Importer) -> None:
    _need(importer)
    found = importer.run(list(importer.drawn(sorted(importer.operators()), DRAWS)), JOINED)
    wrong = [f"{o.case.operator}, {o.case.text}: {o.text}" for o in found if o.kind == WRONG]
    assert not wrong, "\n".join(wrong)
    kinds: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in found:
        kinds[outcome.kind].append(outcome)
    print(f"{importer.name}: " + ", ".join(f"{kind} {len(kinds[kind])}" for kind in kinds))
    assert len(kinds[EQUAL]) >= 0.9 * len(found), [
        (o.case.operator, o.text) for o in kinds[REFUSED] + kinds[NO_MODEL]
    ]
