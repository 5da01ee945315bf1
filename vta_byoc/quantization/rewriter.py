"""The walk that turns float Relax into the integer dialect, operator by operator.

For every operator a table of handlers (`ops.table` for power-of-two scales, `ops.multiplier_table`
for any) writes the integer form. An operator without one, or one whose handler declines, becomes a
float island: its inputs are dequantized, and its result is quantized only if an integer operator
reads it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, Tuple, TupleGetItem

from vta_byoc.base.boundary import at
from vta_byoc.base.int8_digits import MOST_OF_TWO
from vta_byoc.ir.bindings import (
    SEPARATOR,
    is_float32,
    op_name,
    sanitized,
    source_name,
    straight_bindings,
    users_of,
)
from vta_byoc.ir.quantization_record import FactorEntry, TensorEntry
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.ops.base import IntegerOp
from vta_byoc.quantization.ops.movement import COPIES
from vta_byoc.quantization.qdq import ConstantScale
from vta_byoc.quantization.requantize import FACTOR_BITS
from vta_byoc.quantization.scales import (
    INT8_HIGH,
    Accumulator,
    Scale,
    Unscalable,
    quantized,
    scale_exponent,
)

Write = Callable[[DialectWriter, relax.Expr], relax.Var]
"""Writes a layer on its data."""


@dataclass(frozen=True)
class Arithmetic:
    """How scales are chosen and operators written.

    Attributes:
        operators: operator -> its entry.
        power_of_two: whether every scale is one.
        per_channel: whether every output channel of a layer has a weight scale of its own.
        multiplies: whether the machine's ALU does.
        rescale: how layers get their factor, one of `quantization_record.FORMS`; None: multiplied
        where
            the machine can, else the cheapest form that is exact enough.
        estimate: cycles of a layer that a function writes on int8 data of a shape; None where the
            machine does not take it.
    """

    operators: Mapping[str, IntegerOp]
    power_of_two: bool
    per_channel: bool = False
    multiplies: bool = True
    rescale: str | None = None
    estimate: Callable[[Write, tuple[int, ...]], float | None] = lambda write, shape: None

    @property
    def most_factor(self) -> int:
        """The largest factor of int8 operands and of their sums: the GEMM core's are two digits."""
        return (1 << FACTOR_BITS) - 1 if self.multiplies else MOST_OF_TWO

    def scale(self, amax: float, name: str) -> Scale:
        """The scale at which int8 reaches `amax`."""
        exponent = scale_exponent(amax, name)
        if self.power_of_two or amax == 0 or amax < INT8_HIGH * 2.0**exponent / 2:
            return Scale.power(exponent)
        return Scale(float(np.float32(amax / INT8_HIGH)))


UNIT = Scale(1.0)
"""The scale of a value that has none yet."""


UNKNOWN_RANGE = (
    "the model states no scale for a tensor of it and there are no samples; give calibration= (or "
    "--calibration)"
)


class Ranges(dict[relax.Var, float]):
    """Largest magnitudes; who asks for one that is not known gives up being integer."""

    def __missing__(self, var: relax.Var) -> float:
        raise Unscalable(var.name, UNKNOWN_RANGE)


@dataclass
class Value:
    """What a variable of the float module has become.

    Attributes:
        name: source name, for what is derived from the value.
        amax: largest magnitude seen in calibration (None: not a float32 tensor).
        plain: the value as the float module has it (float32, or another dtype unchanged).
        int8: the value as int8 at `scale`; for a tuple, a tuple of int8.
        is_native: an integer operator made it; `plain`, if any, is derived from `int8`.
        fields: the elements, if the value is a tuple that was built from values.
        is_input: it is an input of the model, so that quantizing it is the normal case.
        dtype: of the variable in the source module: "int8" or "uint8" behind its own quantize.
    """

    name: str
    amax: float | None = None
    plain: relax.Expr | None = None
    int8: relax.Expr | None = None
    scale: Scale = UNIT
    is_native: bool = False
    fields: list[Value] | None = None
    is_input: bool = False
    dtype: str = "float32"


@dataclass
class Record:
    """What reports need to know, and the proofs; in the order of execution.

    Attributes:
        tensors: int8 variable, or `<layer>__weight` -> its scale and largest float magnitude.
        accumulators: layer -> proven bound of its int32 values, and its shift.
        sources: layer -> source names of the operators that its group holds.
        islands: source name -> the Refusal of an operator that could not become integer; left out
            if empty.
        factors: layer -> form of its factor without a multiplier, and its largest error in steps
            of the result; left out if empty.
        absorbed: source name -> the layer whose group computes it, and its kind; left out if empty.
    """

    tensors: dict[str, TensorEntry] = field(default_factory=dict)
    accumulators: dict[str, dict[str, int]] = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)
    islands: dict[str, dict[str, str]] = field(default_factory=dict)
    factors: dict[str, FactorEntry] = field(default_factory=dict)
    absorbed: dict[str, list[str]] = field(default_factory=dict)

    def to_json(self) -> str:
        optional = ("islands", "factors", "absorbed")
        return json.dumps({k: v for k, v in self.__dict__.items() if v or k not in optional})


class Quantizer:
    """The walk over `main`: what handlers read, and how they write."""

    def __init__(
        self,
        mod: tvm.IRModule,
        ranges: Mapping[relax.Var, float],
        arithmetic: Arithmetic,
        keep_float: frozenset[relax.Var] = frozenset(),
        constants: Mapping[GenericConst, ConstantScale] | None = None,
    ) -> None:
        self.main = mod["main"]
        self.ranges = Ranges(ranges)
        self.arithmetic = arithmetic
        self.keep_float = keep_float
        self.constants = constants or {}
        self.bindings = straight_bindings(self.main)
        self._kinds = {b.var: op_name(b.value) for b in self.bindings}
        self.users = users_of(self.main)
        self.write = DialectWriter()
        self.record = Record()
        self.values: dict[relax.Var, Value] = {}
        self.absorbed: set[relax.Var] = set()
        self._wanted: dict[relax.Var, bool] = {}
        self._readers: dict[relax.Var, frozenset[str]] = {}

    def run(self) -> relax.Function:
        for param in self.main.params:
            self.write.names.fresh(param.name)
            self.values[param] = Value(
                sanitized(param.name), self.ranges.get(param), param, is_input=True
            )
        for binding in self.bindings:
            if binding.var not in self.absorbed:
                at(f'operator "{source_name(binding.var)}"')
                self._convert(binding)
        at("")
        return self.write.finish(self.main, self.plain(self.main.body.body))

    def _convert(self, binding: relax.VarBinding) -> None:
        var, expr = binding.var, binding.value
        if isinstance(expr, relax.Var | Tuple | GenericConst):
            self.values[var] = self.value(expr)
        elif isinstance(expr, TupleGetItem):
            self._take_element(var, expr)
        elif not self._became_integer(binding):
            self._set_plain(var, self._with_plain_args(expr))

    def _became_integer(self, binding: relax.VarBinding) -> bool:
        entry = self.entry(binding)
        try:
            return entry is not None and entry.convert(self, binding)
        except Unscalable as error:
            self.record.islands[source_name(binding.var)] = dataclasses.asdict(error.refusal)
            return False

    def entry(self, binding: relax.VarBinding) -> IntegerOp | None:
        """How the operator becomes integer; None if it has to stay float."""
        if binding.var in self.keep_float:
            return None
        return self.arithmetic.operators.get(op_name(binding.value))

    def _take_element(self, var: relax.Var, expr: TupleGetItem) -> None:
        whole = self.value(expr.tuple_value)
        if whole.fields is not None:
            self.values[var] = whole.fields[expr.index]
        elif whole.int8 is not None:
            out = self.write.emit(relax.TupleGetItem(whole.int8, expr.index), var.name)
            self.set_int8(var, out, whole.scale)
        else:
            self._set_plain(var, relax.TupleGetItem(whole.plain, expr.index))

    def _set_plain(self, var: relax.Var, expr: relax.Expr) -> None:
        out = self.write.emit(expr, var.name)
        self.values[var] = Value(source_name(var), self.ranges.get(var), out)

    def _with_plain_args(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Call):
            return expr
        args = [self.plain(arg) for arg in expr.args]
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)

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
        return self._plain_value(self.value(expr))

    def _plain_value(self, value: Value) -> relax.Expr:
        if value.fields is not None:
            return relax.Tuple([self._plain_value(item) for item in value.fields])
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
        self.note_tensor(value.int8.name, value.scale, value.amax)
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
        return self.arithmetic.scale(value.amax, value.name)

    def target(self, var: relax.Var) -> Scale:
        """The scale of a result, by its range. Raises Unscalable where that is not known."""
        return self.arithmetic.scale(self.ranges[var], source_name(var))

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
        entry = self.entry(user)
        return entry is not None and entry.asks(self, user)

    def readers(self, var: relax.Var) -> frozenset[str]:
        """What reads `var`, directly or through copies: "result", "float", "integer"."""
        if var not in self._readers:
            kinds: set[str] = set()
            for user in self.users.get(var, []):
                kinds |= {"result"} if user is None else self._kinds_of_reader(user)
            self._readers[var] = frozenset(kinds)
        return self._readers[var]

    def _kinds_of_reader(self, user: relax.VarBinding) -> frozenset[str]:
        """What `user` is, "float" or "integer"; for copies, and whatever is no operator, the
        kinds of their own readers."""
        if op_name(user.value) in COPIES or not isinstance(user.value, Call):
            return self.readers(user.var)
        return frozenset({"float" if self.entry(user) is None else "integer"})

    def leaves_as_float(self, var: relax.Var) -> bool:
        """Whether only float operators and the results of the model read `var`."""
        return "integer" not in self.readers(var)

    def feeds_islands(self, var: relax.Var) -> bool:
        """Whether only float operators read `var`."""
        return self.readers(var) == {"float"}

    # ------------------------------------------------------------ writing
    def set_int8(
        self, var: relax.Var, out: relax.Var, scale: Scale, amax: float | None = None
    ) -> None:
        """`out` is what `var` has become: int8 at `scale`."""
        amax = self.ranges.get(var, amax)
        if isinstance(out.ty, relax.TensorType):
            self.note_tensor(out.name, scale, amax)
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
        accumulator: Accumulator,
    ) -> None:
        """`out`, int8, is the group that `first` begins and that holds `absorbed`."""
        self._note_group(first, absorbed, out, accumulator)
        self.set_int8((first, *absorbed)[-1], out, scale)

    def close_float_group(
        self,
        first: relax.Var,
        absorbed: tuple[relax.Var, ...],
        out: relax.Var,
        accumulator: Accumulator,
    ) -> None:
        """The same for a group that ends in float32."""
        self._note_group(first, absorbed, out, accumulator)
        last = (first, *absorbed)[-1]
        self.values[last] = Value(source_name(first), self.ranges.get(last), out)

    def _note_group(
        self,
        first: relax.Var,
        absorbed: tuple[relax.Var, ...],
        out: relax.Var,
        accumulator: Accumulator,
    ) -> None:
        self.absorbed.update(absorbed)
        proof = {"bound": accumulator.bound, "shift": accumulator.shift}
        self.record.accumulators[out.name] = proof
        names = dict.fromkeys(source_name(var) for var in (first, *absorbed))
        self.record.sources[out.name] = list(names)
        for var in absorbed:
            if source_name(var) != source_name(first):
                self.record.absorbed[source_name(var)] = [source_name(out), self._kinds[var]]

    def note_tensor(self, name: str, scale: Scale, amax: float | None) -> None:
        """Record the scale of an int8 variable."""
        self.record.tensors[name] = {"scale": scale.step, "amax": amax or 0.0}
        if scale.zero:
            self.record.tensors[name]["zero"] = scale.zero

    def note_weight(self, name: str, steps: np.ndarray, amax: float) -> None:
        """Record the scale, or the scales of the channels, of a layer's weights."""
        steps = np.asarray(steps, np.float64)
        entry: TensorEntry = {"scale": float(steps.max()), "amax": amax}
        if (steps != steps.reshape(-1)[0]).any():
            entry["scales"] = steps.tolist()
        self.record.tensors[f"{name}{SEPARATOR}weight"] = entry


def is_float32_const(expr: relax.Expr) -> bool:
    return isinstance(expr, GenericConst) and is_float32(expr)
