"""What every benchmark prints: figures with baseline, bound and target, as a table or as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured number.

    ``baseline`` was measured in the same run or is cited; ``bound`` is what no implementation can
    beat; ``target`` is the limit the project set itself; ``ok`` whether it is kept (None: there
    is no target). ``total`` says that it is of all that the benchmark measures: what it is of a
    part is no figure of the whole.
    """

    name: str
    value: float
    unit: str
    baseline: float | None = None
    baseline_name: str = ""
    bound: float | None = None
    target: float | None = None
    ok: bool | None = None
    total: bool = False

    @classmethod
    def at_most(cls, name: str, value: float, unit: str, target: float, **rest: Any) -> Figure:
        """A figure whose target is an upper limit."""
        return cls(name, value, unit, target=target, ok=value <= target, **rest)

    @classmethod
    def at_least(cls, name: str, value: float, unit: str, target: float, **rest: Any) -> Figure:
        """A figure whose target is a lower limit."""
        return cls(name, value, unit, target=target, ok=value >= target, **rest)


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with the options every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def report(name: str, figures: Sequence[Figure], as_json: bool, **more: Any) -> int:
    """Print the figures; the exit code is 1 when a target is missed."""
    if as_json:
        rows = [dataclasses.asdict(f) for f in figures]
        print(json.dumps({"name": name, "figures": rows, **more}, indent=2))
    else:
        Console(file=sys.stdout, width=max(140, Console().width)).print(_table(name, figures))
    return 1 if any(f.ok is False for f in figures) else 0


def _table(name: str, figures: Sequence[Figure]) -> Table:
    table = Table(title=name)
    for column in ("figure", "value", "unit", "baseline", "bound", "target", "ok"):
        numeric = column in ("value", "baseline", "bound", "target")
        table.add_column(column, justify="right" if numeric else "left")
    for f in figures:
        base = "" if f.baseline is None else f"{_number(f.baseline)} ({f.baseline_name})"
        verdict = {None: "", True: "yes", False: "NO"}[f.ok]
        numbers = [_number(v) for v in (f.value, f.bound, f.target)]
        table.add_row(f.name, numbers[0], f.unit, base, numbers[1], numbers[2], verdict)
    return table


def _number(value: float | None) -> str:
    """Whole numbers and large ones with all their digits, others with four."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.4g}"
