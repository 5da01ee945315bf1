"""Multiply-accumulates of a PyTorch module, counted without the compiler."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def multiply_accumulates(module: Any, inputs: tuple[Any, ...]) -> int:
    """Of all convolutions and matrix products that the module computes for these inputs.

    PyTorch counts what it dispatches, two operations a multiply-accumulate. oneDNN and fused
    attention are off: they dispatch recurrent layers and attention as one operator each. The
    first step of a recurrent layer multiplies its state, which is zero, by nothing that depends
    on an input: that product is not counted.
    """
    counter = FlopCounterMode(display=False)
    plain = torch.backends.mkldnn.flags(enabled=False)
    with torch.no_grad(), plain, sdpa_kernel(SDPBackend.MATH), counter:
        module(*inputs)
    return int(counter.get_total_flops()) // 2 - _of_zero_states(module)


def _of_zero_states(module: Any) -> int:
    """One product of the state with the weights of all gates, for each recurrent layer."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.RNNBase)]
    named = [pair for layer in layers for pair in layer.named_parameters()]
    return sum(weight.numel() for name, weight in named if name.startswith("weight_hh"))
