"""Post-training quantization: float Relax to the integer dialect (see `dialect`).

`quantize` calibrates, then walks `main` once.  For every operator the table in `integer_ops` has
a handler that writes its integer form; an operator without one, or one whose handler declines,
becomes a float island: its inputs are dequantized, and its result is quantized only if an integer
operator reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst, Tuple, TupleGetItem

from vta_byoc.bindings import (
    SEPARATOR,
    is_float32,
    op_name,
    sanitized,
    source_name,
    straight_bindings,
    users_of,
    with_main,
)
from vta_byoc.calibrate import (
    Progress,
    Sample,
    default_calibration,
    load_calibration,
    tensor_ranges,
)
from vta_byoc.dialect import DialectWriter
from vta_byoc.integer_ops import OPERATORS, asks_for_int8, kinds_of_reader
from vta_byoc.scales import (
    INT8_HIGH,
    INT8_LOW,
    Accumulator,
    Unscalable,
    quantized,
    scale_exponent,
)

if TYPE_CHECKING:
    from vta_byoc.hw.config import VTAConfig

__all__ = ["QUANTIZATION", "default_calibration", "load_calibration", "quantize"]

QUANTIZATION = "vta.quantization"
"""Module attribute: JSON of `Quantizer.record`."""


@dataclass
class Value:
    """What a variable of the float module has become.

    Attributes:
        name: source name, for what is derived from the value.
        amax: largest magnitude seen in calibration (None: not a float32 tensor).
        plain: the value as the float module has it (float32, or another dtype unchanged).
        int8: the value as int8 with scale 2**exponent; for a tuple, a tuple of int8.
        is_native: an integer operator made it; `plain`, if any, is derived from `int8`.
        fields: the elements, if the value is a tuple that was built from values.
        is_input: it is an input of the model, so that quantizing it is the normal case.
    """

    name: str
    amax: float | None = None
    plain: Any = None
    int8: Any = None
    exponent: int = 0
    is_native: bool = False
    fields: list[Value] | None = None
    is_input: bool = False


@dataclass
class Record:
    """What reports need to know, and the proofs; in the order of execution.

    Attributes:
        tensors: int8 variable, or `<layer>__weight` -> its scale and largest float magnitude.
        accumulators: layer -> proven bound of its int32 values, and its shift.
        sources: layer -> source names of the operators that its group holds.
    """

    tensors: dict[str, dict[str, float]] = field(default_factory=dict)
    accumulators: dict[str, dict[str, int]] = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(self.__dict__)


class Quantizer:
    """The walk over `main`: what handlers read, and how they write."""

    def __init__(self, mod: tvm.IRModule, ranges: dict[relax.Var, float]) -> None:
        self.main = mod["main"]
        self.ranges = ranges
        self.bindings = straight_bindings(self.main)
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
                sanitized(param.name), self.ranges[param], param, is_input=True
            )
        for binding in self.bindings:
            if binding.var not in self.absorbed:
                self._convert(binding)
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
        entry = OPERATORS.get(op_name(binding.value))
        try:
            return entry is not None and entry.convert(self, binding)
        except Unscalable:
            return False

    def _take_element(self, var: relax.Var, expr: TupleGetItem) -> None:
        whole = self.value(expr.tuple_value)
        if whole.fields is not None:
            self.values[var] = whole.fields[expr.index]
        elif whole.int8 is not None:
            out = self.write.emit(relax.TupleGetItem(whole.int8, expr.index), var.name)
            self.set_int8(var, out, whole.exponent)
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
        if value.plain is None and isinstance(value.int8.ty, relax.TupleType):
            items = range(len(value.int8.ty.fields))
            parts = [self.write.emit(relax.TupleGetItem(value.int8, i), value.name) for i in items]
            value.plain = relax.Tuple([self._dequantized(part, value) for part in parts])
        elif value.plain is None:
            value.plain = self._dequantized(value.int8, value)
        return value.plain

    def _dequantized(self, item: relax.Expr, value: Value) -> relax.Var:
        return self.write.dequantize(item, value.exponent, f"{value.name}{SEPARATOR}float")

    def int8(self, value: Value) -> relax.Expr:
        """The value as int8, quantized at its own scale if it is not yet."""
        if value.int8 is not None:
            return value.int8
        value.exponent = self.exponent(value)
        if isinstance(value.plain, GenericConst):
            array = quantized(value.plain.value.numpy(), value.exponent, INT8_LOW, INT8_HIGH)
            value.int8 = relax.const(array.astype("int8"))
            return value.int8
        name = f"{value.name}{SEPARATOR}int8"
        value.int8 = self.write.quantize(value.plain, value.exponent, name)
        self.note_tensor(value.int8.name, value.exponent, value.amax)
        return value.int8

    def is_ready(self, value: Value) -> bool:
        """Whether the value, or an element of it, exists as int8 in the first place."""
        if value.fields is not None:
            return any(self.is_ready(item) for item in value.fields)
        return value.is_native

    def exponent(self, value: Value) -> int:
        """The exponent that `int8` gives the value, without writing anything."""
        if value.int8 is not None:
            return value.exponent
        assert value.amax is not None, f"{value.name} is not a float32 tensor"
        return scale_exponent(value.amax, value.name)

    def only_user(self, var: relax.Var) -> relax.VarBinding | None:
        """The one binding that reads `var`, if nothing else does."""
        users = self.users.get(var, [])
        return users[0] if len(users) == 1 else None

    def wants_int8(self, var: relax.Var) -> bool:
        """Whether an integer operator will read `var`, directly or through data movement."""
        if var not in self._wanted:
            self._wanted[var] = any(
                user is not None and asks_for_int8(self, user) for user in self.users.get(var, [])
            )
        return self._wanted[var]

    def readers(self, var: relax.Var) -> frozenset[str]:
        """What reads `var`, directly or through copies: "result", "float", "integer"."""
        if var not in self._readers:
            kinds: set[str] = set()
            for user in self.users.get(var, []):
                kinds |= {"result"} if user is None else kinds_of_reader(self, user)
            self._readers[var] = frozenset(kinds)
        return self._readers[var]

    def leaves_as_float(self, var: relax.Var) -> bool:
        """Whether only float operators and the results of the model read `var`."""
        return "integer" not in self.readers(var)

    def feeds_islands(self, var: relax.Var) -> bool:
        """Whether only float operators read `var`."""
        return self.readers(var) == {"float"}

    # ------------------------------------------------------------ writing
    def set_int8(
        self, var: relax.Var, out: relax.Var, exponent: int, amax: float | None = None
    ) -> None:
        """`out` is what `var` has become: int8 at scale 2**exponent."""
        amax = self.ranges.get(var, amax)
        if isinstance(out.ty, relax.TensorType):
            self.note_tensor(out.name, exponent, amax)
        self.values[var] = Value(
            source_name(var), amax, int8=out, exponent=exponent, is_native=True
        )

    def close_group(
        self,
        first: relax.Var,
        absorbed: tuple[relax.Var, ...],
        out: relax.Var,
        exponent: int,
        accumulator: Accumulator,
    ) -> None:
        """`out`, int8, is the group that `first` begins and that holds `absorbed`."""
        self._note_group(first, absorbed, out, accumulator)
        self.set_int8((first, *absorbed)[-1], out, exponent)

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
        self.values[last] = Value(source_name(first), self.ranges[last], out)

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

    def note_tensor(self, name: str, exponent: int, amax: float | None) -> None:
        self.record.tensors[name] = {"scale": 2.0**exponent, "amax": amax or 0.0}


def is_float32_const(expr: relax.Expr) -> bool:
    return isinstance(expr, GenericConst) and is_float32(expr)


def quantize(
    mod: tvm.IRModule,
    *,
    calibration: Iterable[Sample],
    config: VTAConfig | None = None,
    progress: Progress | None = None,
) -> tvm.IRModule:
    """Quantize float Relax into the integer dialect.

    Args:
        mod: float32 module with one straight-line `main` of static shapes (`load_model`).
        calibration: representative samples, read once: arrays, tuples of arrays or dicts input
            name -> array (see `calibrate`).
        config: the machine. Every machine is int8 x int8 -> int32, so it changes nothing.
        progress: called after each sample with the samples done and their number.

    Returns:
        A module with the same signature. The attribute `vta.quantization` holds JSON:
        `tensors` {name: {scale, amax}}, `accumulators` {layer: {bound, shift}} and `sources`
        {layer: source names that the group absorbed}.

    Raises:
        VTAError: the module or a sample cannot be used, or an accumulator could overflow.
    """
    ranges = tensor_ranges(mod, calibration, progress)
    quantizer = Quantizer(mod, ranges)
    result = with_main(mod, quantizer.run())
    return result.with_attr(QUANTIZATION, quantizer.record.to_json())
