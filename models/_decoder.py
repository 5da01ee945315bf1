"""Decoders of language (Vaswani et al., 2017) as ONNX files: ids (1, T) to logits, causal.

Two styles: that of GPT-2 (layer normalization, learned positions, GELU, biases), and that of Llama
(root-mean-square normalization, rotary positions, SwiGLU, keys shared by heads, no biases).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from models._vit import IR_VERSION, OPSET, BlockSizes, Parameters, Writer

EPSILON = 1e-6
ROTARY_BASE = 10_000.0


@dataclass(frozen=True)
class DecoderSizes(BlockSizes):
    """What a decoder is made of, besides its blocks.

    Attributes:
        depth: blocks.
        vocabulary: tokens that there are; 0: the input is embedded already, the output, too.
        shared: heads of keys and values; 0: as many as of queries.
        llama: the style.
    """

    depth: int
    vocabulary: int
    shared: int = 0
    llama: bool = False

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.shared or self.heads

    @property
    def head(self) -> int:
        """Channels of a head."""
        return self.width // self.heads


def decoder(name: str, sizes: DecoderSizes, parameters: Parameters) -> onnx.ModelProto:
    """The model: `ids` int64 (1, tokens) to `logits` (1, tokens, vocabulary)."""
    return _Decoder(name, sizes, parameters).model()


class _Decoder:
    def __init__(self, name: str, sizes: DecoderSizes, parameters: Parameters) -> None:
        self.name, self.sizes = name, sizes
        self.w = Writer(sizes, parameters)
        later = np.triu(np.full((sizes.tokens, sizes.tokens), -np.inf, np.float32), 1)
        self.later = self.w.constant(later, "later")

    def model(self) -> onnx.ModelProto:
        w, sizes = self.w, self.sizes
        shape: list[int] = [1, sizes.tokens]
        kind, result = TensorProto.INT64, "logits"
        if sizes.vocabulary:
            table = w.weight("embedding", sizes.vocabulary, sizes.width, scale=1.0)
            x = w.emit("Gather", [table, "ids"], "embedded", axis=0)
        else:
            x, shape, kind, result = "ids", [*shape, sizes.width], TensorProto.FLOAT, "normed"
        if not sizes.llama:
            places = w.weight("positions", sizes.tokens, sizes.width, scale=0.5)
            x = w.emit("Add", [x, places], "placed")
        for number in range(sizes.depth):
            x = self._block(x, f"block{number}")
        x = self._norm(x, "norm")
        if sizes.vocabulary:
            x = self._dense(x, "head", sizes.width, sizes.vocabulary)
        w.nodes[-1].output[0] = result
        out = [1, sizes.tokens, sizes.vocabulary or sizes.width]
        graph = helper.make_graph(
            w.nodes,
            self.name,
            [helper.make_tensor_value_info("ids", kind, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, out)],
            w.constants,
        )
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)

    # ---------------------------------------------------------------- layers
    def _dense(self, x: str, name: str, inputs: int, outputs: int) -> str:
        if not self.sizes.llama:
            return self.w.dense(x, name, inputs, outputs)
        weight = self.w.weight(f"{name}.weight", inputs, outputs, scale=inputs**-0.5)
        return self.w.emit("MatMul", [x, weight], name)

    def _norm(self, x: str, name: str) -> str:
        w = self.w
        if not self.sizes.llama:
            return w.norm(x, name)
        squared = w.emit("Mul", [x, x], f"{name}.squared")
        mean = w.emit("ReduceMean", [squared], f"{name}.mean", axes=[-1], keepdims=1)
        mean = w.emit("Add", [mean, w.number(EPSILON, f"{name}.epsilon")], f"{name}.above_0")
        root = w.emit("Sqrt", [mean], f"{name}.root")
        weight, _ = w.parameters.norm(name, self.sizes.width)
        scaled = w.emit("Div", [x, root], f"{name}.scaled")
        return w.emit("Mul", [scaled, w.constant(weight, f"{name}.weight")], name)

    def _block(self, x: str, name: str) -> str:
        w, sizes = self.w, self.sizes
        mixed = self._attention(self._norm(x, f"{name}.norm1"), name)
        made = self._dense(mixed, f"{name}.proj", sizes.width, sizes.width)
        x = w.emit("Add", [x, made], f"{name}.attended")
        made = self._hidden(self._norm(x, f"{name}.norm2"), name)
        return w.emit("Add", [x, made], f"{name}.out")

    def _hidden(self, x: str, name: str) -> str:
        w, sizes = self.w, self.sizes
        if sizes.llama:
            gate = self._dense(x, f"{name}.gate", sizes.width, sizes.hidden)
            gate = w.emit("Mul", [gate, w.emit("Sigmoid", [gate], f"{name}.sig")], f"{name}.silu")
            wide = self._dense(x, f"{name}.up", sizes.width, sizes.hidden)
            bent = w.emit("Mul", [gate, wide], f"{name}.gated")
            return self._dense(bent, f"{name}.down", sizes.hidden, sizes.width)
        wide = self._dense(x, f"{name}.fc1", sizes.width, sizes.hidden)
        halves = w.emit("Div", [wide, w.number(2**0.5, f"{name}.root")], f"{name}.over_root")
        bent = w.emit("Erf", [halves], f"{name}.erf")
        bent = w.emit("Add", [bent, w.number(1.0, f"{name}.one")], f"{name}.erf_and_one")
        bent = w.emit("Mul", [wide, bent], f"{name}.product")
        bent = w.emit("Mul", [bent, w.number(0.5, f"{name}.half")], f"{name}.gelu")
        return self._dense(bent, f"{name}.fc2", sizes.hidden, sizes.width)

    # ---------------------------------------------------------------- attention
    def _attention(self, x: str, name: str) -> str:
        w, sizes = self.w, self.sizes
        queries = self._heads(x, f"{name}.q", sizes.heads)
        keys = self._heads(x, f"{name}.k", sizes.key_heads)
        values = self._heads(x, f"{name}.v", sizes.key_heads)
        if sizes.llama:
            queries, keys = self._turned(queries, f"{name}.q"), self._turned(keys, f"{name}.k")
        keys, values = self._repeated(keys, f"{name}.k"), self._repeated(values, f"{name}.v")
        keys = w.emit("Transpose", [keys], f"{name}.k.columns", perm=[0, 1, 3, 2])
        scores = w.emit("MatMul", [queries, keys], f"{name}.scores")
        scale = w.number(sizes.head**-0.5, f"{name}.scale")
        scores = w.emit("Mul", [scores, scale], f"{name}.scaled")
        scores = w.emit("Add", [scores, self.later], f"{name}.masked")
        shares = w.emit("Softmax", [scores], f"{name}.shares", axis=-1)
        mixed = w.emit("MatMul", [shares, values], f"{name}.mixed")
        mixed = w.emit("Transpose", [mixed], f"{name}.merged", perm=[0, 2, 1, 3])
        flat = w.shape([1, sizes.tokens, sizes.width], f"{name}.flat")
        return w.emit("Reshape", [mixed, flat], f"{name}.joined")

    def _heads(self, x: str, name: str, heads: int) -> str:
        """(1, heads, tokens, channels of a head) of a layer."""
        w, sizes = self.w, self.sizes
        made = self._dense(x, name, sizes.width, heads * sizes.head)
        parted = w.shape([1, sizes.tokens, heads, sizes.head], f"{name}.sizes")
        made = w.emit("Reshape", [made, parted], f"{name}.heads")
        return w.emit("Transpose", [made], f"{name}.apart", perm=[0, 2, 1, 3])

    def _repeated(self, x: str, name: str) -> str:
        """Heads of keys or values for all heads of queries."""
        w, sizes = self.w, self.sizes
        times = sizes.heads // sizes.key_heads
        if times == 1:
            return x
        one = w.shape([2], f"{name}.axis")
        x = w.emit("Unsqueeze", [x, one], f"{name}.one")
        shape = [1, sizes.key_heads, times, sizes.tokens, sizes.head]
        x = w.emit("Expand", [x, w.shape(shape, f"{name}.times")], f"{name}.repeated")
        whole = w.shape([1, sizes.heads, sizes.tokens, sizes.head], f"{name}.whole")
        return w.emit("Reshape", [x, whole], f"{name}.all")

    def _turned(self, x: str, name: str) -> str:
        """Rotary positions: halves of a head turned by an angle a position (Su et al., 2021)."""
        w, sizes = self.w, self.sizes
        half = sizes.head // 2
        rates = ROTARY_BASE ** -(np.arange(half) / half)
        angles = np.outer(np.arange(sizes.tokens), np.concatenate([rates, rates]))
        cos = w.constant(np.cos(angles).astype(np.float32), f"{name}.cos")
        sin = w.constant(np.sin(angles).astype(np.float32), f"{name}.sin")
        axes, ends = w.shape([3], f"{name}.last"), [0, half, sizes.head]
        marks = [w.shape([end], f"{name}.at{end}") for end in ends]
        first, second = (
            w.emit("Slice", [x, marks[i], marks[i + 1], axes], f"{name}.half{i}") for i in range(2)
        )
        back = w.emit("Neg", [second], f"{name}.back")
        other = w.emit("Concat", [back, first], f"{name}.other", axis=3)
        straight = w.emit("Mul", [x, cos], f"{name}.straight")
        across = w.emit("Mul", [other, sin], f"{name}.across")
        return w.emit("Add", [straight, across], f"{name}.turned")
