"""PyTorch modules of one operator, quantized by pt2e the way XNNPACK runs them.

int8 activations with zero points, int8 weights per channel.  Needs torch and torchao.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

SAMPLES = 8
Shape = tuple[int, ...]


class _Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _then(layer: nn.Module, activation: Callable[[Any], Any]) -> nn.Module:
    return nn.Sequential(layer, _Function(activation))


_IMAGE = (1, 16, 10, 10)
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[Shape, ...]]] = {
    "conv": (lambda: nn.Conv2d(16, 24, 3, padding=1), (_IMAGE,)),
    "conv stride 2": (lambda: nn.Conv2d(16, 24, 3, 2, 1), (_IMAGE,)),
    "conv relu": (lambda: _then(nn.Conv2d(16, 24, 3, padding=1), F.relu), (_IMAGE,)),
    "conv depthwise": (lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), (_IMAGE,)),
    "conv of groups": (lambda: nn.Conv2d(16, 16, 3, padding=1, groups=4), (_IMAGE,)),
    "transposed conv relu": (lambda: _then(nn.ConvTranspose2d(16, 8, 2, 2), F.relu), (_IMAGE,)),
    "linear": (lambda: nn.Linear(48, 10), ((60, 48),)),
    "linear relu": (lambda: _then(nn.Linear(48, 10), F.relu), ((60, 48),)),
    "add": (lambda: _Function(lambda x, y: x + y), (_IMAGE, _IMAGE)),
    "add relu": (lambda: _Function(lambda x, y: F.relu(x + y)), (_IMAGE, _IMAGE)),
    "mul": (lambda: _Function(lambda x, y: x * y), (_IMAGE, _IMAGE)),
    "concat": (lambda: _Function(lambda x, y: torch.cat([x + y, x * y], 1)), (_IMAGE, _IMAGE)),
    "mean": (lambda: nn.AdaptiveAvgPool2d(1), ((8, 64, 6, 6),)),
}
"""Name -> module, shapes of its inputs."""


def converted(module: nn.Module, data: tuple[Any, ...]) -> Any:
    """The module quantized on random samples of the shapes of `data`."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        fan_in = max(parameter[0].numel(), 1)
        nn.init.normal_(parameter, std=fan_in**-0.5)
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xnnpack.XNNPACKQuantizer().set_global(config)
    prepared = prepare_pt2e(torch.export.export(module.eval(), data).module(), quantizer)
    for _ in range(SAMPLES):
        prepared(*(torch.randn(item.shape) for item in data))
    return convert_pt2e(prepared)
