"""Regions: functions of packed composites that one Program runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import Tuple, TupleGetItem

from vta_byoc.ir.bindings import static_shape, straight_bindings
from vta_byoc.partitioning.composite import RESULT_ATTR, SOURCE_ATTR
from vta_byoc.runtime.executable import region_name
from vta_byoc.strategies.te.kernel import SCHEDULE_ATTR, Chosen
from vta_byoc.strategy import Computation, computation_of

CODEGEN = "vta"


def region_functions(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, relax.Function]:
    """The functions of ``mod`` that VTA runs, by global variable."""
    return {
        gv: func
        for gv, func in mod.functions.items()
        if isinstance(func, relax.Function)
        and func.attrs
        and str(func.attrs.get("Codegen", "")) == CODEGEN
    }


@dataclass(frozen=True)
class RegionCall:
    """A call of a region in ``main``: its name is that of the region in every report.

    Two calls may be of one function: what they compute with are their arguments.
    """

    number: int
    func: relax.Function
    call: relax.Call

    @property
    def name(self) -> str:
        """``region0`` and so on."""
        return region_name(self.number)


def region_calls(mod: tvm.IRModule) -> dict[relax.Var, RegionCall]:
    """The calls of regions in ``main`` by the variable of their result.

    The order of ``main`` numbers them; later passes may execute them in another one.
    """
    functions = {gv.name_hint: func for gv, func in region_functions(mod).items()}
    found: dict[relax.Var, RegionCall] = {}
    for binding in straight_bindings(mod["main"]):
        callee = str(getattr(getattr(binding.value, "op", None), "name_hint", ""))
        if callee in functions:
            found[binding.var] = RegionCall(len(found), functions[callee], binding.value)
    return found


@dataclass(frozen=True)
class RegionStep:
    """One composite of a region: its packed computes, argument tensors, result tensor.

    The first of ``computes`` is the producer; each further one is a consumer fused into the one
    before it, whose result is its argument number ``carried``; ``inside`` are these results.
    ``source`` is the model's operator that it computes, or a part of; several, joined by JOINT,
    of a fused schedule.  ``chosen``: its schedule, as the composite has it.
    """

    composite: str
    computes: tuple[tvm.ir.GlobalVar, ...]
    carried: tuple[int, ...]
    inside: tuple[str, ...]
    args: tuple[str, ...]
    output: str
    source: str
    chosen: Chosen | None = None

    def computation(self, mod: tvm.IRModule) -> Computation:
        """What it computes, and how, by the PrimFuncs of ``mod``."""
        funcs = [mod[compute] for compute in self.computes]
        return computation_of(funcs, self.carried, self.chosen)


@dataclass(frozen=True)
class Region:
    """A region read from its function.

    ``tensors`` gives (shape, dtype) of parameters, values and results by name, in order of
    definition; ``params`` and ``outputs`` are names.
    """

    tensors: Mapping[str, tuple[tuple[int, ...], str]]
    params: tuple[str, ...]
    steps: tuple[RegionStep, ...]
    outputs: tuple[str, ...]

    def layer_name(self, step: RegionStep) -> str:
        """The source of ``step``; its result where several steps compute that source."""
        alone = sum(other.source == step.source for other in self.steps) == 1
        return step.source if alone else step.output

    @classmethod
    def of(cls, func: relax.Function) -> Region:
        """Read a function that MergeCompositeFunctions made."""
        return _Reader(func).region


def computes_of(
    composite: relax.Function,
) -> tuple[tuple[tvm.ir.GlobalVar, ...], tuple[int, ...], tuple[str, ...]]:
    """The PrimFuncs that a packed composite calls, and how each takes the result of the one before.

    Returns:
        The PrimFuncs; which argument of each but the first is that result; the names of these
        results.
    """
    computes, carried, inside = [], [], []
    before: relax.Var | None = None
    for binding in composite.body.blocks[0].bindings:
        compute, args = binding.value.args[:2]
        if before is not None:
            carried.append(next(i for i, a in enumerate(args.fields) if a.same_as(before)))
            inside.append(str(before.name))
        computes.append(compute)
        before = binding.var
    return tuple(computes), tuple(carried), tuple(inside)


def chosen_of(composite: relax.Function) -> Chosen | None:
    """The schedule that is written on a packed composite."""
    text = composite.attrs.get(SCHEDULE_ATTR)
    return None if text is None else Chosen.from_text(str(text))


def called_composite(
    binding: relax.VarBinding, groups: Mapping[str, relax.Function]
) -> relax.Function | None:
    """Which of the composites, by name, a binding of ``main`` calls."""
    call = binding.value
    if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.GlobalVar):
        return None
    return groups.get(call.op.name_hint)


def computation_in(composite: relax.Function, mod: tvm.IRModule) -> Computation:
    """What a packed composite of ``mod`` computes, with the schedule that is written on it."""
    computes, operands, _ = computes_of(composite)
    funcs = [mod[compute] for compute in computes]
    return computation_of(funcs, operands, chosen_of(composite))


class _Reader:
    def __init__(self, func: relax.Function):
        self._names: dict[relax.Var, str] = {}
        self._local: dict[relax.Var, relax.Function] = {}
        self._tuples: dict[relax.Var, relax.Expr] = {}
        self._tensors: dict[str, tuple[tuple[int, ...], str]] = {}
        params = [self._declare(p, str(p.name)) for p in func.params]
        steps = []
        for block in func.body.blocks:
            for binding in block.bindings:
                step = self._binding(binding.var, binding.value)
                if step is not None:
                    steps.append(step)
        outputs = dict.fromkeys(self._results(func.body.body))
        self.region = Region(self._tensors, tuple(params), tuple(steps), tuple(outputs))

    def _declare(self, var: relax.Var, name: str) -> str:
        unique, count = name, 1
        while unique in self._tensors:
            count += 1
            unique = f"{name}__{count}"
        self._names[var] = unique
        self._tensors[unique] = (static_shape(var), str(var.ty.dtype))
        return unique

    def _binding(self, var: relax.Var, value: relax.Expr) -> RegionStep | None:
        if isinstance(value, relax.Function):
            self._local[var] = value
            return None
        if isinstance(value, relax.Call) and value.op in self._local:
            inner = self._local[value.op]
            args = tuple(self._names[a] for a in value.args)
            name = self._declare(var, str(inner.attrs[RESULT_ATTR]))
            source, composite = (str(inner.attrs[key]) for key in (SOURCE_ATTR, "Composite"))
            return RegionStep(composite, *computes_of(inner), args, name, source, chosen_of(inner))
        if isinstance(value, relax.Var):
            self._names[var] = self._names[value]
            return None
        if isinstance(value, Tuple):
            self._tuples[var] = value
            return None
        raise AssertionError(f"a region holds {value}")

    def _results(self, body: relax.Expr) -> list[str]:
        body = self._tuples.get(body, body) if isinstance(body, relax.Var) else body
        if isinstance(body, Tuple):
            return [n for field in body.fields for n in self._results(field)]
        assert not isinstance(body, TupleGetItem)
        return [self._names[body]]
