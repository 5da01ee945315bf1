"""Relay's files, written: NDArrays, parameter lists, the JSON graph, metadata, archives."""

from __future__ import annotations

import base64
import io
import json
import struct
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vta_byoc.importers.relay import graph
from vta_byoc.importers.relay.operators.entry import Ref
from vta_byoc.importers.relay.operators.table import OPERATORS

CODES = {"i": 0, "u": 1, "f": 2, "b": 1}


def ndarray(array: np.ndarray) -> bytes:
    """One array as `NDArray::Save` writes it."""
    bits = 1 if array.dtype == bool else array.dtype.itemsize * 8
    head = struct.pack("<QQiii", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim)
    kind = struct.pack("<BBH", CODES[array.dtype.kind], bits, 1)
    shape = struct.pack(f"<{array.ndim}q", *array.shape)
    data = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return head + kind + shape + struct.pack("<q", len(data)) + data


def params(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Named arrays as `save_param_dict` writes them."""
    names = b"".join(struct.pack("<Q", len(n.encode())) + n.encode() for n in arrays)
    body = b"".join(ndarray(array) for array in arrays.values())
    count = struct.pack("<Q", len(arrays))
    return struct.pack("<QQ", 0xF7E58D4F05049CB7, 0) + count + names + count + body


def archive(members: Mapping[str, bytes]) -> bytes:
    """A tar archive of files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class GraphWriter:
    """Nodes of a JSON graph; methods return the number of the node they add."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]
        self.arrays: list[str] = []
        self._numbers: dict[int, int] = {}

    def add(self, kind: str, **rest: Any) -> int:
        self.nodes.append({"type_key": kind, **rest})
        return len(self.nodes) - 1

    def object(self, kind: str, **attrs: Any) -> int:
        """A node whose attributes are all text, as TVM writes them."""
        return self.add(kind, attrs={name: str(value) for name, value in attrs.items()})

    def string(self, text: str) -> int:
        return self.add("runtime.String", repr_str=text)

    def listed(self, items: Sequence[int]) -> int:
        return self.add("Array", data=list(items)) if items else self.add("Array")

    def constant(self, array: np.ndarray) -> int:
        self.arrays.append(base64.b64encode(ndarray(array)).decode())
        number = len(self.arrays) - 1
        return self.object("relay.Constant", _checked_type_=0, data=number, span=0)

    def value(self, value: Any) -> int:
        """The value of an attribute as a node."""
        if value is None:
            return 0
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, float):
            return self.object("FloatImm", dtype="float32", span=0, value=value)
        if isinstance(value, int):
            return self.object("IntImm", dtype="int32", span=0, value=int(value))
        return self.listed([self.value(item) for item in value])

    def type(self, type_: graph.Type) -> int:
        if not isinstance(type_, graph.TensorType):
            return 0
        shape = self.value(list(type_.shape))
        return self.object("relay.TensorType", dtype=type_.dtype, shape=shape, span=0)

    # ------------------------------------------------------------ expressions
    def expression(self, expr: graph.Expr) -> int:
        """An expression; what it reads is added before it."""
        if isinstance(expr, graph.Function):
            return self.function(expr)
        for part in graph.in_order(expr):
            if id(part) not in self._numbers:
                self._numbers[id(part)] = self._expression(part)
        return self._numbers[id(expr)]

    def _expression(self, expr: graph.Expr) -> int:
        known = self._numbers
        if isinstance(expr, graph.Constant):
            assert expr.array is not None
            return self.constant(expr.array)
        if isinstance(expr, graph.Param):
            vid = self.object("relay.Id", name_hint=self.string(expr.name))
            return self.object("relay.Var", type_annotation=self.type(expr.type), vid=vid, span=0)
        if isinstance(expr, graph.Tuple):
            fields = self.listed([known[id(item)] for item in expr.fields])
            return self.object("relay.Tuple", fields=fields, span=0)
        if isinstance(expr, graph.Projection):
            value = known[id(expr.value)]
            return self.object("relay.TupleGetItem", tuple_value=value, index=expr.index, span=0)
        if isinstance(expr, graph.Function):
            return self.function(expr)
        if isinstance(expr, graph.GlobalName):
            return self.object("GlobalVar", name_hint=self.string(expr.name))
        return self._call(expr)

    def _call(self, expr: graph.Call) -> int:
        args = self.listed([self._numbers[id(arg)] for arg in expr.args])
        if not isinstance(expr.op, str):
            op = self.expression(expr.op)
            return self.object("relay.Call", args=args, attrs=0, op=op, span=0, type_args=0)
        op = self.add("Op", repr_str=expr.op)
        attrs = self._attributes(expr.op, expr.attrs)
        return self.object("relay.Call", args=args, attrs=attrs, op=op, span=0, type_args=0)

    def _attributes(self, op: str, stated: Mapping[str, Any]) -> int:
        """All attributes with their values, as JSON has them, defaults too."""
        entry = OPERATORS[op]
        if not entry.attrs:
            return 0
        written: dict[str, Any] = {}
        for name, default in entry.attrs.items():
            value = stated.get(name, entry.default(name))
            if isinstance(default, Ref):
                written[name] = self.value(value)
            else:
                written[name] = int(value) if isinstance(value, bool) else value
        return self.object(f"relay.attrs.{op}", **written)

    def function(self, function: graph.Function) -> int:
        body = self.expression(function.body)
        params = [self.expression(param) for param in function.params]
        stated = {name: self.value(v) for name, v in function.attrs.items()}
        table = self.add("Map", keys=list(stated), data=list(stated.values()))
        attrs = self.object("DictAttrs", __dict__=table)
        return self.object(
            "relay.Function",
            attrs=attrs,
            body=body,
            params=self.listed(params),
            ret_type=0,
            span=0,
            type_params=0,
        )

    def text(self, root: int) -> str:
        """The whole graph."""
        whole = {"root": root, "nodes": self.nodes, "b64ndarrays": self.arrays}
        return json.dumps({**whole, "attrs": {"tvm_version": "0.9.0"}}, indent=2)


def metadata(constants: Sequence[np.ndarray]) -> str:
    """The section behind a text."""
    writer = GraphWriter()
    items = writer.listed([writer.constant(array) for array in constants])
    root = writer.add("Map", keys=["relay.Constant"], data=[items])
    return f"\n#[metadata]\n{writer.text(root)}"


def json_graph(module: graph.Module) -> str:
    """A module as `tvm.ir.save_json` writes it."""
    writer = GraphWriter()
    numbers = {name: writer.function(f) for name, f in module.functions.items()}
    keys = [writer.object("GlobalVar", name_hint=writer.string(n), span=0) for n in numbers]
    data = [item for pair in zip(keys, numbers.values(), strict=True) for item in pair]
    functions = writer.add("Map", data=data)
    return writer.text(writer.object("IRModule", functions=functions, type_definitions=0))
