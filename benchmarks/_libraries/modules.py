"""A library's own module with random weights, its results as a tuple of tensors."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from benchmarks._zoo.weights import BATCH_NORMS, LAYERS, TRANSPOSED

DRAWN = (*LAYERS, *TRANSPOSED, *BATCH_NORMS, nn.Embedding, nn.RNNBase, nn.LayerNorm)
"""Layers whose weights `_zoo.weights.prepare` draws."""
NEAR_ZERO = 0.1
"""Parameters of smaller mean magnitude are drawn again."""
SHARE = 0.3
"""Deviation of vectors that libraries start near zero: what scales the branch of a layer."""


class Results(nn.Module):
    """Calls a module with inputs by name and returns every tensor of its results."""

    def __init__(
        self,
        module: nn.Module,
        names: Sequence[str] = (),
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.module, self.names, self.constants = module, tuple(names), dict(constants or {})

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        if not self.names:
            return tuple(_tensors(self.module(*inputs)))
        named = dict(zip(self.names, inputs, strict=True))
        return tuple(_tensors(self.module(**named, **self.constants)))


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors of tuples, lists, and mappings by name, each once."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def awake(module: nn.Module, seed: int = 0) -> nn.Module:
    """Draw parameters of no layer that start near zero, so that what they scale takes part.

    Libraries start class tokens, tables of relative positions and the scales of branches between
    zero and a fiftieth: training moves them. Without it they would be lost to any 8-bit scale. No
    parameter wants a gradient afterwards.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, DRAWN):
                continue
            for value in layer.parameters(recurse=False):
                if value.is_floating_point() and value.abs().mean() < NEAR_ZERO:
                    std = SHARE if value.ndim < 2 else 1 / math.sqrt(value.shape[-1])
                    value.normal_(0.0, std, generator=generator)
    return module.requires_grad_(False)


# ---------------------------------------------------------------- the libraries
def of_timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A builder of `timm.create_model(name, **options)`."""

    def build() -> nn.Module:
        import_torchvision()
        import timm

        torch.manual_seed(0)
        return awake(Results(timm.create_model(name, pretrained=False, **options)))

    return build


def of_torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A builder of `torchvision.models.get_model(name, **options)`."""

    def build() -> nn.Module:
        models = import_torchvision().models
        torch.manual_seed(0)
        return awake(Results(models.get_model(name, weights=None, **options)))

    return build


def of_transformers(
    name: str, names: Sequence[str], options: Mapping[str, Any], **constants: Any
) -> Callable[[], nn.Module]:
    """A builder of `AutoModel` for a configuration.

    Args:
        name: the type of model, as `AutoConfig` takes it.
        names: of the inputs, as the module's `forward` takes them.
        options: of the configuration.
        constants: further arguments of `forward`.
    """

    def build() -> nn.Module:
        import_torchvision()
        from transformers import AutoConfig, AutoModel

        torch.manual_seed(0)
        config = AutoConfig.for_model(name, **options)
        return awake(Results(AutoModel.from_config(config), names, constants))

    return build


def import_torchvision() -> Any:
    """The package; beside a PyTorch without CUDA with the declaration of an operator in place.

    PyPI's torchvision is compiled for PyTorch with CUDA. Beside another its kernels do not load,
    and its import ends at the first operator that they should have declared. No network of the
    table computes one: declarations are enough.
    """
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        OPERATORS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        OPERATORS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision


OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
"""Declarations live as long as this does."""
