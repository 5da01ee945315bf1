"""ViT-Tiny/16 (Dosovitskiy et al., 2021; Touvron et al., 2021) with random weights, for cycles.

Run `python -m models.vit_tiny -o vit_tiny.onnx`.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import onnx

from models import _build, _command
from models._exact import F32
from models._vit import Drawn, Sizes, vit

NAME = "vit_tiny"
SIZES = Sizes(
    size=224, channels=3, patch=16, width=192, heads=3, hidden=768, depth=12, classes=1000
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
