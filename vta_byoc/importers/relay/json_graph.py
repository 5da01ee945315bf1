"""The JSON graph of TVM's old object system: modules (`tvm.ir.save_json`), and metadata of texts.

A graph is a list of nodes that refer to each other by number; 0 is nothing.  Whether a number in
the attributes of an operator is a number or a node depends on the attribute: `references` knows.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from vta_byoc.base.json_types import Json
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.relay import graph
from vta_byoc.importers.relay.binaries import array_of

Node = Mapping[str, Json]
References = Callable[[str, str], bool | None]
"""(operator, attribute) -> whether the attribute refers to a node; None: nobody knows it."""
PLAIN = frozenset(
    ("Array", "Map", "runtime.String", "StringImm", "tir.StringImm", "IntImm", "FloatImm", "")
)
TYPES = ("relay.TensorType", "TensorType", "relay.TupleType", "TupleType")
ANY = ("tir.Any", "Any")


class JsonGraph:
    """The nodes of one JSON text; objects are made when they are asked for, arguments first."""

    def __init__(self, text: str, what: str, references: References) -> None:
        self.what = what
        self._references = references
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise VTAError(
                f"{what} holds no JSON: {error}; save it again with tvm.ir.save_json"
            ) from error
        if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
            raise self.error('"nodes" is missing')
        self.nodes: Sequence[Node] = data["nodes"]
        self.root = data.get("root", 0)
        self._arrays = self._read_arrays(data.get("b64ndarrays", []))
        self._made: dict[int, graph.Expr] = {}
        self._lets = self._let_bound()

    def _read_arrays(self, texts: Sequence[str]) -> list[np.ndarray]:
        try:
            return [
                array_of(base64.b64decode(text, validate=True), f"{self.what}, array {number}")
                for number, text in enumerate(texts)
            ]
        except (binascii.Error, TypeError, ValueError) as error:
            raise self.error(f"an array is no base64 text ({error})") from error

    def error(self, text: str) -> VTAError:
        """The error of a graph that cannot be."""
        return VTAError(
            f"{self.what} is damaged: {text}; save it again with tvm.ir.save_json or mod.astext()"
        )

    # ------------------------------------------------------------ nodes
    def node(self, number: int) -> Node:
        """A node of the list."""
        if not 0 <= number < len(self.nodes) or not isinstance(self.nodes[number], dict):
            raise self.error(f"there is no node {number}")
        return self.nodes[number]

    def kind(self, number: int) -> str:
        """The type key of a node, "" for none."""
        return str(self.node(number).get("type_key", ""))

    def field(self, number: int, *names: str) -> str:
        """An attribute of a node under the first of its names that it has."""
        attrs = cast("Mapping[str, str]", self.node(number).get("attrs") or {})
        for name in names:
            if name in attrs:
                return str(attrs[name])
        raise self.error(f'node {number} ({self.kind(number)}) has no "{names[0]}"')

    def reference(self, number: int, *names: str) -> int:
        """The node that an attribute refers to."""
        text = self.field(number, *names)
        try:
            return int(text)
        except ValueError:
            raise self.error(f'"{names[0]}" of node {number} is "{text}", no node') from None

    def items(self, number: int) -> list[int]:
        """The nodes of an array."""
        data = self.node(number).get("data") or []
        if not isinstance(data, list) or not all(isinstance(item, int) for item in data):
            raise self.error(f"node {number} is no list of nodes")
        return cast("list[int]", data)

    def string(self, number: int) -> str:
        """The text of a string node."""
        node = self.node(number)
        if "repr_str" in node:
            return str(node["repr_str"])
        return self.field(number, "value")

    def mapping(self, number: int) -> dict[str, int]:
        """A map from strings to nodes."""
        node = self.node(number)
        if self.kind(number) == "DictAttrs":
            inner = (cast("Mapping[str, str]", node.get("attrs") or {})).get("__dict__", "0")
            return self.mapping(int(inner))
        if "keys" in node:
            keys = cast("list[str]", node["keys"])
            return dict(zip(keys, self.items(number), strict=False))
        items = self.items(number)
        return {self._key(k): v for k, v in zip(items[::2], items[1::2], strict=False)}

    def _key(self, number: int) -> str:
        is_name = self.kind(number) in ("GlobalVar", "relay.GlobalVar")
        if not is_name:
            return self.string(number)
        return self.string(self._named(number, "name_hint")) or self.field(number, "name_hint")

    def _named(self, number: int, name: str) -> int:
        """The string node of a name; 0 where the name itself stands in the attribute."""
        text = self.field(number, name)
        is_node = text.isdecimal() and self.kind(int(text)) in ("runtime.String", "StringImm")
        return int(text) if is_node else 0

    def name(self, number: int, attribute: str) -> str:
        """A name, which old versions write into the attribute and newer ones beside it."""
        node = self._named(number, attribute)
        return self.string(node) if node else self.field(number, attribute)

    # ------------------------------------------------------------ values of attributes
    def value(self, number: int) -> graph.Value:
        """What a node means as the value of an attribute."""
        kind = self.kind(number)
        if not number or not kind or kind in ANY:
            return None
        if kind in ("runtime.String", "StringImm", "tir.StringImm"):
            return self.string(number)
        if kind == "IntImm":
            return int(self.field(number, "value"))
        if kind == "FloatImm":
            return float(self.field(number, "value"))
        if kind == "Array":
            return [self.value(item) for item in self.items(number)]
        if kind == "Map":
            return {name: cast("Json", self.value(v)) for name, v in self.mapping(number).items()}
        return None

    def type(self, number: int) -> graph.Type:
        """A type node."""
        kind = self.kind(number)
        if kind not in TYPES:
            return None
        if kind.endswith("TupleType"):
            return tuple(self.type(item) for item in self.items(self.reference(number, "fields")))
        dims = cast("Sequence[int | None]", self.value(self.reference(number, "shape")) or ())
        return graph.TensorType(tuple(dims), self.field(number, "dtype"))

    # ------------------------------------------------------------ expressions
    def _let_bound(self) -> dict[int, int]:
        """Variable of a let -> its value."""
        lets = (i for i in range(len(self.nodes)) if self.kind(i) == "relay.Let")
        return {self.reference(i, "var"): self.reference(i, "value") for i in lets}

    def expression(self, number: int) -> graph.Expr:
        """The expression of a node; what it is made of is made first, without recursion."""
        stack = [number]
        opened: set[int] = set()
        while stack:
            at = stack[-1]
            waiting = [part for part in self._parts(at) if part not in self._made]
            if at in self._made:
                stack.pop()
            elif not waiting:
                self._made[at] = self._build(at)
                stack.pop()
            elif at in opened:
                raise self.error(f"node {at} is part of itself")
            else:
                opened.add(at)
                stack.extend(reversed(waiting))
        return self._made[number]

    def _parts(self, at: int) -> list[int]:
        """The expressions that must be made before a node is."""
        kind = self.kind(at)
        if kind == "relay.Call":
            op = self.reference(at, "op")
            called = [] if self.kind(op) in ("Op", "relay.Op") else [op]
            return [*called, *self.items(self.reference(at, "args"))]
        if kind == "relay.Tuple":
            return self.items(self.reference(at, "fields"))
        if kind == "relay.TupleGetItem":
            return [self.reference(at, "tuple_value", "tuple")]
        if kind == "relay.Let":
            return [self.reference(at, "value"), self.reference(at, "body")]
        if kind == "relay.Function":
            return [*self.items(self.reference(at, "params")), self.reference(at, "body")]
        return [self._lets[at]] if at in self._lets else []

    def _build(self, at: int) -> graph.Expr:
        kind = self.kind(at)
        if at in self._lets:
            return self._made[self._lets[at]]
        if kind == "relay.Call":
            return self._call(at)
        if kind == "relay.Constant":
            return graph.Constant(self._array(int(self.field(at, "data"))))
        if kind == "relay.Var":
            vid = self.reference(at, "vid")
            annotation = self.reference(at, "type_annotation")
            return graph.Param(self.name(vid, "name_hint"), self.type(annotation))
        if kind == "relay.Tuple":
            return graph.Tuple([self._made[part] for part in self._parts(at)])
        if kind == "relay.TupleGetItem":
            return graph.Projection(self._made[self._parts(at)[0]], int(self.field(at, "index")))
        if kind == "relay.Let":
            return self._made[self._parts(at)[1]]
        if kind == "relay.Function":
            return self._function(at)
        if kind in ("GlobalVar", "relay.GlobalVar"):
            return graph.GlobalName(self.name(at, "name_hint"))
        raise self.unknown(at)

    def unknown(self, at: int) -> VTAError:
        """The error of a node that no network without control flow has."""
        return VTAError(
            f'{self.what} has a node "{self.kind(at)}" (node {at}); calls, functions, tuples and '
            "constants are taken; simplify the module before it is saved"
        )

    def _array(self, number: int) -> np.ndarray:
        if not 0 <= number < len(self._arrays):
            raise self.error(f"there is no array {number}")
        return self._arrays[number]

    def _function(self, at: int) -> graph.Function:
        params = [self._made[part] for part in self.items(self.reference(at, "params"))]
        if not all(isinstance(param, graph.Param) for param in params):
            raise self.error(f"a parameter of node {at} is no variable")
        attrs = self.reference(at, "attrs")
        stated = {name: self.value(v) for name, v in self._attrs_map(attrs).items()}
        body = self._made[self.reference(at, "body")]
        return graph.Function(cast("list[graph.Param]", params), body, stated)

    def _attrs_map(self, number: int) -> dict[str, int]:
        return self.mapping(number) if number and self.kind(number) == "DictAttrs" else {}

    def _call(self, at: int) -> graph.Call:
        op = self.reference(at, "op")
        args = [self._made[part] for part in self.items(self.reference(at, "args"))]
        attrs = self.reference(at, "attrs")
        if self.kind(op) not in ("Op", "relay.Op"):
            callee = self._made[op]
            if not isinstance(callee, graph.Function | graph.GlobalName):
                raise self.error(f"node {at} calls what is no function")
            return graph.Call(callee, args, {})
        name = self.string(op) if "repr_str" in self.node(op) else self.field(op, "name")
        return graph.Call(name, args, self._attributes(attrs, name), self._source_name(at))

    def _source_name(self, at: int) -> str:
        """The name of the operator in the model that was imported, if its span has one."""
        span = int((cast("Mapping[str, str]", self.node(at).get("attrs") or {})).get("span", 0))
        if not span or self.kind(span) != "Span":
            return ""
        source = self.reference(span, "source_name", "source")
        return self.string(source) if "repr_str" in self.node(source) else ""

    def _attributes(self, number: int, op: str) -> dict[str, graph.Value]:
        """The attributes of a call, by their operator's own types."""
        if not number:
            return {}
        raw = cast("Mapping[str, str]", self.node(number).get("attrs") or {})
        found: dict[str, graph.Value] = {}
        for name, text in raw.items():
            refers = self._references(op, name)
            found[name] = self.value(int(text)) if refers else _plain(str(text))
        return found

    # ------------------------------------------------------------ whole texts
    def metadata(self) -> dict[str, list[graph.Metadata]]:
        """The metadata of a text: type key -> what stands there."""
        found: dict[str, list[graph.Metadata]] = {}
        for key, number in self.mapping(self.root).items():
            items = self.items(number)
            is_expr = key.startswith("relay.") and not key.startswith("relay.attrs.")
            read = self.expression if is_expr else self._object
            found[key] = [read(item) for item in items]
        return found

    def _object(self, number: int) -> graph.Value:
        """A constant of an attribute: text, number, or the attributes of a call by their names."""
        if self.kind(number) in PLAIN:
            return self.value(number)
        raw = cast("Mapping[str, str]", self.node(number).get("attrs") or {})
        return {name: _plain(str(text)) for name, text in raw.items()}

    def module(self) -> graph.Module:
        """The module of the root; a single function is `main`."""
        if self.kind(self.root) == "IRModule" or self.kind(self.root) == "relay.Module":
            listed = self.mapping(self.reference(self.root, "functions"))
        else:
            listed = {"main": self.root}
        functions: dict[str, graph.Function] = {}
        for name, number in listed.items():
            made = self.expression(number)
            functions[name] = made if isinstance(made, graph.Function) else graph.Function([], made)
        if not functions:
            raise self.error("it has no function")
        return graph.Module(functions)


def _plain(text: str) -> int | float | str:
    """An attribute that is no node: a number where it looks like one, else text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
