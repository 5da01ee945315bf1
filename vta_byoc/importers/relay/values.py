"""Values in Relay text: attributes, numbers, constants of the metadata, types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from vta_byoc.base.json_types import Json
from vta_byoc.importers.relay import graph
from vta_byoc.importers.relay.tokens import Tokens

_NUMBER = re.compile(r"(-?(?:[\d.]+(?:[eE][-+]?\d+)?|inf|nan))([fiu]?)(\d*)$")
_TYPE = re.compile(r"ty=(Tensor\[\(([^()]*)\),\s*(\w+)\]|\w+)")
LITERALS: dict[str, Json] = {"True": True, "False": False, "None": None}
DTYPES = {"f": "float", "i": "int", "u": "uint", "": "int"}


class ValueReader:
    """Reads what is no function and no call from the tokens that the parser reads too."""

    def __init__(self, tokens: Tokens, metadata: Mapping[str, Sequence[graph.Metadata]]) -> None:
        self.tokens = tokens
        self.metadata = metadata
        self._missing: dict[str, graph.Constant] = {}

    # ------------------------------------------------------------ attributes
    def attribute(self) -> tuple[str, graph.Value]:
        """A name and its value."""
        name = self.tokens.take()[:-1].rstrip()
        return name, self._value()

    def _value(self) -> graph.Value:
        t = self.tokens
        kind, text = t.kind, t.text
        if kind == "ints":
            t.take()
            return [int(item) for item in text[1:-1].split(",")]
        if kind == "number":
            t.take()
            value = self._number(text)[0]
            return value
        if kind == "string":
            t.take()
            return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        if text in LITERALS:
            t.take()
            return LITERALS[text]
        if kind == "meta":
            return cast("graph.Value", self.referred())
        if text in ("[", "("):
            return self._values("]" if text == "[" else ")")
        if text == "{":
            return self.braces()
        if kind == "word":  # an element type without quotes
            return t.take()
        if t.takes("?"):
            return None
        raise t.unexpected("the value of an attribute")

    def _values(self, end: str) -> list[graph.Value]:
        self.tokens.take()
        found = []
        while not self.tokens.takes(end):
            found.append(self._value())
            self.tokens.comma(end)
        return found

    def braces(self) -> graph.Value:
        """What a text without metadata shows of a map; nothing of it is computed with."""
        t, depth = self.tokens, 0
        while True:
            self.tokens.expect_more('"}"')
            depth += {"{": 1, "}": -1}.get(t.take(), 0)
            if not depth:
                return None

    # ------------------------------------------------------------ constants
    def literal(self) -> graph.Expr:
        """A number; its type is its own, that of the comment behind it, or int32."""
        t = self.tokens
        value, dtype = self._number(t.text)
        typed = self._type_behind()
        t.take()
        if dtype is None:
            dtype = typed.dtype if typed is not None else "int32"
        return graph.Constant(np.array(value, dtype))

    def _number(self, text: str) -> tuple[int | float, str | None]:
        """The value, and its element type where it says one."""
        found = _NUMBER.match(text)
        if found is None:
            raise self.tokens.unexpected("a number")
        digits, letter, bits = found.groups()
        is_whole = digits.lstrip("-").isdecimal()
        if not letter:
            return (int(digits), None) if is_whole else (float(digits), "float32")
        dtype = f"{DTYPES[letter]}{bits or 32}"
        return (float(digits) if letter == "f" or not is_whole else int(digits)), dtype

    def _type_behind(self) -> graph.TensorType | None:
        """The type that the comment behind the next token states."""
        found = _TYPE.search(self.tokens.comments.get(self.tokens.at, ""))
        if found is None:
            return None
        return tensor_type(found[2], found[3]) if found[3] else graph.TensorType((), found[1])

    def constant(self) -> graph.Expr:
        """A constant of the metadata; one whose values are missing is named by its number."""
        t = self.tokens
        key, number = _reference(t.text)
        if key == "relay.Constant" and key not in self.metadata:
            if t.text not in self._missing:
                name = f"constant_{number}"
                self._missing[t.text] = graph.Constant(None, name, self._type_behind())
            return self._missing[t.take()]
        start = t.starts[t.at]
        found = self.referred()
        if isinstance(found, graph.Constant):
            return found
        raise t.error_at(start, f'"meta[{key}][{number}]" is no constant')

    def referred(self) -> graph.Metadata:
        """What `meta[key][number]` stands for; None where the text has no metadata."""
        t = self.tokens
        start, (key, number) = t.starts[t.at], _reference(t.text)
        t.take()
        listed = self.metadata.get(key, ())
        if not self.metadata:
            return {} if key.startswith("relay.attrs.") else None
        if number >= len(listed):
            raise t.error_at(
                start, f'"meta[{key}][{number}]" is not in the metadata, which has {len(listed)}'
            )
        return listed[number]

    # ------------------------------------------------------------ types
    def type(self) -> graph.Type:
        """A type; None for one that no tensor program needs."""
        t = self.tokens
        if t.kind == "tensor":
            dims, _, dtype = t.take()[len("Tensor[(") : -1].rpartition("),")
            return tensor_type(dims, dtype.strip())
        if t.kind == "word":
            return self._named_type()
        if t.text == "(":
            t.take()
            fields = []
            while not t.takes(")"):
                fields.append(self.type())
                self.tokens.comma(")")
            return tuple(fields)
        if t.kind == "meta" or t.text == "?":
            t.take()
            return None
        raise t.unexpected("a type")

    def _named_type(self) -> graph.Type:
        """`float32`, `fn (...) -> ...`, or a data type with its arguments."""
        t = self.tokens
        name = t.take()
        if name == "fn":
            self.type()
            t.expect("->")
            self.type()
            return None
        if t.takes("["):
            while not t.takes("]"):
                self.type()
                self.tokens.comma("]")
            return None
        try:
            np.dtype(name)
        except TypeError:
            return None
        return graph.TensorType((), name)


def tensor_type(dims: str, dtype: str) -> graph.TensorType:
    """From `1, 3, ?` and `float32`."""
    texts = [dim.strip() for dim in dims.split(",") if dim.strip()]
    sizes = [re.sub(r"i\d+$", "", text) for text in texts]
    return graph.TensorType(tuple(int(s) if s.isdecimal() else None for s in sizes), dtype)


def _reference(text: str) -> tuple[str, int]:
    key, _, number = text[len("meta[") : -1].partition("][")
    return key, int(number)
