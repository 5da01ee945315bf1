"""Encoders of language as BERT has them (Devlin et al., 2019), as ONNX files.

Each layer is normalized behind its sums.  A classifier reads the first token by a pooler with tanh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from models._vit import (
    IR_VERSION,
    OPSET,
    BlockSizes,
    Parameters,
    Writer,
    attention,
    feed_forward,
)

HIDDEN = float(np.finfo(np.float32).min)
"""What is added to the scores of tokens that do not count."""


@dataclass(frozen=True)
class BertSizes(BlockSizes):
    """What a classifier is made of, besides its blocks.

    Attributes:
        depth: layers.
        vocabulary: tokens that there are.
        classes: results.
    """

    depth: int
    vocabulary: int
    classes: int


def encoder_layer(w: Writer, x: str, name: str, mask: str = "") -> str:
    """Attention and two layers with GELU; each is added to what it reads, and normalized.

    Args:
        w: the writer.
        x: tokens (1, T, width).
        name: what the names of its nodes begin with.
        mask: what is added to the scores, broadcast to (1, heads, T, T); empty: nothing.
    """
    attended = w.emit("Add", [x, attention(w, x, name, mask)], f"{name}.attended")
    x = w.norm(attended, f"{name}.norm1")
    return w.norm(w.emit("Add", [x, feed_forward(w, x, name)], f"{name}.out"), f"{name}.norm2")


def classifier(name: str, sizes: BertSizes, parameters: Parameters) -> onnx.ModelProto:
    """The model: `ids` and `mask`, int64 (1, tokens), to `logits` (1, classes)."""
    w, width = Writer(sizes, parameters), sizes.width
    counts = w.emit("Cast", ["mask"], "mask.float", to=TensorProto.FLOAT)
    counts = w.emit("Sub", [w.number(1.0, "mask.one"), counts], "mask.not")
    hidden = w.emit("Mul", [counts, w.number(HIDDEN, "mask.least")], "mask.flat")
    hidden = w.emit("Unsqueeze", [hidden, w.shape([1, 2], "mask.axes")], "mask.added")
    words = w.weight("words", sizes.vocabulary, width, scale=1.0)
    x = w.emit("Gather", [words, "ids"], "embedded", axis=0)
    places = w.weight("places", sizes.tokens, width, scale=0.5)
    x = w.norm(w.emit("Add", [x, places], "placed"), "norm")
    for number in range(sizes.depth):
        x = encoder_layer(w, x, f"layer{number}", hidden)
    first = w.constant(np.asarray(0, np.int64), "first")
    x = w.emit("Gather", [x, first], "first_token", axis=1)
    x = w.emit("Tanh", [w.dense(x, "pooler", width, width)], "pooled")
    w.dense(x, "head", width, sizes.classes)
    w.nodes[-1].output[0] = "logits"
    shape = [1, sizes.tokens]
    inputs = [helper.make_tensor_value_info(i, TensorProto.INT64, shape) for i in ("ids", "mask")]
    result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, sizes.classes])
    graph = helper.make_graph(w.nodes, name, inputs, [result], w.constants)
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
