"""A decoder of characters that was trained on the text of this project's license.

`models/train_characters.py` made `models/trained/characters.onnx`.  The file keeps its characters
in order, and a text to calibrate quantization with.

    decoder = vta_byoc.decoder("models/trained/characters.onnx")
    decoder.generate("You may ", 200).text
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models._decoder import DecoderSizes

NAME = "characters"
TEXT = Path(__file__).resolve().parents[1] / "LICENSE"
TRAINED = Path(__file__).resolve().parent / "trained" / "characters.onnx"
TOKENS = 256
PART = 128
"""The text falls into parts of so many characters, ..."""
EVERY = 10
"""... and one of so many is not trained on."""


def text() -> str:
    """The license: runs of blanks and line ends are one blank."""
    return " ".join(TEXT.read_text(encoding="utf-8").split())


def characters() -> str:
    """All characters of the text, in order."""
    return "".join(sorted(set(text())))


def sizes() -> DecoderSizes:
    """What the network is made of."""
    return DecoderSizes(
        tokens=TOKENS, width=64, heads=4, hidden=192, depth=3, vocabulary=len(characters())
    )


def encoded(given: str) -> np.ndarray:
    """Numbers of characters, int64."""
    known = characters()
    return np.array([known.index(each) for each in given], np.int64)


def held_out() -> list[np.ndarray]:
    """Sequences (TOKENS,) of the text and where the last part of each is not trained on."""
    ids = encoded(text())
    ends = range(EVERY * PART, len(ids) + 1, EVERY * PART)
    return [ids[end - TOKENS : end] for end in ends]


def trained_on() -> np.ndarray:
    """For each character whether it is trained on."""
    places = np.arange(len(text())) // PART
    return places % EVERY != EVERY - 1
