"""The plain and the packed forms that values of a function have, and the copies between them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax, tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    op_name,
    static_shape,
    substituted,
    vars_in,
)
from vta_byoc.ir.views import PERMUTE_DIMS, VIEWS
from vta_byoc.partitioning.moved import ANCHORS, is_fixed
from vta_byoc.partitioning.token_forms import is_view
from vta_byoc.workload.im2col import Im2col
from vta_byoc.workload.layout import (
    NCHW,
    canonical,
    groups_of,
    is_tokens,
    pack_compute,
    pack_tokens_compute,
    unpack_compute,
    unpack_tokens_compute,
)
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import Shape

PACK, UNPACK, FOLD = "vta_pack", "vta_unpack", "vta_fold"


@dataclass(frozen=True)
class PackedForm:
    """A packed tensor: what it is bound to, and what it holds.

    Attributes:
        expr: the variable.
        shape: (N, C, H, W) before packing.
        dtype: int8 or int32.
        layout: how the plain tensor is seen so.
        by_host: the host packed it: lanes that do not exist are zero.
    """

    expr: relax.Var
    shape: Shape
    dtype: str
    layout: str = NCHW
    by_host: bool = False


class PackedForms:
    """Forms by variable; each is written the first time that it is wanted."""

    def __init__(self, builder: relax.BlockBuilder, config: VTAConfig, keep_packed: bool) -> None:
        self._builder = builder
        self._config = config
        self._keep = keep_packed
        self._writer = FunctionWriter(builder)
        self._plain: dict[relax.Var, relax.Expr] = {}
        self._packed: defaultdict[relax.Var, dict[str, PackedForm]] = defaultdict(dict)
        self._reshaped: dict[relax.Var, relax.VarBinding] = {}
        self._copied: dict[tuple[relax.Var, str], PackedForm] = {}
        self._folded: dict[tuple[relax.Var, Im2col], relax.Var] = {}
        self._functions: dict[str, relax.GlobalVar] = {}

    def _copy(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` on plain values."""
        return substituted(expr, {var: self._as_plain(var) for var in vars_in(expr)})

    def _is_reshape_of_packed(self, value: relax.Expr) -> bool:
        if op_name(value) not in ANCHORS or not all(map(is_fixed, value.args[1:])):
            return False
        return value.args[0] in self._reshaped or bool(self._forms(value.args[0]))

    def _forms(self, var: relax.Expr) -> list[PackedForm]:
        """Packed forms of ``var`` that exist, in any layout."""
        if var in self._reshaped:
            value = self._reshaped[var].value
            forms = self._forms(value.args[0]) if op_name(value) in VIEWS else []
            return [p for p in forms if op_name(value) != PERMUTE_DIMS or is_tokens(p.layout)]
        return list(self._packed.get(var, {}).values())

    def _as_plain(self, var: relax.Var) -> relax.Expr:
        if var not in self._plain:
            if var in self._reshaped:
                binding = self._reshaped[var]
                value = self._copy(binding.value)
                self._plain[var] = self._writer.emit(value, str(var.name))
            else:
                self._plain[var] = self._unpack(var)
        return self._plain[var]

    def _unpack(self, var: relax.Var) -> relax.Var:
        packed = next(iter(self._packed[var].values()))
        if is_tokens(packed.layout):
            return self._unpack_tokens(var, packed)
        function = self._function(
            f"{UNPACK}_{packed.dtype}_{_text(packed.shape)}",
            lambda: unpack_compute(packed.shape, self._config, packed.dtype),
        )
        name = f"{packed.expr.name}{SEPARATOR}unpacked"
        result = self._call(function, [packed.expr], packed.shape, name, packed.dtype)
        return self._reshape(result, static_shape(var), f"{packed.expr.name}{SEPARATOR}plain")

    def _unpack_tokens(self, var: relax.Var, packed: PackedForm) -> relax.Expr:
        shape = groups_of(static_shape(var), packed.layout)
        function = self._function(
            f"{UNPACK}_tokens_{packed.dtype}_{_text(shape)}",
            lambda: unpack_tokens_compute(shape, packed.layout, self._config, packed.dtype),
        )
        name = f"{packed.expr.name}{SEPARATOR}unpacked"
        result = self._call(function, [packed.expr], shape, name, packed.dtype)
        return self._reshape(result, static_shape(var), f"{packed.expr.name}{SEPARATOR}plain")

    def _pack_tokens(self, var: relax.Var, layout: str) -> relax.Var:
        plain, shape = self._as_plain(var), canonical(static_shape(var), layout)
        assert shape is not None
        *leading, first, second = static_shape(var)
        matrices = (math.prod(leading), first, second)
        function = self._function(
            f"{PACK}_{layout}_{_text(matrices)}",
            lambda: pack_tokens_compute(matrices, layout, self._config),
        )
        name = str(getattr(plain, "name", var.name))
        viewed = self._reshape(plain, matrices, f"{name}{SEPARATOR}matrices")
        packed = packed_shape(shape, self._config)
        return self._call(function, [viewed], packed, f"{name}{SEPARATOR}{layout}")

    def _reshape(self, value: relax.Expr, shape: Sequence[int], name: str) -> relax.Expr:
        if tuple(shape) == static_shape(value):
            return value
        return self._writer.emit(relax.op.reshape(value, tuple(shape)), name)

    def _find_packed(self, var: relax.Var, shape: Shape, layout: str) -> PackedForm | None:
        """A form of ``var`` that is packed as ``shape``; remembered under no layout."""
        if (var, layout) in self._copied:
            return self._copied[var, layout]
        forms = [p for p in self._forms(var) if p.shape == shape and p.dtype == "int8"]
        if is_tokens(layout):
            return next((p for p in forms if self._is_view(var, layout, p)), None)
        return next((p for p in forms if not is_tokens(p.layout)), None)

    def _is_view(self, var: relax.Var, layout: str, packed: PackedForm) -> bool:
        """Whether ``packed``, a form of what ``var`` is a view of, has its bytes in ``layout``."""
        return is_view(static_shape(self._origin(var)), packed.layout, self._moves(var), layout)

    def _moves(self, var: relax.Var) -> list[relax.VarBinding]:
        """The pending movements that make `var`, first to last."""
        moves: list[relax.VarBinding] = []
        while var in self._reshaped:
            moves.insert(0, self._reshaped[var])
            var = moves[0].value.args[0]
        return moves

    def _as_packed(self, var: relax.Var, layout: str, shape: Shape | None = None) -> relax.Var:
        """``var`` packed in ``layout``, or as if it had ``shape``."""
        usual = canonical(static_shape(var), layout)
        shape = shape or usual
        assert shape is not None
        found = self._find_packed(var, shape, layout)
        if found is not None and self._keep:
            return found.expr
        if is_tokens(layout):
            expr = self._pack_tokens(var, layout)
            if found is None:
                self._packed[var][layout] = PackedForm(expr, shape, "int8", layout, by_host=True)
            return expr
        function = self._function(
            f"{PACK}_{_text(shape)}", lambda: pack_compute(shape, self._config)
        )
        plain = self._as_plain(var)
        name = str(getattr(plain, "name", var.name))
        viewed = self._reshape(plain, shape, f"{name}{SEPARATOR}nchw")
        packed = packed_shape(shape, self._config)
        expr = self._call(function, [viewed], packed, f"{name}{SEPARATOR}packed")
        if found is None:  # known in any mode: plans depend on what could be packed already
            key = layout if shape == usual else _text(shape)
            self._packed[var][key] = PackedForm(expr, shape, "int8", by_host=True)
        return expr

    def _as_folded(self, var: relax.Var, fold: Im2col) -> relax.Var:
        """The operand of a folded convolution; (N, C, W) is one row."""
        if (var, fold) not in self._folded or not self._keep:
            shape = canonical(static_shape(var), NCHW)
            assert shape is not None
            function = self._function(
                f"{FOLD} {shape} {fold}", lambda: fold.compute(shape, self._config), FOLD
            )
            plain = self._as_plain(var)
            name = str(getattr(plain, "name", var.name))
            viewed = self._reshape(plain, shape, f"{name}{SEPARATOR}nchw")
            packed = packed_shape(fold.shape, self._config)
            expr = self._call(function, [viewed], packed, f"{name}{SEPARATOR}folded")
            self._folded[var, fold] = expr
        return self._folded[var, fold]

    def _call(
        self,
        function: relax.GlobalVar,
        args: list[relax.Expr],
        shape: Sequence[int],
        name: str,
        dtype: str = "int8",
    ) -> relax.Var:
        call = relax.call_tir(function, args, out_ty=relax.TensorType(tuple(shape), dtype))
        return self._writer.emit(call, name)

    def _function(
        self, key: str, make: Callable[[], tirx.PrimFunc], name: str = ""
    ) -> relax.GlobalVar:
        """The function of a key, which is made once; it is called ``name``, or as its key."""
        if key not in self._functions:
            self._functions[key] = self._builder.add_func(make(), name or key)
        return self._functions[key]

    def _has(self, var: relax.Var, layout: str) -> bool:
        shape = canonical(static_shape(var), layout)
        return shape is not None and self._find_packed(var, shape, layout) is not None

    def _by_host(self, operands: Sequence[tuple[relax.Var, str]]) -> bool:
        """Whether the host packed one of the operands in its layout, with zeros behind the data."""
        shapes = [canonical(static_shape(var), layout) for var, layout in operands]
        found = [
            self._find_packed(var, shape, layout)
            for (var, layout), shape in zip(operands, shapes, strict=True)
            if shape is not None
        ]
        return any(form is None or form.by_host for form in found)

    def _origin(self, var: relax.Var) -> relax.Var:
        """The variable before all pending reshapes."""
        while var in self._reshaped:
            var = self._reshaped[var].value.args[0]
        return var


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def packed_function(
    prim: relax.GlobalVar,
    args: list[relax.Expr],
    out: relax.TensorType,
    builder: relax.BlockBuilder,
) -> relax.Function:
    """A function of ``args``' types that calls ``prim``."""
    params = [relax.Var(f"x{i}", a.ty) for i, a in enumerate(args)]
    result = relax.Var("out", out)
    call = builder.normalize(relax.call_tir(prim, params, out_ty=out))
    block = relax.DataflowBlock([relax.VarBinding(result, call)])
    return relax.Function(params, relax.SeqExpr([block], result), ret_ty=out)
