"""How much an operator computes: multiply-accumulates, and integer operations beside them.

Convolutions and matrix products are counted by their shapes.  Of any other operator the loops are
counted that TVM legalizes it to: what adds up products of two tensors' elements multiplies and
accumulates, whatever the operator is called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.ir import Tuple
from tvm_ffi import structural_equal

from vta_byoc.ir.bindings import is_constant, op_name, static_shape


@dataclass(frozen=True)
class OperatorWork:
    """What one operator computes.

    Attributes:
        macs: products of two operands that are added up; zeros that pad an operand count, zeros
            that fill a transposed convolution's input do not.
        alu_ops: other operations on elements of int8 or int32; 0 for float operators.
    """

    macs: int = 0
    alu_ops: int = 0

    def __add__(self, other: OperatorWork) -> OperatorWork:
        return OperatorWork(self.macs + other.macs, self.alu_ops + other.alu_ops)


NOTHING = OperatorWork()
INTEGERS = ("int8", "int32")
"""Element types whose operations a machine without floats could do."""
CONVOLUTIONS = frozenset(f"relax.nn.conv{rank}d" for rank in (1, 2, 3))
TRANSPOSED = frozenset(f"relax.nn.conv{rank}d_transpose" for rank in (1, 2, 3))
LAYERS = CONVOLUTIONS | TRANSPOSED | {"relax.matmul"}
ELEMENTWISE = frozenset(
    f"relax.{op}"
    for op in ("add", "subtract", "multiply", "right_shift", "left_shift", "maximum", "minimum")
)
MOVES = frozenset(
    f"relax.{op}"
    for op in (
        "reshape",
        "flatten",
        "squeeze",
        "expand_dims",
        "permute_dims",
        "concat",
        "split",
        "strided_slice",
        "nn.pad",
        "broadcast_to",
        "repeat",
        "tile",
        "take",
        "flip",
        "stack",
    )
)
"""Operators that put elements elsewhere."""
CONVERSIONS = frozenset(("relax.astype", "relax.quantize", "relax.dequantize"))
STEP_KINDS = frozenset(
    f"relax.{op}"
    for op in ("astype", "multiply", "right_shift", "left_shift", "maximum", "minimum")
)
"""Operators that only widen, scale and saturate what another operator of the group computed."""


def computes(expr: relax.Expr) -> bool:
    """Whether an operator does more than move elements or convert them."""
    return op_name(expr) not in MOVES | CONVERSIONS


def work_of(expr: relax.Expr, mod: tvm.IRModule) -> OperatorWork:
    """The work of one call of an operator, or of a PrimFunc of ``mod``; anything else has none."""
    name = op_name(expr)
    if not name or name in MOVES or name in CONVERSIONS:
        return NOTHING
    is_integer = _dtype(expr) in INTEGERS
    if name in LAYERS:
        return layer_work(expr)
    if name in ELEMENTWISE:
        return OperatorWork(0, math.prod(static_shape(expr)) if is_integer else 0)
    found = _of_function(mod[expr.args[0]]) if name == "relax.call_tir" else _legalized(expr)
    return found if is_integer else OperatorWork(found.macs)


def layer_work(call: relax.Call) -> OperatorWork:
    """The work of one of `LAYERS`, by its shapes."""
    name = op_name(call)
    if name in CONVOLUTIONS:
        return _convolution(call)
    if name in TRANSPOSED:
        return OperatorWork(math.prod(static_shape(call.args[0])) * _weights(call, "I"))
    return OperatorWork(math.prod(static_shape(call)) * static_shape(call.args[0])[-1])


def kind_of(bindings: Sequence[relax.VarBinding], works: Mapping[relax.Var, OperatorWork]) -> str:
    """The kind of an operator that became ``bindings``.

    It is what multiplies and accumulates the most, else what computes and is no step, else the
    first that is no step.
    """
    most = max(bindings, key=lambda b: works[b.var].macs)
    if works[most.var].macs:
        return _operator(most.value)
    kinds = [_operator(b.value) for b in bindings]
    main = [k for k in kinds if k not in STEP_KINDS]
    return next((k for k in main if k not in MOVES | CONVERSIONS), (main or kinds[-1:])[0])


def _operator(expr: relax.Expr) -> str:
    """The operator of a call; of one that the importer has written as loops, their name."""
    name = op_name(expr)
    return f"relax.{expr.args[0].name_hint}" if name == "relax.call_tir" else name


def _dtype(expr: relax.Expr) -> str:
    return str(getattr(expr.ty, "dtype", ""))


# ---------------------------------------------------------------- by shapes
def _convolution(call: relax.Call) -> OperatorWork:
    total = math.prod(static_shape(call)) * _weights(call, "O")
    if is_sum(call):
        return OperatorWork(0, total if _dtype(call) in INTEGERS else 0)
    return OperatorWork(total)


def _weights(call: relax.Call, axis: str) -> int:
    """Elements of the weights for one channel of ``axis``, "O" or "I" of the kernel's layout."""
    shape, layout = static_shape(call.args[1]), str(call.attrs.kernel_layout)
    letters = [letter for letter in layout if letter.isalpha()]
    channels = [size for size, at in zip(shape, letters, strict=True) if at.upper() == axis]
    return math.prod(shape) // math.prod(channels)


def is_sum(call: relax.Call) -> bool:
    """Whether a convolution only adds up windows of each channel: average pooling becomes that."""
    weight = call.args[1]
    if not is_constant(weight) or int(call.attrs.groups) != static_shape(weight)[0]:
        return False
    values = weight.value.numpy()
    return str(values.dtype) == "int8" and bool((values == 1).all())


# ---------------------------------------------------------------- by loops
_LEGALIZED: dict[tuple[str, ...], OperatorWork] = {}


def _legalized(call: relax.Call) -> OperatorWork:
    """The work of what TVM legalizes a call to; each form of a call is legalized once a process."""
    attrs = str(call.attrs) if call.attrs is not None else ""
    key = (op_name(call), attrs, *map(_described, call.args), str(call.ty))
    if key not in _LEGALIZED:
        functions = relax.transform.LegalizeOps()(_alone(call)).functions.values()
        prims = [f for f in functions if not isinstance(f, relax.Function)]
        _LEGALIZED[key] = sum(map(_of_function, prims), NOTHING)
    return _LEGALIZED[key]


def _described(arg: relax.Expr) -> str:
    """What an argument is, without the values of tensors."""
    if isinstance(arg, Tuple):
        return f"({', '.join(map(_described, arg.fields))})"
    return str(arg.ty) if _is_tensor(arg) else str(arg)


def _is_tensor(arg: relax.Expr) -> bool:
    return isinstance(arg, relax.Var) or is_constant(arg)


def _alone(call: relax.Call) -> tvm.IRModule:
    """A module whose ``main`` is the call, with a parameter for each tensor."""
    params: list[relax.Var] = []

    def argument(arg: relax.Expr) -> relax.Expr:
        if isinstance(arg, Tuple):
            return relax.Tuple([argument(field) for field in arg.fields])
        if not _is_tensor(arg):
            return arg
        params.append(relax.Var(f"x{len(params)}", arg.ty))
        return params[-1]

    args = [argument(arg) for arg in call.args]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        made = relax.Call(call.op, args, call.attrs, call.ty_args)
        builder.emit_func_output(builder.emit(made))
    return builder.get()


def _of_function(function: tirx.PrimFunc) -> OperatorWork:
    """What the stores of a PrimFunc compute, each as often as the loops around it run."""
    stores = list(_stores(function.body, 1))
    return sum((_store_work(store, times) for store, times in stores), NOTHING)


def _stores(stmt: tirx.Stmt, times: int) -> Iterator[tuple[tirx.BufferStore, int]]:
    """Every store below ``stmt`` and how often it runs; what initializes a sum is left out."""
    if isinstance(stmt, tirx.BufferStore):
        yield stmt, times
    elif isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _stores(part, times)
    elif isinstance(stmt, tirx.For):
        extent = getattr(stmt.extent, "value", 1)  # as long as something is: once
        yield from _stores(stmt.body, times * int(extent))
    elif isinstance(stmt, tirx.IfThenElse):
        yield from _stores(stmt.then_case, times)
        if stmt.else_case is not None:
            yield from _stores(stmt.else_case, times)
    elif (inner := getattr(stmt, "block", None)) is not None:
        yield from _stores(inner.body, times)
    elif (inner := getattr(stmt, "body", None)) is not None:
        yield from _stores(inner, times)


def _store_work(store: tirx.BufferStore, times: int) -> OperatorWork:
    added = _added(store)
    if added is not None and any(map(_is_product, _nodes(added))):
        return OperatorWork(times)
    return OperatorWork(0, times * sum(map(_is_operation, _nodes(store.value))))


def _added(store: tirx.BufferStore) -> relax.Expr | None:
    """What a store adds to the element that it replaces; None where it does something else."""
    value = _uncast(store.value)
    if not isinstance(value, tirx.Add):
        return None
    for kept, added in ((value.a, value.b), (value.b, value.a)):
        kept = _uncast(kept)
        if isinstance(kept, tvm.ir.TensorLoad) and structural_equal(
            [kept.source, *kept.indices], [store.buffer, *store.indices]
        ):
            return added
    return None


def _uncast(expr: relax.Expr) -> relax.Expr:
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    return expr


def _is_product(node: relax.Expr) -> bool:
    """Whether two different elements are multiplied: a square is none of two operands."""
    if not isinstance(node, tirx.Mul):
        return False
    return _reads(node.a) and _reads(node.b) and not structural_equal(node.a, node.b)


def _reads(expr: relax.Expr) -> bool:
    return any(isinstance(node, tvm.ir.TensorLoad) for node in _nodes(expr))


BINARY = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.FloorDiv, tirx.FloorMod, tirx.Mod, tirx.Min,
    tirx.Max, tirx.LShift, tirx.RShift, tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor
)  # fmt: skip
CHOICES = ("tirx.if_then_else", "prim.if_then_else")
FREE = ("tirx.likely", "tirx.reinterpret")


def _is_operation(node: relax.Expr) -> bool:
    """Whether a node of a value is an operation on elements.

    These are arithmetic, functions, and choices by what an element is.
    """
    if isinstance(node, tirx.Select):
        return _reads(node.condition)
    if isinstance(node, tvm.ir.Call):
        name = str(getattr(node.op, "name", ""))
        return _reads(node.args[0]) if name in CHOICES else name not in FREE
    return isinstance(node, BINARY)


def _nodes(expr: relax.Expr) -> Iterator[relax.Expr]:
    """An expression and what it is made of: not the indices of what it reads, nor conditions."""
    yield expr
    for part in _parts(expr):
        yield from _nodes(part)


def _parts(expr: relax.Expr) -> list[relax.Expr]:
    if isinstance(expr, BINARY):
        return [expr.a, expr.b]
    if isinstance(expr, tirx.Cast):
        return [expr.value]
    if isinstance(expr, tirx.Select):
        return [expr.true_value, expr.false_value]
    if isinstance(expr, tvm.ir.Call):
        name = str(getattr(expr.op, "name", ""))
        return list(expr.args[1:] if name in CHOICES else expr.args)
    return []
