"""Imported operators against the runtimes they come from: `importers.py [--json] [--draws N]`.

Every operator that an importer takes, as the importer itself lists them, gets drawn shapes,
attributes and values.  The imported float module on LLVM is compared with ONNX Runtime, the TFLite
interpreter and eager PyTorch: float32 to 1e-5 of the value and of the largest of its tensor,
integers and booleans exactly.  What is refused with an error is counted apart, with its reason.

An importer whose runtime is not installed is left out and said to be.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from importer_runs import EQUAL, REFUSED, WRONG, Outcome
from importer_tables import IMPORTERS, Importer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks._figures import Figure, arguments, report

DRAWS = 12
AT_ONCE = 10
"""Operators whose cases are built together."""


@dataclass(frozen=True)
class Row:
    """One operator of one importer.

    Attributes:
        kinds: how many cases became what.
        text: the first difference, or the first reason of a refusal.
    """

    importer: str
    operator: str
    kinds: Counter[str]
    text: str

    @property
    def is_wrong(self) -> bool:
        return self.kinds[WRONG] > 0

    @property
    def is_checked(self) -> bool:
        return self.kinds[EQUAL] + self.kinds[WRONG] > 0

    @property
    def is_refused(self) -> bool:
        return not self.is_checked and self.kinds[REFUSED] > 0


def measured(importer: Importer, draws: int, seed: int, progress: Progress) -> list[Row]:
    """One row for each operator."""
    operators = sorted(importer.operators())
    task = progress.add_task(importer.name, total=len(operators))
    rows = []
    for start in range(0, len(operators), AT_ONCE):
        names = operators[start : start + AT_ONCE]
        found = importer.run(list(importer.drawn(names, draws, seed)), draws)
        rows += [row(importer, n, [o for o in found if o.case.operator == n]) for n in names]
        progress.advance(task, len(names))
    return rows


def row(importer: Importer, operator: str, found: Sequence[Outcome]) -> Row:
    kinds = Counter(outcome.kind for outcome in found)
    telling = next((o for kind in (WRONG, REFUSED) for o in found if o.kind == kind), None)
    text = "" if telling is None else f"{telling.case.text}: {telling.text}"
    return Row(importer.name, operator, kinds, text)


def figures(rows: Sequence[Row]) -> list[Figure]:
    checked = sum(row.is_checked for row in rows)
    wrong = sum(row.is_wrong for row in rows)
    result = [
        Figure("operators_checked", checked, "operators", bound=len(rows)),
        Figure.at_most("operators_wrong", wrong, "operators", 0),
        Figure("operators_refused", sum(row.is_refused for row in rows), "operators"),
    ]
    for name in dict.fromkeys(row.importer for row in rows):
        own = [row for row in rows if row.importer == name]
        checked = sum(row.is_checked for row in own)
        result.append(Figure(f"operators_checked_{name}", checked, "operators", bound=len(own)))
    result.append(Figure("cases_equal", sum(row.kinds[EQUAL] for row in rows), "cases"))
    return result


def details(rows: Sequence[Row]) -> Table:
    """What is wrong and what is refused in every form."""
    table = Table(title="operators that are wrong or refused")
    for column in ("importer", "operator", "cases", "why"):
        table.add_column(column, overflow="fold")
    for item in rows:
        if item.is_wrong or not item.is_checked:
            cases = ", ".join(f"{count} {kind}" for kind, count in item.kinds.items())
            table.add_row(item.importer, item.operator, cases, item.text)
    return table


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--draws", type=int, default=DRAWS, help="cases of each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--importer", choices=[importer.name for importer in IMPORTERS])
    options = parser.parse_args()
    console, rows = Console(stderr=True), []
    with Progress(console=console) as progress:
        for importer in IMPORTERS:
            if options.importer not in (None, importer.name):
                continue
            if importer.is_installed:
                rows += measured(importer, options.draws, options.seed, progress)
            else:
                progress.console.print(f"{importer.name}: {importer.package} is not installed")
    if not options.json:
        Console(width=140).print(details(rows))
    listed = [
        {"importer": r.importer, "operator": r.operator, "cases": dict(r.kinds), "why": r.text}
        for r in rows
        if r.is_wrong or r.kinds[REFUSED] or not r.is_checked
    ]
    return report("importers", figures(rows), options.json, refused_or_wrong=listed)


if __name__ == "__main__":
    sys.exit(main())
