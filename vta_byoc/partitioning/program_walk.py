"""Following a program of steps through the bindings that compute it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax

from vta_byoc.ir.bindings import is_constant, op_name
from vta_byoc.ir.chains import Binding
from vta_byoc.ir.programs import Instruction, Instructions

OPS: Mapping[str, str] = {
    "add": "relax.add",
    "mul": "relax.multiply",
    "shr": "relax.right_shift",
    "shl": "relax.left_shift",
    "max": "relax.maximum",
    "min": "relax.minimum",
}
Users = Mapping[relax.Var, Sequence["Binding | None"]]
"""The bindings that read each variable; None: it is a result."""


def readers_in(bindings: Sequence[Binding]) -> Users:
    """Which of the bindings of one group read each variable as an operand."""
    users: dict[relax.Var, list[Binding | None]] = {}
    for binding in bindings:
        for arg in binding.value.args:
            if isinstance(arg, relax.Var):
                users.setdefault(arg, []).append(binding)
    return users


def only_reader(users: Users, var: relax.Expr, kind: str) -> Binding | None:
    """The one operator of a kind that reads `var`."""
    found = [user for user in users.get(var, ()) if user and op_name(user.value) == kind]
    return found[0] if len(found) == 1 else None


def kept_axis(call: relax.Call) -> int | None:
    """The one axis of a reduction that keeps it."""
    axes = call.attrs.axis
    if axes is None or len(axes) != 1 or not call.attrs.keepdims:
        return None
    return int(axes[0]) % call.args[0].ty.ndim


@dataclass
class Walk:
    """Bindings that follow programs step by step, from values that are known."""

    users: Users
    values: dict[str, relax.Expr]
    bindings: list[Binding] = field(default_factory=list)

    def follow(self, program: Instructions, free: Collection[int] = ()) -> list[int] | None:
        """The numbers of the instructions in `free`; None where the bindings do something else."""
        numbers = []
        for place, each in enumerate(program):
            found = self._next(each, place in free)
            if found is None:
                return None
            self.values[each.name] = found.var
            self.bindings.append(found)
            if place in free:
                numbers.append(int(found.value.args[1].value.numpy()))
        return numbers

    def _next(self, each: Instruction, is_free: bool) -> Binding | None:
        """The binding of an instruction, and of equal ones (64 channels have two) each its own."""
        left, found = self.values[each.left], None
        for user in self.users.get(left, ()):
            if user is None or op_name(user.value) != OPS[each.op]:
                continue
            first, second = user.value.args
            if first.same_as(left) and self._is(second, each.right, is_free):
                found = user
                if not any(user.var.same_as(walked.var) for walked in self.bindings):
                    break
        return found

    def _is(self, value: relax.Expr, wanted: str | int, is_free: bool) -> bool:
        if isinstance(wanted, str) and wanted in self.values:
            return bool(value.same_as(self.values[wanted]))
        if not is_constant(value):
            return False
        if isinstance(wanted, str):
            self.values[wanted] = value
            return True
        array = value.value.numpy()
        return array.ndim == 0 and (is_free or int(array) == wanted)
