"""Index expressions as linear forms of loop variables.

After scheduling, every index that a DMA or a hardware loop can follow is affine.  A quotient or
remainder left by a fused loop is simplified away first; what is still not affine is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tvm import sym, tirx
from tvm.ir import Expr, Range

from vta_byoc.hw.errors import VTAError


class CodegenError(VTAError):
    """A scheduled PrimFunc that cannot become VTA instructions; the message says why."""


@dataclass(frozen=True)
class Linear:
    """``const + sum(coef * var)``; variables are the integers that a :class:`VarTable` gives."""

    const: int
    terms: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, const: int, terms: Mapping[int, int]) -> Linear:
        """The form with the coefficients `terms`, of which those that are 0 are dropped."""
        return cls(const, tuple(sorted((v, c) for v, c in terms.items() if c)))

    def coef(self, var: int) -> int:
        """Coefficient of ``var``, 0 where it does not occur."""
        for v, c in self.terms:
            if v == var:
                return c
        return 0

    def at(self, env: Mapping[int, int]) -> int:
        """Value with the variables of ``env``; variables not in it count as 0."""
        total = self.const
        for v, c in self.terms:
            total += c * env.get(v, 0)
        return total

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for v, c in other.terms:
            terms[v] = terms.get(v, 0) + c
        return Linear.of(self.const + other.const, terms)

    def scale(self, factor: int) -> Linear:
        """The form times a constant."""
        return Linear.of(self.const * factor, {v: c * factor for v, c in self.terms})


class VarTable:
    """Numbers TIR variables and knows their ranges, so that quotients can be simplified."""

    def __init__(self) -> None:
        self._ids: dict[tirx.Var, int] = {}
        self._objects: dict[int, tirx.Var] = {}
        self._analyzer = sym.Analyzer()

    def __getitem__(self, var: tirx.Var) -> int:
        return self._ids.setdefault(var, len(self._ids))

    def same(self, var: tirx.Var) -> tirx.Var:
        """The one Python object that stands for ``var`` wherever speed matters."""
        return self._objects.setdefault(self[var], var)

    def bind(self, var: tirx.Var, extent: int) -> int:
        """Tell the range [0, extent) of a loop variable; returns its number."""
        if var not in self._ids:
            self._analyzer.bind(var, Range(0, extent))
        return self[var]

    def linear(self, expr: Expr | int) -> Linear:
        """``expr`` as a linear form.  Not affine: CodegenError naming the expression."""
        form = self._extract(expr)
        if form is None and not isinstance(expr, int):
            form = self._extract(self._analyzer.simplify(expr))
        if form is None:
            raise CodegenError(
                f"index {expr} is not affine in its loops; the DMA and the hardware loops follow "
                "constant strides only; split or reorder so that it becomes affine"
            )
        return form

    def flat(self, indices: Iterable[Expr], strides: Sequence[int], offset: int = 0) -> Linear:
        """``offset`` plus the indices times their ``strides``, in scalars."""
        indices = list(indices)
        parts = [self._extract(i) for i in indices]
        if all(p is not None for p in parts):
            total = Linear(offset)
            for part, stride in zip(parts, strides, strict=True):
                assert part is not None
                total = total + part.scale(stride)
            return total
        expr: Expr = tirx.IntImm("int32", offset)
        for index, stride in zip(indices, strides, strict=True):
            expr = expr + index * stride
        return self.linear(expr)

    def _extract(self, expr: Expr | int) -> Linear | None:
        if isinstance(expr, int):
            return Linear(expr)
        if isinstance(expr, tirx.IntImm):
            return Linear(int(expr.value))
        if isinstance(expr, tirx.Var):
            return Linear.of(0, {self[expr]: 1})
        if isinstance(expr, tirx.Cast):
            return self._extract(expr.value)
        if isinstance(expr, (tirx.Add, tirx.Sub)):
            left, right = self._extract(expr.a), self._extract(expr.b)
            if left is None or right is None:
                return None
            return left + (right if isinstance(expr, tirx.Add) else right.scale(-1))
        if isinstance(expr, tirx.Mul):
            left, right = self._extract(expr.a), self._extract(expr.b)
            if left is None or right is None:
                return None
            if not right.terms:
                return left.scale(right.const)
            return right.scale(left.const) if not left.terms else None
        return None


def row_major(shape: Sequence[int]) -> list[int]:
    """Strides in elements of a dense row-major tensor."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * int(shape[k + 1])
    return strides


@dataclass(frozen=True)
class Bound:
    """``low <= form`` or ``form < high``: one conjunct of a predicate, as ``form >= 0``."""

    form: Linear
    text: str


def bounds_of(cond: Expr, table: VarTable) -> list[Bound]:
    """The conjuncts of ``cond``, each as a linear form that must be >= 0."""
    if isinstance(cond, tirx.And):
        return bounds_of(cond.a, table) + bounds_of(cond.b, table)
    if isinstance(cond, tirx.IntImm):
        return [] if int(cond.value) else [Bound(Linear(-1), "false")]
    pairs = {tirx.LE: (0, 1, 0), tirx.LT: (0, 1, -1), tirx.GE: (1, 0, 0), tirx.GT: (1, 0, -1)}
    kind = next((k for k in pairs if isinstance(cond, k)), None)
    if kind is None:
        raise CodegenError(
            f"condition {cond} is not a conjunction of comparisons; padding and tails are boxes; "
            "use <, <=, >, >= joined by and"
        )
    small, large, extra = pairs[kind]
    sides = (table.linear(cond.a), table.linear(cond.b))
    return [Bound(sides[large] + sides[small].scale(-1) + Linear(extra), str(cond))]


Domain = tuple[tuple[int, int], ...]
"""[low, high) of each loop of a nest."""


class Clip:
    """Where ``bounds`` hold in a nest of ``loops`` (variable, extent)."""

    def __init__(self, bounds: Sequence[Bound], loops: Sequence[tuple[int, int]]):
        self._full: Domain = tuple((0, extent) for _, extent in loops)
        self._conditions = [self._condition(bound, loops) for bound in bounds]

    @staticmethod
    def _condition(
        bound: Bound, loops: Sequence[tuple[int, int]]
    ) -> tuple[Linear, tuple[int, int] | None]:
        """``bound`` as ``outer + coef * loop >= 0``: (outer, (number of the loop, coef))."""
        inner = [
            (k, coef)
            for k, (var, extent) in enumerate(loops)
            if extent > 1 and (coef := bound.form.coef(var))
        ]
        if len(inner) > 1:
            raise CodegenError(
                f"condition {bound.text} bounds {len(inner)} loops at once; padding and tails are "
                "boxes; do not fuse or skew the loops of a padded or partial tile"
            )
        own = {var for var, _ in loops}
        outer = Linear(bound.form.const, tuple(t for t in bound.form.terms if t[0] not in own))
        return outer, inner[0] if inner else None

    def domain(self, env: Mapping[int, int]) -> Domain | None:
        """The part of every loop where all bounds hold with outer values ``env``; None: nothing."""
        if not self._conditions:
            return self._full
        domain = list(self._full)
        for outer, inner in self._conditions:
            base = outer.at(env)
            if inner is None:
                if base < 0:
                    return None
                continue
            k, coef = inner
            low, high = domain[k]
            if coef > 0:
                low = max(low, -(base // coef))
            else:
                high = min(high, base // -coef + 1)
            if low >= high:
                return None
            domain[k] = (low, high)
        return tuple(domain)
