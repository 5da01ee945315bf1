"""Integer chains of Relay with their exact meaning, in the operators that VTA takes.

Relay's integers wrap; the integer dialect has proofs that nothing does.  Where the bounds of an
accumulator prove that a step does not wrap, it stays; where it may, it is computed in 64 bits and
cut, which the CPU does.  What equals a simpler chain for every input becomes that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.importers.relay.ranges import PRODUCTS, Range, exact_range, range_of
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    op_name,
    source_name,
    straight_bindings,
    substituted,
    with_main,
)
from vta_byoc.ir.chains import Binding, Graph, as_step, dtype_of, is_narrowing, is_widening

WRAPS = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "left_shift", "sum", "negative")
)
"""Operators whose int32 result may be larger than int32."""
WIDE = "int64"
CLAMPS = ("max", "min")
FACTOR_BITS = 15
"""Of a multiplier that the machine takes in place of MUL too."""


SUMS = frozenset(f"relax.{n}" for n in ("add", "subtract", "multiply", "maximum", "minimum"))
"""Operators of two tensors that begin a chain."""


def computes_integers(mod: tvm.IRModule) -> bool:
    """Whether the module computes int32 of int8: it came quantized by `relay.quantize`."""
    values = [binding.value for binding in straight_bindings(mod["main"])]
    return any(
        is_widening(value) or (op_name(value) in PRODUCTS and dtype_of(value.args[0]) == "int8")
        for value in values
    )


def exact_integers(mod: tvm.IRModule) -> tvm.IRModule:
    """Write the integer chains of a module in the form of the integer dialect.

    Pools stand behind the rescale of what they choose from, shifts that cancel are left out,
    divisions are products and shifts, what may wrap is computed in 64 bits, and a chain to int8 is
    called after its first operator.
    """
    for rewrite in (_Pools, _Shifts, _Quotients, _Wraps, _Names):
        mod = with_main(mod, rewrite(mod["main"]).run())
    return mod


class _Rewrite:
    """Writes a function again, binding by binding, and knows the range of every value.

    `ranges` are those of the old variables: a rewrite keeps the values of all that it keeps.
    """

    def __init__(self, main: relax.Function) -> None:
        self.main = main
        self.graph = Graph(main)
        self.writer = FunctionWriter()
        self.env: dict[relax.Var, relax.Expr] = {}
        self.ranges: dict[relax.Var, Range] = {}
        self.exact: dict[relax.Var, Range | None] = {}
        for param in main.params:
            self._know(param, Range.of_dtype(dtype_of(param)))
        for binding in self.graph.bindings:
            self._bound(binding)

    def _know(self, var: relax.Var, found: Range | None) -> None:
        if found is not None:
            self.ranges[var] = found

    def _bound(self, binding: Binding) -> None:
        """The range of a result: exact where it fits its type, else all that the type holds."""
        dtype, value = dtype_of(binding.var), binding.value
        found = exact_range(value, self.ranges) if op_name(value) else None
        self.exact[binding.var] = found
        is_cut = not dtype.startswith("float") and (
            found is None or dtype not in ("int8", "int32", "uint8") or not found.fits(dtype)
        )
        self._know(binding.var, Range.of_dtype(dtype) if is_cut else found)

    def wraps(self, binding: Binding) -> bool:
        """Whether the result may be beyond its type, so that it is cut."""
        found = self.exact[binding.var]
        dtype = dtype_of(binding.var)
        if found is None:
            found = Range.of(-(2**62), 2**62)
        return not found.fits(dtype)

    def run(self) -> relax.Function:
        """The new function."""
        for binding in self.graph.bindings:
            if binding.var not in self.env:
                self.rewrite(binding)
        return self.writer.finish(self.main, substituted(self.main.body.body, self.env))

    def rewrite(self, binding: Binding) -> None:
        """Write one binding; this one as it is."""
        self.keep(binding)

    def keep(self, binding: Binding) -> relax.Var:
        """Write a binding on what its operands have become."""
        value = substituted(binding.value, self.env)
        made = self.writer.emit(value, str(binding.var.name))
        self.env[binding.var] = made
        return made

    def steps(self, var: relax.Var) -> list[Binding]:
        """The steps with constants behind a value, each read once, and the narrowing one."""
        return self.graph.chain(var)


class _Pools(_Rewrite):
    """Maxima over windows of int32 before a rescale that keeps order become maxima of int8.

    The rescale is part of the layer then.
    """

    def rewrite(self, binding: Binding) -> None:
        if op_name(binding.value) == "relax.nn.max_pool2d" and dtype_of(binding.var) == "int32":
            chain = self.steps(binding.var)
            if chain and self._keeps_order(chain):
                self._behind(binding, chain)
                return
        self.keep(binding)

    def _keeps_order(self, chain: Sequence[Binding]) -> bool:
        if not is_narrowing(chain[-1].value) or any(self.wraps(b) for b in chain):
            return False
        steps = [as_step(b.value) for b in chain[:-1]]
        return all(
            step is not None and (step[0] != "mul" or bool((step[1] >= 0).all()))
            and _per_channel(step[1], b)
            for step, b in zip(steps, chain, strict=False)
        )  # fmt: skip

    def _behind(self, pool: Binding, chain: Sequence[Binding]) -> None:
        self.env[pool.var] = substituted(pool.value.args[0], self.env)
        for binding in chain[:-1]:
            self.keep(binding)
        last, attrs = chain[-1], pool.value.attrs
        value = substituted(last.value, self.env)
        name = str(last.var.name)
        narrow = self.writer.emit(value, f"{source_name(last.var)}{SEPARATOR}narrow")
        pooled = relax.Call(pool.value.op, [narrow], attrs)
        self.env[last.var] = self.writer.emit(pooled, name)


def _per_channel(constant: np.ndarray, binding: Binding) -> bool:
    """Whether a constant is the same for all positions of a channel."""
    layout_rank = binding.var.ty.ndim
    shape = (1,) * (layout_rank - constant.ndim) + constant.shape
    return constant.size == 1 or sum(dim > 1 for dim in shape) == 1


@dataclass(frozen=True)
class _Raised:
    """A chain `((x << left) + constants, clamps ...) >> right`.

    Attributes:
        steps: what is between both shifts.
        last: the right shift.
    """

    left: int
    right: int
    steps: Sequence[tuple[str, np.ndarray]]
    last: Binding


class _Shifts(_Rewrite):
    """A left shift that a right shift behind it undoes is left out.

    `((x << k) + b) >> s` is `(x + (b >> k)) >> (s - k)`, as the right shift rounds down; clamps
    between them are clamps behind them, of bounds that are shifted too.
    """

    def rewrite(self, binding: Binding) -> None:
        found = self._raised(binding)
        if found is None:
            self.keep(binding)
        else:
            self._lowered(binding, found)

    def _raised(self, binding: Binding) -> _Raised | None:
        first = as_step(binding.value)
        if first is None or first[0] != "shl" or first[1].size != 1 or self.wraps(binding):
            return None
        between: list[tuple[str, np.ndarray]] = []
        for user in self.steps(binding.var):
            step = as_step(user.value)
            if step is None or self.wraps(user):
                return None
            left = int(first[1].reshape(-1)[0])
            if step[0] == "shr" and step[1].size == 1:
                right = int(step[1].reshape(-1)[0])
                return _Raised(left, right, between, user) if right >= left else None
            if step[0] not in ("add", *CLAMPS):
                return None
            between.append((step[0], step[1].astype(np.int64)))
        return None

    def _lowered(self, binding: Binding, found: _Raised) -> None:
        name = source_name(binding.var)
        value = substituted(binding.value.args[0], self.env)
        behind, bounds = np.array(0, np.int64), []
        for op, constant in reversed(found.steps):
            if op == "add":
                behind = behind + constant
            else:
                bounds.append((op, (constant + behind) >> found.right))
        offset, shift = behind >> found.left, found.right - found.left
        last = str(found.last.var.name)
        steps = [("add", offset)] if offset.any() else []
        steps += [("shr", np.array(shift, np.int64))] if shift else []
        steps += bounds[::-1]
        for number, (op, constant) in enumerate(steps):
            made = _STEPS[op](value, relax.const(constant.astype("int32")))
            is_last = number == len(steps) - 1
            value = self.writer.emit(made, last if is_last else f"{name}{SEPARATOR}{op}")
        self._skip(binding, found.last, value)

    def _skip(self, first: Binding, last: Binding, value: relax.Expr) -> None:
        """Leave out the old chain, whose values nothing else reads."""
        self.env[first.var] = value
        for user in self.steps(first.var):
            self.env[user.var] = value
            if user is last:
                return


_STEPS = {
    "add": relax.op.add,
    "shr": relax.op.right_shift,
    "max": relax.op.maximum,
    "min": relax.op.minimum,
}


class _Quotients(_Rewrite):
    """What is never negative and divided by a constant is multiplied and shifted, exactly.

    `x // n` is `(x * m) >> s` for all x up to X where `m * n - 2**s`, which is not negative, times
    X is less than `2**s`.
    """

    def rewrite(self, binding: Binding) -> None:
        found = self._factor(binding)
        if found is None:
            self.keep(binding)
            return
        factor, shift = found
        name, value = str(binding.var.name), substituted(binding.value.args[0], self.env)
        if factor > 1:
            product = relax.op.multiply(value, relax.const(np.array(factor, "int32")))
            value = self.writer.emit(product, f"{name}{SEPARATOR}product")
        shifted = relax.op.right_shift(value, relax.const(np.array(shift, "int32")))
        self.env[binding.var] = self.writer.emit(shifted, name)

    def _factor(self, binding: Binding) -> tuple[int, int] | None:
        """The multiplier of 15 bits and the shift; None where none is exact."""
        value = binding.value
        if op_name(value) != "relax.divide" or dtype_of(binding.var) != "int32":
            return None
        divisor, bounds = range_of(value.args[1], {}), range_of(value.args[0], self.ranges)
        if divisor is None or bounds is None or divisor.low.size != 1 or bounds.low.min() < 0:
            return None
        number, most = int(divisor.low.reshape(-1)[0]), int(bounds.high.max())
        for shift in range(31):
            factor = -(-(1 << shift) // max(number, 1))
            if factor >= 1 << FACTOR_BITS or most * factor >= 1 << 31 or number < 1:
                return None
            if (factor * number - (1 << shift)) * most < 1 << shift:
                return factor, shift
        return None


class _Wraps(_Rewrite):
    """What may leave int32 is computed in int64 and cut to int32, as the text means it.

    Where int8 is cut without a clamp before it, VTA's store cuts it; else the CPU does.
    """

    def rewrite(self, binding: Binding) -> None:
        value = binding.value
        if is_narrowing(value) and self.wraps(binding) and self._is_clamped(value.args[0]):
            self._through_int64(binding)
        elif op_name(value) in WRAPS and dtype_of(binding.var) == "int32" and self.wraps(binding):
            self._wide(binding)
        else:
            self.keep(binding)

    def _is_clamped(self, var: relax.Expr) -> bool:
        """Whether a clamp is among the steps before a value: its bounds hold before the cut."""
        value = self.graph.value(var)
        while value is not None and (step := as_step(value)) is not None:
            if step[0] in CLAMPS:
                return True
            value = self.graph.value(step[2])
        return False

    def _through_int64(self, binding: Binding) -> None:
        name = str(binding.var.name)
        data = substituted(binding.value.args[0], self.env)
        wide = self.writer.emit(relax.op.astype(data, WIDE), f"{name}{SEPARATOR}wide")
        self.env[binding.var] = self.writer.emit(relax.op.astype(wide, "int8"), name)

    def _wide(self, binding: Binding) -> None:
        value, name = substituted(binding.value, self.env), str(binding.var.name)
        args = [self._widened(arg, f"{name}{SEPARATOR}wide") for arg in value.args]
        made = relax.Call(value.op, args, value.attrs, value.ty_args)
        whole = self.writer.emit(made, f"{name}{SEPARATOR}whole")
        self.env[binding.var] = self.writer.emit(relax.op.astype(whole, "int32"), name)

    def _widened(self, arg: relax.Expr, name: str) -> relax.Expr:
        if dtype_of(arg) != "int32":
            return arg
        if isinstance(arg, relax.Var):
            return self.writer.emit(relax.op.astype(arg, WIDE), name)
        return relax.const(np.asarray(arg.value.numpy()).astype(WIDE), WIDE)


class _Names(_Rewrite):
    """A layer or a sum of two tensors and the steps behind it are called as one operator.

    As in modules that quantization writes, the int8 result has the name, and the values before it
    are its parts.
    """

    def __init__(self, main: relax.Function) -> None:
        super().__init__(main)
        self._called: dict[relax.Var, str] = {}
        for binding in self.graph.bindings:
            chain = self.steps(binding.var) if self._begins(binding) else []
            if not chain or not is_narrowing(chain[-1].value):
                continue
            name = source_name(binding.var)
            members = [binding, *chain]
            self._called[chain[-1].var] = name
            for number, member in enumerate(members[:-1]):
                self._called[member.var] = f"{name}{SEPARATOR}{number or 'acc'}"

    @staticmethod
    def _begins(binding: Binding) -> bool:
        name = op_name(binding.value)
        if dtype_of(binding.var) != "int32":
            return False
        return name in PRODUCTS or (name in SUMS and as_step(binding.value) is None)

    def rewrite(self, binding: Binding) -> None:
        value = substituted(binding.value, self.env)
        name = self._called.get(binding.var, str(binding.var.name))
        self.env[binding.var] = self.writer.emit(value, name)
