"""The networks: what builds each, what it is fed with, and what is smaller than published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import (
    classifiers,
    dense,
    detection,
    inputs,
    language,
    mobile,
    sequences,
    vision_transformers,
)
from .language import VOCABULARY

IMAGE = inputs.images(3, 64)


@dataclass(frozen=True)
class Network:
    """A network of the table.

    Attributes:
        build: makes the `torch.nn.Module`, its weights not yet drawn.
        inputs: a maker for each input, in order.
        reduced: what is smaller than published.
    """

    build: Callable[[], Any]
    inputs: tuple[inputs.Maker, ...]
    reduced: str


NETWORKS: dict[str, Network] = {
    # classifiers
    "mobilenet_v3": Network(mobile.mobilenet_v3, (IMAGE,), "width 0.5, 7 of 11 blocks"),
    "efficientnet": Network(mobile.efficientnet, (IMAGE,), "width 0.35, one block a stage"),
    "shufflenet_v2": Network(mobile.shufflenet_v2, (IMAGE,), "2 units a stage"),
    "regnet_y": Network(classifiers.regnet_y, (IMAGE,), "half the width, 5 blocks"),
    "densenet": Network(classifiers.densenet, (IMAGE,), "growth 16, 2 layers a block"),
    "googlenet": Network(classifiers.googlenet, (IMAGE,), "a quarter of the width, 4 of 9 blocks"),
    "resnext": Network(classifiers.resnext, (IMAGE,), "one block a stage, 8 groups"),
    "convnext": Network(classifiers.convnext, (IMAGE,), "a quarter of the width, 4 blocks"),
    "swin": Network(vision_transformers.swin, (IMAGE,), "2 stages of width 32 and 64"),
    "vit": Network(vision_transformers.vit, (IMAGE,), "2 of 12 layers of ViT-Ti"),
    "mlp_mixer": Network(vision_transformers.mlp_mixer, (IMAGE,), "2 layers of width 128"),
    # images to images, detectors
    "deeplab_v3": Network(dense.deeplab_v3, (IMAGE,), "one block a stage"),
    "fcn": Network(dense.fcn, (IMAGE,), "one block a stage"),
    "unet": Network(dense.unet, (IMAGE,), "a quarter of the width, 4 levels"),
    "super_resolution": Network(
        dense.super_resolution, (inputs.images(1, 24),), "3 blocks of width 32, 24x24 to 72x72"
    ),
    "autoencoder": Network(dense.autoencoder, (inputs.images(3, 32),), "32x32"),
    "ssdlite": Network(detection.ssdlite, (inputs.images(3, 96),), "5 blocks, 4 maps, 96x96"),
    "yolov8": Network(detection.yolov8, (IMAGE,), "half the width of n, C2f of one block"),
    # sound, series, points, video, two inputs
    "keyword_spotting": Network(
        sequences.keyword_spotting, (inputs.series(40, 100),), "nothing: TC-ResNet8"
    ),
    "ds_cnn": Network(sequences.ds_cnn, (inputs.series(1, 1024),), "3 blocks of width 32"),
    "tcn": Network(sequences.tcn, (inputs.series(8, 48),), "3 blocks of width 24"),
    "lstm": Network(sequences.lstm, (inputs.series(16, 20, last=True),), "20 steps, width 48"),
    "gru": Network(sequences.gru, (inputs.series(16, 12, last=True),), "12 steps, width 24"),
    "pointnet": Network(sequences.pointnet, (inputs.points(64),), "64 points, an eighth as wide"),
    "c3d": Network(sequences.c3d, (inputs.images(3, 16, frames=8),), "3 layers, 8 frames 16x16"),
    "film": Network(
        sequences.film, (inputs.images(3, 32), inputs.vectors(16)), "2 blocks of width 32, 32x32"
    ),
    # language
    "bert": Network(
        language.bert,
        (inputs.tokens(16, VOCABULARY), inputs.segments(16), inputs.masks(16)),
        "nothing but the vocabulary: BERT-Tiny, 16 tokens",
    ),
    "llama": Network(
        language.llama, (inputs.tokens(16, VOCABULARY),), "2 layers of width 128, 16 tokens"
    ),
}
"""Images are 64x64 where nothing else is said."""
