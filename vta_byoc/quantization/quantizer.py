"""What conversions see: the quantizer that they read from and write with, and their table.

A conversion registers itself for its operators:

    @integer_op("relax.nn.relu", "relax.clip")
    def convert_clamp(q: Quantizer, binding: relax.VarBinding) -> bool: ...

`ops.table` imports every module of `ops`, so that a new one needs no line anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, Tuple

from vta_byoc.hw.errors import Refusal
from vta_byoc.hw.registry import Registry
from vta_byoc.ir.bindings import (
    SEPARATOR,
    is_float32,
    op_name,
    source_name,
    straight_bindings,
    users_of,
)
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.policy import Policy
from vta_byoc.quantization.qdq import ConstantScale
from vta_byoc.quantization.record import Record
from vta_byoc.quantization.scales import AccumulatorBound, Scale, Unscalable, quantized
from vta_byoc.quantization.value import UNKNOWN_RANGE, Ranges, Span, Value


# ---------------------------------------------------------------- the table
def asks_if_wanted(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Whether the readers of an operator that takes its data as it comes ask for int8."""
    return q.wants_int8(binding.var)


def never(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Nothing is known of what a zero point costs the operator."""
    return False


Convert = Callable[["Quantizer", relax.VarBinding], bool]
Refuses = Callable[["Quantizer", relax.VarBinding], Refusal | None]


@dataclass(frozen=True)
class IntegerOp:
    """How an operator becomes integer.

    Attributes:
        convert: gets the quantizer and the operator's binding, writes the integer form, stores
            the result's value and returns True; or it writes nothing that is read and returns
            False, or raises Unscalable, and the operator stays float.
        asks: whether the operator will read its data as int8, now that nobody asked for its
            result yet.
        copies: whether it gives its elements another place and does nothing else.
        stated: whether it is a quantize or dequantize of the model, which says a scale.
        if_read: whether it becomes integer only where an integer operator reads its result.
        zero: whether it takes a zero point of its data as the policy's `zero_points` has it.
        refuses: why such a call has no integer form, None where it has one; None: any has.
    """

    convert: Convert
    asks: Convert = asks_if_wanted
    copies: bool = False
    stated: bool = False
    if_read: bool = False
    zero: Convert = never
    refuses: Refuses | None = None


OPERATORS: Registry[IntegerOp] = Registry("integer operator")
"""Operator -> how it becomes integer; complete once `ops.table` is imported."""


GROUP_ENDS: list[Callable[[Quantizer, relax.VarBinding], relax.Var | None]] = []
"""Each tells of an operator without a conversion in which result the group ends with which it
becomes integer; None where there is no such group, or only floats read that."""


def integer_op(
    *names: str,
    asks: Convert = asks_if_wanted,
    copies: bool = False,
    stated: bool = False,
    if_read: bool = False,
    zero: Convert = never,
    refuses: Refuses | None = None,
) -> Callable[[Convert], Convert]:
    """Register the decorated conversion for the operators `names`; see `IntegerOp`."""

    def register(convert: Convert) -> Convert:
        for name in names:
            OPERATORS.add(name, IntegerOp(convert, asks, copies, stated, if_read, zero, refuses))
        return convert

    return register


NOT_REPRODUCED = "the runtime's arithmetic of this operator is not reproduced"
"""What the record says of a group that has no exact form."""


# ---------------------------------------------------------------- the quantizer
class Quantizer:
    """The float `main`, what its variables have become so far, and the writer of the result."""

    def __init__(
        self,
        mod: tvm.IRModule,
        ranges: Mapping[relax.Var, float],
        policy: Policy,
        keep_float: frozenset[relax.Var] = frozenset(),
        constants: Mapping[GenericConst, ConstantScale] | None = None,
        intervals: Mapping[relax.Var, Span] | None = None,
    ) -> None:
        """Start with nothing converted.

        Args:
            mod: the float module.
            ranges: tensor -> its largest magnitude, where it is known.
            policy: chooses the scales.
            keep_float: results of operators that stay float.
            constants: float constant -> the integers and scale that the model states for it.
            intervals: tensor -> what calibration saw of it, cut at its largest magnitude;
                `narrow` cuts it further, `seen` stays.
        """
        self.main = mod["main"]
        self.ranges = Ranges(ranges)
        self.policy = policy
        self.keep_float = keep_float
        self.constants = constants or {}
        self.seen = self.intervals = intervals or {}
        self.spans: dict[relax.Var, Span] = {}
        self.takes_zero: Callable[[relax.Var], bool] = lambda _var: False
        self.bindings = straight_bindings(self.main)
        self.places = {b.var: number for number, b in enumerate(self.bindings)}
        self._kinds = {b.var: op_name(b.value) for b in self.bindings}
        self.users = users_of(self.main)
        self.write = DialectWriter()
        self.record = Record()
        self.values: dict[relax.Var, Value] = {}
        self.absorbed: set[relax.Var] = set()
        self.masks: dict[object, relax.Var] = {}
        self._wanted: dict[relax.Var, bool] = {}
        self._readers: dict[relax.Var, frozenset[str]] = {}

    def narrow(self, active: Mapping[relax.Var, Span]) -> None:
        """From now on int8 values of these tensors need not reach beyond their active ranges."""
        self.intervals = {**self.intervals, **active}
        for var in active.keys() & self.ranges.keys():
            self.ranges[var] = min(self.ranges[var], max(abs(end) for end in active[var]))

    def entry(self, binding: relax.VarBinding) -> IntegerOp | None:
        """How the operator becomes integer; None if it has to stay float."""
        if binding.var in self.keep_float:
            return None
        found = OPERATORS.get(op_name(binding.value))
        if found is None or (found.stated and not self.policy.keeps_stated):
            return None
        return found if found.refuses is None or found.refuses(self, binding) is None else None

    def keep(self, reasons: Mapping[relax.Var, Refusal]) -> None:
        """From now on these operators stay float; the record says why."""
        self.keep_float |= reasons.keys()
        self._wanted.clear()
        self._readers.clear()
        for var, reason in reasons.items():
            self.record.note_float(source_name(var), reason)

    # ------------------------------------------------------------ reading
    def value(self, expr: relax.Expr) -> Value:
        """The value of an argument: a variable, a constant or a tuple of them."""
        if isinstance(expr, relax.Var):
            return self.values[expr]
        if isinstance(expr, Tuple):
            return Value("tuple", fields=[self.value(item) for item in expr.fields])
        amax = float(np.abs(expr.value.numpy()).max(initial=0)) if is_float32_const(expr) else None
        return Value("constant", amax, expr)

    def plain(self, expr: relax.Expr) -> relax.Expr:
        """The argument as the float module has it; dequantized where only int8 exists."""
        return self.plain_value(self.value(expr))

    def plain_value(self, value: Value) -> relax.Expr:
        """The value as the float module has it; dequantized where only int8 exists."""
        if value.fields is not None:
            return relax.Tuple([self.plain_value(item) for item in value.fields])
        ints = value.int8
        if value.plain is None and ints is not None and isinstance(ints.ty, relax.TupleType):
            items = range(len(ints.ty.fields))
            parts = [self.write.emit(relax.TupleGetItem(ints, i), value.name) for i in items]
            value.plain = relax.Tuple([self._dequantized(part, value) for part in parts])
        elif value.plain is None and value.dtype == "uint8":
            value.plain = self.write.to_uint8(value.int8, f"{value.name}{SEPARATOR}uint8")
        elif value.plain is None and value.dtype == "int8":
            value.plain = value.int8
        elif value.plain is None:
            value.plain = self._dequantized(value.int8, value)
        return value.plain

    def _dequantized(self, item: relax.Expr, value: Value) -> relax.Var:
        return self.write.dequantize(item, value.scale, f"{value.name}{SEPARATOR}float")

    def int8(self, value: Value) -> relax.Expr:
        """The value as int8, quantized at its own scale if it is not yet."""
        if value.int8 is not None:
            return value.int8
        value.scale = self.scale(value)
        if isinstance(value.plain, GenericConst):
            array = quantized(value.plain.value.numpy(), value.scale)
            value.int8 = relax.const(array.astype("int8"))
            return value.int8
        name = f"{value.name}{SEPARATOR}int8"
        value.int8 = self.write.quantize(value.plain, value.scale, name)
        self.record.note_tensor(value.int8.name, value.scale, value.amax)
        return value.int8

    def as_int8(self, value: Value) -> relax.Expr:
        """An integer of the source module, int8 or uint8, as int8."""
        if value.int8 is None:
            assert value.plain is not None
            name = f"{value.name}{SEPARATOR}int8"
            is_uint8 = str(value.plain.ty.dtype) == "uint8"
            value.int8 = self.write.from_uint8(value.plain, name) if is_uint8 else value.plain
        return value.int8

    def is_ready(self, value: Value) -> bool:
        """Whether the value, or an element of it, exists as int8 in the first place."""
        if value.fields is not None:
            return any(self.is_ready(item) for item in value.fields)
        return value.is_native

    def scale(self, value: Value) -> Scale:
        """The scale that `int8` gives the value, without writing anything.

        Raises:
            Unscalable: nobody knows how large the value gets.
        """
        if value.int8 is not None:
            return value.scale
        if value.amax is None:
            raise Unscalable(value.name, UNKNOWN_RANGE)
        return self.policy.scale(value.amax, value.name, value.span)

    def chosen_scale(self, var: relax.Var) -> Scale:
        """The scale that the policy chooses for a tensor of the float module.

        Raises:
            Unscalable: its range is not known, or out of reach.
        """
        return self.policy.scale(self.ranges[var], source_name(var), self.spans.get(var))

    def produced(self, value: relax.Expr) -> relax.Call | None:
        """The call of the float module that `value` is the result of; None for anything else."""
        place = self.places.get(value) if isinstance(value, relax.Var) else None
        made = None if place is None else self.bindings[place].value
        return made if isinstance(made, Call) else None

    def only_user(self, var: relax.Var) -> relax.VarBinding | None:
        """The one binding that reads `var`, if nothing else does and it may be integer."""
        users = self.users.get(var, [])
        user = users[0] if len(users) == 1 else None
        return None if user is None or user.var in self.keep_float else user

    def wants_int8(self, var: relax.Var) -> bool:
        """Whether an integer operator will read `var`, directly or through data movement."""
        if var not in self._wanted:
            self._wanted[var] = any(
                user is not None and self._asks_for_int8(user) for user in self.users.get(var, [])
            )
        return self._wanted[var]

    def _asks_for_int8(self, user: relax.VarBinding) -> bool:
        """Whether `user` will read its data as int8, now that nobody asked for its result yet."""
        if not isinstance(user.value, Call):
            return self.wants_int8(user.var)
        if op_name(user.value) in OPERATORS:
            entry = self.entry(user)
            return entry is not None and entry.asks(self, user)
        end = self._group_end(user)
        return end is not None and self.wants_int8(end)

    def _group_end(self, user: relax.VarBinding) -> relax.Var | None:
        """The result of the group with which an operator without a conversion becomes integer."""
        return next((end for of in GROUP_ENDS if (end := of(self, user)) is not None), None)

    def readers(self, var: relax.Var) -> frozenset[str]:
        """What reads `var`, directly or through copies: "result", "float", "integer"."""
        if var not in self._readers:
            kinds: set[str] = set()
            for user in self.users.get(var, []):
                kinds |= {"result"} if user is None else self._kinds_of_reader(user)
            self._readers[var] = frozenset(kinds)
        return self._readers[var]

    def _kinds_of_reader(self, user: relax.VarBinding) -> frozenset[str]:
        """What `user` is, "float" or "integer".

        Copies, and whatever is no operator, are of the kinds of their own readers.
        """
        known = OPERATORS.get(op_name(user.value))
        if not isinstance(user.value, Call) or (known is not None and known.copies):
            return self.readers(user.var)
        if known is not None and known.if_read and self.leaves_as_float(user.var):
            return frozenset({"float"})
        if known is None:
            return frozenset({"float" if self._group_end(user) is None else "integer"})
        return frozenset({"float" if self.entry(user) is None else "integer"})

    def stays_float(self, binding: relax.VarBinding) -> bool:
        """Whether an operator that computes has no integer form where it stands."""
        return self._kinds_of_reader(binding) == {"float"}

    def leaves_as_float(self, var: relax.Var) -> bool:
        """Whether only float operators and the results of the model read `var`."""
        return "integer" not in self.readers(var)

    def feeds_floats(self, var: relax.Var) -> bool:
        """Whether only float operators read `var`."""
        return self.readers(var) == {"float"}

    # ------------------------------------------------------------ writing
    def set_int8(
        self, var: relax.Var, out: relax.Var, scale: Scale, amax: float | None = None
    ) -> None:
        """`out` is what `var` has become: int8 at `scale`."""
        amax = self.ranges.get(var, amax)
        if isinstance(out.ty, relax.TensorType):
            self.record.note_tensor(out.name, scale, amax)
        dtype = str(var.ty.dtype) if isinstance(var.ty, relax.TensorType) else "float32"
        self.values[var] = Value(
            source_name(var), amax, int8=out, scale=scale, is_native=True, dtype=dtype
        )

    def close_group(
        self,
        first: relax.Var,
        absorbed: tuple[relax.Var, ...],
        out: relax.Var,
        scale: Scale,
        accumulator: AccumulatorBound,
        last: relax.Var | None = None,
    ) -> None:
        """`out`, int8, is the group that `first` begins and that holds `absorbed`.

        It is what `last` has become, the last of them where None is given.
        """
        end = (first, *absorbed)[-1] if last is None else last
        self._note_group(first, absorbed, out, accumulator, end)
        self.set_int8(end, out, scale)

    def close_float_group(
        self,
        first: relax.Var,
        absorbed: tuple[relax.Var, ...],
        out: relax.Var,
        accumulator: AccumulatorBound,
    ) -> None:
        """The same for a group that ends in float32."""
        last = (first, *absorbed)[-1]
        self._note_group(first, absorbed, out, accumulator, last)
        amax, span = self.ranges.get(last), self.spans.get(last)
        self.values[last] = Value(source_name(first), amax, out, span=span)

    def _note_group(
        self,
        first: relax.Var,
        absorbed: tuple[relax.Var, ...],
        out: relax.Var,
        accumulator: AccumulatorBound,
        last: relax.Var,
    ) -> None:
        self.absorbed.update(absorbed)
        proof = {"bound": accumulator.bound, "shift": accumulator.shift}
        self.record.accumulators[out.name] = proof
        names = dict.fromkeys(source_name(var) for var in (first, *absorbed))
        self.record.sources[out.name] = list(names)
        self.record.results[out.name] = str(last.name)
        if self.policy.arithmetic is not None:
            self.record.exact.setdefault(out.name, NOT_REPRODUCED)
        for var in absorbed:
            if source_name(var) != source_name(first):
                self.record.absorbed[source_name(var)] = [source_name(out), self._kinds[var]]


def is_float32_const(expr: relax.Expr) -> bool:
    """Whether `expr` is a constant of float32."""
    return isinstance(expr, GenericConst) and is_float32(expr)
