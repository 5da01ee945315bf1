"""Random networks as ONNX models: 2 to 12 operators of all kinds, drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper
from random_kinds import KINDS, STEMS
from random_operators import Value
from small_models import Net

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True, eq=False)
class Network:
    """A float ONNX model.

    Attributes:
        inputs: shapes by name.
        kinds: of its operators.
        shapes: of all its tensors.
        form: arguments of `quantize`.
        seed: of what is drawn once the compiler has seen the network.
    """

    model: onnx.ModelProto
    inputs: dict[str, tuple[int, ...]]
    kinds: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    form: dict[str, Any]
    seed: int

    def samples(self, seed: int) -> list[np.ndarray]:
        """One array for each input."""
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(shape, dtype="float32") for shape in self.inputs.values()]

    def __repr__(self) -> str:
        """One line for each operator, input and the outputs; the form last, if it is not plain."""
        graph = self.model.graph
        lines = [f"{name} = input {_text(shape)}" for name, shape in self.inputs.items()]
        lines += [self._line(node) for node in graph.node]
        lines.append("outputs " + ", ".join(o.name for o in graph.output))
        return "\n".join(["", *lines, *([f"quantize {self.form}"] if self.form else [])])

    def _line(self, node: onnx.NodeProto) -> str:
        attrs = [f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute]
        inputs = [f"{i} {_text(self.shapes[i])}" if i in self.shapes else i for i in node.input]
        return f"{', '.join(node.output)} = {node.op_type}({', '.join([*inputs, *attrs])})"


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


class Maker:
    """Grows one network; every operator reads tensors that are there."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.products = 0
        """Of two tensors: each doubles the exponent of what the values can reach."""
        self.net = Net(draw(st.integers(0, 255)))
        self.values: list[Value] = []
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._read: set[str] = set()
        self._weights: dict[tuple[int, ...], str] = {}

    def network(self) -> Network:
        """Inputs, operators, outputs."""
        inputs = self._inputs()
        kinds: list[str] = []
        count = self.pick(COUNTS)
        while len(kinds) < LEAST_KINDS or len(self.net.nodes) < count:
            x = self._operand()
            known = STEMS if not kinds and self.chance(STEM_SHARE) else KINDS
            kind = self.pick([k for k in known if k.takes(x) for _ in range(k.weight)])
            self.values.append(kind.make(self, x))
            kinds.append(kind.name)
        *others, last = (v.name for v in self.values[len(inputs) :])
        outputs = [last, *(n for n in others if self.chance(10 if n in self._read else 70))]
        form = self.pick(FORMS)
        seed = self._draw(st.integers(0, 2**16 - 1))
        return Network(self.net.model(*outputs), inputs, tuple(kinds), self._shapes, form, seed)

    def _operand(self) -> Value:
        """Mostly the last tensor or one that nothing reads yet."""
        unread = [v for v in self.values if v.name not in self._read] or self.values
        any_one, unread_one = self.pick(self.values), self.pick(unread)
        return self.pick([self.values[-1], self.values[-1], unread_one, any_one])

    def _inputs(self) -> dict[str, tuple[int, ...]]:
        rank = self.pick([4] * 8 + [3, 2])
        batch = self.pick([1, 1, 1, 2, 3, 4])
        for name in "xyz"[: self.pick([1, 1, 1, 2, 2, 3])]:
            if not self.values or self.chance(30):
                plane = (self.pick(SIZES) for _ in range(rank - 2))
                shape = (batch, self.pick(INPUT_CHANNELS), *plane)
            self.values.append(Value(name, shape))
            self._shapes[name] = shape
            info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            self.net.inputs.append(info)
        return dict(self._shapes)

    # ---------------------------------------------------------------- choices
    def pick(self, items: Sequence[T]) -> T:
        """One of them; a failure shrinks towards the first."""
        chosen: T = self._draw(st.sampled_from(items))
        return chosen

    def chance(self, percent: int) -> bool:
        """True in so many cases of a hundred."""
        return bool(self._draw(st.integers(0, 99)) >= 100 - percent)

    # ---------------------------------------------------------------- writing
    def add(self, op: str, inputs: Sequence[str], shape: tuple[int, ...], **attrs: Any) -> Value:
        """A node and its result."""
        return self.add_many(op, inputs, [shape], **attrs)[0]

    def add_many(
        self, op: str, inputs: Sequence[str], shapes: Sequence[tuple[int, ...]], **attrs: Any
    ) -> list[Value]:
        """A node of several results."""
        self._read.update(inputs)
        made = self.net.node(op, *inputs, outputs=len(shapes), **attrs)
        names = made if isinstance(made, list) else [made]
        self._shapes.update(zip(names, shapes, strict=True))
        return [Value(name, shape) for name, shape in zip(names, shapes, strict=True)]

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.add("Reshape", [x.name, self.net.const(shape, "int64")], shape)

    def weight(self, shape: tuple[int, ...], inputs: int) -> str:
        """Weights of a layer whose results sum up ``inputs`` products; some layers share them."""
        if shape not in self._weights or not self.chance(30):
            scale = (2 / inputs) ** 0.5 * self.pick(WEIGHT_SCALES)
            self._weights[shape] = self.net.normal(*shape, scale=scale)
        return self._weights[shape]


FORMS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"per_channel": True},
    {"scales": "mul"},
    {"scales": "mul", "per_channel": True},
)
"""How a network is quantized."""
COUNTS = (2, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 7, 8, 9, 10, 11, 12)
"""Of ONNX operators, at the least; some kinds are several."""
LEAST_KINDS = 2
SIZES = (5, 4, 3, 6, 7, 8, 9, 2, 1, 12)
"""Rows and columns of the inputs."""
INPUT_CHANNELS = (3, 16, 1, 8, 17, 24, 32)
WEIGHT_SCALES = (1.0,) * 17 + (1 / 64, 64.0, 0.0)
"""Layers that shift far, either way, and one without any weights."""
STEM_SHARE = 95
"""Percent of the networks whose first operator has weights."""


@st.composite
def networks(draw: Draw) -> Network:
    """Networks of 2 to 12 operators."""
    return Maker(draw).network()
