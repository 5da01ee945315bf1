"""What a demand function sees of a call, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.ir import Attrs, Call, Type

from vta_byoc.ir.bindings import op_name
from vta_byoc.scopes.table import GLOBAL, HOST

CALL_TIR = "relax.call_tir"
INPLACE = "relax.call_tir_inplace"
PACKED = "relax.call_dps_packed"
WITH_RESULT_TYPES = frozenset({CALL_TIR, INPLACE, PACKED})
"""Operators whose call says the type of its result, the VDevice included."""


@dataclass(frozen=True)
class TensorFacts:
    """A tensor operand or result; ``shape`` is None where it is not known at compile time."""

    shape: tuple[int, ...] | None
    dtype: str

    @property
    def nbytes(self) -> int:
        """0 where the shape is not known."""
        if self.shape is None or not self.dtype:
            return 0
        bits = tvm.DataType(self.dtype).bits * tvm.DataType(self.dtype).lanes
        return math.prod(self.shape) * -(-bits // 8)

    @classmethod
    def of(cls, ty: relax.TensorType) -> TensorFacts:
        """Of a Relax tensor type."""
        values = getattr(ty.shape, "values", ty.shape)
        known = values is not None and all(hasattr(dim, "value") for dim in values)
        shape = tuple(int(dim.value) for dim in values) if known else None
        return cls(shape, str(ty.dtype or ""))


@dataclass(frozen=True)
class CallSite:
    """One call of a function.

    Attributes:
        name: of the variable it is bound to.
        callee: a PrimFunc's name, a packed function's symbol, or an operator ("relax.nn.conv2d").
        operands: its tensors in order, those of tuples one by one.
        results: its tensors.
        attrs: the operator's attributes, or the PrimFunc's; None without.
        func: the PrimFunc of a call_tir.
    """

    name: str
    callee: str
    operands: tuple[TensorFacts, ...]
    results: tuple[TensorFacts, ...]
    attrs: Attrs | None = None
    func: tirx.PrimFunc | None = None


@dataclass(frozen=True)
class Needs:
    """What a call demands.

    Attributes:
        reads: the scope it wants each operand in.
        writes: the scopes that it can write its results in, the one it prefers first.
        unit: what runs it, as in the readers and writers of the scope table.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...] = (GLOBAL,)
    unit: str = HOST


DemandFunction = Callable[[CallSite], "Needs | None"]
"""The demands of a call; None of a call it does not know: it runs on the host, all in global."""


def operands_of(call: Call) -> list[relax.Expr]:
    """The expressions of ``call`` that may be tensors, in order."""
    return list(call.args[1].fields) if op_name(call) in WITH_RESULT_TYPES else list(call.args)


def callee_of(call: Call, mod: tvm.IRModule) -> tuple[str, Attrs | None, tirx.PrimFunc | None]:
    """Name, attributes and PrimFunc of what ``call`` calls."""
    name = op_name(call)
    if name in (CALL_TIR, INPLACE):
        func = mod[call.args[0]]
        return str(call.args[0].name_hint), func.attrs, func
    if name == PACKED:
        return str(call.args[0].global_symbol), call.attrs, None
    if name:
        return name, call.attrs, None
    return str(getattr(call.op, "name_hint", getattr(call.op, "global_symbol", "?"))), None, None


def tensor_types(ty: Type) -> list[relax.TensorType]:
    """The tensor types in ``ty``, depth first."""
    if isinstance(ty, relax.TensorType):
        return [ty]
    if isinstance(ty, relax.TupleType):
        return [leaf for field in ty.fields for leaf in tensor_types(field)]
    return []
