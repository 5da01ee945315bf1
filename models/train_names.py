"""Train the classifier of names: `python models/train_names.py -o models/trained`.

Needs the extra `torch`. One thread and a fixed seed: the same versions on the same processor give
the same file. Nothing is chosen by the names that are not trained on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models import names
from models._bert import HIDDEN, BertSizes, classifier
from models._training import BlockLayers, Held, fit

SEED, STEPS, BATCH, RATE, DROPOUT, DECAY = 0, 2000, 48, 2e-3, 0.1, 0.05


class Layer(BlockLayers):
    """A layer of the encoder, normalized behind its sums."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, T, width) to the same; `mask` (batch, 1, 1, T) is added to the scores."""
        x = self.norm1(x + self.attended(x, mask))
        return self.norm2(x + self.fed_forward(x))


class Classifier(nn.Module):
    """The network."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.randn(sizes.vocabulary, sizes.width) * 0.1)
        self.places = nn.Parameter(torch.randn(sizes.tokens, sizes.width) * 0.05)
        self.norm = nn.LayerNorm(sizes.width, 1e-6)
        self.layers = nn.ModuleDict(
            {f"layer{i}": Layer(sizes, DROPOUT) for i in range(sizes.depth)}
        )
        self.pooler = nn.Linear(sizes.width, sizes.width)
        self.head = nn.Linear(sizes.width, sizes.classes)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Tokens and which of them count, (batch, T), to logits (batch, classes)."""
        x = self.norm(self.words[ids] + self.places)
        hidden = (1.0 - mask[:, None, None].float()) * HIDDEN
        for layer in self.layers.values():
            x = layer(x, hidden)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


def train(steps: int) -> Classifier:
    """A network trained on the names that are not held out."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    network = Classifier(names.sizes()).train()
    data = names.labelled(~names.is_held_out())
    ids, mask, labels = (torch.from_numpy(data[name]) for name in ("ids", "mask", "labels"))

    def loss() -> torch.Tensor:
        chosen = torch.randint(0, len(ids), (BATCH,))
        return functional.cross_entropy(network(ids[chosen], mask[chosen]), labels[chosen])

    fit(network, loss, steps, rate=RATE, decay=DECAY)
    return network.eval()


def right(network: Classifier) -> float:
    """The share of the held-out names whose class is right."""
    data = names.held_out()
    with torch.no_grad():
        logits = network(torch.from_numpy(data["ids"]), torch.from_numpy(data["mask"]))
    return float(np.mean(logits.argmax(1).numpy() == data["labels"]))


def main() -> int:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    network = train(given.steps)
    print(f"{right(network):.2%} of the held-out names")
    model = classifier(names.NAME, names.sizes(), Held(network))
    onnx.save(model, str(given.output / f"{names.NAME}.onnx"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
