"""Multiply-accumulates of a PyTorch module, counted without the compiler."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def multiply_accumulates(module: Any, inputs: tuple[Any, ...]) -> int:
    """Of all convolutions and matrix products that the module computes for these inputs.

    PyTorch counts what it dispatches, two operations a multiply-accumulate. oneDNN and fused
    attention are off: they dispatch recurrent layers and attention as one operator each.
    """
    counter = FlopCounterMode(display=False)
    plain = torch.backends.mkldnn.flags(enabled=False)
    with torch.no_grad(), plain, sdpa_kernel(SDPBackend.MATH), counter:
        module(*inputs)
    return int(counter.get_total_flops()) // 2
