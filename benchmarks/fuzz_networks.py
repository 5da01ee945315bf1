"""Random ONNX networks from import to the simulator: equal to the integer dialect, bit for bit.

Networks of 2 to 12 operators on the machines of the tests in turn; the static verifier must be
silent, and the simulator must compute what the integer dialect says. Every disagreement is shrunk
and printed with the seed that reproduces it; the hunt stops at the fifth.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from network_hunt import MACHINES, Disagreement, Tally, try_network
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks._figures import Figure, arguments, report

MOST_FAILURES = 5
LEAST_SHARE = 95.0
"""Percent of the networks that have work for VTA."""
LEAST_HITS = 20
"""Of every entry of the partition table."""
ENOUGH = 500
"""Networks from which on the two limits above are demanded."""


def hunt(seeds: range, progress: Progress) -> tuple[Tally, list[str]]:
    """Try the networks of ``seeds``; what they were made of, and the disagreements."""
    tally, failures = Tally(), []
    for seed in progress.track(seeds, description="networks"):
        try:
            try_network(seed, tally)
        except Disagreement as error:
            failures.append(str(error))
            progress.console.print(f"error: {error}", markup=False, highlight=False)
            if len(failures) == MOST_FAILURES:
                break
    return tally, failures


def histogram(tally: Tally) -> Table:
    """Hits of the partition table beside the operators of the networks."""
    table = Table(title="what the networks were made of")
    for column in ("partition table", "hits", "operator", "drawn"):
        table.add_column(column, justify="right" if column in ("hits", "drawn") else "left")
    hits, kinds = tally.hits.most_common(), tally.kinds.most_common()
    for i in range(max(len(hits), len(kinds))):
        pairs = (rows[i] if i < len(rows) else ("", "") for rows in (hits, kinds))
        table.add_row(*(str(cell) for pair in pairs for cell in pair))
    return table


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=5_000, help="how many to run")
    parser.add_argument("--seed", type=int, default=10_000, help="first seed")
    options = parser.parse_args()
    start = time.perf_counter()
    seeds = range(options.seed, options.seed + options.networks)
    with Progress(console=Console(stderr=True), disable=options.json) as progress:
        tally, failures = hunt(seeds, progress)
    name, hits = tally.rarest
    figures = [
        Figure("networks", tally.networks, "networks"),
        Figure("machines", len(MACHINES), "machines"),
        Figure.at_most("disagreements", len(failures), "networks", 0),
        _at_least(tally, "with_region", tally.share, "%", LEAST_SHARE),
        _at_least(tally, f"fewest_hits ({name})", hits, "hits", LEAST_HITS),
        Figure("seconds", time.perf_counter() - start, "s"),
    ]
    if not options.json:
        Console().print(histogram(tally))
    contents = {"hits": dict(tally.hits), "operators": dict(tally.kinds), "failures": failures}
    return report("fuzz_networks", figures, options.json, **contents)


def _at_least(tally: Tally, name: str, value: float, unit: str, target: float) -> Figure:
    ok = value >= target if tally.networks >= ENOUGH else None
    return Figure(name, value, unit, target=target, ok=ok)


if __name__ == "__main__":
    sys.exit(main())
