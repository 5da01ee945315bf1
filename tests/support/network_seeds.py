"""The random networks of `make test`, by seed: what 600 have, 79 have.

    PYTHONPATH=tests/support python tests/support/network_seeds.py    # chooses them again

tries all 600, some minutes, and writes those to take into this file.  It is due where networks are
drawn or partitioned in another way and `test_random_graphs.py` misses something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from covering import Trait, covering
from network_hunt import Tally, machine_of, try_network, way_of
from network_runs import demanded, public
from rich.progress import track

DRAWN = 600
"""Networks that are chosen from, and that `make fuzz` runs."""
ON_EACH_MACHINE, IN_ALL = 1, 6
"""How often each entry of the partition table, operator, fused layer, way and outcome of a demand
must be there, as far as it is among the drawn."""
STARTS = {public: 12, demanded: 6}
"""What these ways take beside the operators of a network, in operators; the others take 2."""
WITHOUT_REGION = 30
"""What a network counts for, in operators, that has no work for VTA: few of these are needed."""
CHOSEN = (
    0, 1, 2, 6, 10, 12, 14, 29, 31, 32, 36, 39, 44, 48, 66, 73,
    92, 99, 102, 113, 135, 164, 168, 177, 188, 197, 198, 213, 225, 251, 272, 273,
    294, 302, 306, 326, 331, 335, 349, 355, 386, 387, 389, 391, 398, 403, 404, 406,
    407, 421, 422, 429, 430, 438, 465, 471, 472, 473, 476, 478, 483, 510, 514, 529,
    532, 533, 534, 535, 539, 549, 552, 556, 559, 565, 570, 571, 578, 589, 599,
)  # fmt: skip


def traits(seed: int, tally: Tally) -> Iterator[Trait]:
    """What a network has, alone and together with its machine."""
    for number, counter in enumerate(tally.counters):  # names of one may be names of another
        for name, count in counter.items():
            if count:
                yield number, name
                yield number, name, machine_of(seed)
    yield "way", way_of(seed).__name__, machine_of(seed)
    if not tally.with_region:
        yield ("without work for VTA",)


def times(trait: Trait) -> int:
    """How often a trait must be there."""
    return IN_ALL if isinstance(trait, tuple) and len(trait) == 2 else ON_EACH_MACHINE


def operators(seed: int, tally: Tally) -> int:
    """What a network takes, in operators."""
    if not tally.with_region:
        return WITHOUT_REGION
    return tally.kinds.total() + STARTS.get(way_of(seed), 2)


def main() -> None:
    """Choose, and write into this file."""
    tallies = [Tally() for _ in range(DRAWN)]
    for seed in track(range(DRAWN), "networks"):
        try_network(seed, tallies[seed])
    seeds = covering(
        range(DRAWN),
        lambda seed: traits(seed, tallies[seed]),
        lambda seed: operators(seed, tallies[seed]),
        times,
    )
    rows = (", ".join(map(str, seeds[i : i + 16])) for i in range(0, len(seeds), 16))
    text = "CHOSEN = (\n" + "".join(f"    {row},\n" for row in rows) + ")"
    path = Path(__file__)
    path.write_text(re.sub(r"^CHOSEN = \([^)]*\)", text, path.read_text(), flags=re.M))
    print(f"{len(seeds)} networks chosen")


if __name__ == "__main__":
    main()
