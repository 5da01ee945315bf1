"""The seven counters of published workloads: this compiler on its simulator against the tutorials.

`golden_counters.py [--json]`; the JSON object lists every workload's published and own counters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks._tutorials import COUNTERS, SOURCE, TUTORIALS, Tutorial
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.sim import simulator

Counters = dict[str, int]


def executed(tutorial: Tutorial) -> Counters:
    """Counters of one run on random data and weights."""
    rng = np.random.default_rng(0)
    tensors = {
        name: rng.integers(-128, 128, shape, dtype=np.int8)
        for name, shape in tutorial.shapes().items()
    }
    program = tutorial.program(tensors["weight"])
    return simulator.run(program, {"data": tensors["data"]}).counters


# how each workload is measured; a row of the published table without an entry is not shown
WORKLOADS: dict[str, Callable[[], Counters]] = {
    t.name: lambda t=t: executed(t)  # type: ignore[misc]
    for t in TUTORIALS
}


def workloads() -> list[dict[str, Any]]:
    """One record a workload, in the order of the published table."""
    return [
        {"workload": name, "published": counters, "ours": WORKLOADS[name]()}
        for name, counters in COUNTERS.items()
        if name in WORKLOADS
    ]


def figure(record: dict[str, Any]) -> Figure:
    """How many of a workload's counters equal the published ones."""
    equal = sum(record["ours"][k] == v for k, v in record["published"].items())
    total = len(COUNTER_NAMES)
    return Figure(
        f"{record['workload']}_counters_equal",
        equal,
        "counters",
        baseline=total,
        baseline_name="published",
        target=total,
        ok=equal == total,
    )


def table(records: list[dict[str, Any]]) -> Table:
    """Counters by workload; where they differ, the published value follows."""
    shown = Table(title="counters", caption=SOURCE)
    shown.add_column("workload")
    for name in COUNTER_NAMES:
        shown.add_column(name.replace("_nbytes", " B").replace("_", " "), justify="right")
    for record in records:
        cells = []
        for name in COUNTER_NAMES:
            ours, theirs = record["ours"][name], record["published"][name]
            cells.append(f"{ours:,}" if ours == theirs else f"{ours:,} ({theirs:,})")
        shown.add_row(record["workload"], *cells)
    return shown


def main() -> int:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    records = workloads()
    if not options.json:
        Console(width=max(140, Console().width)).print(table(records))
    figures = [figure(record) for record in records]
    return report("golden_counters", figures, options.json, source=SOURCE, workloads=records)


if __name__ == "__main__":
    sys.exit(main())
