"""Train the networks of `models/trained`: `python models/train_digits.py -o models/trained`.

Needs the extra `torch` (`pip install -e .[dev,torch]`). One thread and fixed seeds: the same
versions on the same processor give the same files. The float accuracy that is recorded is the
one of the written files under ONNX Runtime, on the images that the network has not seen; nothing
is chosen by it (no early stopping, one training for each file).
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn
from torch.nn import functional

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models import _command
from models._exact import F32
from models._vit import Sizes
from models.digits import (
    CLASSES,
    DEVIATION,
    FOLDS,
    IMAGES,
    INPUT,
    MEAN,
    NETWORKS,
    RECORD,
    SIZE,
    VIT,
    Indices,
    load,
    raw,
    split,
)
from models.digits_networks import (
    EPSILON,
    HARD_SWISH,
    RELU,
    RELU6,
    VIT_SIZES,
    Add,
    Conv,
    Gate,
    Layer,
    features,
    layers,
    to_onnx,
)

SPLIT_SEED = 2026
VERSIONS = ("numpy", "onnx", "onnxruntime", "scikit-learn", "torch")


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: one cycle of the learning rate.

    Attributes:
        optimizer: "sgd", with Nesterov momentum, or "adamw".
        epochs, batch, rate, decay: passes, images at a time, largest rate, weight decay.
        turn, scale, shear, shift: largest rotation (degrees), change of size, shear, and shift
            (shares of the width), each uniform.
        noise: deviation of what is added to pixels from 0 to 1.
        smoothing: of the labels.
    """

    optimizer: str = "sgd"
    epochs: int = 60
    batch: int = 32
    rate: float = 0.1
    decay: float = 5e-4
    momentum: float = 0.9
    turn: float = 12.0
    scale: float = 0.12
    shear: float = 0.12
    shift: float = 0.08
    noise: float = 0.04
    smoothing: float = 0.05


RECIPES = {
    "resnet8": Recipe(),
    "mobilenet": Recipe(),
    "mobilenet_v3": Recipe(epochs=24, batch=64, rate=0.15),
    VIT: Recipe("adamw", epochs=150, batch=48, rate=3e-3, decay=0.05, momentum=0.0),
}


class Network(nn.Module):
    """A table of `digits_networks.layers` as a PyTorch module."""

    def __init__(self, network: str) -> None:
        super().__init__()
        self.table = layers(network)
        convs = [layer for layer in self.table if isinstance(layer, Conv)]
        self.convs = nn.ModuleDict({layer.name: _conv(layer) for layer in convs})
        self.norms = nn.ModuleDict(
            {layer.name: nn.BatchNorm2d(layer.channels, eps=EPSILON) for layer in convs}
        )
        gates = [layer for layer in self.table if isinstance(layer, Gate)]
        self.gates = nn.ModuleDict(
            {name: nn.Conv2d(*sizes, 1) for gate in gates for name, *sizes in gate.convolutions}
        )
        self.dense = nn.Linear(features(self.table), CLASSES)
        for conv in self.convs.values():
            nn.init.kaiming_normal_(conv.weight, mode="fan_out")

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits (n, CLASSES) of inputs (n, 1, SIZE, SIZE)."""
        values = {INPUT: image}
        for layer in self.table:
            values[layer.name] = _activated(layer, self._result(layer, values))
        return self.dense(values[self.table[-1].name].mean(dim=(2, 3)))

    def _result(self, layer: Layer, values: dict[str, torch.Tensor]) -> torch.Tensor:
        if isinstance(layer, Conv):
            return self.norms[layer.name](self.convs[layer.name](values[layer.source]))
        if isinstance(layer, Gate):
            return self._gated(layer, values[layer.source])
        first, second = layer.sources
        return values[first] + values[second]

    def _gated(self, layer: Gate, value: torch.Tensor) -> torch.Tensor:
        reduce, expand = (self.gates[name] for name, *_ in layer.convolutions)
        shares = expand(functional.relu(reduce(value.mean(dim=(2, 3), keepdim=True))))
        return value * functional.hardsigmoid(shares)

    def state(self) -> dict[str, F32]:
        """The parameters and statistics under the names of `digits_networks.to_onnx`."""
        tensors = {}
        for key, tensor in self.state_dict().items():
            kind, name, *part = key.split(".")
            prefix = {"norms": f"{name}.bn", "dense": "dense"}.get(kind, name)
            tensors[".".join([prefix, *(part or [name])])] = tensor.numpy()
        return tensors


class Block(nn.Module):
    """Attention and two layers with GELU, each behind a normalization and added."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, sizes.hidden), nn.Linear(sizes.hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens (n, tokens, width)."""
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in self._parts())
        shares = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + self.proj((shares @ v).transpose(1, 2).flatten(2))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))

    def _parts(self) -> tuple[nn.Linear, ...]:
        return self.q, self.k, self.v


class VisionTransformer(nn.Module):
    """`models._vit.vit` as a PyTorch module."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, patch = sizes.width, sizes.patch
        self.patches = nn.Conv2d(sizes.channels, width, patch, patch, bias=False)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, sizes.tokens, width) * 0.02)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, sizes.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits (n, classes) of inputs (n, channels, size, size)."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])

    def state(self) -> dict[str, F32]:
        """The parameters under the names of `models._vit`; linear weights (inputs, outputs)."""
        linear = {name for name, part in self.named_modules() if isinstance(part, nn.Linear)}
        tensors = {}
        for key, tensor in self.state_dict().items():
            name, _, part = key.rpartition(".")
            array = tensor.numpy().T if name in linear and part == "weight" else tensor.numpy()
            name = {"first": "class"}.get(key, key).replace("blocks.", "block")
            tensors[name] = np.ascontiguousarray(array)
        return tensors


def network_of(network: str) -> Network | VisionTransformer:
    """The module of a name."""
    return VisionTransformer(VIT_SIZES) if network == VIT else Network(network)


def optimizer_of(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """What a recipe trains with."""
    parameters = model.parameters()
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=recipe.rate, weight_decay=recipe.decay)
    return torch.optim.SGD(
        parameters,
        lr=recipe.rate,
        momentum=recipe.momentum,
        weight_decay=recipe.decay,
        nesterov=True,
    )


def _conv(layer: Conv) -> nn.Conv2d:
    return nn.Conv2d(
        layer.inputs,
        layer.channels,
        layer.kernel,
        layer.stride,
        layer.kernel // 2,
        groups=layer.groups,
        bias=False,
    )


def _activated(layer: Layer, value: torch.Tensor) -> torch.Tensor:
    if not isinstance(layer, Conv | Add):
        return value
    if layer.activation == RELU:
        return functional.relu(value)
    if layer.activation == HARD_SWISH:
        return functional.hardswish(value)
    return functional.relu6(value) if layer.activation == RELU6 else value


def augmented(images: torch.Tensor, recipe: Recipe, rng: torch.Generator) -> torch.Tensor:
    """Images (n, 1, 8, 8) of pixels 0 to 1 as inputs: enlarged, moved, noisy, normalised.

    Without moves and noise this is `digits.enlarged`.
    """

    def uniform(most: float) -> torch.Tensor:
        return (2 * torch.rand(len(images), generator=rng) - 1) * most

    turn, shear = torch.deg2rad(uniform(recipe.turn)), uniform(recipe.shear)
    wide, high = 1 + uniform(recipe.scale), 1 + uniform(recipe.scale)
    right, down = uniform(2 * recipe.shift), uniform(2 * recipe.shift)
    cosine, sine = torch.cos(turn), torch.sin(turn)
    rows = [
        torch.stack([cosine * wide, shear - sine, right], dim=1),
        torch.stack([sine, cosine * high, down], dim=1),
    ]
    shape = [len(images), 1, SIZE, SIZE]
    grid = functional.affine_grid(torch.stack(rows, dim=1), shape, align_corners=False)
    pixels = functional.grid_sample(images, grid, padding_mode="zeros", align_corners=False)
    pixels = pixels + recipe.noise * torch.randn(pixels.shape, generator=rng)
    return (pixels - MEAN) / DEVIATION


def train(network: str, indices: Indices, seed: int) -> Network | VisionTransformer:
    """A network trained on the images `indices`."""
    recipe, images = RECIPES[network], torch.from_numpy(raw()[0] / 16)[:, None]
    labels = torch.from_numpy(raw()[1])
    torch.manual_seed(seed)
    rng = torch.Generator().manual_seed(seed)
    model = network_of(network).to(memory_format=torch.channels_last)
    optimizer = optimizer_of(model, recipe)
    batches = len(indices) // recipe.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.rate, total_steps=recipe.epochs * batches, cycle_momentum=False
    )
    model.train()
    for _ in range(recipe.epochs):
        order = torch.from_numpy(indices)[torch.randperm(len(indices), generator=rng)]
        for chosen in order[: batches * recipe.batch].split(recipe.batch):
            inputs = augmented(images[chosen], recipe, rng)
            logits = model(inputs.contiguous(memory_format=torch.channels_last))
            loss = functional.cross_entropy(
                logits, labels[chosen], label_smoothing=recipe.smoothing
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def correct(model: onnx.ModelProto, indices: Indices) -> int:
    """How many of the images `indices` the file gets right under ONNX Runtime."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    digits = load().of(indices)
    logits = [session.run(None, {INPUT: x[None]})[0][0] for x in digits.inputs]
    return int((np.argmax(logits, axis=1) == digits.labels).sum())


def train_all(output: Path, networks: Sequence[str], folds: Sequence[int]) -> None:
    """Write the networks and the record; of networks that are not asked for, it stays."""
    parts = split(load().labels, SPLIT_SEED)
    path = output / RECORD.name
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    record |= {
        "folds": [part.tolist() for part in parts],
        "split_seed": SPLIT_SEED,
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS},
    }
    found = record.setdefault("networks", {})
    for network in networks:
        entry = found.setdefault(network, {"correct": [0] * FOLDS, "seeds": [0] * FOLDS})
        entry["recipe"] = asdict(RECIPES[network])
        for fold in folds:
            begin, seed = time.perf_counter(), zlib.crc32(f"{network} {fold}".encode())
            model = train(network, np.setdiff1d(np.arange(IMAGES), parts[fold]), seed)
            exported = to_onnx(network, model.state())
            entry["correct"][fold], entry["seeds"][fold] = correct(exported, parts[fold]), seed
            data = exported.SerializeToString(deterministic=True)
            (output / f"{network}_fold{fold}.onnx").write_bytes(data)
            path.write_text(_text(record), encoding="utf-8")
            print(
                f"{network} fold {fold}: {entry['correct'][fold]} of {len(parts[fold])} right, "
                f"{len(data):,} bytes, {time.perf_counter() - begin:.0f} s",
                flush=True,
            )


def _text(record: dict[str, object]) -> str:
    """JSON with a line for each fold."""
    folds = ",\n    ".join(json.dumps(part) for part in record["folds"])  # type: ignore[attr-defined]
    rest = {name: value for name, value in record.items() if name != "folds"}
    return f'{{\n  "folds": [\n    {folds}\n  ],\n{json.dumps(rest, indent=2)[2:]}\n'


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code: 0, or 2 after an error line."""
    parser = _command._Parser(description="Train the networks for digits, five folds of each.")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where to write")
    for name, values in (("network", NETWORKS), ("fold", range(FOLDS))):
        text = f"only this {name} (repeat)"
        kind = type(values[0])
        parser.add_argument(f"--{name}", type=kind, choices=values, action="append", help=text)
    try:
        given = parser.parse_args(arguments)
        if not Path(given.output).is_dir():
            raise _command.ModelError(
                f'"{given.output}" is not a directory; files are written there; create it'
            )
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        train_all(Path(given.output), given.network or NETWORKS, given.fold or range(FOLDS))
    except _command.ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
