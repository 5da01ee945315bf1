"""DefineVDevice: decisions written into a function as hints, out types and typed constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, Tuple, TupleGetItem

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name, substituted
from vta_byoc.scopes.collect import FunctionScopes
from vta_byoc.scopes.decide import Kind
from vta_byoc.scopes.graph import ScopedTensor, ScopeStep, Tree, Use
from vta_byoc.scopes.sites import WITH_RESULT_TYPES, operands_of
from vta_byoc.scopes.specialize import Specializer
from vta_byoc.scopes.table import GLOBAL, ScopeTable
from vta_byoc.scopes.write import BlockWriter, placed

Legalization = Callable[[relax.BlockBuilder, Call], relax.Expr]
"""As in relax.transform.LegalizeOps: an operator's call to a call_tir."""


class Devices:
    """The VDevices of a target: `global` and the scopes asked for, in the table's order."""

    def __init__(self, target: tvm.target.Target, table: ScopeTable):
        self._order = [scope.name for scope in table.scopes]
        self._made: dict[str, relax.VDevice] = {}
        self._target = target
        self.device = tvm.runtime.Device(target.get_target_device_type(), 0)
        self.of(GLOBAL)

    def of(self, scope: str) -> relax.VDevice:
        """The VDevice of ``scope``."""
        if scope not in self._made:
            self._made[scope] = relax.VDevice(self._target, 0, scope)
        return self._made[scope]

    @property
    def all(self) -> list[relax.VDevice]:
        """Those asked for."""
        return [self._made[name] for name in self._order if name in self._made]


class Definer:
    """Writes one function again with its scopes."""

    def __init__(
        self,
        scopes: FunctionScopes,
        builder: relax.BlockBuilder,
        devices: Devices,
        specializer: Specializer,
        legalize: Mapping[str, Legalization],
    ):
        self._scopes = scopes
        self._builder = builder
        self._devices = devices
        self._specializer = specializer
        self._legalize = legalize
        self._homes: dict[int, relax.Expr] = {}
        self._versions: dict[tuple[int, str], relax.Expr] = {}
        self._others: dict[relax.Var, relax.Expr] = {}
        self._writer = BlockWriter(builder)

    def rewrite(self, func: relax.Function) -> relax.Function:
        """``func``: parameters in `global`, results in `global`, the rest as decided."""
        params = [self._param(param) for param in func.params]
        for block in func.body.blocks:
            self._writer.begin(block)
            for binding in block.bindings:
                self._binding(binding.var, binding.value)
        body = self._result(func.body.body, self._scopes.graph.result)
        return self._writer.finish(func, params, body)

    def _param(self, param: relax.Var) -> relax.Var:
        tree = self._scopes.graph.resolve(param)
        var = relax.Var(param.name, placed(param.ty, self._all(GLOBAL)))
        if tree is None:
            self._others[param] = var
        self._remember(var, tree)
        return var

    def _all(self, scope: str) -> Iterator[relax.VDevice]:
        while True:
            yield self._devices.of(scope)

    def _remember(self, expr: relax.Expr, tree: Tree) -> None:
        """``expr`` is where the tensors of ``tree`` are."""
        if isinstance(tree, Use):
            self._homes[tree.tensor.index] = expr
        elif isinstance(tree, tuple):
            for position, item in enumerate(tree):
                self._remember(TupleGetItem(expr, position), item)

    # ---------------------------------------------------------------- bindings
    def _binding(self, var: relax.Var, value: relax.Expr) -> None:
        step = self._scopes.graph.steps.get(var)
        if step is not None:
            result = self._writer.emit(self._call(step), str(var.name))
            self._remember(result, self._scopes.graph.resolve(var))
            if self._scopes.graph.resolve(var) is None:
                self._others[var] = result
        elif isinstance(value, TupleGetItem) and isinstance(value.tuple_value, relax.Var):
            use = self._scopes.graph.resolve(var)
            if isinstance(use, Use):
                self._home(use.tensor, str(var.name))
        elif self._scopes.graph.resolve(var) is None:
            self._others[var] = self._writer.emit(substituted(value, self._others), str(var.name))

    def _home(self, tensor: ScopedTensor, name: str = "") -> relax.Expr:
        """The variable of ``tensor``; a field of a tuple is bound when it is first needed."""
        home = self._homes[tensor.index]
        if isinstance(home, TupleGetItem):
            home = self._field(home, name or tensor.fact.name)
            self._homes[tensor.index] = home
        return home

    def _field(self, item: TupleGetItem, name: str) -> relax.Var:
        whole = item.tuple_value
        if isinstance(whole, TupleGetItem):
            whole = self._field(whole, f"{name}_tuple")
        return self._writer.emit(TupleGetItem(whole, item.index), name)

    def _version(self, tensor: ScopedTensor, scope: str) -> relax.Expr:
        """``tensor`` as a consumer of ``scope`` reads it: itself, its one copy, a constant."""
        constant = tensor.kind is Kind.CONSTANT
        if not constant and scope == self._scopes.scope_of(tensor):
            return self._home(tensor)
        key = (tensor.index, scope)
        if key not in self._versions:
            make = self._constant if constant else self._copy
            self._versions[key] = make(tensor, scope)
        return self._versions[key]

    def _copy(self, tensor: ScopedTensor, scope: str) -> relax.Expr:
        self._devices.of(scope)
        hint = relax.op.hint_on_device(self._home(tensor), self._devices.device, scope)
        return self._writer.emit(hint, f"{tensor.fact.name}_{scope.rpartition('.')[2]}")

    def _constant(self, tensor: ScopedTensor, scope: str) -> relax.Expr:
        plain = self._scopes.graph.constant(tensor)
        return GenericConst(plain.value, placed(plain.ty, self._all(scope)))

    # ---------------------------------------------------------------- calls
    def _call(self, step: ScopeStep) -> relax.Expr:
        reads = self._scopes.reads[step.var]
        writes = tuple(self._scopes.scope_of(t) for t in step.results)
        value = step.value
        if op_name(value) not in WITH_RESULT_TYPES and {*reads, *writes} - {GLOBAL}:
            value = self._legalized(step, reads)
            reads = self._reads_of(value, step, reads)
        scopes = iter(reads)
        fields = [self._operand(arg, scopes) for arg in operands_of(value)]
        if op_name(value) not in WITH_RESULT_TYPES:
            return Call(value.op, fields, value.attrs, value.ty_args, value.span)
        devices = (self._devices.of(scope) for scope in writes)
        types = [placed(ty, devices) for ty in value.ty_args]
        callee = value.args[0]
        if isinstance(callee, tvm.ir.GlobalVar):
            own = [s for i, s in enumerate(writes) if i not in step.inplace]
            callee = self._specializer.function(callee, (*reads, *own))
        args = [callee, relax.Tuple(fields), *value.args[2:]]
        return Call(value.op, args, value.attrs, types, value.span)

    def _operand(self, arg: relax.Expr, scopes: Iterator[str]) -> relax.Expr:
        return self._expr(arg, self._scopes.graph.resolve(arg), lambda _tensor: next(scopes))

    def _expr(
        self, expr: relax.Expr, tree: Tree, scope: Callable[[ScopedTensor], str]
    ) -> relax.Expr:
        """``expr`` with each of its tensors in its ``scope``."""
        if isinstance(tree, Use):
            return self._version(tree.tensor, scope(tree.tensor))
        if isinstance(tree, tuple):
            parts = expr.fields if isinstance(expr, Tuple) else [expr] * len(tree)
            return relax.Tuple([self._expr(e, t, scope) for e, t in zip(parts, tree, strict=True)])
        return substituted(expr, self._others)

    def _result(self, body: relax.Expr, tree: Tree) -> relax.Expr:
        return self._builder.normalize(self._expr(body, tree, lambda _tensor: GLOBAL))

    # ---------------------------------------------------------------- legalization in parts
    def _legalized(self, step: ScopeStep, reads: tuple[str, ...]) -> Call:
        """The call of an operator whose scopes are decided, now that they are."""
        name = op_name(step.value)
        found = self._legalize.get(name)
        if found is None and isinstance(step.value.op, tvm.ir.Op):
            found = step.value.op.get_attr("FLegalize")
        scopes = ", ".join(dict.fromkeys(s for s in reads if s != GLOBAL)) or "its result's"
        where = f'operator "{step.site.name}" ({step.site.callee})'
        if found is None:
            raise VTAError(
                f"{where} is given scope {scopes}: need a PrimFunc to carry it, have no "
                "legalization; give one in legalize= or demand global"
            )
        call = found(self._builder, step.value)
        if op_name(call) != "relax.call_tir":
            raise VTAError(
                f"{where} is given scope {scopes}: need one PrimFunc to carry it, its "
                "legalization gives another expression; give one call_tir in legalize="
            )
        return call

    def _reads_of(self, call: Call, step: ScopeStep, reads: tuple[str, ...]) -> tuple[str, ...]:
        """Scopes of the PrimFunc's operands: each is an operand of the operator."""
        tensors = [use.tensor.index for use in step.operands]
        found = []
        for arg in operands_of(call):
            use = self._scopes.graph.resolve(arg)
            if not isinstance(use, Use) or use.tensor.index not in tensors:
                raise VTAError(
                    f'operator "{step.site.name}" ({step.site.callee}): its legalization reads '
                    "a tensor that is not its operand; give a call_tir on its operands"
                )
            found.append(reads[tensors.index(use.tensor.index)])
        return tuple(found)
