"""Relax functions as lists of bindings: read them, rewrite them, write them.

The passes of the front half walk `main` binding by binding and write a new function.  They do it
through `FunctionWriter`, which keeps the names it is given (a BlockBuilder renames) and promotes
outputs in place (`emit_output` would add an alias that carries no source name).
"""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, Tuple, TupleGetItem

from vta_byoc.hw.errors import VTAError

SEPARATOR = "__"
"""Stands between a source name and what a pass appends to it; never inside a source name."""


def source_name(var: relax.Var) -> str:
    """The name of the model's operator (or input) that `var` belongs to.

    `conv1`, `conv1__acc` and `conv1__shift` all belong to `conv1`.
    """
    return str(var.name).split(SEPARATOR)[0]


def sanitized(name: str) -> str:
    """`name` as an identifier: other characters and runs of `_` become one `_`.

    A keyword of Python is none: TVMScript with a variable called `class` would not parse.
    """
    clean = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")
    if not clean:
        return "op"
    return clean if clean[0].isalpha() and not keyword.iskeyword(clean) else f"op_{clean}"


class UniqueNames:
    """Hands out every name once: with the joint `_`, the second `conv` is `conv_2`."""

    def __init__(self, joint: str) -> None:
        self._joint = joint
        self._taken: dict[str, int] = {}  # each with the last number given behind it

    def fresh(self, name: str) -> str:
        """``name``, or with a number behind it if it is taken; it is taken from now on."""
        if name not in self._taken:
            self._taken[name] = 1
            return name
        count, unique = self._taken[name], name
        while unique in self._taken:
            count += 1
            unique = f"{name}{self._joint}{count}"
        self._taken[name] = count
        self._taken[unique] = 1
        return unique


def straight_bindings(func: relax.Function) -> list[relax.VarBinding]:
    """All bindings of `func` in order.

    Raises:
        VTAError: the function has control flow, an inner function or a run-time shape match.
    """
    bindings = [binding for block in func.body.blocks for binding in block.bindings[:]]
    for binding in bindings:
        if not isinstance(binding, relax.VarBinding) or isinstance(
            binding.value, relax.If | relax.Function
        ):
            raise VTAError(
                f'binding "{binding.var.name}" is control flow, an inner function or a shape '
                "match; only straight-line functions with static shapes are compiled; "
                "inline the branch or export the model without it"
            )
    return bindings


def vars_in(expr: relax.Expr) -> Iterator[relax.Var]:
    """The variables that one binding's value (or a function's result) reads, in order."""
    if isinstance(expr, relax.Var):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args[:]:
            yield from vars_in(arg)
    elif isinstance(expr, Tuple):
        for field in expr.fields:
            yield from vars_in(field)
    elif isinstance(expr, TupleGetItem):
        yield from vars_in(expr.tuple_value)


def users_of(func: relax.Function) -> dict[relax.Var, list[relax.VarBinding | None]]:
    """Who reads each variable, once per read; None stands for the function's result."""
    users: dict[relax.Var, list[relax.VarBinding | None]] = {}
    for binding in straight_bindings(func):
        for var in vars_in(binding.value):
            users.setdefault(var, []).append(binding)
    for var in vars_in(func.body.body):
        users.setdefault(var, []).append(None)
    return users


def substituted(expr: relax.Expr, env: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """`expr` with its variables replaced; variables that `env` does not know stay.

    What reads none of `env` is the same expression, whose type need not be inferred again.
    """
    if isinstance(expr, relax.Var):
        return env.get(expr, expr)
    if not isinstance(expr, Tuple | TupleGetItem | Call):
        return expr
    before = _parts(expr)
    parts = [substituted(part, env) for part in before]
    if all(map(operator.is_, parts, before)):
        return expr
    if isinstance(expr, Tuple):
        return relax.Tuple(parts)
    if isinstance(expr, TupleGetItem):
        return relax.TupleGetItem(parts[0], expr.index)
    return relax.Call(expr.op, parts, expr.attrs, expr.ty_args, expr.span)


def _parts(expr: relax.Expr) -> list[relax.Expr]:
    """What a tuple, an element of one or a call reads, in order."""
    if isinstance(expr, TupleGetItem):
        return [expr.tuple_value]
    return (expr.fields if isinstance(expr, Tuple) else expr.args)[:]


def op_name(expr: relax.Expr) -> str:
    """The operator's name of a call ("relax.add"), "" for anything else."""
    if isinstance(expr, Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name)
    return ""


def is_constant(expr: relax.Expr) -> bool:
    """Whether an expression is a tensor with its values."""
    return isinstance(expr, GenericConst)


def constant_of(values: np.ndarray) -> relax.Expr:
    """An array as a constant of its own dtype; `relax.const` makes int32 of int64."""
    return relax.const(np.array(values, order="C"), str(values.dtype))


def known_shape(type_: object) -> tuple[int, ...] | None:
    """The shape of a type of tensors; None for one that is not known before the model runs."""
    dims = getattr(type_, "shape", None)
    if dims is None:
        return None
    # a slice of TVM's arrays is a list, which takes a fifth of the time that iterating takes
    found: list[Any] = [getattr(d, "value", None) for d in getattr(dims, "values", dims)[:]]
    return None if None in found else tuple(map(int, found))


def static_shape(expr: relax.Expr) -> tuple[int, ...]:
    """The shape of a tensor expression whose shape is known.

    Raises:
        VTAError: a dimension or the rank is not known at compile time.
    """
    shape = known_shape(expr.ty)
    if shape is None:
        name = getattr(expr, "name", "a tensor")
        raise VTAError(
            f'"{name}" has the type {expr.ty}; every dimension must be known at compile time; '
            "give static input shapes (shapes= or --shape)"
        )
    return shape


def per_channel(constant: np.ndarray, ndim: int, axis: int, channels: int) -> np.ndarray | None:
    """A constant added to a tensor of rank `ndim`, as float64 [channels] along `axis`.

    It is None if the constant varies along another axis.
    """
    shape = (1,) * (ndim - constant.ndim) + constant.shape
    if len(shape) != ndim or math.prod(shape) != shape[axis] or shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(np.float64(constant.reshape(-1)), (channels,)).copy()


def is_float32(expr: relax.Expr) -> bool:
    """Whether an expression is a tensor of float32."""
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == "float32"


class FunctionWriter:
    """Writes one dataflow function, binding by binding, with exactly the names asked for."""

    def __init__(self, builder: relax.BlockBuilder | None = None) -> None:
        self._builder = builder or relax.BlockBuilder()
        self._bindings: list[tuple[relax.Var, relax.Expr]] = []
        # A second variable of one name belongs to the same source: keep `source_name` true.
        self.names = UniqueNames(SEPARATOR)

    def emit(self, expr: relax.Expr, name: str) -> relax.Var:
        """Bind `expr` (one operator, no nested calls) to a new variable called `name`."""
        value = self._builder.normalize(expr)
        var = relax.DataflowVar(self.names.fresh(name), value.ty)
        self._bindings.append((var, value))
        return var

    def finish(self, source: relax.Function, result: relax.Expr) -> relax.Function:
        """The function with the parameters and attributes of `source` that returns `result`.

        `result` is a variable, a constant or a (nested) tuple of them.
        """
        bound = {var for var, _ in self._bindings}
        env = {v: relax.Var(v.name, v.ty) for v in vars_in(result) if v in bound}
        bindings = [
            relax.VarBinding(env.get(var, var), substituted(value, env))
            for var, value in self._bindings
        ]
        blocks = [relax.DataflowBlock(bindings)] if bindings else []
        body = self._builder.normalize(substituted(result, env))
        return relax.Function(
            source.params, relax.SeqExpr(blocks, body), ret_ty=body.ty, attrs=source.attrs
        )


def with_main(mod: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    """A copy of `mod` whose `main` is replaced; other functions and attributes stay."""
    result = mod.clone()
    result.update_func(result.get_global_var("main"), main)
    return relax.transform.Normalize()(result)
