"""TVM's ONNX importer, taught to name what it emits and to keep a few operators whole."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.ir import Call, Tuple, TupleGetItem
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from vta_byoc.bindings import SEPARATOR, UniqueNames, is_constant, sanitized, static_shape
from vta_byoc.hw.errors import VTAError


def name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a unique identifier as its name: its own, or that of its first output."""
    names = UniqueNames("_")
    for value in graph.input:
        names.fresh(sanitized(value.name))
    for node in graph.node:
        node.name = names.fresh(sanitized(node.name or node.output[0]))


class _NamingBuilder(relax.BlockBuilder):
    """Names the variables of nested expressions after the node that is being converted."""

    def __init__(self) -> None:
        super().__init__()
        self.node = ""
        self._emitted: dict[relax.Expr, relax.Var] = {}

    def start(self, node: str) -> None:
        """Name what follows after `node`."""
        self.node = node
        self._emitted.clear()

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        flat = self._flat(expr)
        return super().emit(flat, name_hint or self._inner_name(flat))

    def normalize(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, Tuple):
            return relax.Tuple([self.normalize(field) for field in expr.fields])
        return super().normalize(self._flat(expr))

    def abandon(self) -> None:
        """End the block that a failed import left open; TVM would warn about it later."""
        with contextlib.suppress(Exception):
            self._end_block()

    def _flat(self, expr: relax.Expr) -> relax.Expr:
        """`expr` with calls among its arguments bound to named variables."""
        if isinstance(expr, Call):
            args = [self._bound(arg) for arg in expr.args]
            return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
        if isinstance(expr, TupleGetItem):
            return relax.TupleGetItem(self._bound(expr.tuple_value), expr.index)
        return expr

    def _bound(self, arg: relax.Expr) -> relax.Expr:
        if isinstance(arg, Tuple):
            return relax.Tuple([self._bound(field) for field in arg.fields])
        if not isinstance(arg, Call | TupleGetItem) or tvm.ir.is_prim_expr(arg):
            return arg
        if arg not in self._emitted:
            self._emitted[arg] = self.emit(arg)
        return self._emitted[arg]

    def _inner_name(self, expr: relax.Expr) -> str:
        op = getattr(getattr(expr, "op", None), "name", "")
        return f"{self.node}{SEPARATOR}{op.split('.')[-1] or 'value'}"


class NamingImporter(ONNXGraphImporter):
    """Binds the result of every ONNX node to a variable of the node's name.

    What a node needs besides is called `<node>__<operator>`; further outputs `<node>__1` ...
    `name_nodes` must have run on the graph.
    """

    def __init__(self, shapes: dict[str, list[int]]) -> None:
        super().__init__(shapes, "float32", keep_params_in_input=False, sanitize=False)
        self.bb = _NamingBuilder()
        self.node = ("", "")
        """Name and operator type of the node being converted, for error messages."""

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        name = attrs["tvm_custom"]["name"]
        self.node = (name, op_name)
        self.bb.start(name)
        result = OVERRIDES[op_name](inputs, attrs) if op_name in OVERRIDES else None
        if result is None:
            result = super()._convert_operator(op_name, inputs, attrs, opset)
        return self._named(result, name)

    def _named(self, result: relax.Expr, name: str) -> relax.Expr:
        if isinstance(result, Call) and isinstance(result.ty, relax.TupleType):
            result = self.bb.emit(result, f"{name}{SEPARATOR}outputs")
        if isinstance(result, relax.Var) and isinstance(result.ty, relax.TupleType):
            count = len(result.ty.fields)
            result = relax.Tuple([relax.TupleGetItem(result, i) for i in range(count)])
        if isinstance(result, Tuple):
            names = [name, *(f"{name}{SEPARATOR}{i}" for i in range(1, len(result.fields)))]
            fields = zip(result.fields, names, strict=True)
            return relax.Tuple([self._named(field, hint) for field, hint in fields])
        if isinstance(result, Call | TupleGetItem) and not tvm.ir.is_prim_expr(result):
            return self.bb.emit(result, name)
        return result


def _clip(inputs: list[relax.Expr], attrs: dict[str, Any]) -> relax.Expr | None:
    """Constant bounds become maximum and minimum; TVM's converter makes opaque functions."""
    bounds = [inputs[i] for i in (1, 2)]
    if bounds == [None, None]:
        bounds = [relax.const(attrs[key], "float32") if key in attrs else None for key in _CLIP]
    if any(bound is not None and not is_constant(bound) for bound in bounds):
        return None
    result = inputs[0]
    for bound, op in zip(bounds, (relax.op.maximum, relax.op.minimum), strict=True):
        if bound is not None and not np.isnan(bound.value.numpy()):
            result = op(result, bound)
    return result


_CLIP = ("min", "max")


def _dropout(inputs: list[relax.Expr], attrs: dict[str, Any]) -> relax.Expr | None:
    """Inference keeps the value; a mask output is left to TVM's converter."""
    return inputs[0] if attrs["tvm_custom"]["num_outputs"] == 1 else None


def _conv(inputs: list[relax.Expr], attrs: dict[str, Any]) -> None:
    """Turn auto_pad into explicit pads: TVM would pad in an opaque function before the layer."""
    mode = attrs.get("auto_pad", b"NOTSET").decode()
    if not mode.startswith("SAME"):
        return
    spatial = static_shape(inputs[0])[2:]
    kernel = static_shape(inputs[1])[2:]
    before, after = [], []
    for axis, size in enumerate(spatial):
        stride = attrs.get("strides", [1] * len(spatial))[axis]
        extent = (kernel[axis] - 1) * attrs.get("dilations", [1] * len(spatial))[axis] + 1
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        before.append(large if mode == "SAME_LOWER" else small)
        after.append(small if mode == "SAME_LOWER" else large)
    attrs["pads"] = tuple(before + after)
    del attrs["auto_pad"]


def _pad(inputs: list[relax.Expr], attrs: dict[str, Any]) -> relax.Expr | None:
    """Constant padding stays an operator; other modes are left to TVM's converter."""
    pads = attrs.get("pads") if inputs[1] is None else _values(inputs[1])
    value = attrs.get("value", 0.0) if inputs[2] is None else _values(inputs[2])
    constant = attrs.get("mode", b"constant") == b"constant" and inputs[3] is None
    if not constant or pads is None or value is None or min(pads, default=0) < 0:
        return None
    rank = len(pads) // 2
    widths = [int(pads[axis + half * rank]) for axis in range(rank) for half in (0, 1)]
    return relax.op.nn.pad(inputs[0], widths, "constant", float(np.reshape(value, -1)[0]))


def _values(expr: relax.Expr) -> np.ndarray | None:
    return expr.value.numpy() if is_constant(expr) else None


OVERRIDES: dict[str, Callable[[list[relax.Expr], dict[str, Any]], relax.Expr | None]] = {
    "Clip": _clip,
    "Conv": _conv,
    "Dropout": _dropout,
    "Pad": _pad,
}
"""ONNX operator -> our converter; None as its result lets TVM's converter do the work."""


def import_graph(graph: onnx.GraphProto, opset: int, shapes: dict[str, list[int]]) -> tvm.IRModule:
    """The graph as Relax `main`, parameters as constants, variables named after nodes.

    Raises:
        VTAError: a converter does not support what a node asks for.
    """
    importer = NamingImporter(shapes)
    try:
        # TVM prints the inputs of a failed conversion; the error below says what matters.
        with contextlib.redirect_stdout(io.StringIO()):
            return importer.from_onnx(graph, opset)
    except Exception as error:
        importer.bb.abandon()
        if isinstance(error, VTAError):
            raise
        name, op_type = importer.node
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        what = f'node "{name}" ({op_type})' if name else "the weights"
        raise VTAError(
            f"{what} cannot be imported: {reason}; TVM's ONNX importer does not take this form; "
            "simplify the model or export it with another opset"
        ) from error
