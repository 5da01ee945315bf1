"""Relay as a graph of values, whatever file it was read from.

A `let` is gone: what it bounds is the value itself.  Expressions are shared, so that a graph
variable `%3` that is read twice is one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from vta_byoc.base.json_types import Json


@dataclass(frozen=True)
class TensorType:
    """A shape, None for a dimension that is not known, and an element type."""

    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"Tensor[({dims}), {self.dtype}]" if self.shape else self.dtype


Type: TypeAlias = "TensorType | tuple[Type, ...] | None"
"""Of a value: a tensor, a tuple, or something that no tensor program needs (None)."""
Value: TypeAlias = "Json | np.ndarray | Sequence[Value]"
"""Of an attribute."""
Metadata: TypeAlias = "Value | Expr"
"""What a text refers to: the value of an attribute, or a constant."""


@dataclass(eq=False)
class Param:
    """A parameter of a function, or a free variable."""

    name: str
    type: Type = None


@dataclass(eq=False)
class Constant:
    """A tensor of known values; of unknown ones where the metadata is missing: `array` is None."""

    array: np.ndarray | None
    name: str = ""
    type: Type = None


@dataclass(eq=False)
class Call:
    """An operator, by name, or a function on arguments.

    Attributes:
        attrs: what the file states; defaults are the operator's (`operators.entry`).
        name: of the operator in the model that was imported to Relay, "" where nobody kept it.
        start, end: its position in the text, and the tokens before its end; -1 without a text.
    """

    op: str | Function | GlobalName
    args: list[Expr]
    attrs: Mapping[str, Value] = field(default_factory=dict)
    name: str = ""
    start: int = -1
    end: int = -1


@dataclass(eq=False)
class Tuple:
    """Several values as one."""

    fields: list[Expr]


@dataclass(eq=False)
class Projection:
    """One field of a tuple."""

    value: Expr
    index: int


@dataclass(eq=False)
class Function:
    """A function: a closure that fusion made, or one of the module."""

    params: list[Param]
    body: Expr
    attrs: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class GlobalName:
    """A function of the module, by its name."""

    name: str


Expr: TypeAlias = Param | Constant | Call | Tuple | Projection | Function | GlobalName


@dataclass
class Module:
    """All functions of a file, in their order; `place` says where in a text a position is."""

    functions: dict[str, Function]
    version: str = ""
    place: Callable[[int], str] = field(default=lambda start: "")


def parts(expr: Expr) -> Sequence[Expr]:
    """What must be known before `expr` is; the body of a function is its own matter."""
    if isinstance(expr, Call):
        return expr.args
    if isinstance(expr, Tuple):
        return expr.fields
    return (expr.value,) if isinstance(expr, Projection) else ()


def in_order(*bodies: Expr) -> Iterator[Expr]:
    """Every expression of bodies once, arguments first; no recursion, as chains are long."""
    done: set[int] = set()
    stack = [(body, False) for body in reversed(bodies)]
    while stack:
        expr, expanded = stack.pop()
        if id(expr) in done:
            continue
        if expanded:
            done.add(id(expr))
            yield expr
        else:
            stack.append((expr, True))
            stack.extend((part, False) for part in reversed(parts(expr)) if id(part) not in done)


def as_written(body: Expr) -> Iterator[Expr]:
    """The same in the order of the text."""
    calls = [expr for expr in in_order(body) if isinstance(expr, Call)]
    yield from in_order(*sorted(calls, key=lambda call: call.end), body)


def calls_within(function: Function, module: Module) -> Iterator[Call]:
    """The calls of a function and of the functions that it calls, each function once."""
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        for expr in in_order(current.body):
            if not isinstance(expr, Call):
                continue
            yield expr
            if isinstance(expr.op, Function):
                waiting.append(expr.op)
            elif isinstance(expr.op, GlobalName) and expr.op.name in module.functions:
                waiting.append(module.functions[expr.op.name])
