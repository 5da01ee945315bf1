"""A classifier of characters by their Unicode names, in the form of BERT (Devlin et al., 2019).

`models/train_names.py` made `models/trained/names.onnx`: `ids` and `mask`, int64 (1, TOKENS), to
`logits` (1, 7).  The names and classes are those of Unicode 3.2, which Python holds unchanged as
`unicodedata.ucd_3_2_0`.  A sequence is a mark, the name, and tokens that do not count.

Run `python models/names.py -o held-out.npz --calibration calibration.npz` for data of `eval`.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from unicodedata import ucd_3_2_0 as unicode

import numpy as np

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._bert import BertSizes

NAME = "names"
TRAINED = Path(__file__).resolve().parent / "trained" / "names.onnx"
TOKENS = 48
CHARACTERS = " -0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NOTHING, BEGIN, FIRST = 0, 1, 2
"""Tokens: none, the mark in front, and the first of CHARACTERS."""
CLASSES = ("capital", "small", "letter", "mark", "number", "punctuation", "symbol")
_CLASS_OF = {"Lu": 0, "Ll": 1, "L": 2, "M": 3, "N": 4, "P": 5, "S": 6}
"""Of a general category or its first letter."""
_SERIES = ("CJK UNIFIED", "CJK COMPATIBILITY", "HANGUL SYLLABLE", "YI SYLLABLE")
"""Names that say no more than a number or a sound; they are left out."""
PART, EVERY = 16, 5
"""The names fall into parts of so many, in their order; one part of so many is not trained on."""
CALIBRATION = 64
"""Names, trained on, to calibrate quantization with."""


@functools.cache
def table() -> tuple[tuple[str, int], ...]:
    """Every name that fits, with the number of its class, by code point."""
    found = []
    for character in map(chr, range(sys.maxunicode + 1)):
        name, category = unicode.name(character, ""), unicode.category(character)
        kind = _CLASS_OF.get(category, _CLASS_OF.get(category[0]))
        if name and kind is not None and len(name) < TOKENS and not name.startswith(_SERIES):
            found.append((name, kind))
    return tuple(found)


def sizes() -> BertSizes:
    """What the network is made of."""
    return BertSizes(
        tokens=TOKENS,
        width=64,
        heads=4,
        hidden=128,
        depth=2,
        vocabulary=FIRST + len(CHARACTERS),
        classes=len(CLASSES),
    )


def encoded(names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """`ids` and `mask` of names, int64 (n, TOKENS).

    Raises:
        ValueError: a name is too long, or has a character that no name has.
    """
    ids = np.full((len(names), TOKENS), NOTHING, np.int64)
    for row, name in zip(ids, names, strict=True):
        unknown = sorted(set(name) - set(CHARACTERS))
        if unknown or len(name) >= TOKENS:
            what = f"the characters {unknown}" if unknown else f"{len(name)} characters"
            raise ValueError(
                f"the name {name!r} has {what}; names have at most {TOKENS - 1} of {CHARACTERS!r}"
            )
        row[: len(name) + 1] = [BEGIN, *(FIRST + CHARACTERS.index(each) for each in name)]
    return ids, (ids != NOTHING).astype(np.int64)


def is_held_out() -> np.ndarray:
    """For each name of the table whether it is not trained on."""
    return np.arange(len(table())) // PART % EVERY == EVERY - 1


def labelled(chosen: np.ndarray) -> dict[str, np.ndarray]:
    """The `ids`, `mask` and `labels` of the names of the table that are `chosen` (bool)."""
    rows = [row for row, taken in zip(table(), chosen, strict=True) if taken]
    ids, mask = encoded([name for name, _ in rows])
    return {"ids": ids, "mask": mask, "labels": np.array([kind for _, kind in rows], np.int64)}


def held_out() -> dict[str, np.ndarray]:
    """What is not trained on: `ids`, `mask`, `labels`."""
    return labelled(is_held_out())


def calibration() -> dict[str, np.ndarray]:
    """Names to calibrate with, evenly from those trained on: `ids`, `mask`."""
    known = np.flatnonzero(~is_held_out())
    chosen = np.zeros(len(table()), bool)
    chosen[known[np.linspace(0, len(known) - 1, CALIBRATION).astype(int)]] = True
    return {name: values for name, values in labelled(chosen).items() if name != "labels"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the names that are not trained on, and those to calibrate with."""
    parser = argparse.ArgumentParser(description="Names of characters for `vta-byoc eval`.")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--calibration", type=Path)
    given = parser.parse_args(arguments)
    np.savez_compressed(given.output, **held_out())
    if given.calibration is not None:
        np.savez_compressed(given.calibration, **calibration())
    return 0


if __name__ == "__main__":
    sys.exit(main())
