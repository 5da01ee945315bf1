"""Random ONNX networks from import to the simulator: equal to the integer dialect, bit for bit.

Networks of 2 to 12 operators on the machines of the tests in turn; the static verifier must be
silent, and the simulator must compute what the integer dialect says; some networks again with DRAM
scopes only, without memory scopes, or with random legal demands. Every disagreement is shrunk
and printed with the seed that reproduces it; the hunt stops at the fifth.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from network_demands import AGAINST_COST, INJECTED
from network_hunt import CORES, MACHINES, Disagreement, Tally, try_network
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks._figures import Figure, arguments, report

MOST_FAILURES = 5
LEAST_SHARE = 95.0
"""Percent of the networks that have work for VTA."""
LEAST_HITS = 20
"""Of every entry of the partition table, and of consumers of each kind in shared tiles."""
LEAST_DEMANDS = 24
LEAST_AGAINST_COST = 6
"""Demands that were met on chip where the estimate alone says no."""
ENOUGH = 500
"""Networks from which on the two limits above are demanded."""


def hunt(seeds: range, progress: Progress, machine: str | None = None) -> tuple[Tally, list[str]]:
    """Try the networks of ``seeds``, all on ``machine`` where one is named; what they were made of,
    and the disagreements."""
    named = (machine,) if machine else ()
    tally, failures = Tally(), []
    for seed in progress.track(seeds, description="networks"):
        try:
            try_network(seed, tally, *named)
        except Disagreement as error:
            failures.append(str(error))
            progress.console.print(f"error: {error}", markup=False, highlight=False)
            if len(failures) == MOST_FAILURES:
                break
    return tally, failures


def histogram(tally: Tally) -> Table:
    """Hits of the partition table beside the operators of the networks."""
    columns = {"partition table": tally.hits, "operator": tally.kinds}
    return _table("what the networks were made of", columns)


def shared_tiles(tally: Tally) -> Table:
    """Layers of several operators: what these are."""
    tiles = tally.tiles
    columns = {"consumer": tiles.consumers, "producer": tiles.producers, "layer": tiles.chains}
    return _table(f"operators in shared tiles, in {tally.sharing} networks", columns)


def _table(title: str, columns: Mapping[str, Counter[str]]) -> Table:
    """Counters side by side."""
    table = Table(title=title)
    for name in columns:
        table.add_column(name)
        table.add_column("count", justify="right")
    counted = [counter.most_common() for counter in columns.values()]
    for row in itertools.zip_longest(*counted, fillvalue=("", "")):
        table.add_row(*(str(cell) for pair in row for cell in pair))
    return table


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=5_000, help="how many to run")
    parser.add_argument("--seed", type=int, default=10_000, help="first seed")
    parser.add_argument("--machine", choices=[*MACHINES, *CORES], help="one machine for all")
    options = parser.parse_args()
    start = time.perf_counter()
    seeds = range(options.seed, options.seed + options.networks)
    with Progress(console=Console(stderr=True), disable=options.json) as progress:
        tally, failures = hunt(seeds, progress, options.machine)
    name, hits = tally.rarest
    consumer, shared = tally.tiles.rarest
    figures = [
        Figure("networks", tally.networks, "networks"),
        Figure("machines", 1 if options.machine else len(MACHINES), "machines"),
        Figure.at_most("disagreements", len(failures), "networks", 0),
        _at_least(tally, "with_region", tally.share, "%", LEAST_SHARE),
        _at_least(tally, f"fewest_hits ({name})", hits, "hits", LEAST_HITS),
        Figure("sharing_tiles", tally.sharing, "networks"),
        _at_least(tally, f"fewest_shared ({consumer})", shared, "consumers", LEAST_HITS),
        _at_least(tally, "demands", tally.demands[INJECTED], "demands", LEAST_DEMANDS),
        _at_least(
            tally,
            "demands_against_cost",
            tally.demands[AGAINST_COST],
            "demands",
            LEAST_AGAINST_COST,
        ),
        Figure("seconds", time.perf_counter() - start, "s"),
    ]
    if not options.json:
        Console().print(histogram(tally))
        Console().print(shared_tiles(tally))
        Console().print(_table("demands by consumers", {"what came of it": tally.demands}))
    contents = {
        "hits": dict(tally.hits),
        "operators": dict(tally.kinds),
        "consumers": dict(tally.tiles.consumers),
        "producers": dict(tally.tiles.producers),
        "chains": dict(tally.tiles.chains),
        "demands": dict(tally.demands),
        "failures": failures,
    }
    return report("fuzz_networks", figures, options.json, **contents)


def _at_least(tally: Tally, name: str, value: float, unit: str, target: float) -> Figure:
    ok = value >= target if tally.networks >= ENOUGH else None
    return Figure(name, value, unit, target=target, ok=ok)


if __name__ == "__main__":
    sys.exit(main())
