"""Inputs of a run, as reports name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vta_byoc.base.json_types import Json


@dataclass(frozen=True)
class Input:
    """One input of a run: its array and where it came from."""

    array: np.ndarray
    source: str

    def line(self, name: str) -> str:
        """What a report prints of the input `name`."""
        return f"input {name} {shape_text(self.array)}: {self.source}"

    def to_json(self) -> Mapping[str, Json]:
        """What a report's JSON object says of it."""
        array = self.array
        return {"shape": list(array.shape), "dtype": str(array.dtype), "source": self.source}


def shape_text(array: np.ndarray) -> str:
    """Shape and dtype of an array as reports print them."""
    return f"({', '.join(map(str, array.shape))}) {array.dtype}"
