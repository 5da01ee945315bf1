"""Modules with channels last (NHWC, NWC) as modules with channels first, which is what quantizes.

From the first layer with channels last on, a tensor is held with channels first as long as the
operators allow it: layers, pooling, elementwise operators, means, concatenations and pads.  Any
other operator gets its operands as it had them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax
from tvm.ir import Call, Tuple

from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    constant_of,
    is_constant,
    op_name,
    static_shape,
    straight_bindings,
    with_main,
)

LAST, FIRST = ("NWC", "NHWC"), {"NWC": "NCW", "NHWC": "NCHW"}
KERNELS = {"NCW": "OIW", "NCHW": "OIHW"}
TRANSPOSED_KERNELS = {"NCW": "IOW", "NCHW": "IOHW"}
LAYERS = frozenset(
    f"relax.nn.{op}" for op in ("conv1d", "conv2d", "conv1d_transpose", "conv2d_transpose")
)
POOLS = frozenset(f"relax.nn.{op}" for op in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"))
ELEMENTWISE = frozenset(
    f"relax.{op}"
    for op in (
        "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "clip", "abs",
        "negative", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "astype",
        "left_shift", "right_shift", "trunc",
        "hardswish", "nn.relu", "nn.relu6", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu",
        "nn.softplus",
    )
)  # fmt: skip
CONVERSIONS = frozenset(("relax.quantize", "relax.dequantize"))
"""Elementwise where one scale serves the tensor."""
REDUCTIONS = frozenset(f"relax.{op}" for op in ("mean", "sum", "max", "min"))


def channels_first(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with its layers in NCHW and NCW; itself if it has none with channels last.

    Inputs, results and the names of operators stay.
    """
    main = mod["main"]
    if not any(_layout(b.value) in LAST for b in straight_bindings(main)):
        return mod
    return with_main(mod, _Converter().convert(main))


def _layout(expr: relax.Expr) -> str:
    """The layout of a layer's or a pool's data; "" of anything else."""
    name = op_name(expr)
    if name in LAYERS:
        layouts = str(expr.attrs.data_layout), str(expr.attrs.out_layout)
    elif name in POOLS:
        layouts = str(expr.attrs.layout), str(expr.attrs.out_layout)
    else:
        return ""
    return layouts[0] if layouts[1] in ("", layouts[0]) else ""


def _to_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


class _Converter:
    """Holds each tensor in the form it was computed in, and makes the other one when asked."""

    def __init__(self) -> None:
        self._writer = FunctionWriter()
        self._last: dict[relax.Var, relax.Expr] = {}
        self._first: dict[relax.Var, relax.Expr] = {}

    def convert(self, main: relax.Function) -> relax.Function:
        """``main`` with channels first wherever they can be."""
        self._last = {param: param for param in main.params}
        for binding in straight_bindings(main):
            name = str(binding.var.name)
            made = self._with_channels_first(binding.value)
            if made is not None:
                self._first[binding.var] = self._writer.emit(made, name)
            else:
                self._last[binding.var] = self._writer.emit(self._as_it_was(binding.value), name)
        return self._writer.finish(main, self._as_it_was(main.body.body))

    # ------------------------------------------------------------ forms of a tensor
    def _as_it_was(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` on operands in the order that they had."""
        if isinstance(expr, relax.Var):
            if expr not in self._last:
                axes = _to_last(expr.ty.ndim)
                self._last[expr] = self._permuted(self._first[expr], axes, _inner(expr, "last"))
            return self._last[expr]
        if isinstance(expr, Tuple):
            return relax.Tuple([self._as_it_was(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self._as_it_was(expr.tuple_value), expr.index)
        if isinstance(expr, Call):
            args = [self._as_it_was(arg) for arg in expr.args]
            return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
        return expr

    def _channels_first(self, expr: relax.Expr, rank: int) -> relax.Expr:
        """An operand with channels first; one of a lower rank is broadcast to ``rank`` axes."""
        if is_constant(expr):
            value = expr.value.numpy()
            if not value.ndim:
                return expr
            wide = value.reshape((1,) * (rank - value.ndim) + value.shape)
            return constant_of(wide.transpose(_to_first(rank)))
        if expr in self._first:
            return self._first[expr]
        source = self._last[expr]
        if not expr.ty.ndim:
            return source
        if expr.ty.ndim < rank:
            shape = (1,) * (rank - expr.ty.ndim) + static_shape(expr)
            source = self._writer.emit(relax.op.reshape(source, shape), _inner(expr, "wide"))
        made = self._permuted(source, _to_first(rank), _inner(expr, "first"))
        if expr.ty.ndim == rank:
            self._first[expr] = made
        return made

    def _permuted(self, expr: relax.Expr, axes: list[int], name: str) -> relax.Var:
        return self._writer.emit(relax.op.permute_dims(expr, axes), name)

    # ------------------------------------------------------------ operators
    def _with_channels_first(self, expr: relax.Expr) -> relax.Expr | None:
        """An operator that makes its result with channels first; None where it cannot."""
        name = op_name(expr)
        if _layout(expr) in LAST:
            return self._layer(expr) if name in LAYERS else self._pool(expr)
        if _is_elementwise(expr) and any(self._is_first(arg) for arg in expr.args):
            rank = expr.ty.ndim
            return self._remade(expr, [self._tensor(arg, rank) for arg in expr.args])
        if name in REDUCTIONS and self._is_first(expr.args[0]):
            return self._reduction(expr)
        if name == "relax.concat" and any(self._is_first(arg) for arg in expr.args[0].fields):
            return self._concat(expr)
        if name == "relax.nn.pad" and self._is_first(expr.args[0]):
            return self._pad(expr)
        return None

    def _is_first(self, arg: relax.Expr) -> bool:
        """Whether an operand is held with channels first and not otherwise."""
        return isinstance(arg, relax.Var) and arg in self._first and arg not in self._last

    def _tensor(self, arg: relax.Expr, rank: int) -> relax.Expr:
        return arg if _rank(arg) is None else self._channels_first(arg, rank)

    @staticmethod
    def _remade(call: Call, args: Sequence[relax.Expr]) -> relax.Expr:
        return relax.Call(call.op, list(args), call.attrs, call.ty_args, call.span)

    def _layer(self, call: Call) -> relax.Expr:
        attrs, rank = call.attrs, call.args[0].ty.ndim
        layout = FIRST[str(attrs.data_layout)]
        is_transposed = op_name(call).endswith("_transpose")
        kernel = (TRANSPOSED_KERNELS if is_transposed else KERNELS)[layout]
        weight = self._reordered(call.args[1], str(attrs.kernel_layout), kernel)
        make: Callable[..., relax.Expr] = getattr(relax.op.nn, op_name(call).split(".")[-1])
        extra = {"output_padding": list(attrs.output_padding)} if is_transposed else {}
        return make(
            self._channels_first(call.args[0], rank),
            weight,
            strides=list(attrs.strides),
            padding=list(attrs.padding),
            dilation=list(attrs.dilation),
            groups=int(attrs.groups),
            data_layout=layout,
            kernel_layout=kernel,
            out_dtype=str(call.ty.dtype),
            **extra,
        )

    def _reordered(self, weight: relax.Expr, have: str, want: str) -> relax.Expr:
        axes = [have.index(axis) for axis in want]
        if is_constant(weight):
            return constant_of(weight.value.numpy().transpose(axes))
        return self._permuted(self._as_it_was(weight), axes, _inner(weight, "kernel"))

    def _pool(self, call: Call) -> relax.Expr:
        attrs = call.attrs
        data = self._channels_first(call.args[0], call.args[0].ty.ndim)
        layout = FIRST[str(attrs.layout)]
        if op_name(call).endswith("adaptive_avg_pool2d"):
            return relax.op.nn.adaptive_avg_pool2d(data, attrs.output_size, layout)
        make: Callable[..., relax.Expr] = getattr(relax.op.nn, op_name(call).split(".")[-1])
        return make(
            data,
            list(attrs.pool_size),
            list(attrs.strides),
            list(attrs.padding),
            list(attrs.dilation),
            bool(attrs.ceil_mode),
            bool(attrs.count_include_pad),
            layout,
        )

    def _reduction(self, call: Call) -> relax.Expr | None:
        rank, axes = call.args[0].ty.ndim, call.attrs.axis
        if axes is None or not call.attrs.keepdims:
            return None
        moved = [_to_first(rank).index(int(axis) % rank) for axis in axes]
        make: Callable[..., relax.Expr] = getattr(relax.op, op_name(call).removeprefix("relax."))
        return make(self._first[call.args[0]], moved, True)

    def _concat(self, call: Call) -> relax.Expr | None:
        rank = call.ty.ndim
        if call.attrs.axis is None:
            return None
        axis = _to_first(rank).index(int(call.attrs.axis) % rank)
        parts = [self._channels_first(arg, rank) for arg in call.args[0].fields]
        return relax.op.concat(parts, axis)

    def _pad(self, call: Call) -> relax.Expr:
        width = [int(pad) for pad in call.attrs.pad_width]
        pairs = [width[2 * axis : 2 * axis + 2] for axis in _to_first(len(width) // 2)]
        flat = [pad for pair in pairs for pad in pair]
        value = getattr(call.attrs, "pad_value", 0.0)
        data = self._first[call.args[0]]
        return relax.op.nn.pad(data, flat, str(call.attrs.pad_mode), float(value))


def _is_elementwise(expr: relax.Expr) -> bool:
    name = op_name(expr)
    if name in CONVERSIONS:
        return not any(_rank(arg) for arg in expr.args[1:])
    return name in ELEMENTWISE


def _rank(arg: relax.Expr) -> int | None:
    """The number of axes of a tensor; None of what is no tensor."""
    return arg.ty.ndim if isinstance(arg.ty, relax.TensorType) else None


def _inner(expr: relax.Expr, what: str) -> str:
    """A name that belongs to the source of ``expr``."""
    return f"{getattr(expr, 'name', 'weight')}{SEPARATOR}{what}"
