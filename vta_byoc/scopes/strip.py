"""VDevices removed again: the CPU VM allocates in `global` only, and wants one device each."""

from __future__ import annotations

import itertools

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, Tuple, TupleGetItem

from vta_byoc.ir.bindings import is_constant, op_name, straight_bindings
from vta_byoc.scopes.graph import STATEMENTS
from vta_byoc.scopes.write import BlockWriter, placed

NOWHERE = itertools.repeat(None)


def strip_vdevices() -> tvm.transform.Pass:
    """Remove VDevices, hints and copies between scopes; PrimFuncs keep their buffers' scopes."""

    @tvm.transform.module_pass(opt_level=0, name="vta.StripVDevices")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        builder = relax.BlockBuilder(mod.clone())
        for gvar, func in mod.functions.items():
            if has_scopes(func):
                builder.update_func(gvar, _Stripper(builder).rewrite(func))
        result = builder.get()
        others = {n: infos for n, infos in mod.global_infos.items() if n != "vdevice"}
        result = tvm.IRModule(dict(result.functions.items()), attrs=mod.attrs, global_infos=others)
        return relax.transform.CanonicalizeBindings()(result)

    return run


def has_scopes(func: tvm.ir.BaseFunc) -> bool:
    """Whether ``func`` is one that scopes are written into: not a kernel and not a region."""
    if not isinstance(func, relax.Function):
        return False
    attrs = func.attrs or {}
    return "Codegen" not in attrs and "Primitive" not in attrs


class _Stripper:
    def __init__(self, builder: relax.BlockBuilder):
        self._writer = BlockWriter(builder)
        self._env: dict[relax.Var, relax.Expr] = {}

    def rewrite(self, func: relax.Function) -> relax.Function:
        straight_bindings(func)  # refuses what is not straight-line code
        params = [relax.Var(p.name, placed(p.ty, NOWHERE)) for p in func.params]
        self._env = dict(zip(func.params, params, strict=True))
        for block in func.body.blocks:
            self._writer.begin(block)
            for binding in block.bindings:
                value = binding.value
                if op_name(value) in STATEMENTS:
                    self._env[binding.var] = self._plain(value.args[0])
                else:
                    name = str(binding.var.name)
                    self._env[binding.var] = self._writer.emit(self._plain(value), name)
        return self._writer.finish(func, params, self._plain(func.body.body))

    def _plain(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return self._env.get(expr, expr)
        if isinstance(expr, Tuple):
            return relax.Tuple([self._plain(item) for item in expr.fields])
        if isinstance(expr, TupleGetItem):
            return TupleGetItem(self._plain(expr.tuple_value), expr.index)
        if isinstance(expr, Call):
            args = [self._plain(arg) for arg in expr.args]
            types = [placed(ty, NOWHERE) for ty in expr.ty_args]
            return Call(expr.op, args, expr.attrs, types, expr.span)
        if is_constant(expr) and isinstance(expr.ty, relax.TensorType):
            return GenericConst(expr.value, placed(expr.ty, NOWHERE))
        return expr
