"""Relax as Relay text, in the form in which TVM printed it: for round trips of networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from importer_relay import relay_type
from tvm import relax
from tvm.ir import Call, Tuple, TupleGetItem

from vta_byoc.ir.bindings import is_constant, op_name, static_shape, straight_bindings

Written = tuple[str, str]
"""Operator and attributes."""


def _listed(values: Any) -> str:
    return str([int(v) for v in values])


def _window(call: relax.Call, *names: str) -> str:
    return ", ".join(f"{name}={_listed(getattr(call.attrs, name))}" for name in names)


def _conv(call: relax.Call) -> Written:
    weight = static_shape(call.args[1])
    name = op_name(call).removeprefix("relax.")
    transposed = name.endswith("_transpose")
    attrs = _window(call, "strides", "padding", "dilation")
    attrs += f", output_padding={_listed(call.attrs.output_padding)}" if transposed else ""
    groups = int(call.attrs.groups)
    channels = weight[1] * groups if transposed else weight[0]
    attrs += f", groups={groups}" if groups > 1 else ""
    return name, f"{attrs}, channels={channels}, kernel_size={_listed(weight[2:])}"


def _pool(call: relax.Call) -> Written:
    attrs = _window(call, "pool_size", "strides", "padding")
    attrs += f", ceil_mode={bool(call.attrs.ceil_mode)}"
    return op_name(call).removeprefix("relax."), attrs


def _reduce(call: relax.Call) -> Written:
    axes = "" if call.attrs.axis is None else f"axis={_listed(call.attrs.axis)}, "
    return op_name(call).removeprefix("relax."), f"{axes}keepdims={bool(call.attrs.keepdims)}"


def _clip(call: relax.Call) -> Written:
    low, high = (float(arg.value) for arg in call.args[1:])
    return "clip", f"a_min={low}f, a_max={high}f"


def _slice(call: relax.Call) -> Written:
    names = ("axes", "begin", "end", "strides")
    columns = [[int(item.value) for item in arg.fields] for arg in call.args[1:]]
    attrs = {name: column for name, column in zip(names, columns, strict=False)}
    return "strided_slice", ", ".join(f"{name}={value}" for name, value in attrs.items())


def _plain(name: str) -> Callable[[relax.Call], Written]:
    return lambda call: (name, "")


WRITERS: dict[str, Callable[[relax.Call], Written]] = {
    "relax.nn.conv2d": _conv,
    "relax.nn.conv2d_transpose": _conv,
    "relax.nn.max_pool2d": _pool,
    "relax.nn.avg_pool2d": _pool,
    **{f"relax.{name}": _reduce for name in ("mean", "sum", "max")},
    "relax.clip": _clip,
    "relax.strided_slice": _slice,
    **{f"relax.{n}": _plain(n) for n in ("add", "subtract", "multiply", "divide", "maximum")},
    **{f"relax.{n}": _plain(n) for n in ("minimum", "tanh", "sigmoid", "exp", "nn.relu")},
    "relax.nn.leakyrelu": lambda c: ("nn.leaky_relu", f"alpha={float(c.attrs.alpha)}f"),
    "relax.nn.softmax": lambda c: ("nn.softmax", f"axis={int(c.attrs.axis)}"),
    "relax.reshape": lambda c: ("reshape", f"newshape={_listed(static_shape(c))}"),
    "relax.permute_dims": lambda c: ("transpose", f"axes={_listed(c.attrs.axes)}"),
    "relax.concat": lambda c: ("concatenate", f"axis={int(c.attrs.axis)}"),
    "relax.repeat": lambda c: (
        "repeat",
        f"repeats={int(c.attrs.repeats)}, axis={int(c.attrs.axis)}",
    ),
}
"""Relax operator -> Relay's name and the attributes as text."""


class Printer:
    """Writes one function. Constants become parameters `p0`, `p1` ... or metadata.

    Attributes:
        constants: the arrays, by the name of their parameter.
    """

    def __init__(self, mod: tvm.IRModule, metadata: bool = False) -> None:
        self.main = mod["main"]
        self.constants: dict[str, np.ndarray] = {}
        self._metadata = metadata
        self._names: dict[Any, str] = {}

    def text(self) -> str:
        """The module; without the metadata section."""
        for param in self.main.params:
            self._names[param] = f"%{param.name}"
        lines = []
        for number, binding in enumerate(straight_bindings(self.main)):
            self._names[binding.var] = f"%{number}"
            lines.append(f"  %{number} = {self._value(binding)};")
        result = self._operand(self.main.body.body)
        listed = [f"%{p.name}: {self._type(p)} /* ty={self._type(p)} */" for p in self.main.params]
        if not self._metadata:
            listed += [f"%{n}: {relay_type(x)}" for n, x in self.constants.items()]
        body = "\n".join([*lines, f"  {result}"])
        return f'#[version = "0.0.5"]\ndef @main({", ".join(listed)}) {{\n{body}\n}}\n'

    @staticmethod
    def _type(var: relax.Expr) -> str:
        dims = ", ".join(map(str, static_shape(var)))
        return f"Tensor[({dims}), {var.ty.dtype}]"

    def _value(self, binding: relax.VarBinding) -> str:
        value = binding.value
        if not isinstance(value, Call):
            return self._operand(value)
        tensors = [arg for arg in value.args if _is_operand(arg)]
        if op_name(value) == "relax.matmul":
            return self._matmul(value)
        name, attrs = WRITERS[op_name(value)](value)
        inside = ", ".join([*map(self._operand, tensors), *([attrs] if attrs else [])])
        source = str(binding.var.name)
        return f"{name}({inside}) /* ty={self._type(binding.var)} span={source}:0:0 */"

    def _matmul(self, call: relax.Call) -> str:
        """Constant weights stand transposed in Relay."""
        left, right = call.args
        weight = relax.const(np.ascontiguousarray(right.value.numpy().T))
        units = static_shape(right)[1]
        return f"nn.dense({self._operand(left)}, {self._operand(weight)}, units={units})"

    def _operand(self, expr: relax.Expr) -> str:
        if isinstance(expr, Tuple):
            return f"({', '.join(map(self._operand, expr.fields))})"
        if isinstance(expr, TupleGetItem):
            return f"{self._operand(expr.tuple_value)}.{expr.index}"
        if not is_constant(expr):
            return self._names[expr]
        array = np.asarray(expr.value.numpy())
        name = f"p{len(self.constants)}"
        self.constants[name] = array
        if not self._metadata:
            return f"%{name}"
        number = len(self.constants) - 1
        return f"meta[relay.Constant][{number}] /* ty={relay_type(array)} */"


def _is_operand(arg: relax.Expr) -> bool:
    if isinstance(arg, Tuple):
        return not all(tvm.ir.is_prim_expr(item) for item in arg.fields)
    return isinstance(arg.ty, relax.TensorType)


def networks() -> Sequence[str]:
    """The model networks of `models/` that go out and back."""
    return ("resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2", "squeezenet", "vgg16",
            "yolov3_tiny", "dcgan", "resnet8")  # fmt: skip
