"""How much the hunts draw: some in `make test`, several times as much in `make fuzz`.

A hunt draws layers or networks from fixed seeds. What `make test` draws is a beginning of what
`make fuzz` draws, or chosen from it (covering.py), and each hunt asserts itself that every kind of
operator, machine and rewrite is in it; the share of a kind that must be there is the same for both.
"""

from __future__ import annotations

import math
import os
from typing import TypeVar

Drawn = TypeVar("Drawn")
VARIABLE = "VTA_BYOC_DRAWS"
"""The environment variable that asks for more."""
MANY = "many"


def draws(some: Drawn, many: Drawn) -> Drawn:
    """`some`, or `many` where VTA_BYOC_DRAWS is "many"."""
    return many if os.environ.get(VARIABLE) == MANY else some


def least(count: int, drawn: int, of: int) -> int:
    """How many of `drawn` there must be where `of` hold at least `count`; one at the least."""
    return max(1, math.floor(count * drawn / of))
