"""Vision transformers (Dosovitskiy et al., 2021) as ONNX files, written as exporters do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models._exact import F32

OPSET, IR_VERSION = 17, 8


@dataclass(frozen=True)
class BlockSizes:
    """What blocks of a transformer are made of.

    Attributes:
        tokens: of a sequence.
        width, heads: channels of a token, and into how many heads they are parted.
        hidden: channels between the two layers behind an attention.
    """

    tokens: int
    width: int
    heads: int
    hidden: int


@dataclass(frozen=True)
class Sizes:
    """What a vision transformer is made of.

    Attributes:
        size, channels: of the image (1, channels, size, size).
        patch: height and width of a patch; each is a token, and there is one more for the class.
        width, heads: channels of a token, and into how many heads they are parted.
        hidden: channels between the two layers behind an attention.
        depth, classes: blocks and results.
    """

    size: int
    channels: int
    patch: int
    width: int
    heads: int
    hidden: int
    depth: int
    classes: int

    @property
    def tokens(self) -> int:
        """Patches and the class token."""
        return (self.size // self.patch) ** 2 + 1

    @property
    def blocks(self) -> BlockSizes:
        """What its blocks are made of."""
        return BlockSizes(self.tokens, self.width, self.heads, self.hidden)


class Parameters(Protocol):
    """Where the parameters come from, by name."""

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> F32:
        """A weight, or an embedding, of deviation `scale` if it is drawn."""

    def norm(self, name: str, width: int) -> tuple[F32, F32]:
        """Weight and bias of a normalization."""


class Writer:
    """Emits nodes and constants with names."""

    def __init__(self, sizes: BlockSizes, parameters: Parameters) -> None:
        self.sizes = sizes
        self.parameters = parameters
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, values: np.ndarray, name: str) -> str:
        """A constant and its name."""
        self.constants.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def emit(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        """A node of one result, both called `name`."""
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def weight(self, name: str, *shape: int, scale: float) -> str:
        """A parameter of `shape`."""
        return self.constant(self.parameters.weight(name, shape, scale), name)

    def dense(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """A linear layer of the last axis."""
        weight = self.weight(f"{name}.weight", inputs, outputs, scale=inputs**-0.5)
        bias = self.weight(f"{name}.bias", outputs, scale=0.1)
        return self.emit("Add", [self.emit("MatMul", [x, weight], name), bias], f"{name}.sum")

    def norm(self, x: str, name: str) -> str:
        """A layer normalization of tokens."""
        weight, bias = self.parameters.norm(name, self.sizes.width)
        parts = [self.constant(weight, f"{name}.weight"), self.constant(bias, f"{name}.bias")]
        return self.emit("LayerNormalization", [x, *parts], name, epsilon=1e-6)

    def number(self, value: float, name: str) -> str:
        """A scalar."""
        return self.constant(np.asarray(value, np.float32), name)

    def shape(self, values: list[int], name: str) -> str:
        """A shape as a constant."""
        return self.constant(np.asarray(values, np.int64), name)


def vit(
    name: str, sizes: Sizes, parameters: Parameters, image: str, result: str = ""
) -> onnx.ModelProto:
    """The model: an image (1, channels, size, size) to logits (1, classes).

    Args:
        name: of the graph.
        sizes: of the network.
        parameters: weights by name.
        image: the name of the input.
        result: that of the logits; empty: as the last layer is called.
    """
    w = Writer(sizes.blocks, parameters)
    side, width, patch = sizes.size // sizes.patch, sizes.width, sizes.patch
    fan = sizes.channels * patch**2
    weight = w.weight("patches.weight", width, sizes.channels, patch, patch, scale=fan**-0.5)
    x = w.emit("Conv", [image, weight], "patches", strides=[patch, patch])
    x = w.emit("Reshape", [x, w.shape([1, width, side * side], "flat")], "patches.flat")
    x = w.emit("Transpose", [x], "patches.tokens", perm=[0, 2, 1])
    x = w.emit("Concat", [w.weight("class", 1, 1, width, scale=1.0), x], "tokens", axis=1)
    x = w.emit("Add", [x, w.weight("positions", 1, sizes.tokens, width, scale=0.5)], "embedded")
    for number in range(sizes.depth):
        x = _block(w, x, f"block{number}")
    x = w.norm(x, "norm")
    first = w.constant(np.asarray(0, np.int64), "first")
    x = w.emit("Gather", [x, first], "class_token", axis=1)
    logits = w.dense(x, "head", width, sizes.classes)
    if result:
        w.nodes[-1].output[0] = result
        logits = result
    shape = [1, sizes.channels, sizes.size, sizes.size]
    graph = helper.make_graph(
        w.nodes,
        name,
        [helper.make_tensor_value_info(image, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, sizes.classes])],
        w.constants,
    )
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)


def _block(w: Writer, x: str, name: str) -> str:
    """Attention and two layers with GELU, each behind a normalization and added to `x`."""
    mixed = attention(w, w.norm(x, f"{name}.norm1"), name)
    x = w.emit("Add", [x, mixed], f"{name}.attended")
    bent = feed_forward(w, w.norm(x, f"{name}.norm2"), name)
    return w.emit("Add", [x, bent], f"{name}.out")


def attention(w: Writer, x: str, name: str, mask: str = "") -> str:
    """Every token of `x` reads all tokens, in heads; then a layer.

    `mask`: what is added to the scores.
    """
    sizes = w.sizes
    width, heads = sizes.width, sizes.heads
    parted = w.shape([1, sizes.tokens, heads, width // heads], f"{name}.heads")
    parts = []
    for part, axes in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        made = w.dense(x, f"{name}.{part}", width, width)
        made = w.emit("Reshape", [made, parted], f"{name}.{part}.heads")
        parts.append(w.emit("Transpose", [made], f"{name}.{part}.apart", perm=axes))
    scores = w.emit("MatMul", parts[:2], f"{name}.scores")
    scale = w.number((width // heads) ** -0.5, f"{name}.scale")
    scores = w.emit("Mul", [scores, scale], f"{name}.scaled")
    scores = w.emit("Add", [scores, mask], f"{name}.hidden") if mask else scores
    shares = w.emit("Softmax", [scores], f"{name}.shares", axis=-1)
    mixed = w.emit("MatMul", [shares, parts[2]], f"{name}.mixed")
    mixed = w.emit("Transpose", [mixed], f"{name}.merged", perm=[0, 2, 1, 3])
    flat = w.shape([1, sizes.tokens, width], f"{name}.flat")
    mixed = w.emit("Reshape", [mixed, flat], f"{name}.joined")
    return w.dense(mixed, f"{name}.proj", width, width)


def feed_forward(w: Writer, x: str, name: str) -> str:
    """Two layers, and GELU between them."""
    width, hidden = w.sizes.width, w.sizes.hidden
    wide = w.dense(x, f"{name}.fc1", width, hidden)
    halves = w.emit("Div", [wide, w.number(2**0.5, f"{name}.root")], f"{name}.over_root")
    bent = w.emit("Erf", [halves], f"{name}.erf")
    bent = w.emit("Add", [bent, w.number(1.0, f"{name}.one")], f"{name}.erf_and_one")
    bent = w.emit("Mul", [wide, bent], f"{name}.product")
    bent = w.emit("Mul", [bent, w.number(0.5, f"{name}.half")], f"{name}.gelu")
    return w.dense(bent, f"{name}.fc2", hidden, width)


class Drawn:
    """Parameters of random numbers on a grid of 2**-20; normalizations of ones and zeros."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.RandomState(seed)

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> F32:
        """Normal numbers of deviation `scale`, drawn in the order of the calls."""
        values = self._rng.standard_normal(shape) * scale
        return (np.rint(values * 2**20) / 2**20).astype(np.float32)

    def norm(self, name: str, width: int) -> tuple[F32, F32]:
        """Ones and zeros."""
        return np.ones(width, np.float32), np.zeros(width, np.float32)
