"""Random weights under which a network computes something."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def prepare(module: nn.Module, batch: tuple[Any, ...], seed: int) -> nn.Module:
    """Draw the weights, let batch normalization see the batch, and switch to evaluation.

    Weights keep the variance of their inputs; normalizations have random scales and offsets, and
    the statistics that the batch has, so that no activation vanishes or grows.
    """
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        _draw(layer, generator)
    with torch.no_grad():
        module.train()
        for layer in module.modules():
            if isinstance(layer, nn.Dropout):
                layer.eval()
        module(*batch)
    return module.eval()


def _draw(layer: nn.Module, generator: Any) -> None:
    if isinstance(layer, LAYERS):
        fan_in = layer.weight[0].numel()
        _normal(layer.weight, _gain(layer) / math.sqrt(fan_in), generator)
        _offset(layer.bias, generator)
    elif isinstance(layer, TRANSPOSED):
        taps = math.prod(k / s for k, s in zip(layer.kernel_size, layer.stride, strict=True))
        _normal(layer.weight, math.sqrt(2 / (layer.in_channels * max(1, taps))), generator)
        _offset(layer.bias, generator)
    elif isinstance(layer, nn.Embedding):
        _normal(layer.weight, 1.0, generator)
    elif isinstance(layer, nn.RNNBase):
        for weight in layer.parameters():
            std = 1.5 / math.sqrt(weight.shape[-1]) if weight.ndim > 1 else 0.1
            _normal(weight, std, generator)
    elif isinstance(layer, (*BATCH_NORMS, nn.LayerNorm)):
        if layer.weight is not None:
            nn.init.uniform_(layer.weight, 0.7, 1.3, generator=generator)
            _offset(layer.bias, generator, 0.2)
        if isinstance(layer, BATCH_NORMS):
            layer.momentum = None  # the average of what is seen
            layer.reset_running_stats()


def _gain(layer: nn.Module) -> float:
    """What makes up for the half that a relu behind a convolution cuts off."""
    return 1.0 if isinstance(layer, nn.Linear) else math.sqrt(2)


def _normal(weight: Any, std: float, generator: Any) -> None:
    nn.init.normal_(weight, std=std, generator=generator)


def _offset(bias: Any, generator: Any, std: float = 0.1) -> None:
    if bias is not None:
        _normal(bias, std, generator)
