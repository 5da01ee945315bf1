"""The grammar of Relay text, versions 0.0.4 and 0.0.5, by recursive descent.

Statements are read in a loop, as a text has as many as the network has operators; only what is
nested in brackets recurses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.relay import graph
from vta_byoc.importers.relay.tokens import END, Tokens
from vta_byoc.importers.relay.values import ValueReader

VERSIONS = ("0.0.4", "0.0.5")
_VERSION = re.compile(r'\s*(?:#\[version\s*=\s*"([^"\n]*)"\]|v(\d+\.\d+\.\d+)(?=\s))')
_METADATA = re.compile(r"^(?:#\[metadata\]|# meta data)\s*$", re.MULTILINE)
_HINT = re.compile(r"^# meta data omitted[^\n]*$", re.MULTILINE)
_SPAN = re.compile(r"span=(\S+?)(?::\d+:\d+)?\s*(?:\*/|$)")
_NO_NAMES = ("from_string", "GeneratedSource")
"""Source names that TVM's own parser gives every expression."""
REFUSED = {
    "if": "control flow",
    "match": "a match on a data type",
    "ref": "a reference",
    "ref_read": "a reference",
    "ref_write": "a reference",
    "type": "a data type",
    "extern": "a data type",
}
INFIX = {
    **{"*": ("multiply", 3), "/": ("divide", 3), "+": ("add", 2), "-": ("subtract", 2)},
    **{"<": ("less", 1), ">": ("greater", 1), "<=": ("less_equal", 1)},
    **{">=": ("greater_equal", 1), "==": ("equal", 1), "!=": ("not_equal", 1)},
}
"""Sign between two operands -> the operator, and how strongly it binds."""
Metadata = Callable[[str], Mapping[str, Sequence[graph.Metadata]]]
"""The JSON behind a text -> what stands in it, by type key."""


def parse(text: str, what: str, metadata: Metadata) -> graph.Module:
    """The module that a text holds.

    Args:
        text: with its metadata, if it has any.
        what: the text as errors call it: `model file "x.relay"`.
        metadata: reads the section behind the functions, if there is one.

    Raises:
        VTAError: line, column, what stands there and what was expected.
    """
    body, section = _sections(text)
    version = _VERSION.match(body)
    number = "" if version is None else version[1] or version[2]
    if number and number not in VERSIONS:
        raise VTAError(
            f"{what} is Relay text of version {number}; {' and '.join(VERSIONS)} are read; save "
            "it again with TVM 0.6 to 0.14"
        )
    if version is not None:
        body = " " * version.end() + body[version.end() :]
    known = metadata(section) if section else {}
    return _Parser(Tokens(body, what), known).module(number)


def _sections(text: str) -> tuple[str, str]:
    """The functions, and the JSON behind them ("" where there is none)."""
    found = _METADATA.search(text)
    body = text if found is None else text[: found.start()]
    body = _HINT.sub(lambda match: " " * len(match[0]), body)
    section = "" if found is None else text[found.end() :].strip()
    if section.startswith('r"""'):  # version 0.0.4
        section = section[4:].removesuffix('"""')
    return body, section.strip()


class _Parser:
    """Reads functions from tokens. `scopes` are the names that are known, the innermost last."""

    def __init__(self, tokens: Tokens, metadata: Mapping[str, Sequence[graph.Metadata]]) -> None:
        self.tokens = tokens
        self.values = ValueReader(tokens, metadata)
        self.scopes: list[dict[str, graph.Expr]] = [{}]
        self.free: list[graph.Param] = []

    # ------------------------------------------------------------ functions
    def module(self, version: str) -> graph.Module:
        """All functions; a single `fn` or expression is `main`."""
        t, functions = self.tokens, {}
        while t.text == "def":
            t.take()
            name = t.expect_kind("global", "the name of a function, @main,")[1:]
            if name in functions:
                raise t.error_at(t.starts[t.at - 1], f'a second function "@{name}"')
            functions[name] = self._function()
        if not functions:
            value = self._block(END)
            if not isinstance(value, graph.Function):
                value = graph.Function(self.free, value)
            functions["main"] = value
        if t.kind != END:
            raise t.unexpected('"def" or the end')
        return graph.Module(functions, version, t.place)

    def _function(self) -> graph.Function:
        t = self.tokens
        if t.takes("["):  # type parameters
            while t.take() != "]":
                self.tokens.expect_more('"]"')
        self.scopes.append({})
        t.expect("(")
        params: list[graph.Param] = []
        attrs: dict[str, graph.Value] = {}
        while not t.takes(")"):
            if t.kind == "key":
                attrs.update([self.values.attribute()])
            else:
                params.append(self._param())
            self.tokens.comma(")")
        if t.takes("->"):
            self.values.type()
        t.expect("{")
        body = self._block("}")
        t.expect("}")
        self.scopes.pop()
        return graph.Function(params, body, attrs)

    def _param(self) -> graph.Param:
        t = self.tokens
        name = t.expect_kind("local", 'a parameter "%name"')[1:]
        if t.text == "{":  # where the value lives
            self.values.braces()
        param = graph.Param(name, self.values.type() if t.takes(":") else None)
        self.scopes[-1][name] = param
        return param

    # ------------------------------------------------------------ statements
    def _block(self, end: str) -> graph.Expr:
        """Statements up to the value that they end with; names live in a scope of their own."""
        t = self.tokens
        self.scopes.append({})
        value: graph.Expr | None = None
        while t.text != end and not (end == END and t.kind == END):
            if t.kind == "graph" and t.texts[t.at + 1] == "=":
                name = t.take()
                t.take()
                self.scopes[-1][name] = self._expression()
                t.expect(";")
                while t.takes(";"):  # old versions end a line with two
                    pass
            elif t.text == "let":
                self._let()
            elif t.text == "free_var":
                t.take()
                self.free.append(self._param())
                self.scopes[0][self.free[-1].name] = self.free[-1]
                t.expect(";")
            else:
                value = self._expression()
                if not t.takes(";"):
                    break
        if value is None:
            raise t.unexpected("an expression")
        self.scopes.pop()
        return value

    def _let(self) -> None:
        t = self.tokens
        t.take()
        name = t.take()
        if not name.startswith("%"):
            t.at -= 1
            raise t.unexpected('a variable "%name"')
        if t.takes(":"):
            self.values.type()
        t.expect("=")
        value = self._expression()
        t.expect(";")
        self.scopes[-1][name[1:]] = value

    # ------------------------------------------------------------ expressions
    def _expression(self, binding: int = 0) -> graph.Expr:
        t = self.tokens
        left = self._postfix()
        while t.kind == "sign" and t.text in INFIX and INFIX[t.text][1] > binding:
            start = t.starts[t.at]
            op, strength = INFIX[t.take()]
            right = self._expression(strength)
            left = graph.Call(op, [left, right], start=start, end=t.at)
        return left

    def _postfix(self) -> graph.Expr:
        """A value, its fields and its calls."""
        t = self.tokens
        value = self._atom()
        while t.kind == "sign":
            if t.text == "(":
                value = self._call(value)
            elif t.text[0] == "." and len(t.text) > 1:
                value = graph.Projection(value, int(t.take()[1:]))
            else:
                break
        return value

    def _atom(self) -> graph.Expr:
        t = self.tokens
        kind = t.kinds[t.at]
        read = _ATOMS.get(kind)
        if read is not None:
            return read(self)
        if t.text == "(":
            return self._tuple()
        if t.text == "{":
            t.take()
            value = self._block("}")
            t.expect("}")
            return value
        raise t.unexpected("an expression")

    def _graph_variable(self) -> graph.Expr:
        t = self.tokens
        name = t.take()
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise self._unknown(name)

    def _local(self) -> graph.Expr:
        """A parameter or a let; `%x.0` is a field where no variable is called so."""
        t = self.tokens
        name = t.take()[1:]
        value = self._found(name)
        stem, _, index = name.rpartition(".")
        if value is None and index.isdecimal():
            value = self._found(stem)
            value = None if value is None else graph.Projection(value, int(index))
        if value is None:
            raise self._unknown(f"%{name}")
        return value

    def _found(self, name: str) -> graph.Expr | None:
        return next((s[name] for s in reversed(self.scopes) if name in s), None)

    def _unknown(self, name: str) -> VTAError:
        t = self.tokens
        return t.error_at(t.starts[t.at - 1], f'"{name}" is used before it is defined')

    def _word(self) -> graph.Expr:
        """An operator that is called, a function, or a truth."""
        t = self.tokens
        start, name = t.starts[t.at], t.take()
        if name == "fn":
            return self._function()
        if t.text == "(" and name not in REFUSED:
            return self._called(name, start)
        if name in ("True", "False"):
            return graph.Constant(np.array(name == "True"))
        if name in REFUSED:
            raise t.error_at(
                start,
                f'"{name}" is {REFUSED[name]}; networks without control flow and data types are '
                "taken",
            )
        raise t.unexpected(f'"(" behind the operator "{name}"')

    def _global(self) -> graph.Expr:
        return graph.GlobalName(self.tokens.take()[1:])

    def _tuple(self) -> graph.Expr:
        """`(x, y)`, `(x,)`, `()`; `(x)` is x."""
        t = self.tokens
        t.take()
        fields: list[graph.Expr] = []
        comma = False
        while not t.takes(")"):
            fields.append(self._block(")") if t.kind in ("graph", "word") else self._expression())
            comma = t.text == ","
            self.tokens.comma(")")
        return fields[0] if len(fields) == 1 and not comma else graph.Tuple(fields)

    # ------------------------------------------------------------ calls
    def _call(self, callee: graph.Expr) -> graph.Expr:
        if not isinstance(callee, graph.Function | graph.GlobalName):
            t = self.tokens
            raise t.error_at(t.starts[t.at], "what is called here is no function")
        return self._called(callee, self.tokens.starts[self.tokens.at])

    def _called(self, op: str | graph.Function | graph.GlobalName, start: int) -> graph.Expr:
        t = self.tokens
        t.take()
        args: list[graph.Expr] = []
        attrs: dict[str, graph.Value] = {}
        while not t.takes(")"):
            if t.kind == "key":
                attrs.update([self.values.attribute()])
            elif t.kind == "meta" and t.text.startswith("meta[relay.attrs."):
                found = self.values.referred()
                attrs.update(found if isinstance(found, dict) else {})
            else:
                args.append(self._expression())
            self.tokens.comma(")")
        name = self._span(t.comments.get(t.at - 1, ""))
        return graph.Call(op, args, attrs, name, start, t.at)

    @staticmethod
    def _span(comment: str) -> str:
        """The source name that a comment holds."""
        if not comment:
            return ""
        if "ty=" in comment or "span=" in comment:
            found = _SPAN.search(comment)
            name = "" if found is None else found[1]
        else:
            name = comment[2:-2].strip()
        return "" if name in _NO_NAMES or " " in name else name


_ATOMS: dict[str, Callable[[_Parser], graph.Expr]] = {
    "graph": _Parser._graph_variable,
    "local": _Parser._local,
    "word": _Parser._word,
    "meta": lambda parser: parser.values.constant(),
    "number": lambda parser: parser.values.literal(),
    "global": _Parser._global,
}
