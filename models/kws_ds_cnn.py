"""Keyword spotting from code: `python models/kws_ds_cnn.py -o kws_ds_cnn.onnx`.

The DS-CNN of MLPerf Tiny (Zhang et al., 2017): 24,908 parameters with the statistics of BatchNorm,
2.66 million MACs, on 49 frames of 10 cepstral coefficients.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._activations import RELU
from models._blocks import BlockBuilder
from models._build import Tensor, random_filters
from models._exact import F32
from models._images import sample_inputs as sample_images
from models._zoo import SignalModel

FRAMES, COEFFICIENTS = 49, 10
WIDTH = 64
BLOCKS = 4
WORDS = 12


def features(n: int, seed: int) -> F32:
    """`n` smooth maps, float32 (n, 1, 49, 10), with int8's grid of 1/64."""
    return sample_images(n, seed, 64)[:, :1, :FRAMES, :COEFFICIENTS].copy()


def network(b: BlockBuilder) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    w = random_filters(b.rng("conv1"), (WIDTH, 1, 10, 4))
    x = b.conv(b.input, "conv1", w, stride=2, pad=(4, 1, 5, 1), bias=b.small_bias("conv1", WIDTH))
    x = b.bn_act(x, "conv1.bn", "conv1.act", RELU)
    for block in range(1, BLOCKS + 1):
        for part, kernel, groups in (("dw", 3, WIDTH), ("pw", 1, 1)):
            name = f"block{block}.{part}"
            w = b.drawn(x, name, WIDTH, kernel, groups)
            bias = b.small_bias(name, WIDTH)
            x = b.conv(x, name, w, pad=kernel // 2, groups=groups, bias=bias)
            last = name == f"block{BLOCKS}.pw"
            x = b.bn_act(x, f"{name}.bn", f"{name}.act", RELU, pooled=last)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=WORDS, output="logits"),)


MODEL = SignalModel("kws_ds_cnn", network, features, "features")
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
