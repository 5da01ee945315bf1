"""Packs the graph: marked composites compute on (N/b, C/k, H, W, b, k) tensors.

Every value is kept in the layout it was made in; a pack or an unpack is written the first time a
consumer wants the other one, so a packed part has one pack at each entry and one unpack at each
exit.  Weights and biases are packed at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx

from vta_byoc.bindings import (
    SEPARATOR,
    FunctionWriter,
    static_shape,
    straight_bindings,
    substituted,
    vars_in,
)
from vta_byoc.hw.config import VTAConfig

from .partition import SOURCE_ATTR, composite_source, composites, parse_composite
from .strategy import STRATEGIES, blocks

PACK, UNPACK = "vta_pack", "vta_unpack"


def packed_shape(shape: Sequence[int], config: VTAConfig) -> tuple[int, ...]:
    """Packed shape of an NCHW tensor."""
    n, c, h, w = shape
    b, k = config.batch, config.block
    return blocks(n, b), blocks(c, k), h, w, b, k


def pack_compute(shape: Sequence[int], config: VTAConfig) -> tirx.PrimFunc:
    """NCHW int8 to packed, zeros in lanes that do not exist."""
    n, c, _, _ = shape
    b, k = config.batch, config.block
    source = te.placeholder(_dims(shape), "int8", name="x")

    def value(nb: Any, cb: Any, y: Any, x: Any, bi: Any, ci: Any) -> Any:
        row, channel = nb * b + bi, cb * k + ci
        inside = tirx.all(row < n, channel < c)
        return tirx.if_then_else(inside, source[row, channel, y, x], tirx.const(0, "int8"))

    out = te.compute(_dims(packed_shape(shape, config)), value, name="packed")
    return te.create_prim_func([source, out]).without_attr("global_symbol")


def unpack_compute(shape: Sequence[int], config: VTAConfig) -> tirx.PrimFunc:
    """Packed to NCHW ``shape`` int8."""
    b, k = config.batch, config.block
    source = te.placeholder(_dims(packed_shape(shape, config)), "int8", name="x")
    out = te.compute(
        _dims(shape),
        lambda n, c, y, x: source[
            tirx.floordiv(n, b), tirx.floordiv(c, k), y, x, tirx.floormod(n, b), tirx.floormod(c, k)
        ],
        name="unpacked",
    )
    return te.create_prim_func([source, out]).without_attr("global_symbol")


def _dims(shape: Sequence[int]) -> tuple[tirx.IntImm, ...]:
    """Relax shapes are int64; FuseTIR wants its neighbours' buffers to agree."""
    return tuple(tirx.IntImm("int64", s) for s in shape)


def graph_pack(config: VTAConfig) -> tvm.transform.Pass:
    """Replace marked composites by packed ones that call their strategy's compute."""

    @tvm.transform.module_pass(opt_level=0, name="vta.GraphPack")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        groups = composites(mod)
        if not groups:
            return mod
        kept = {
            gv: f
            for gv, f in mod.functions.items()
            if gv.name_hint != "main" and gv.name_hint not in groups
        }
        builder = relax.BlockBuilder(tvm.IRModule(kept))
        packer = _Packer(builder, config, groups)
        main = packer.rewrite(mod["main"])
        result = builder.get()
        result.update_func(mod.get_global_var("main"), main)
        for key, value in (mod.attrs or {}).items():
            result = result.with_attr(key, value)
        return relax.transform.Normalize()(result)

    return run


class _Packer:
    """Rewrites one function, keeping for each value its plain and its packed form."""

    def __init__(
        self, builder: relax.BlockBuilder, config: VTAConfig, groups: dict[str, relax.Function]
    ):
        self._builder = builder
        self._config = config
        self._groups = groups
        self._writer = FunctionWriter(builder)
        self._plain: dict[relax.Var, relax.Expr] = {}
        self._packed: dict[relax.Var, relax.Expr] = {}
        self._functions: dict[str, relax.GlobalVar] = {}

    def rewrite(self, main: relax.Function) -> relax.Function:
        """``main`` with packed composites; parameters and results stay as they are."""
        for param in main.params:
            self._plain[param] = param
        for binding in straight_bindings(main):
            value = binding.value
            if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
                group = self._groups.get(value.op.name_hint)
                if group is not None:
                    self._packed[binding.var] = self._composite(group, value)
                    continue
            self._plain[binding.var] = self._writer.emit(self._copy(value), binding.var.name)
        return self._writer.finish(main, self._copy(main.body.body))

    def _copy(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` on plain values."""
        return substituted(expr, {var: self._as_plain(var) for var in vars_in(expr)})

    # ---------------------------------------------------------------- layouts
    def _as_plain(self, var: relax.Var) -> relax.Expr:
        if var not in self._plain:
            shape = static_shape(var)
            compute = unpack_compute(shape, self._config)
            function = self._function(f"{UNPACK}_{_text(shape)}", compute)
            name = f"{self._packed[var].name}{SEPARATOR}unpacked"
            self._plain[var] = self._call(function, [self._packed[var]], shape, name)
        return self._plain[var]

    def _as_packed(self, var: relax.Var) -> relax.Expr:
        if var not in self._packed:
            shape = static_shape(var)
            function = self._function(f"{PACK}_{_text(shape)}", pack_compute(shape, self._config))
            packed = packed_shape(shape, self._config)
            name = f"{self._plain[var].name}{SEPARATOR}packed"
            self._packed[var] = self._call(function, [self._plain[var]], packed, name)
        return self._packed[var]

    def _call(
        self,
        function: relax.GlobalVar,
        args: list[relax.Expr],
        shape: Sequence[int],
        name: str,
    ) -> relax.Var:
        call = relax.call_tir(function, args, out_ty=relax.TensorType(tuple(shape), "int8"))
        return self._writer.emit(call, name)

    def _function(self, name: str, func: tirx.PrimFunc) -> relax.GlobalVar:
        if name not in self._functions:
            self._functions[name] = self._builder.add_func(func, name)
        return self._functions[name]

    # ---------------------------------------------------------------- composites
    def _composite(self, group: relax.Function, call: relax.Call) -> relax.Var:
        entry, parsed = parse_composite(group)
        strategy = STRATEGIES[entry.strategy]
        inner = dict(zip(group.params, call.args, strict=True))
        operands = [self._as_packed(inner[x]) for x in parsed.operands]
        constants = [relax.const(c) for c in strategy.constants(parsed.constants, self._config)]
        args = [*operands, *constants]
        out_type = relax.TensorType(
            packed_shape(static_shape(call), self._config), "int8"
        )
        prim = self._compute(entry.name, strategy.compute(parsed.work, self._config))
        source = composite_source(group)
        function = _packed_function(prim, args, out_type, self._builder).with_attrs(
            {"Composite": entry.name, "Primitive": True, SOURCE_ATTR: source}
        )
        name = self._builder.add_func(function, entry.name.replace(".", "_"))
        return self._writer.emit(relax.Call(name, args), source)

    def _compute(self, composite: str, compute: tirx.PrimFunc) -> relax.GlobalVar:
        """The packed compute; equal workloads share one."""
        key = f"{composite} {compute.attrs}"
        if key not in self._functions:
            name = f"{composite.replace('.', '_')}_compute"
            self._functions[key] = self._builder.add_func(compute, name)
        return self._functions[key]


def _packed_function(
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


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def pack_counts(mod: tvm.IRModule) -> dict[str, int]:
    """How many packs and unpacks ``main`` runs."""
    counts = {PACK: 0, UNPACK: 0}
    for binding in straight_bindings(mod["main"]):
        args = getattr(binding.value, "args", [])
        if args and isinstance(args[0], tvm.ir.GlobalVar):
            for kind in counts:
                counts[kind] += args[0].name_hint.startswith(kind)
    return counts
