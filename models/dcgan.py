"""DCGAN's generator from code: `python models/dcgan.py -o dcgan.onnx`.

The generator of Radford et al., 2015: a vector of 100 numbers becomes a 64x64 image by five 4x4
transposed convolutions with 1024, 512, 256, 128 and 3 channels: 12.7 million parameters, 411
million MACs. Its inputs are vectors, so it has calibration and sample vectors of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models import _command
from models._activations import RELU, TANH
from models._build import Tensor
from models._exact import F32
from models._filters import transposed_filters
from models._fit import GROUP
from models._images import CALIBRATION_SEED
from models._layers import LayerBuilder

NAME = "dcgan"
LATENT = 100
CHANNELS = (1024, 512, 256, 128)
COLOURS = 3
BUILD_VECTORS = 32
STEP = 2.0**-5
LIMIT = 120 * STEP
"""Latent numbers are multiples of STEP within +-LIMIT: int8 holds them without error."""


def build(*, seed: int = 0) -> onnx.ModelProto:
    """The generator: float32 input `z` (1, 100, 1, 1), output `image` (1, 3, 64, 64) in -1..1."""
    b = builder(seed=seed)
    return b.build(*network(b))


def cached(*, seed: int = 0) -> Path:
    """The ONNX file of the same model, built on demand into `build/models`."""
    return _command.cached(NAME, build, options=(_command.SEED,), seed=seed)


def sample_inputs(n: int, seed: int) -> F32:
    """`n` normal vectors, float32 (n, 100, 1, 1); vector i depends on (seed, i) only."""
    vectors = [np.random.RandomState([seed, i]).standard_normal(LATENT) for i in range(n)]
    z = np.clip(np.rint(np.stack(vectors) / STEP) * STEP, -LIMIT, LIMIT)
    return z.astype(np.float32)[:, :, None, None]


def calibration_inputs(n: int = GROUP) -> F32:
    """Vectors to calibrate quantization with, float32 (n, 100, 1, 1)."""
    return sample_inputs(n, CALIBRATION_SEED)


def builder(*, seed: int = 0) -> LayerBuilder:
    """What `network` emits its layers with."""
    z = calibration_inputs(BUILD_VECTORS)
    return LayerBuilder(NAME, seed=seed, input_name="z", images=z)


def network(b: LayerBuilder) -> tuple[Tensor]:
    """Emit all layers; returns `image`."""
    x = b.input
    for layer, channels in enumerate(CHANNELS, start=1):
        stride, pad = (1, 0) if layer == 1 else (2, 1)
        w = _filters(b, x, f"deconv{layer}", channels)
        x = b.conv_transpose(x, f"deconv{layer}", w, stride=stride, pad=pad)
        x = b.bn_act(x, f"bn{layer}", f"relu{layer}", RELU)
    w = _filters(b, x, "deconv5", COLOURS)
    image = b.conv_transpose_act(x, "deconv5", w, "tanh", TANH, stride=2, pad=1, output="image")
    return (image,)


def _filters(b: LayerBuilder, x: Tensor, name: str, channels: int) -> F32:
    return transposed_filters(b.rng(name), (x.data.shape[1], channels, 4, 4))


def _vectors(n: int, seed: int | None, options: Mapping[str, int]) -> np.ndarray:
    return sample_inputs(n, CALIBRATION_SEED if seed is None else seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    inputs = _command.Inputs("z", _vectors)
    return _command.main(NAME, build, arguments, options=(_command.SEED,), inputs=inputs)


if __name__ == "__main__":
    sys.exit(main())
