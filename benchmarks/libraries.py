"""Networks of timm, torchvision and transformers as they are made there, `libraries.py [--json]`.

Each network is what the library's own function makes (`_libraries/table.py`), with random weights
and structured inputs, exported by torch.export. It goes the way that the networks of `zoo.py` go:
imported and compared with PyTorch, quantized, compiled for the preset `sim`, timed, run on the
simulator, and every tensor that a region stores compared with the integer reference; SQNR beside
ONNX Runtime's static quantization, where it takes the file.

Each network runs in a process of its own, bounded in time and memory. Needs the extra libraries.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._apart import measured_apart
from benchmarks._figures import Figure, report
from benchmarks._named import Parts
from benchmarks.zoo import FAILED, attempts, network_figures, print_table, share

PARTS = Parts("libraries", "network", needs=("timm", "torchvision", "transformers"), gib=8)
STYLES = ("program",)


def in_own_process(name: str) -> dict[str, Any]:
    """What `--measure` prints of a network, or why it ended without."""
    row, ended = measured_apart(__file__, name)
    return row if row is not None else {**FAILED, "name": name, "failure": ended}


def figures_of(rows: list[dict[str, Any]]) -> list[Figure]:
    """The figures of the benchmark, then those of each network."""
    files = [style for _, style in attempts(rows)]
    whole = sum(s["sqnr_db"] is not None and s["macs_on_vta"] == s["macs"] for s in files)
    return [
        Figure("networks", len(rows), "networks", total=True),
        share("imported_share", sum(style["imported"] for style in files), len(rows)),
        share("bit_exact_share", sum(style["bit_exact"] for style in files), len(rows)),
        Figure("all_macs_on_vta", whole, "networks", total=True),
        *(figure for row in rows for figure in _figures(row)),
    ]


def _figures(row: dict[str, Any]) -> Iterator[Figure]:
    yield from network_figures(row)
    for _, style in attempts([row]):
        if style["sqnr_db"] is not None:
            yield Figure(f"{row['name']}_macs", style["macs"], "MACs")
            yield Figure(f"{row['name']}_operators", style["operators"], "operators")
            yield Figure(f"{row['name']}_regions", style["regions"], "regions")


def measured(name: str) -> dict[str, Any]:
    from benchmarks._libraries.table import NETWORKS
    from benchmarks._zoo.measure import first_line, measure

    try:
        return measure(name, NETWORKS[name], STYLES)
    except Exception as error:  # of the library that makes it, or of the exporter
        return {**FAILED, "name": name, "failure": first_line(error)}


def main() -> int:
    parser = PARTS.arguments("Networks of timm, torchvision and transformers.")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="networks at a time (default: all cores)"
    )
    options = parser.parse_args()
    if PARTS.left_out():
        return 0
    if options.measure:
        return PARTS.measured(lambda: measured(options.measure))
    from benchmarks._libraries.table import NETWORKS

    about = {name: network.reduced for name, network in NETWORKS.items()}
    names = PARTS.chosen(parser, options, about)
    if options.list:
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(in_own_process, names))
    if not options.json:
        print("preset sim, scales mul, weights per channel; 16 inputs calibrate")
        print_table("libraries", rows)
    part = {*names} != {*NETWORKS}
    return report("libraries", figures_of(rows), options.json, networks=rows, part=part)


if __name__ == "__main__":
    sys.exit(main())
