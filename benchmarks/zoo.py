"""Strangers' models: networks of many families in each export style, `zoo.py [--json]`.

Each network is built as a PyTorch module (`_zoo/table.py`), given random weights and structured
inputs, and exported in three styles: ONNX by TorchScript, ONNX by torch.export and onnxscript, and
as a program of torch.export. Each file is imported (and its float module compared with PyTorch),
quantized, compiled for the preset `sim`, timed, run on the simulator, and every tensor that a
region stores is compared with the integer reference. Its reported multiply-accumulates are
compared with PyTorch's count. SQNR stands beside that of ONNX Runtime's static quantization with
the same calibration inputs.

Each network runs in a process of its own, bounded in time and memory. Needs torch and onnxscript.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._apart import measured_apart
from benchmarks._figures import Figure, report
from benchmarks._named import Parts
from benchmarks._zoo import STYLES

PARTS = Parts("zoo", "network", needs=("torch", "onnxscript"), gib=6)
FAILED = {"styles": [], "macs": 0, "onnxruntime_db": None, "seconds": 0.0, "gib": 0.0}


def in_own_process(name: str, styles: Sequence[str]) -> dict[str, Any]:
    """What `--measure` prints of a network, or why it ended without."""
    row, ended = measured_apart(__file__, name, ("--style", *styles))
    return row if row is not None else {**FAILED, "name": name, "failure": ended}


def attempts(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(network, style) of every file that an exporter wrote."""
    for row in rows:
        for style in row["styles"]:
            if not style["export_error"]:
                yield row, style


# ---------------------------------------------------------------- figures
def figures_of(rows: list[dict[str, Any]]) -> list[Figure]:
    """The figures of the benchmark, then those of each network."""
    files = list(attempts(rows))
    failed = sum("failure" in row for row in rows)
    total = len(files) + failed
    imported = sum(style["imported"] for _, style in files)
    exact = sum(style["bit_exact"] for _, style in files)
    wrong = [row["name"] for row in rows if misreported(row)]
    return [
        Figure("networks", len(rows), "networks", total=True),
        Figure("files", total, "files", total=True),
        share("imported_share", imported, total),
        share("bit_exact_share", exact, total),
        Figure.at_most("macs_misreported", len(wrong), "networks", 0, total=True),
        *(figure for row in rows for figure in network_figures(row)),
    ]


def misreported(row: dict[str, Any]) -> bool:
    """Whether a style's total differs from PyTorch's count."""
    return any(s["macs"] is not None and s["macs"] != row["macs"] for s in row["styles"])


def share(name: str, count: int, total: int) -> Figure:
    """How many of all there are, which should be all."""
    return Figure.at_least(name, count / total if total else 0.0, "ratio", 1.0, total=True)


def network_figures(row: dict[str, Any]) -> Iterator[Figure]:
    """Shares on VTA and SQNR of the styles; the worst of them."""
    name, styles = row["name"], [s for _, s in attempts([row])]
    measured = [s for s in styles if s["sqnr_db"] is not None]
    if not measured:
        return
    yield Figure(f"{name}_macs_on_vta", min(map(macs_share, measured)), "%")
    yield Figure(f"{name}_operators_on_vta", min(map(operators_share, measured)), "%")
    beside = {}
    if row["onnxruntime_db"] is not None:
        beside = {"baseline": row["onnxruntime_db"], "baseline_name": "ONNX Runtime"}
    yield Figure(f"{name}_sqnr", min(s["sqnr_db"] for s in measured), "dB", **beside)
    yield Figure(f"{name}_cycles", max(s["cycles"] for s in measured), "cycles")


def macs_share(style: dict[str, Any]) -> float:
    return 100 * style["macs_on_vta"] / style["macs"] if style["macs"] else 0.0


def operators_share(style: dict[str, Any]) -> float:
    return 100 * style["operators_on_vta"] / style["operators"] if style["operators"] else 0.0


# ---------------------------------------------------------------- the table
def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """One line for each file."""
    table = Table(title=title)
    for column in (
        "network",
        "style",
        "import",
        "exact",
        "float",
        "MACs",
        "reported",
        "on VTA",
        "operators",
        "SQNR",
        "ORT",
        "Mcycles",
        "s",
        "GiB",
    ):
        table.add_column(column, justify="left" if column in ("network", "style") else "right")
    for row in rows:
        for style in row["styles"]:
            table.add_row(*_cells(row, style))
    Console(file=sys.stdout, width=max(150, Console().width)).print(table)
    for row in rows:
        for line in _failures(row):
            print(line)


def _cells(row: dict[str, Any], style: dict[str, Any]) -> list[str]:
    first = style is row["styles"][0]
    if style["export_error"]:
        return [row["name"] if first else "", style["name"], "no file"]
    measured = style["sqnr_db"] is not None
    return [
        row["name"] if first else "",
        style["name"],
        "yes" if style["imported"] else "NO",
        "yes" if style["bit_exact"] else "NO",
        _decibels(style["float_db"]),
        f"{row['macs']:,}" if first else "",
        "equal" if style["macs"] == row["macs"] else f"{style['macs']:,}" if measured else "",
        f"{macs_share(style):.1f} %" if measured else "",
        f"{style['operators_on_vta']} of {style['operators']}" if measured else "",
        _decibels(style["sqnr_db"]),
        _decibels(row["onnxruntime_db"]) if first else "",
        f"{style['cycles'] / 1e6:.2f}" if measured else "",
        f"{sum(style['seconds'].values()):.0f}",
        f"{row['gib']:.1f}" if first else "",
    ]


def _decibels(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _failures(row: dict[str, Any]) -> Iterator[str]:
    if "failure" in row:
        yield f"{row['name']}: {row['failure']}"
    if row.get("onnxruntime_error"):
        yield f"{row['name']}, ONNX Runtime: {row['onnxruntime_error']}"
    for style in row["styles"]:
        where = f"{row['name']}, {style['name']}"
        if style["export_error"]:
            yield f"{where}, no file: {style['export_error']}"
        if style["error"]:
            yield f"{where}, {style['error']}"
        if style["first_difference"]:
            yield f"{where}, {style['different']} different: {style['first_difference']}"


def measured(name: str, styles: Sequence[str]) -> dict[str, Any]:
    from benchmarks._zoo.measure import measure
    from benchmarks._zoo.table import NETWORKS

    return measure(name, NETWORKS[name], styles)


def main() -> int:
    parser = PARTS.arguments("Networks of many families in each export style.")
    parser.add_argument(
        "--style", nargs="+", choices=STYLES, default=STYLES, help="exports in these styles only"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="networks at a time (default: all cores)"
    )
    options = parser.parse_args()
    if PARTS.left_out():
        return 0
    if options.measure:
        return PARTS.measured(lambda: measured(options.measure, options.style))
    from benchmarks._zoo.table import NETWORKS

    about = {name: network.reduced for name, network in NETWORKS.items()}
    names = PARTS.chosen(parser, options, about)
    if options.list:
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda name: in_own_process(name, options.style), names))
    if not options.json:
        print("preset sim, scales mul, weights per channel; 16 inputs calibrate")
        print_table("zoo", rows)
    part = {*names} != {*NETWORKS} or {*options.style} != {*STYLES}
    return report("zoo", figures_of(rows), options.json, networks=rows, part=part)


if __name__ == "__main__":
    sys.exit(main())
