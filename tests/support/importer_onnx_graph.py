"""The ONNX model under construction that every generator of cases writes its node into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from importer_draws import Draw
from onnx import TensorProto, helper, numpy_helper

OPSETS = (13, 17, 18, 21)
"""One is drawn where a generator asks for none."""
FLOATS, INT32, INT64, BOOL = (
    TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL,
)  # fmt: skip


class Onnx(Draw):
    """A model under construction; methods return the names of tensors."""

    def __init__(self, operator: str, *seed: int) -> None:
        super().__init__(*seed)
        self.operator = operator
        self.opset = self.pick(*OPSETS)
        self.feed: list[np.ndarray] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[str] = []

    def input(self, array: np.ndarray, dtype: int = FLOATS) -> str:
        """An input, cast to `dtype`."""
        self.feed.append(array)
        name = f"x{len(self.feed)}"
        return name if dtype == FLOATS else self.node("Cast", name, to=dtype)

    def tensor(self, shape: Sequence[int], low: float = -4, high: float = 4) -> str:
        return self.input(self.floats(shape, low, high))

    def const(self, value: Any, dtype: str = "float32") -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        return self.const(self.floats(shape, -1, 1))

    def node(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        made = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        attrs = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(helper.make_node(op, list(inputs), made, domain=domain, **attrs))
        return made[0] if outputs == 1 else made

    def test(self, *inputs: str, outputs: int = 1, **attrs: Any) -> None:
        """The node under test; its outputs are the model's."""
        made = self.node(self.operator, *inputs, outputs=outputs, **attrs)
        self.outputs = [made] if outputs == 1 else made

    def model(self, results: Sequence[np.ndarray] = ()) -> onnx.ModelProto:
        """The model; `results` give its outputs their types."""
        ends = [
            helper.make_tensor_value_info(f"x{i + 1}", FLOATS, array.shape)
            for i, array in enumerate(self.feed)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        if results:
            outputs = [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in zip(self.outputs, results, strict=True)
            ]
        graph = helper.make_graph(self.nodes, "case", ends, outputs, self.constants)
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=10)
        return model


Generator = Callable[[Onnx], None]
