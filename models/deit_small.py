"""DeiT-Small/16 (Touvron et al., 2021) with random weights, for cycles.

Run `python -m models.deit_small -o deit_small.onnx`.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import onnx

from models import _build, _command
from models._exact import F32
from models._vit import Drawn, Sizes, vit

NAME = "deit_small"
SIZES = Sizes(
    size=224, channels=3, patch=16, width=384, heads=6, hidden=1536, depth=12, classes=1000
)
SIZE, DEPTH = SIZES.size, SIZES.depth


def build(*, size: int = SIZE, depth: int = DEPTH, seed: int = 0) -> onnx.ModelProto:
    """The model: an image (1, 3, size, size) to logits (1, 1000)."""
    sizes = dataclasses.replace(SIZES, size=size, depth=depth)
    return vit(NAME, sizes, Drawn(seed), "data")


def cached() -> Path:
    """The ONNX file of the model, built on demand into `build/models`."""
    return _command.cached(NAME, build, options=())


def calibration_inputs(n: int = 8) -> F32:
    """Images to calibrate quantization with, float32 (n, 3, 224, 224)."""
    return _build.calibration_inputs(SIZE, n)


def sample_inputs(n: int, seed: int) -> F32:
    """Other images, float32 (n, 3, 224, 224)."""
    return _build.sample_inputs(n, seed, SIZE)


if __name__ == "__main__":
    sys.exit(_command.main(NAME, build, options=(_command.SIZE, _command.SEED)))
