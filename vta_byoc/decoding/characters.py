"""Text as numbers, one a character, and what a model's file keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vta_byoc.hw.errors import VTAError

CHARACTERS, CALIBRATION = "characters", "calibration"
"""Keys of an ONNX file's metadata: the characters in order, and a text to calibrate with."""


@dataclass(frozen=True)
class Characters:
    """The characters that a model knows: the number of each is its place.

    Attributes:
        known: all of them, in order.
        calibration: a text to calibrate with; empty where there is none.
    """

    known: str
    calibration: str = ""

    @classmethod
    def of(cls, file: str | Path) -> Characters | None:
        """What an ONNX file keeps; None where it keeps no characters, and for other files."""
        path = Path(file)
        if path.suffix != ".onnx":
            return None
        import onnx

        model = onnx.load(str(path), load_external_data=False)
        kept = {prop.key: prop.value for prop in model.metadata_props}
        if CHARACTERS not in kept:
            return None
        return cls(kept[CHARACTERS], kept.get(CALIBRATION, ""))

    def encoded(self, text: str) -> list[int]:
        """The numbers of a text's characters.

        Raises:
            VTAError: a character that the model does not know.
        """
        for place, each in enumerate(text):
            if each not in self.known:
                raise VTAError(
                    f"character {each!r} at place {place} of the prompt; the model knows "
                    f"{len(self.known)}: {self.known!r}; write the prompt with these"
                )
        return [self.known.index(each) for each in text]

    def decoded(self, ids: Sequence[int]) -> str:
        """The text of numbers."""
        return "".join(self.known[number] for number in ids)

    def samples(self, tokens: int, dtype: str) -> list[np.ndarray]:
        """The calibration text in sequences (1, tokens)."""
        ids = np.array(self.encoded(self.calibration), dtype)
        ends = range(tokens, len(ids) + 1, tokens)
        return [ids[end - tokens : end][None] for end in ends]
