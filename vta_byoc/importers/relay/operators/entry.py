"""What an operator of Relay is to the reader, and what its function sees of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.quantized_tensor import Quantization
from vta_byoc.importers.relay.graph import Value
from vta_byoc.ir.bindings import SEPARATOR, FunctionWriter, is_constant, static_shape


@dataclass(frozen=True)
class Scaled:
    """Integers that stand for floats, and are never made: sums of QNN on their way to 8 bits.

    Attributes:
        floats: what they stand for.
        quantization: `floats = scale * (integers - zero)`.
    """

    floats: relax.Expr
    quantization: Quantization


@dataclass(frozen=True)
class Quantized:
    """Integers of 8 bits that a call makes, and what they stand for."""

    integers: relax.Expr
    quantization: Quantization


Result: TypeAlias = "relax.Expr | Scaled | Quantized | tuple[Result, ...]"
"""A tensor, integers with their scale, or the fields of a tuple."""


@dataclass(frozen=True)
class Ref:
    """The default of an attribute that is a node of its own in the JSON graph."""

    value: Value = None


Attributes: TypeAlias = "Mapping[str, Value | Ref]"
"""Of an operator, with their defaults."""


@dataclass(frozen=True)
class Operator:
    """How an operator becomes Relax.

    Attributes:
        convert: writes it.
        least, most: how many operands it has.
        attrs: attribute -> default; the text states only what differs from it.
    """

    convert: Callable[[Site], Result]
    least: int
    most: int
    attrs: Attributes = field(default_factory=dict)

    def default(self, name: str) -> Value:
        """Of an attribute."""
        value = self.attrs[name]
        return value.value if isinstance(value, Ref) else value


IGNORED = frozenset(
    ("auto_scheduler_rewritten_layout", "meta_schedule_original_shape", "out_layout", "span")
)
"""Attributes that say how TVM computes an operator, not what."""


class Site:
    """One call of an operator, while it is written.

    Attributes:
        op: the operator's name in Relay.
        name: of the call; its last variable is called so.
        args: the operands in Relax.
        known: integers of 8 bits -> what they stand for.
        where: gives the place in the file, for errors; it begins with a comma.
    """

    def __init__(
        self,
        op: str,
        name: str,
        args: Sequence[Result],
        attrs: Mapping[str, Value],
        entry: Operator,
        writer: FunctionWriter,
        known: Mapping[relax.Expr, Quantization],
        where: Callable[[], str],
    ) -> None:
        self.known = known
        self.op = op
        self.name = name
        self.args = args
        self.where = where
        self.entry = entry
        self.writer = writer
        self._attrs = attrs
        if not entry.least <= len(args) <= entry.most:
            listed = sorted({entry.least, entry.most})
            raise self.error(
                f"has {len(args)} operands; {' to '.join(map(str, listed))} are taken; save the "
                "module with TVM 0.6 to 0.14"
            )
        for attribute in attrs:
            if attribute not in entry.attrs and attribute not in IGNORED:
                taken = ", ".join(entry.attrs) or "none"
                raise self.error(
                    f'has the attribute "{attribute}", which the versions that are read do not '
                    f"have; known are {taken}; save the module with TVM 0.6 to 0.14"
                )

    # ------------------------------------------------------------ operands
    def tensor(self, position: int) -> relax.Expr:
        """An operand that is a tensor."""
        arg = self.args[position]
        if isinstance(arg, tuple):
            raise self.error(f"has a tuple as operand {position}; a tensor is taken")
        if isinstance(arg, Scaled):
            raise self.error(
                f"reads the {arg.quantization.dtype} sums of a QNN operator; requantize and "
                "dequantize do, and what rescales to 8 bits; put qnn.requantize before it"
            )
        return arg.integers if isinstance(arg, Quantized) else arg

    def tensors(self, position: int) -> list[relax.Expr]:
        """The fields of an operand that is a tuple of tensors."""
        arg = self.args[position]
        fields = arg if isinstance(arg, tuple) else (arg,)
        if any(isinstance(item, tuple | Scaled) for item in fields):
            raise self.error("has a tuple or sums of QNN in a tuple; tensors are taken")
        return list(fields)

    def array(self, position: int) -> np.ndarray:
        """The value of an operand that must be constant."""
        value = self.tensor(position)
        if not is_constant(value):
            raise self.error(
                f"computes its operand {position} while the model runs; shapes, scales and zero "
                "points must be constants; bind the parameters (--params) or fold constants first"
            )
        return np.asarray(value.value.numpy())

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """The shape of an operand."""
        return static_shape(self.tensor(position))

    def dtype(self, position: int = 0) -> str:
        """The element type of an operand."""
        return str(self.tensor(position).ty.dtype)

    def axis(self, value: int, rank: int) -> int:
        """An axis, counted from the start."""
        if not -rank <= value < max(rank, 1):
            raise self.error(f"has the axis {value} for {rank} axes; correct the module")
        return value % max(rank, 1)

    def on(self, args: Sequence[Result]) -> Site:
        """The same call on other operands, in floats."""
        attrs = {name: value for name, value in self._attrs.items() if name != "out_dtype"}
        entry = Operator(self.entry.convert, 0, len(args), self.entry.attrs)
        return Site(self.op, self.name, args, attrs, entry, self.writer, self.known, self.where)

    # ------------------------------------------------------------ attributes
    def states(self, name: str) -> bool:
        """Whether the file states the attribute."""
        return self._attrs.get(name) is not None

    def value(self, name: str) -> Value:
        """An attribute, or its default."""
        value = self._attrs.get(name)
        return self.entry.default(name) if value is None else value

    def _wrong(self, name: str, wanted: str) -> VTAError:
        return self.error(
            f"has {name} = {self.value(name)}; {wanted} is taken; save the module with TVM 0.6 to "
            "0.14"
        )

    def integer(self, name: str) -> int:
        """An attribute that is a whole number, or the one of a list of one."""
        value = self.value(name)
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        if not isinstance(value, int | float) or value != int(value):
            raise self._wrong(name, "a whole number")
        return int(value)

    def number(self, name: str) -> float:
        """An attribute that is a number."""
        value = self.value(name)
        if not isinstance(value, int | float):
            raise self._wrong(name, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        """An attribute that is true or false; JSON has numbers for them."""
        value = self.value(name)
        if not isinstance(value, int):
            raise self._wrong(name, "True or False")
        return bool(value)

    def text(self, name: str) -> str:
        """An attribute that is text; "" where it is nothing."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value or ""

    def optional_integers(self, name: str) -> list[int] | None:
        """An attribute that is whole numbers, one or several; None where it is nothing."""
        value = self.value(name)
        if value is None:
            return None
        values = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(item, int) for item in values):
            raise self._wrong(name, "whole numbers of known size")
        return [int(cast("int", item)) for item in values]

    def integers(self, name: str, count: int | None = None) -> list[int]:
        """The same where it must be something; a single number stands for `count` of it."""
        values = self.optional_integers(name)
        if values is None:
            raise self._wrong(name, "a list of whole numbers")
        if count is not None and len(values) == 1:
            values = values * count
        if count is not None and len(values) != count:
            raise self._wrong(name, f"a list of {count}")
        return values

    def padding(self, axes: int) -> list[int]:
        """`padding` of a window: what comes before each axis, then what comes behind."""
        values = self.integers("padding")
        if len(values) == 1:
            values = values * axes
        if len(values) == axes:
            values = values * 2
        if len(values) != 2 * axes:
            raise self._wrong("padding", f"a list of 1, {axes} or {2 * axes}")
        return values

    # ------------------------------------------------------------ writing
    def emit(self, expr: relax.Expr, part: str) -> relax.Var:
        """Bind one operator on the way to `<name>__<part>`."""
        return self.writer.emit(expr, f"{self.name}{SEPARATOR}{part}")

    def error(self, text: str) -> VTAError:
        """An error that names the call and goes on with `text`."""
        return VTAError(f'operator "{self.name}" ({self.op}{self.where()}) {text}')


def scalar(value: float, dtype: str) -> relax.Expr:
    """A constant of no axes."""
    return relax.const(np.array(value, dtype), dtype)
