"""What random networks are made of: one table of kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import random_moves as moves
import random_operators as operators
import random_tiles as tiles
from random_operators import MOST_ELEMENTS, Value

if TYPE_CHECKING:
    from random_graphs import Maker


@dataclass(frozen=True)
class Kind:
    """One kind of operator; it is drawn ``weight`` times as often as a kind of weight 1."""

    name: str
    weight: int
    takes: Callable[[Value], bool]
    make: Callable[[Maker, Value], Value]


def _image(x: Value) -> bool:
    return len(x.shape) == 4


def _space(x: Value) -> bool:
    return len(x.shape) in (3, 4)


def _any(x: Value) -> bool:
    return True


def _even(x: Value) -> bool:
    return _image(x) and all(size % 2 == 0 for size in x.plane)


def _halves(x: Value) -> bool:
    return x.channels % 2 == 0 and x.channels > 1


def _fits(factor: int) -> Callable[[Value], bool]:
    return lambda x: _image(x) and x.elements * factor <= MOST_ELEMENTS and max(x.plane) <= 20


KINDS = (
    Kind("relu", 3, _any, operators.relu),
    Kind("conv", 10, lambda x: len(x.shape) == 4, operators.conv),
    Kind("conv1d", 30, lambda x: len(x.shape) == 3, operators.conv),
    Kind("dense", 30, lambda x: len(x.shape) == 2, operators.dense),
    Kind("product", 1, _space, operators.dense),
    Kind("transposed", 4, _fits(2), operators.conv_transpose),
    Kind("batch_norm", 2, _any, operators.batch_norm),
    Kind("clip", 3, _any, operators.clip),
    Kind("leaky", 2, _any, operators.leaky),
    Kind("binary", 7, _any, operators.binary),
    Kind("total", 2, _any, operators.total),
    Kind("constant", 3, _any, operators.constant),
    Kind("negative", 1, _any, operators.negative),
    Kind("max_pool", 4, _image, operators.max_pool),
    Kind("avg_pool", 5, _image, operators.avg_pool),
    Kind("mean", 7, _space, operators.mean),
    Kind("followed", 12, _image, tiles.followed),
    Kind("concat", 10, _any, moves.concat),
    Kind("slice", 6, _any, moves.slice_),
    Kind("split", 2, _halves, moves.split),
    Kind("pad", 5, _fits(2), moves.pad),
    Kind("upsample", 9, _fits(6), moves.upsample),
    Kind("shuffle", 5, lambda x: _image(x) and bool(moves.groups(x)), moves.shuffle),
    Kind("flatten", 3, _space, moves.flatten),
    Kind("row", 5, _space, moves.as_row),
    Kind("image", 8, lambda x: len(x.shape) == 2, moves.as_image),
    Kind("transpose", 5, _image, moves.transpose),
    Kind("spread", 5, _even, moves.spread),
    Kind("nothing", 2, _any, moves.nothing),
    Kind("island", 4, _any, operators.island),
)
"""Simple ones first: a failure shrinks towards the front."""
STEMS = tuple(k for k in KINDS if k.name in ("conv", "conv1d", "dense"))
"""What a network mostly begins with: most operators are integer behind a layer only."""
