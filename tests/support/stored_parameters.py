"""The parameters that a model's file keeps, for a builder of models to write them again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper


class Stored:
    """The parameters of a file by name."""

    def __init__(self, path: Path) -> None:
        constants = onnx.load(path).graph.initializer
        self.values = {t.name: numpy_helper.to_array(t) for t in constants}

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> np.ndarray:
        assert self.values[name].shape == shape and scale > 0
        return self.values[name]

    def norm(self, name: str, width: int) -> tuple[np.ndarray, np.ndarray]:
        found = self.values[f"{name}.weight"], self.values[f"{name}.bias"]
        assert found[0].shape == found[1].shape == (width,)
        return found
