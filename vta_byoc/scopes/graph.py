"""The tensors of a Relax function, and who makes and reads each.

Aliases, tuples, TupleGetItem and hints are seen through: every use names the tensor itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import tvm
from tvm import relax
from tvm.ir import Call, Tuple, TupleGetItem, Type

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import SEPARATOR, UniqueNames, is_constant, op_name, straight_bindings
from vta_byoc.scopes.decide import Kind
from vta_byoc.scopes.sites import (
    WITH_RESULT_TYPES,
    CallSite,
    TensorFacts,
    callee_of,
    operands_of,
    tensor_types,
)
from vta_byoc.scopes.table import Fact

HINT, TO_VDEVICE = "relax.hint_on_device", "relax.to_vdevice"
STATEMENTS = frozenset({HINT, TO_VDEVICE})
"""Operators by which a user states a scope: their readers read it there."""


@dataclass(frozen=True)
class ScopedTensor:
    """A tensor of the function, by ``index``; ``stated``: the scope its type says, "" for none."""

    index: int
    fact: Fact
    facts: TensorFacts
    kind: Kind
    stated: str = ""


@dataclass(frozen=True)
class Use:
    """A read of a tensor; ``hint``: the scope that the user's hint says, "" without one."""

    tensor: ScopedTensor
    hint: str = ""


Tree: TypeAlias = "Use | tuple[Tree, ...] | None"
"""What an expression holds: a Use, a tuple of Trees, or None for what is no tensor."""


@dataclass
class ScopeStep:
    """A binding that computes: who calls what on which tensors."""

    var: relax.Var
    value: relax.Expr
    site: CallSite
    operands: list[Use]
    results: list[ScopedTensor]
    inplace: dict[int, int] = field(default_factory=dict)
    """Result -> operand whose memory it is."""


class ScopeGraph:
    """A function, read."""

    def __init__(self, mod: tvm.IRModule, func: relax.Function):
        self._mod = mod
        self._names = UniqueNames(SEPARATOR)
        self._trees: dict[relax.Var, Tree] = {}
        self._constants: dict[relax.Expr, Use] = {}
        self.tensors: list[ScopedTensor] = []
        self.steps: dict[relax.Var, ScopeStep] = {}
        for param in func.params:
            self._trees[param] = self._declare(str(param.name), param.ty, Kind.INPUT)
        for binding in straight_bindings(func):
            self._binding(binding.var, binding.value)
        self.result = self.resolve(func.body.body)

    def resolve(self, expr: relax.Expr) -> Tree:
        """What ``expr`` holds."""
        if isinstance(expr, relax.Var):
            return self._trees.get(expr)
        if isinstance(expr, Tuple):
            return tuple(self.resolve(field) for field in expr.fields)
        if isinstance(expr, TupleGetItem):
            fields = self.resolve(expr.tuple_value)
            assert isinstance(fields, tuple)
            return fields[expr.index]
        if is_constant(expr) and isinstance(expr.ty, relax.TensorType):
            if expr not in self._constants:
                self._constants[expr] = self._tensor("constant", expr.ty, Kind.CONSTANT)
            return self._constants[expr]
        return None

    def constant(self, tensor: ScopedTensor) -> relax.Expr:
        """The constant that ``tensor`` is."""
        return next(expr for expr, use in self._constants.items() if use.tensor is tensor)

    # ---------------------------------------------------------------- tensors
    def _declare(self, name: str, ty: Type, kind: Kind) -> Tree:
        if isinstance(ty, relax.TupleType):
            return tuple(
                self._declare(f"{name}{SEPARATOR}{i}", item, kind)
                for i, item in enumerate(ty.fields)
            )
        if not isinstance(ty, relax.TensorType):
            return None
        return self._tensor(name, ty, kind)

    def _tensor(self, name: str, ty: relax.TensorType, kind: Kind) -> Use:
        facts = TensorFacts.of(ty)
        unique = self._names.fresh(name)
        stated = "" if ty.vdevice is None else str(ty.vdevice.memory_scope)
        fact = Fact(unique, facts.dtype, facts.nbytes)
        self.tensors.append(ScopedTensor(len(self.tensors), fact, facts, kind, stated))
        return Use(self.tensors[-1])

    def _binding(self, var: relax.Var, value: relax.Expr) -> None:
        if op_name(value) in STATEMENTS:
            self._trees[var] = self._hinted(value)
        elif isinstance(value, Call):
            self._trees[var] = self._call(var, value)
        elif isinstance(value, relax.Var | Tuple | TupleGetItem) or is_constant(value):
            self._trees[var] = self.resolve(value)
        else:
            self._trees[var] = None

    def _hinted(self, call: Call) -> Use:
        use = self.resolve(call.args[0])
        assert isinstance(use, Use)
        hint = op_name(call) == HINT
        scope = str(call.attrs.memory_scope if hint else call.attrs.dst_vdevice.memory_scope)
        if hint and use.hint not in ("", scope):
            raise VTAError(
                f'tensor "{use.tensor.fact.name}": a hint states scope "{scope}" of what another '
                f'hint states scope "{use.hint}"; need one scope, have two; remove one of the hints'
            )
        return Use(use.tensor, scope)

    def _call(self, var: relax.Var, call: Call) -> Tree:
        operands = [u for arg in operands_of(call) for u in uses_in(self.resolve(arg))]
        tree = self._declare(str(var.name), var.ty, Kind.VALUE)
        results = [use.tensor for use in uses_in(tree)]
        callee, attrs, func = callee_of(call, self._mod)
        site = CallSite(
            str(var.name),
            callee,
            tuple(use.tensor.facts for use in operands),
            tuple(TensorFacts.of(ty) for ty in tensor_types(var.ty)),
            attrs,
            func,
        )
        self.steps[var] = ScopeStep(var, call, site, operands, results, _inplace(call))
        return tree


def uses_in(tree: Tree) -> Iterator[Use]:
    """The uses in a tree, depth first."""
    if isinstance(tree, tuple):
        for item in tree:
            yield from uses_in(item)
    elif tree is not None:
        yield tree


def _inplace(call: Call) -> dict[int, int]:
    if op_name(call) not in WITH_RESULT_TYPES or not hasattr(call.attrs, "inplace_indices"):
        return {}
    indices = [int(i) for i in call.attrs.inplace_indices]
    return {result: operand for result, operand in enumerate(indices) if operand >= 0}
