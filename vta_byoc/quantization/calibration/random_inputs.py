"""Noise for the inputs of a model."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings, vars_in

INPUT_DTYPES = ("float32", "int8", "uint8", "int32", "int64", "bool")
"""What inputs of models may be."""
BYTES = ("int8", "uint8")
INDICES = ("int32", "int64")
TAKES = ("relax.take", "relax.gather_elements")
"""Operators whose second argument says which elements of the first along `axis` are taken."""


def random_input(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, rows: int | None = None
) -> np.ndarray:
    """Noise for one input: standard normal float32, or int8 and uint8 of all values.

    Other integers are numbers of `rows` rows where the input picks rows of a table (`table_rows`);
    else they, and truth values, are masks and get ones: a mask that hides nothing.
    """
    if dtype == "float32":
        return rng.standard_normal(shape, np.float32)
    if dtype in BYTES:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if rows is not None and dtype in INDICES:
        return rng.integers(0, rows, shape, dtype)
    return np.ones(shape, dtype)


def random_sample(mod: tvm.IRModule, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """`random_input` for every input of `main`, by name, in order."""
    rows = table_rows(mod)
    return {
        str(p.name): random_input(rng, static_shape(p), str(p.ty.dtype), rows.get(str(p.name)))
        for p in mod["main"].params
    }


def table_rows(mod: tvm.IRModule) -> dict[str, int]:
    """For each integer input that picks rows of tables: how many rows the smallest of them has."""
    rows: dict[str, int] = {}
    sources = {p: {str(p.name)} for p in mod["main"].params if _holds_indices(p)}
    for binding in straight_bindings(mod["main"]):
        call = binding.value
        if op_name(call) in TAKES and isinstance(call, Call):
            limit = _rows(call)
            for name in _union(sources, vars_in(call.args[1])):
                rows[name] = min(rows.get(name, limit), limit)
        elif _holds_indices(binding.var):
            sources[binding.var] = _union(sources, vars_in(call))
    return rows


def _holds_indices(var: relax.Var) -> bool:
    return isinstance(var.ty, relax.TensorType) and str(var.ty.dtype) in INDICES


def _union(sources: dict[relax.Var, set[str]], read: Iterable[relax.Var]) -> set[str]:
    return set().union(*(sources.get(var, set()) for var in read))


def _rows(call: relax.Call) -> int:
    shape, axis = static_shape(call.args[0]), call.attrs.axis
    return max(int(np.prod(shape)) if axis is None else shape[int(axis)], 1)
