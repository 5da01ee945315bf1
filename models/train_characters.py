"""Train the decoder of characters: `python models/train_characters.py -o models/trained`.

Needs the extra `torch`. One thread and a fixed seed: the same versions on the same processor give
the same file. Nothing is chosen by the part of the text that is not trained on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import onnx
import torch
from torch import nn
from torch.nn import functional

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models import characters as chars
from models._decoder import DecoderSizes, decoder
from models._training import BlockLayers, Held, fit

SEED, STEPS, BATCH, RATE, DROPOUT, DECAY = 0, 1500, 12, 3e-3, 0.15, 0.1
CALIBRATION = 2048
"""Characters that the file keeps to calibrate with."""


class Block(BlockLayers):
    """A block, normalized before its layers; each token attends to those before it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, T, width) to the same."""
        x = x + self.attended(self.norm1(x), causal=True)
        return x + self.fed_forward(self.norm2(x))


class Decoder(nn.Module):
    """The network."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(sizes.vocabulary, sizes.width) * 0.1)
        self.positions = nn.Parameter(torch.randn(sizes.tokens, sizes.width) * 0.05)
        blocks = {f"block{i}": Block(sizes, DROPOUT) for i in range(sizes.depth)}
        self.blocks = nn.ModuleDict(blocks)
        self.norm = nn.LayerNorm(sizes.width, 1e-6)
        self.head = nn.Linear(sizes.width, sizes.vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Numbers of characters (batch, T) to logits (batch, T, vocabulary)."""
        x = self.embedding[ids] + self.positions[: ids.shape[-1]]
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x))


def train(steps: int) -> Decoder:
    """A network trained on the text."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    sizes = chars.sizes()
    network = Decoder(sizes).train()
    ids, known = torch.from_numpy(chars.encoded(chars.text())), chars.trained_on()
    counts = torch.from_numpy(known)

    def loss() -> torch.Tensor:
        first = torch.randint(0, len(ids) - sizes.tokens, (BATCH,))
        places = first[:, None] + torch.arange(sizes.tokens + 1)
        places = places.clamp(max=len(ids) - 1)
        given, wanted = ids[places[:, :-1]], ids[places[:, 1:]]
        each = functional.cross_entropy(
            network(given).flatten(0, 1), wanted.flatten(), reduction="none"
        )
        counted = counts[places[:, 1:]].flatten()
        return (each * counted).sum() / counted.sum()

    fit(network, loss, steps, rate=RATE, decay=DECAY)
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
