"""Inputs of a run, as reports name them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Input:
    """One input of a run: its array and where it came from."""

    array: np.ndarray
    source: str
