"""What trained transformers have in common: the layers of a block, and how their weights are found.

Needs the extra `torch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from models._exact import F32
from models._vit import BlockSizes

EVERY = 100
"""After so many steps the loss is printed."""


class BlockLayers(nn.Module):
    """The layers of a block, named as the writers of ONNX files name them."""

    def __init__(self, sizes: BlockSizes, dropout: float) -> None:
        super().__init__()
        width, self.heads = sizes.width, sizes.heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, sizes.hidden), nn.Linear(sizes.hidden, width)
        self.drop = nn.Dropout(dropout)

    def attended(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, *, causal: bool = False
    ) -> torch.Tensor:
        """What tokens (batch, T, width) attend to; `mask` is added to the scores."""
        batch, tokens, width = x.shape
        parted = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (f(x).view(parted).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.drop(self.proj(y.transpose(1, 2).reshape(x.shape)))

    def fed_forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two layers of each token (batch, T, width), and GELU between them."""
        return self.drop(self.fc2(functional.gelu(self.fc1(x))))


class Held:
    """The parameters of a network by the names of `models._decoder` or `models._bert`."""

    def __init__(self, network: nn.Module) -> None:
        state = network.state_dict().items()
        names = (name.removeprefix("blocks.").removeprefix("layers.") for name, _ in state)
        self._values = dict(zip(names, (value.numpy() for _, value in state), strict=True))

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> F32:
        """A parameter; PyTorch has weights of layers the other way round."""
        value = self._values[name]
        found = value.T if name.endswith(".weight") else value
        assert found.shape == shape
        return np.ascontiguousarray(found, np.float32)

    def norm(self, name: str, width: int) -> tuple[F32, F32]:
        """Weight and bias."""
        return self._values[f"{name}.weight"], self._values[f"{name}.bias"]


def fit(
    network: nn.Module, loss: Callable[[], torch.Tensor], steps: int, *, rate: float, decay: float
) -> None:
    """Change the weights of `network` so that the `loss` of what is drawn next falls."""
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=decay)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    begin = time.perf_counter()
    for step in range(1, steps + 1):
        found = loss()
        optimizer.zero_grad()
        found.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        rates.step()
        if step % EVERY == 0:
            print(f"{step}: {found.item():.3f}, {time.perf_counter() - begin:.0f} s", flush=True)
