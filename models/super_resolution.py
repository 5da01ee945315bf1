"""Super-resolution from code: `python models/super_resolution.py -o super_resolution.onnx`.

The sub-pixel network of Shi et al., 2016, as PyTorch's and ONNX's examples have it: 59,657
parameters, 3.0 billion MACs: a grey image of 224x224 to one of 672x672.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._activations import RELU
from models._blocks import BlockBuilder
from models._build import Tensor
from models._exact import F32
from models._images import sample_inputs as sample_images
from models._zoo import SignalModel

SIZE = 224
FACTOR = 3
LAYERS = ((64, 5), (64, 3), (32, 3))
"""Channels and kernel of the layers before the last."""


def grey(n: int, seed: int) -> F32:
    """`n` grey images, float32 (n, 1, 224, 224)."""
    return sample_images(n, seed, SIZE)[:, :1].copy()


def network(b: BlockBuilder) -> tuple[Tensor]:
    """Emit all layers; returns `image`."""
    x = b.input
    for layer, (channels, kernel) in enumerate(LAYERS, start=1):
        w = b.drawn(x, f"conv{layer}", channels, kernel)
        x = b.conv_act(x, f"conv{layer}", w, f"conv{layer}.act", RELU, pad=kernel // 2)
    x = b.wide_conv(x, "conv4", b.drawn(x, "conv4", FACTOR**2, 3), pad=1)
    height, width = x.data.shape[2:]
    x = b.reshape(x, "shuffle.split", (1, FACTOR, FACTOR, height, width))
    x = b.permute(x, "shuffle.turn", (0, 1, 4, 2, 5, 3))
    return (b.reshape(x, "image", (1, height * FACTOR, width * FACTOR)),)


MODEL = SignalModel("super_resolution", network, grey, "data")
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
