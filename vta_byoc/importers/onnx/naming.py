"""TVM's ONNX importer, taught to name what it emits."""

from __future__ import annotations

import contextlib
import io
from typing import cast

import onnx
import tvm
from tvm import relax
from tvm.ir import Call, Tuple, TupleGetItem
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from vta_byoc.base.boundary import reason_of
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.onnx.fused import FUSED, domain_of
from vta_byoc.importers.onnx.node import NodeAttributes
from vta_byoc.importers.onnx.operators import OVERRIDES
from vta_byoc.importers.onnx.recurrent import KINDS, unroll
from vta_byoc.importers.onnx.static import evaluate
from vta_byoc.importers.onnx.unread import Attributes, Operands, check_read
from vta_byoc.ir.bindings import SEPARATOR, UniqueNames, sanitized


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
        self._protos: dict[str, onnx.NodeProto] = {}
        self.node = ("", "")
        """Name and operator type of the node being converted, for error messages."""

    def from_onnx(self, graph: onnx.GraphProto, opset: int) -> tvm.IRModule:
        """Import the graph; every node of it is found again by its name (`name_nodes`)."""
        self._protos = {node.name: node for node in graph.node}
        return super().from_onnx(graph, opset)

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: NodeAttributes, opset: int
    ) -> relax.Expr:
        name = attrs["tvm_custom"]["name"]
        self.node = (name, op_name)
        self.bb.start(name)
        node = self._protos[name]
        known = evaluate(node, inputs, opset)
        if known is not None:
            return known[0] if len(known) == 1 else relax.Tuple(known)
        operands, stated = Operands(inputs), Attributes(attrs)
        result = self._converted(node, operands, cast(NodeAttributes, stated), opset)
        check_read(node, stated, operands, opset)
        return self._named(result, name)

    def _converted(
        self, node: onnx.NodeProto, inputs: list[relax.Expr], attrs: NodeAttributes, opset: int
    ) -> relax.Expr:
        if node.op_type in KINDS:
            return unroll(self.bb, node.op_type, inputs, attrs)
        fused = FUSED.get((domain_of(node), node.op_type))
        if fused is not None:
            return fused(self.bb, inputs, attrs)
        result = OVERRIDES[node.op_type](inputs, attrs) if node.op_type in OVERRIDES else None
        if result is None:
            result = super()._convert_operator(node.op_type, inputs, attrs, opset)
        return result

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """`importers.onnx.checks.check_operators` has done it, and knows what is converted here."""

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
        reason = reason_of(error)
        what = f'node "{name}" ({op_type})' if name else "the weights"
        raise VTAError(
            f"{what} cannot be imported: {reason}; TVM's ONNX importer does not take this form; "
            "simplify the model or export it with another opset"
        ) from error
