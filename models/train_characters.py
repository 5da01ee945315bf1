"""Train the decoder of characters: `python models/train_characters.py -o models/trained`.

Needs the extra `torch`. One thread and a fixed seed: the same versions on the same processor give
the same file. Nothing is chosen by the part of the text that is not trained on.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models import characters as chars
from models._decoder import DecoderSizes, decoder
from models._exact import F32

SEED, STEPS, BATCH, RATE, DROPOUT, DECAY = 0, 1500, 12, 3e-3, 0.15, 0.1
CALIBRATION = 2048
"""Characters that the file keeps to calibrate with."""


class Block(nn.Module):
    """A block, its layers named as `models._decoder` names them."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        width, self.heads = sizes.width, sizes.heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, sizes.hidden), nn.Linear(sizes.hidden, width)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, T, width) to the same, each with what it attends to."""
        y, (batch, tokens, width) = self.norm1(x), x.shape
        parted = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (f(y).view(parted).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(x.shape)))
        return x + self.drop(self.fc2(functional.gelu(self.fc1(self.norm2(x)))))


class Decoder(nn.Module):
    """The network."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(sizes.vocabulary, sizes.width) * 0.1)
        self.positions = nn.Parameter(torch.randn(sizes.tokens, sizes.width) * 0.05)
        blocks = {f"block{i}": Block(sizes) for i in range(sizes.depth)}
        self.blocks = nn.ModuleDict(blocks)
        self.norm = nn.LayerNorm(sizes.width, 1e-6)
        self.head = nn.Linear(sizes.width, sizes.vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Numbers of characters (batch, T) to logits (batch, T, vocabulary)."""
        x = self.embedding[ids] + self.positions[: ids.shape[-1]]
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x))


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


def train(steps: int) -> Decoder:
    """A network trained on the text."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    sizes = chars.sizes()
    network = Decoder(sizes).train()
    ids, known = torch.from_numpy(chars.encoded(chars.text())), chars.trained_on()
    counts = torch.from_numpy(known)
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    begin = time.perf_counter()
    for step in range(steps):
        first = torch.randint(0, len(ids) - sizes.tokens, (BATCH,))
        places = first[:, None] + torch.arange(sizes.tokens + 1)
        places = places.clamp(max=len(ids) - 1)
        given, wanted = ids[places[:, :-1]], ids[places[:, 1:]]
        loss = functional.cross_entropy(
            network(given).flatten(0, 1), wanted.flatten(), reduction="none"
        )
        counted = counts[places[:, 1:]].flatten()
        loss = (loss * counted).sum() / counted.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        rates.step()
        if step % 100 == 99:
            print(f"{step + 1}: {loss.item():.3f}, {time.perf_counter() - begin:.0f} s", flush=True)
    return network.eval()


def written(network: Decoder) -> onnx.ModelProto:
    """The ONNX file, with the characters and a text to calibrate with."""
    model = decoder(chars.NAME, chars.sizes(), Held(network))
    kept = {"characters": chars.characters(), "calibration": chars.text()[:CALIBRATION]}
    onnx.helper.set_model_props(model, kept)
    return model


def main() -> int:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    onnx.save(written(train(given.steps)), str(given.output / "characters.onnx"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
