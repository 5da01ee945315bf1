"""ONNX's own tests of operators, through the importer: `conformance.py [--json] [--only TEXT]`.

Each test of the installed `onnx` has one node (or the nodes that define it), inputs, and the
results of ONNX's reference implementation.  The imported module on LLVM is compared with these.
Tests of sequences, optional values and strings are counted apart, and so is what is refused with
an error.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from importer_runs import EQUAL, REFUSED, WRONG, Outcome
from onnx_conformance import KNOWN, NOT_OF_TENSORS, node_tests, verdicts
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks._figures import Figure, arguments, report

AT_ONCE = 60
"""Tests that are imported and built together."""


def figures(found: Mapping[str, Outcome]) -> list[Figure]:
    kinds = Counter(each.kind for each in found.values())
    wrong = [name for name, each in found.items() if each.kind == WRONG]
    tensors = len(found) - kinds[NOT_OF_TENSORS]
    return [
        Figure("tests_equal", kinds[EQUAL], "tests", bound=tensors),
        Figure("tests_refused", kinds[REFUSED], "tests"),
        Figure("tests_known_to_differ", sum(name in KNOWN for name in wrong), "tests"),
        Figure.at_most("tests_wrong", sum(name not in KNOWN for name in wrong), "tests", 0),
    ]


def details(found: Mapping[str, Outcome]) -> Table:
    """What is wrong, and the reasons of refusals by operator."""
    table = Table(title="operators that are wrong or refused")
    for column in ("operator", "tests", "the first of them"):
        table.add_column(column, overflow="fold")
    for operator in sorted({each.case.operator for each in found.values()}):
        for kind in (WRONG, REFUSED):
            own = [e for e in found.values() if (e.case.operator, e.kind) == (operator, kind)]
            if own:
                table.add_row(operator, f"{len(own)} {kind}", f"{own[0].case.text}: {own[0].text}")
    return table


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", default="", metavar="TEXT", help="tests with it in their name")
    options = parser.parse_args()
    names = sorted(name for name in node_tests() if options.only in name)
    found: dict[str, Outcome] = {}
    starts = range(0, len(names), AT_ONCE)
    for start in track(starts, "tests", console=Console(stderr=True)):
        found |= verdicts(names[start : start + AT_ONCE])
    if not options.json:
        Console(width=140).print(details(found))
    listed = [
        {"test": name, "kind": each.kind, "why": KNOWN.get(name, each.text)}
        for name, each in found.items()
        if each.kind in (WRONG, REFUSED)
    ]
    return report("conformance", figures(found), options.json, refused_or_wrong=listed)


if __name__ == "__main__":
    sys.exit(main())
