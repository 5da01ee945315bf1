"""Which values a kernel may store, so that a STORE that would cut some of them off is noticed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import sym, tirx
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock
from tvm_ffi import structural_map

from vta_byoc.codegen.alu import loads_of
from vta_byoc.schedule.nests import blocks_of
from vta_byoc.workload.memory import in_dram

Range = tuple[int, int]
"""The least and the largest value that a tensor may hold."""
_STEPS = 2
"""How often a block that reads what it writes is followed: minima and maxima settle at once."""


@dataclass(frozen=True)
class Truncation:
    """A store of values that int8 does not hold.

    Attributes:
        block: the block that stores.
        low, high: the values that may reach it.
    """

    block: str
    low: int
    high: int

    def __str__(self) -> str:
        return (
            f"block {self.block} stores values that may be {self.low:,} to {self.high:,}; STORE "
            "keeps the low 8 bits, so that 128 becomes -128; clip them before the cast to int8: "
            "T.max(T.min(x, 127), -128), after a shift where the values are to be scaled"
        )


def truncations(
    func: tirx.PrimFunc, constants: Mapping[str, np.ndarray] | None = None
) -> list[Truncation]:
    """The stores of ``func`` that may cut values off, in order.

    Args:
        func: a scheduled function.
        constants: values of parameters by name; others may hold whatever their dtype does.
    """
    known: dict[tirx.Var, Range] = {}
    for param in func.params:
        value = (constants or {}).get(str(param.name))
        if value is not None and value.size:
            known[param] = int(value.min()), int(value.max())
    found = []
    for block in blocks_of(func):
        if isinstance(block.body, tirx.BufferStore):
            stored = _follow(block, known)
            if in_dram(str(block.body.buffer.scope())) and not _fits(stored, "int8"):
                found.append(Truncation(str(block.name_hint), *stored))
    return found


def _follow(block: SBlock, known: dict[tirx.Var, Range]) -> Range:
    """The values of ``block`` before its last cast; notes those that its tensor may hold."""
    store = block.body
    buffer, dtype = store.buffer, str(store.buffer.dtype)
    value = store.value.value if isinstance(store.value, tirx.Cast) else store.value
    values = _reduced(block, buffer, value, known) if _reads(value, buffer) else None
    if values is None:
        values = _range(value, known)
    held = values if _fits(values, dtype) else _of_dtype(dtype)
    known[buffer] = _union(known[buffer], held) if buffer in known else held
    return values


def _reduced(block: SBlock, buffer: tirx.Var, value: Expr, known: dict[tirx.Var, Range]) -> Range:
    """The values of a block that reads what it writes, from what the tensor held before."""
    start = known.get(buffer, (0, 0))
    if isinstance(value, tirx.Add):
        sides = [side for side in (value.a, value.b) if not _reads(side, buffer)]
        if len(sides) == 1:
            low, high = _range(sides[0], known)
            turns = _turns(block)
            return start[0] + min(0, turns * low), start[1] + max(0, turns * high)
    values = start
    for _ in range(_STEPS):
        values = _union(values, _range(value, {**known, buffer: values}))
    return values


def _turns(block: SBlock) -> int:
    """Over how many positions a block reduces."""
    reduced = [axis for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
    return math.prod(int(axis.dom.extent) for axis in reduced)


def _range(value: Expr, known: Mapping[tirx.Var, Range]) -> Range:
    """The values of an expression, by TVM's own arithmetic on bounds."""
    analyzer = sym.Analyzer()

    def stand_in(load: TensorLoad) -> tirx.Var:
        var = tirx.Var("value", str(load.source.dtype))
        low, high = known.get(load.source, _of_dtype(str(load.source.dtype)))
        analyzer.update(var, sym.ConstIntBound(low, high))
        return var

    bound = analyzer.const_int_bound(structural_map(value, (TensorLoad, stand_in)))
    return int(bound.min_value), int(bound.max_value)


def _reads(value: Expr, buffer: tirx.Var) -> bool:
    return any(load.source.same_as(buffer) for load in loads_of(value))


def _of_dtype(dtype: str) -> Range:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _fits(values: Range, dtype: str) -> bool:
    low, high = _of_dtype(dtype)
    return low <= values[0] and values[1] <= high


def _union(one: Range, two: Range) -> Range:
    return min(one[0], two[0]), max(one[1], two[1])
