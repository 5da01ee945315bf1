"""ViT-Tiny/16 (Dosovitskiy et al., 2021; Touvron et al., 2021) with random weights, for cycles.

Run `python -m models.vit_tiny -o vit_tiny.onnx`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models import _build, _command
from models._exact import F32

NAME = "vit_tiny"
SIZE, PATCH, WIDTH, HEADS, DEPTH, CLASSES = 224, 16, 192, 3, 12, 1000
OPSET, IR_VERSION = 17, 8


class _Writer:
    """Emits nodes and constants with names."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.RandomState(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, values: np.ndarray, name: str) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def emit(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def noise(self, name: str, *shape: int, scale: float) -> str:
        values = self.rng.standard_normal(shape) * scale
        return self.constant((np.rint(values * 2**20) / 2**20).astype(np.float32), name)

    def dense(self, x: str, name: str, inputs: int, outputs: int) -> str:
        weight = self.noise(f"{name}.weight", inputs, outputs, scale=inputs**-0.5)
        bias = self.noise(f"{name}.bias", outputs, scale=0.1)
        return self.emit("Add", [self.emit("MatMul", [x, weight], name), bias], f"{name}.sum")

    def norm(self, x: str, name: str) -> str:
        ones = self.constant(np.ones(WIDTH, np.float32), f"{name}.weight")
        zeros = self.constant(np.zeros(WIDTH, np.float32), f"{name}.bias")
        return self.emit("LayerNormalization", [x, ones, zeros], name, epsilon=1e-6)

    def number(self, value: float, name: str) -> str:
        return self.constant(np.asarray(value, np.float32), name)

    def shape(self, values: list[int], name: str) -> str:
        return self.constant(np.asarray(values, np.int64), name)


def build(*, size: int = SIZE, depth: int = DEPTH, seed: int = 0) -> onnx.ModelProto:
    """The model: an image (1, 3, size, size) to logits (1, 1000)."""
    w = _Writer(seed)
    side = size // PATCH
    tokens = side * side + 1
    weight = w.noise("patches.weight", WIDTH, 3, PATCH, PATCH, scale=(3 * PATCH**2) ** -0.5)
    x = w.emit("Conv", ["data", weight], "patches", strides=[PATCH, PATCH])
    x = w.emit("Reshape", [x, w.shape([1, WIDTH, side * side], "flat")], "patches.flat")
    x = w.emit("Transpose", [x], "patches.tokens", perm=[0, 2, 1])
    x = w.emit("Concat", [w.noise("class", 1, 1, WIDTH, scale=1.0), x], "tokens", axis=1)
    x = w.emit("Add", [x, w.noise("positions", 1, tokens, WIDTH, scale=0.5)], "embedded")
    for number in range(depth):
        x = _block(w, x, f"block{number}", tokens)
    x = w.norm(x, "norm")
    first = w.constant(np.asarray(0, np.int64), "first")
    x = w.emit("Gather", [x, first], "class_token", axis=1)
    logits = w.dense(x, "head", WIDTH, CLASSES)
    graph = helper.make_graph(
        w.nodes,
        NAME,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, CLASSES])],
        w.constants,
    )
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)


def _block(w: _Writer, x: str, name: str, tokens: int) -> str:
    """Attention and two layers with GELU, each behind a normalization and added to `x`."""
    normed = w.norm(x, f"{name}.norm1")
    heads = w.shape([1, tokens, HEADS, WIDTH // HEADS], f"{name}.heads")
    parts = []
    for part, axes in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        made = w.dense(normed, f"{name}.{part}", WIDTH, WIDTH)
        made = w.emit("Reshape", [made, heads], f"{name}.{part}.heads")
        parts.append(w.emit("Transpose", [made], f"{name}.{part}.apart", perm=axes))
    scores = w.emit("MatMul", parts[:2], f"{name}.scores")
    scale = w.number((WIDTH // HEADS) ** -0.5, f"{name}.scale")
    scores = w.emit("Mul", [scores, scale], f"{name}.scaled")
    shares = w.emit("Softmax", [scores], f"{name}.shares", axis=-1)
    mixed = w.emit("MatMul", [shares, parts[2]], f"{name}.mixed")
    mixed = w.emit("Transpose", [mixed], f"{name}.merged", perm=[0, 2, 1, 3])
    flat = w.shape([1, tokens, WIDTH], f"{name}.flat")
    mixed = w.emit("Reshape", [mixed, flat], f"{name}.joined")
    x = w.emit("Add", [x, w.dense(mixed, f"{name}.proj", WIDTH, WIDTH)], f"{name}.attended")
    hidden = w.dense(w.norm(x, f"{name}.norm2"), f"{name}.fc1", WIDTH, 4 * WIDTH)
    halves = w.emit("Div", [hidden, w.number(2**0.5, f"{name}.root")], f"{name}.over_root")
    bent = w.emit("Erf", [halves], f"{name}.erf")
    bent = w.emit("Add", [bent, w.number(1.0, f"{name}.one")], f"{name}.erf_and_one")
    bent = w.emit("Mul", [hidden, bent], f"{name}.product")
    bent = w.emit("Mul", [bent, w.number(0.5, f"{name}.half")], f"{name}.gelu")
    return w.emit("Add", [x, w.dense(bent, f"{name}.fc2", 4 * WIDTH, WIDTH)], f"{name}.out")


def cached() -> Path:
    """The ONNX file of the model, built on demand into `build/models`."""
    return _command.cached(NAME, build, options=())


def calibration_inputs(n: int = 8) -> F32:
    """Images to calibrate quantization with, float32 (n, 3, 224, 224)."""
    return _build.calibration_inputs(SIZE, n)


def sample_inputs(n: int, seed: int) -> F32:
    """Other images, float32 (n, 3, 224, 224)."""
    return _build.sample_inputs(n, seed, SIZE)


if __name__ == "__main__":
    sys.exit(_command.main(NAME, build, options=(_command.SIZE, _command.SEED)))
