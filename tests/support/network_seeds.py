"""The random networks of `make test`, by seed: what 600 have, 90 have.

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
from network_runs import public

DRAWN = 600
"""Networks that are chosen from, and that `make fuzz` runs."""
ON_EACH_MACHINE, IN_ALL = 1, 8
"""How often each entry of the partition table, operator, fused layer, way and outcome of a demand
must be there, as far as it is among the drawn."""
START, PUBLIC_START = 2, 12
"""What a network takes beside its operators, in operators; more where it runs as users run it."""
CHOSEN = (
    0, 1, 2, 4, 6, 12, 14, 25, 26, 28, 29, 32, 39, 44, 48, 66,
    77, 102, 106, 108, 110, 113, 114, 134, 135, 160, 166, 168, 170, 174, 177, 184,
    188, 190, 195, 198, 213, 225, 272, 273, 299, 302, 304, 306, 322, 326, 330, 332,
    334, 342, 346, 349, 355, 386, 387, 389, 391, 398, 403, 406, 407, 422, 426, 429,
    430, 438, 465, 471, 472, 476, 478, 480, 500, 504, 506, 511, 514, 522, 529, 541,
    545, 549, 552, 559, 564, 565, 570, 578, 587, 589,
)  # fmt: skip


def traits(seed: int, tally: Tally) -> Iterator[Trait]:
    """What a network has, alone and together with its machine."""
    for number, counter in enumerate(tally.counters):  # names of one may be names of another
        for name, count in counter.items():
            if count:
                yield number, name
                yield number, name, machine_of(seed)
    yield "way", way_of(seed).__name__, machine_of(seed)


def times(trait: Trait) -> int:
    """How often a trait must be there."""
    return IN_ALL if isinstance(trait, tuple) and len(trait) == 2 else ON_EACH_MACHINE


def operators(seed: int, tally: Tally) -> int:
    """What a network takes, in operators."""
    return tally.kinds.total() + (PUBLIC_START if way_of(seed) is public else START)


def main() -> None:
    """Choose, and write into this file."""
    tallies = [Tally() for _ in range(DRAWN)]
    for seed, tally in enumerate(tallies):
        try_network(seed, tally)
        print(f"\r{seed + 1} of {DRAWN} networks", end="", flush=True)
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
    print(f"\n{len(seeds)} networks chosen")


if __name__ == "__main__":
    main()
