"""Small models written operator by operator, with seeded weights: ONNX files and Relax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm_ffi import structural_equal, structural_hash

from vta_byoc.ir.bindings import FunctionWriter, op_name, static_shape
from vta_byoc.ir.host_loops import without_asserts
from vta_byoc.ir.machine_code import linked

OPSET = 17


class Net:
    """An ONNX graph under construction; methods return the name of the tensor they make."""

    def __init__(self, seed: int = 0, **inputs: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ]
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def const(self, value: Any, dtype: str = "float32") -> str:
        name = f"const{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def normal(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> str:
        return self.const(offset + scale * self.rng.standard_normal(shape))

    def node(self, op: str, *inputs: str, name: str = "", outputs: int = 1, **attrs: Any) -> Any:
        made = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, name=name, **attrs))
        return made[0] if outputs == 1 else made

    def conv(
        self,
        x: str,
        ci: int,
        co: int,
        k: int = 3,
        *,
        name: str = "",
        bias: bool = True,
        **attrs: Any,
    ) -> str:
        weight = self.normal(co, ci // attrs.get("group", 1), k, k, scale=(2 / (ci * k * k)) ** 0.5)
        extra = [self.normal(co, scale=0.1)] if bias else []
        attrs.setdefault("pads", [k // 2] * 4)
        if "auto_pad" in attrs:
            del attrs["pads"]
        return self.node("Conv", x, weight, *extra, name=name, **attrs)

    def batch_norm(self, x: str, channels: int, *, name: str = "") -> str:
        scale = self.normal(channels, scale=0.2, offset=1.0)
        variance = self.const(1 + self.rng.random(channels))
        shift, mean = (self.normal(channels, scale=0.3) for _ in range(2))
        return self.node("BatchNormalization", x, scale, shift, mean, variance, name=name)

    def dense(self, x: str, ci: int, co: int, *, name: str = "") -> str:
        weight, bias = self.normal(co, ci, scale=ci**-0.5), self.normal(co, scale=0.1)
        return self.node("Gemm", x, weight, bias, name=name, transB=1)

    def model(self, *outputs: str) -> onnx.ModelProto:
        results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, results, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        try:
            return onnx.shape_inference.infer_shapes(model)
        except onnx.shape_inference.InferenceError:
            return model

    def save(self, path: Path, *outputs: str) -> Path:
        onnx.save(self.model(*outputs), str(path))
        return path


class Graph(FunctionWriter):
    """A float Relax function under construction: `op(name, ...)` binds relax.op.<name>."""

    def __init__(self, *shapes: tuple[int, ...], seed: int = 0) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.outputs: list[relax.Expr] = []
        self.params = [
            relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)
        ]

    def op(self, op: str, *args: Any, name: str = "", **options: Any) -> relax.Var:
        function: Any = relax.op
        for part in op.split("."):
            function = getattr(function, part)
        return self.emit(function(*args, **options), name or op.split(".")[-1])

    def const(self, value: Any) -> relax.Expr:
        return relax.const(np.asarray(value, "float32"))

    def normal(self, *shape: int, scale: float = 1.0) -> relax.Expr:
        return self.const(self.rng.standard_normal(shape) * scale)

    def conv(self, x: relax.Var, co: int, k: int = 3, *, name: str = "conv", **options: Any) -> Any:
        ci = static_shape(x)[1] // options.get("groups", 1)
        weight = self.normal(co, ci, k, k, scale=(ci * k * k) ** -0.5)
        options.setdefault("padding", k // 2)
        y = self.op("nn.conv2d", x, weight, name=f"{name}__conv2d", **options)
        return self.op("add", y, self.normal(1, co, 1, 1, scale=0.2), name=name)

    def dense(self, x: relax.Var, co: int, *, name: str = "dense") -> relax.Var:
        ci = static_shape(x)[-1]
        y = self.op("matmul", x, self.normal(ci, co, scale=ci**-0.5), name=f"{name}__matmul")
        return self.op("add", y, self.normal(co, scale=0.2), name=name)

    def slice_like(self, x: relax.Var, like: relax.Var) -> relax.Var:
        """`x` with as many channels as `like`, repeated or cut."""
        have, want = static_shape(x)[1], static_shape(like)[1]
        if have < want:
            x = self.op("concat", [x] * -(-want // have), axis=1)
        return x if have == want else self.op("strided_slice", x, [1], [0], [want])

    def module(self, *outputs: relax.Expr) -> tvm.IRModule:
        result = outputs[0] if len(outputs) == 1 else relax.Tuple(list(outputs))
        source = relax.Function(self.params, result, ret_ty=relax.ObjectType())
        main = self.finish(source, result).with_attr("global_symbol", "main")
        return relax.transform.Normalize()(tvm.IRModule({"main": main}))


def call(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """The results of `main` on plain LLVM; tuples flattened."""
    return flat(machine_of(mod)["main"](*(tvm.runtime.tensor(array) for array in inputs)))


PLAIN = tvm.target.Target({"kind": "llvm", "opt-level": 0})
"""Compiling takes a quarter of the time, and small models run as fast."""
_BUILT: dict[int, list[tuple[tvm.IRModule, relax.VirtualMachine]]] = {}
KEPT = 64
"""Machines that are kept; more would hold on to much memory."""


def plain_machine(mod: tvm.IRModule) -> relax.VirtualMachine:
    """A machine for `mod` as TVM lowers it, in code that is quick to make."""
    with without_asserts():
        return relax.VirtualMachine(linked(relax.build(mod, PLAIN)), tvm.cpu())


def machine_of(mod: tvm.IRModule) -> relax.VirtualMachine:
    """A machine for `mod`, or for an equal module, constants included, that was built before."""
    known = _BUILT.setdefault(structural_hash(mod), [])
    for other, machine in known:
        if structural_equal(mod, other):
            return machine
    machine = plain_machine(mod)
    known.append((mod, machine))
    while len(_BUILT) > KEPT:
        del _BUILT[next(iter(_BUILT))]
    return machine


def flat(result: Any) -> list[np.ndarray]:
    if hasattr(result, "numpy"):
        return [result.numpy()]
    if isinstance(result, np.ndarray):
        return [result]
    return [array for item in result for array in flat(item)]


def ops(mod: tvm.IRModule) -> list[tuple[str, str]]:
    (block,) = mod["main"].body.blocks
    return [(b.var.name, op_name(b.value).removeprefix("relax.")) for b in block.bindings]
