"""Rewriting a function by rules on single calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

import numpy as np
from tvm import relax
from tvm.ir import Call, Tuple, TupleGetItem

from vta_byoc.base.boundary import at
from vta_byoc.ir.bindings import (
    FunctionWriter,
    is_constant,
    op_name,
    source_name,
    straight_bindings,
    substituted,
    users_of,
)

Rule = Callable[["Rewriter", relax.Call], "relax.Expr | None"]
"""(rewriter, a call whose arguments are already rewritten) -> what it becomes, or None."""
MOST_ROUNDS = 100
"""Times that rules apply to one value; more are rules that undo each other."""


class Rewriter:
    """Writes `main` again, binding by binding, with the `rules` of each operator applied."""

    def __init__(self, main: relax.Function, rules: Callable[[str], Iterable[Rule]]) -> None:
        self.main = main
        self._rules = rules
        self.writer = FunctionWriter()
        self.name = ""
        """Of the binding that is being rewritten; a rule that keeps another operator sets it."""
        self._made: dict[relax.Var, relax.Expr] = {}
        self._reads: Counter[relax.Var] = Counter()
        self._builder = relax.BlockBuilder()
        self._once: dict[Hashable, relax.Expr] = {}

    def run(self) -> relax.Function:
        """The function with every rule applied until none applies any more."""
        env: dict[relax.Var, relax.Expr] = {}
        users = users_of(self.main)
        for binding in straight_bindings(self.main):
            self.name = binding.var.name
            at(f'operator "{source_name(binding.var)}"')
            made = self._rewritten(substituted(binding.value, env))
            env[binding.var] = made
            if isinstance(made, relax.Var):
                self._reads[made] += len(users.get(binding.var, ()))
        at("")
        return self.writer.finish(self.main, _tensors(substituted(self.main.body.body, env)))

    def _rewritten(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, TupleGetItem):
            value = self._element(value)
        value = self.simplified(value)
        if isinstance(value, relax.Var | Tuple) or is_constant(value):
            return value
        return self.emit(value, self.name)

    def _element(self, value: relax.Expr) -> relax.Expr:
        """The element itself where it is known: of a tuple, or the data of a dropout."""
        if isinstance(value.tuple_value, Tuple):
            return value.tuple_value.fields[value.index]
        dropout = self.producer_of(value.tuple_value, "relax.nn.dropout")
        return dropout.args[0] if dropout is not None and value.index == 0 else value

    def simplified(self, value: relax.Expr) -> relax.Expr:
        """`value` after all rules; its type is known."""
        value = self._builder.normalize(value)
        for _ in range(MOST_ROUNDS):
            found = (rule(self, value) for rule in self._rules_of(value))
            result = next((each for each in found if each is not None), None)
            if result is None:
                return value
            value = self._builder.normalize(result)
        name = op_name(value)
        raise AssertionError(f"the rules of {name} still apply after {MOST_ROUNDS} rounds")

    def _rules_of(self, value: relax.Expr) -> Iterable[Rule]:
        return self._rules(op_name(value)) if isinstance(value, Call) else ()

    def emit(self, value: relax.Expr, name: str) -> relax.Var:
        """Bind ``value`` to a new variable ``name``, without asking rules about it."""
        var = self.writer.emit(value, name)
        self._made[var] = value
        return var

    def as_variable(self, value: relax.Expr, name: str) -> relax.Expr:
        """`value` after all rules, bound to a variable called `name`, or as a rule names it."""
        outer, self.name = self.name, name
        value = self.simplified(value)
        if isinstance(value, Call):
            value = self.emit(value, self.name)
        self.name = outer
        return value

    def made_once(self, key: Hashable, make: Callable[[], relax.Expr]) -> relax.Expr:
        """What `make` has written the first time that a rule asks for `key`."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def producer(self, expr: relax.Expr) -> relax.Expr | None:
        """What a variable of the new function is bound to."""
        return self._made.get(expr) if isinstance(expr, relax.Var) else None

    def is_shared(self, expr: relax.Expr) -> bool:
        """Whether the function that is rewritten reads a variable more than once."""
        return self._reads[expr] > 1 if isinstance(expr, relax.Var) else False

    def producer_of(self, expr: relax.Expr, *names: str) -> relax.Call | None:
        """The producer if it is one of the operators `names`, else None."""
        value = self.producer(expr)
        return value if op_name(value) in names else None


def _tensors(result: relax.Expr) -> relax.Expr:
    """The result of `main` with shapes, which no caller can read, as int64 tensors."""
    if isinstance(result, Tuple):
        return relax.Tuple([_tensors(field) for field in result.fields])
    if isinstance(result, relax.ShapeExpr):
        return relax.const(np.array([int(dim) for dim in result.values]), "int64")
    return result
