"""Index expressions as linear forms of loop variables.

After scheduling, every index that a DMA or a hardware loop can follow is affine.  A quotient or
remainder left by a fused loop is simplified away first; what is still not affine is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
        # TVM makes a Python object for each access: a variable is told by its address
        self._numbers: dict[int, int] = {}
        self._vars: list[tirx.Var] = []
        self._analyzer = sym.Analyzer()
        self._untold: list[tuple[tirx.Var, int]] = []

    def __getitem__(self, var: tirx.Var) -> int:
        address = var.__chandle__()
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = len(self._vars)
            self._vars.append(var)
        return number

    def same(self, var: tirx.Var) -> tirx.Var:
        """The one Python object that stands for ``var`` wherever speed matters."""
        return self._vars[self[var]]

    def bind(self, var: tirx.Var, extent: int) -> int:
        """Tell the range [0, extent) of a loop variable; returns its number."""
        known = len(self._vars)
        number = self[var]
        if number == known:
            self._untold.append((var, extent))
        return number

    def linear(self, expr: Expr | int) -> Linear:
        """``expr`` as a linear form.  Not affine: CodegenError naming the expression."""
        form = self._extract(expr)
        if form is None and not isinstance(expr, int):
            form = self._extract(self._simplified(expr))
        if form is None:
            raise CodegenError(
                f"index {expr} is not affine in its loops; the DMA and the hardware loops follow "
                "constant strides only; split or reorder so that it becomes affine"
            )
        return form

    def place(
        self, indices: Sequence[Expr], strides: Sequence[int], offset: int = 0
    ) -> tuple[tuple[Linear, ...], Linear]:
        """(the indices, or nothing where one is not affine; the scalar that they are together).

        That is ``offset`` plus the indices times their ``strides``.

        Raises:
            CodegenError: together they are not affine.
        """
        indices = indices[:]  # of an array of TVM's a list, which is quicker to iterate
        parts = [self._extract(i) for i in indices]
        affine = tuple(part for part in parts if part is not None)
        if len(affine) == len(parts):
            const, terms = offset, dict[int, int]()
            for part, stride in zip(affine, strides, strict=True):
                const += part.const * stride
                for v, c in part.terms:
                    terms[v] = terms.get(v, 0) + c * stride
            return affine, Linear.of(const, terms)
        expr: Expr = tirx.IntImm("int32", offset)
        for index, stride in zip(indices, strides, strict=True):
            expr = expr + index * stride
        flat = self.linear(expr)
        try:
            return tuple(self.linear(i) for i in indices), flat
        except CodegenError:
            return (), flat

    def _simplified(self, expr: Expr) -> Expr:
        for var, extent in self._untold:
            self._analyzer.bind(var, Range(0, extent))
        self._untold.clear()
        return self._analyzer.simplify(expr)

    def _extract(self, expr: Expr | int) -> Linear | None:
        if isinstance(expr, int):
            return Linear(expr)
        terms: dict[int, int] = {}
        const = self._collect(expr, 1, terms)
        return None if const is None else Linear.of(const, terms)

    def _collect(self, expr: Expr, factor: int, terms: dict[int, int]) -> int | None:
        """Add ``factor`` times ``expr`` to ``terms``; what it has of a constant, None: not affine.

        The classes are compared, not asked for: these have no subclasses among indices.
        """
        kind = type(expr)
        if kind is tirx.Var:
            number = self[expr]
            terms[number] = terms.get(number, 0) + factor
            return 0
        if kind is tirx.IntImm:
            return factor * int(expr.value)
        if kind is tirx.Cast:
            return self._collect(expr.value, factor, terms)
        if kind is tirx.Mul:
            return self._multiplied(expr, factor, terms)
        if kind is not tirx.Add and kind is not tirx.Sub:
            return None
        left = self._collect(expr.a, factor, terms)
        right = self._collect(expr.b, factor if kind is tirx.Add else -factor, terms)
        return None if left is None or right is None else left + right

    def _multiplied(self, expr: tirx.Mul, factor: int, terms: dict[int, int]) -> int | None:
        left, right = expr.a, expr.b
        if type(right) is tirx.IntImm:
            return self._collect(left, factor * int(right.value), terms)
        form = self._extract(right)
        if form is not None and not form.terms:
            return self._collect(left, factor * form.const, terms)
        form = self._extract(left)
        if form is not None and not form.terms:
            return self._collect(right, factor * form.const, terms)
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
    condition: object = field(compare=False)
    """What it is of; its text is for errors."""


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
    return [Bound(sides[large] + sides[small].scale(-1) + Linear(extra), cond)]


Domain = tuple[tuple[int, int], ...]
"""[low, high) of each loop of a nest."""


Terms = tuple[tuple[int, int], ...]
"""(number of the loop, coefficient) of each loop of a nest that a bound is about."""


class Clip:
    """Where ``bounds`` hold in a nest of ``loops`` (variable, extent).

    A bound is about one loop; ``most`` loops where what it leaves may be several boxes.
    """

    def __init__(self, bounds: Sequence[Bound], loops: Sequence[tuple[int, int]], most: int = 1):
        self._full: Domain = tuple((0, extent) for _, extent in loops)
        conditions = [self._condition(bound, loops, most) for bound in bounds]
        self._conditions = [c for c in conditions if len(c[1]) < 2]
        self._skewed = [c for c in conditions if len(c[1]) > 1]

    @staticmethod
    def _condition(
        bound: Bound, loops: Sequence[tuple[int, int]], most: int
    ) -> tuple[Linear, Terms]:
        """``bound`` as ``outer + sum(coef * loop) >= 0``: (outer, terms)."""
        inner = tuple(
            (k, coef)
            for k, (var, extent) in enumerate(loops)
            if extent > 1 and (coef := bound.form.coef(var))
        )
        if len(inner) > most:
            raise CodegenError(
                f"condition {bound.condition} bounds {len(inner)} loops at once; padding and tails "
                "are boxes; do not fuse or skew the loops of a padded or partial tile"
            )
        own = {var for var, _ in loops}
        outer = Linear(bound.form.const, tuple(t for t in bound.form.terms if t[0] not in own))
        return outer, inner

    def domains(self, env: Mapping[int, int]) -> list[Domain]:
        """As :meth:`domain`, in the boxes that bounds about several loops leave."""
        whole = self.domain(env)
        if whole is None:
            return []
        return list(_boxes(whole, [(outer.at(env), terms) for outer, terms in self._skewed]))

    def domain(self, env: Mapping[int, int]) -> Domain | None:
        """The part of every loop where all bounds hold with outer values ``env``; None: nothing."""
        if not self._conditions:
            return self._full
        domain = list(self._full)
        for outer, inner in self._conditions:
            base = outer.at(env)
            if not inner:
                if base < 0:
                    return None
                continue
            ((k, coef),) = inner
            domain[k] = _clipped(domain[k], base, coef)
            if domain[k][0] >= domain[k][1]:
                return None
        return tuple(domain)


def _clipped(domain: tuple[int, int], base: int, coef: int) -> tuple[int, int]:
    """The part of ``domain`` where ``base + coef * loop >= 0``."""
    low, high = domain
    if coef > 0:
        return max(low, -(base // coef)), high
    return low, min(high, base // -coef + 1)


def _boxes(domain: Domain, skewed: Sequence[tuple[int, Terms]]) -> Iterator[Domain]:
    """The boxes of ``domain`` where all of ``skewed`` hold, each ``(base, terms of some loops)``.

    The shorter loop of a bound is cut into runs of iterations that leave the same of all others.
    """
    cutting = next((terms for base, terms in skewed if _least(base, terms, domain) < 0), None)
    if cutting is None:
        yield domain
        return
    cut = min((k for k, _ in cutting), key=lambda k: domain[k][1] - domain[k][0])
    here = [(base, dict(terms)) for base, terms in skewed if cut in dict(terms)]
    rest = [(base, terms) for base, terms in skewed if cut not in dict(terms)]
    runs: list[_Run] = []
    for value in range(*domain[cut]):
        part, left = list(domain), []
        for base, terms in here:
            here_base = base + terms[cut] * value
            others = tuple((k, coef) for k, coef in terms.items() if k != cut)
            if len(others) > 1:
                left.append((here_base, others))
                continue
            ((k, coef),) = others
            part[k] = _clipped(part[k], here_base, coef)
        if any(low >= high for low, high in part):
            continue
        part[cut] = (value, value + 1)
        left = [(base, terms) for base, terms in left if _least(base, terms, part) < 0]
        run = _Run((*part[:cut], *part[cut + 1 :]), tuple(left), value, value + 1)
        if runs and run.follows(runs[-1]):
            runs[-1] = dataclasses.replace(runs[-1], end=value + 1)
        else:
            runs.append(run)
    for run in runs:
        yield from _boxes(run.domain(cut), [*run.left, *rest])


def _least(base: int, terms: Terms, domain: Sequence[tuple[int, int]]) -> int:
    """The least that a bound's form is in ``domain``."""
    return base + sum(min(coef * domain[k][0], coef * (domain[k][1] - 1)) for k, coef in terms)


@dataclass(frozen=True)
class _Run:
    """Iterations [begin, end) of a loop that leave the same of all others, and the same bounds."""

    others: Domain
    left: tuple[tuple[int, Terms], ...]
    begin: int
    end: int

    def follows(self, other: _Run) -> bool:
        """Whether both are one run."""
        return (self.begin, self.others, self.left) == (other.end, other.others, other.left)

    def domain(self, cut: int) -> Domain:
        """Of all loops; `cut` is the number of this one."""
        return (*self.others[:cut], (self.begin, self.end), *self.others[cut:])
