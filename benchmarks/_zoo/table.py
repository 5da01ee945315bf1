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
    "mobilenet_v3": Network(mobile.mobilenet_v3, (IMAGE,), "width 0.5, 7 of 11 blocks, 64x64"),
    "efficientnet": Network(mobile.efficientnet, (IMAGE,), "width 0.35, one block a stage, 64x64"),
    "regnet_y": Network(classifiers.regnet_y, (IMAGE,), "half the width, 5 blocks, 64x64"),
    "shufflenet_v2": Network(mobile.shufflenet_v2, (IMAGE,), "2 units a stage, 64x64"),
    "densenet": Network(classifiers.densenet, (IMAGE,), "2 layers a block, 64x64"),
    "googlenet": Network(classifiers.googlenet, (IMAGE,), "a quarter of the channels, 4 of 9 blocks, 64x64"),
    "resnext": Network(classifiers.resnext, (IMAGE,), "one block a stage, 8 groups, 64x64"),
    "convnext": Network(classifiers.convnext, (IMAGE,), "a quarter of the width, one block a stage, 64x64"),
    "swin": Network(vision_transformers.swin, (IMAGE,), "2 stages of width 32 and 64, 64x64"),
    "vit": Network(vision_transformers.vit, (IMAGE,), "2 layers of ViT-Ti, 64x64"),
    "mlp_mixer": Network(vision_transformers.mlp_mixer, (IMAGE,), "2 layers of width 128, 64x64"),
    "deeplab_v3": Network(dense.deeplab_v3, (IMAGE,), "one block a stage, 64x64"),
    "fcn": Network(dense.fcn, (IMAGE,), "one block a stage, 64x64"),
    "ssdlite": Network(detection.ssdlite, (inputs.images(3, 96),), "a third of the backbone, 96x96"),
    "yolov8": Network(detection.yolov8, (IMAGE,), "half the width of n, C2f of one block, 64x64"),
    "unet": Network(dense.unet, (IMAGE,), "a quarter of the width, 4 levels, 64x64"),
    "super_resolution": Network(
        dense.super_resolution, (inputs.images(1, 24),), "3 blocks of width 32, 24x24 to 72x72"
    ),
    "autoencoder": Network(dense.autoencoder, (inputs.images(3, 32),), "32x32"),
    "keyword_spotting": Network(
        sequences.keyword_spotting, (inputs.series(40, 100),), "100 frames, widths as published"
    ),
    "ds_cnn": Network(sequences.ds_cnn, (inputs.series(1, 1024),), "3 blocks of width 32"),
    "tcn": Network(sequences.tcn, (inputs.series(8, 48),), "3 blocks of width 24"),
    "lstm": Network(sequences.lstm, (inputs.series(16, 20, last=True),), "20 steps of width 48"),
    "gru": Network(sequences.gru, (inputs.series(16, 12, last=True),), "12 steps of width 24"),
    "bert": Network(
        language.bert,
        (
            inputs.tokens(16, language.VOCABULARY),
            inputs.segments(16),
            inputs.masks(16),
        ),
        "BERT-Tiny, 16 tokens, vocabulary of 256",
    ),
    "llama": Network(
        language.llama,
        (inputs.tokens(16, language.VOCABULARY),),
        "2 layers of width 128, 16 tokens",
    ),
    "pointnet": Network(sequences.pointnet, (inputs.points(64),), "64 points, an eighth as wide"),
    "c3d": Network(sequences.c3d, (inputs.images(3, 16, frames=8),), "3 layers, 8 frames 16x16"),
    "film": Network(
        sequences.film, (inputs.images(3, 32), inputs.vectors(16)), "2 blocks of width 32, 32x32"
    ),
}
