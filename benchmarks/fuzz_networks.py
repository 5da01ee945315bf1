"""Random ONNX networks from import to the simulator: equal to the integer dialect, bit for bit.

Networks of 2 to 12 operators on the machines of the tests in turn; the static verifier must be
silent, and the simulator must compute what the integer dialect says; some networks again with DRAM
scopes only, without memory scopes, or with random legal demands. Every disagreement is shrunk
and printed with the seed that reproduces it; the hunt stops at the fifth.

    python benchmarks/fuzz_networks.py --kind transformers --networks 200 --seed 0

draws blocks of transformers instead: heads, shared keys, lengths, widths, masks, norms and
activations, on two machines and at both kinds of scales.
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

from drawn_transformers import drawn, try_block
from network_demands import AGAINST_COST, INJECTED
from network_hunt import CORES, MACHINES, Disagreement, Tally, try_network
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks._figures import Figure, arguments, report

NETWORKS, TRANSFORMERS = "networks", "transformers"
KINDS = {NETWORKS: (10_000, 5_000), TRANSFORMERS: (0, 200)}
"""What is drawn: the first seed, and how many."""
ATTENTION = "vta.attention"
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


def hunt_blocks(seeds: range, progress: Progress) -> tuple[Counter[str], list[str]]:
    """Try the blocks of ``seeds``: in how many each kind of composite is, and the disagreements."""
    found: Counter[str] = Counter()
    failures: list[str] = []
    for seed in progress.track(seeds, description="blocks"):
        try:
            found.update(("block", *try_block(drawn(seed))))
        except Exception as error:  # whatever stops a block is a finding
            text = f"seed {seed}, {drawn(seed)}: {type(error).__name__}: {error}"
            failures.append(text)
            progress.console.print(f"error: {text}", markup=False, highlight=False)
            if len(failures) == MOST_FAILURES:
                break
    return found, failures


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
    parser.add_argument("--kind", choices=KINDS, default=NETWORKS, help="what is drawn")
    parser.add_argument("--networks", type=int, help="how many to run (5000, or 200 blocks)")
    parser.add_argument("--seed", type=int, help="first seed (10000, of blocks 0)")
    parser.add_argument("--machine", choices=[*MACHINES, *CORES], help="one machine for all")
    options = parser.parse_args()
    first, count = KINDS[options.kind]
    first = first if options.seed is None else options.seed
    seeds = range(first, first + (options.networks or count))
    if options.kind == TRANSFORMERS:
        if options.machine:
            parser.error("--machine is for networks; blocks take the machines of their seeds")
        return transformers(seeds, options.json)
    return random_networks(seeds, options.machine, options.json)


def transformers(seeds: range, as_json: bool) -> int:
    """Hunt with blocks of transformers; the exit code."""
    start = time.perf_counter()
    with Progress(console=Console(stderr=True), disable=as_json) as progress:
        found, failures = hunt_blocks(seeds, progress)
    figures = [
        Figure("transformer_blocks", found.pop("block", 0), "blocks"),
        Figure("transformer_blocks_with_attention", found[ATTENTION], "blocks"),
        Figure.at_most("transformer_blocks_different", len(failures), "blocks", 0),
        Figure("seconds", time.perf_counter() - start, "s"),
    ]
    if not as_json:
        Console().print(_table("blocks that hold a composite", {"partition table": found}))
    return report("fuzz_networks", figures, as_json, composites=dict(found), failures=failures)


def random_networks(seeds: range, machine: str | None, as_json: bool) -> int:
    """Hunt with networks of any operators; the exit code."""
    start = time.perf_counter()
    with Progress(console=Console(stderr=True), disable=as_json) as progress:
        tally, failures = hunt(seeds, progress, machine)
    name, hits = tally.rarest
    consumer, shared = tally.tiles.rarest
    figures = [
        Figure("networks", tally.networks, "networks"),
        Figure("machines", 1 if machine else len(MACHINES), "machines"),
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
    if not as_json:
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
    return report("fuzz_networks", figures, as_json, **contents)


def _at_least(tally: Tally, name: str, value: float, unit: str, target: float) -> Figure:
    ok = value >= target if tally.networks >= ENOUGH else None
    return Figure(name, value, unit, target=target, ok=ok)


if __name__ == "__main__":
    sys.exit(main())
