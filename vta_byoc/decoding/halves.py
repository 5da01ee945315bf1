"""A partitioned module with one region as what the host does before it, a program, and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import TupleGetItem

from vta_byoc.codegen.short_rows import with_short_rows
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.target import exact_target, native_target
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.ir.bindings import (
    FunctionWriter,
    is_constant,
    straight_bindings,
    substituted,
    vars_in,
)
from vta_byoc.ir.host_loops import TIR_PIPELINE
from vta_byoc.partitioning.placement import placements
from vta_byoc.partitioning.region import Region, region_calls, region_functions
from vta_byoc.passes.kernels_once import KernelsOnce
from vta_byoc.passes.lower_regions import compile_region

FEED, FINISH = "feed", "finish"
VARIANTS = (False, False), (True, False), (True, True)
"""Whether weights are loaded ahead, and whether kernels are early; the fastest is taken."""


@dataclass(frozen=True)
class Part:
    """A function that the host runs: the names of what it takes and gives, in order."""

    takes: tuple[str, ...]
    gives: tuple[str, ...]


@dataclass(frozen=True)
class Halves:
    """A model that is one region, in parts.

    Attributes:
        program: of the region.
        feed: from the model's inputs to the program's.
        finish: from the program's results to the first of the model's.
        others: the program's result that each further result of the model is made of.
        host: runs `feed` and `finish`.
    """

    program: Program
    feed: Part
    finish: Part
    others: tuple[str, ...]
    host: relax.VirtualMachine

    def fed(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The program's inputs by symbol, from the model's by name."""
        return dict(zip(self.feed.gives, self._run(FEED, self.feed, given), strict=True))

    def finished(self, results: Mapping[str, np.ndarray]) -> np.ndarray:
        """The first of the model's results, from the program's by symbol."""
        return self._run(FINISH, self.finish, results)[0]

    def _run(self, name: str, part: Part, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        tensors = [tvm.runtime.tensor(np.ascontiguousarray(given[x])) for x in part.takes]
        return [tensor.numpy() for tensor in self.host[name](*tensors)]


def halves_of(pmod: tvm.IRModule, config: VTAConfig) -> Halves:
    """The parts of a partitioned module.

    Raises:
        VTAError: it is no single region, or the host computes with inputs behind it.
    """
    return _Splitter(pmod, config).halves()


def region_program(pmod: tvm.IRModule, config: VTAConfig) -> Program:
    """The program of a partitioned module's one region.

    Raises:
        VTAError: it is no single region.
    """
    return _Splitter(pmod, config).program()


class _Splitter:
    def __init__(self, pmod: tvm.IRModule, config: VTAConfig) -> None:
        self.pmod, self.config = pmod, config
        calls = region_calls(pmod)
        if len(calls) != 1:
            raise VTAError(_apart(pmod, len(calls)))
        ((self.var, self.call),) = calls.items()
        self.region = Region.of(self.call.func)
        self.main = pmod["main"]
        self.defined = {b.var: b.value for b in straight_bindings(self.main)}

    def program(self) -> Program:
        args = enumerate(self.call.call.args)
        constants = {i: arg.value.numpy() for i, arg in args if is_constant(arg)}
        given = self.pmod, self.call.func, constants, self.config
        made = KernelsOnce(self.config)
        programs = [
            with_short_rows(compile_region(*given, weights_ahead=ahead, early=early, made=made))
            for ahead, early in VARIANTS
        ]
        return min(programs, key=lambda program: simulate(program).cycles)

    def halves(self) -> Halves:
        args = zip(self.region.params, self.call.call.args, strict=True)
        fed = [(name, arg) for name, arg in args if not is_constant(arg)]
        feed, takes = self._function([arg for _, arg in fed])
        results = self.main.body.body
        values = list(results.fields) if isinstance(results, relax.Tuple) else [results]
        finish, read = self._function(values[:1])
        others = tuple(self._result_of(value) for value in values[1:])
        outputs = self._outputs()
        if any(var not in outputs for var in read):
            raise VTAError(
                "the host computes the logits with the ids, too; a decoder is one region between "
                "its embedding and its logits; leave less to the CPU"
            )
        host = self._built({FEED: feed, FINISH: finish})
        return Halves(
            self.program(),
            Part(tuple(str(v.name) for v in takes), tuple(name for name, _ in fed)),
            Part(tuple(outputs[v] for v in read), ("logits",)),
            others,
            host,
        )

    def _outputs(self) -> dict[relax.Var, str]:
        """The region's results by the variables of `main` that hold them."""
        names = self.region.outputs
        if not isinstance(self.var.ty, relax.TupleType):
            return {self.var: names[0]}
        return {
            var: names[value.index]
            for var, value in self.defined.items()
            if isinstance(value, TupleGetItem) and value.tuple_value.same_as(self.var)
        }

    def _needed(self, values: Sequence[relax.Expr]) -> tuple[set[relax.Var], list[relax.Var]]:
        """What the host computes for ``values``, and what that begins with."""
        outputs = self._outputs()
        inside: set[relax.Var] = set()
        begins: dict[relax.Var, None] = {}
        todo = [v for value in values for v in vars_in(value)]
        while todo:
            var = todo.pop()
            if var in outputs or var not in self.defined:
                begins[var] = None
            elif var not in inside:
                inside.add(var)
                todo += vars_in(self.defined[var])
        order = [*self.main.params, *outputs]
        return inside, sorted(begins, key=lambda v: next(i for i, o in enumerate(order) if o == v))

    def _function(self, values: Sequence[relax.Expr]) -> tuple[relax.Function, list[relax.Var]]:
        """The host's function of a tuple of ``values``, and the variables that it takes."""
        inside, begins = self._needed(values)
        writer = FunctionWriter(relax.BlockBuilder(self._kernels()))
        env: dict[relax.Var, relax.Expr] = {
            v: relax.Var(f"given{i}", v.ty) for i, v in enumerate(begins)
        }
        params = list(env.values())
        for var, value in self.defined.items():
            if var in inside:
                env[var] = writer.emit(substituted(value, env), str(var.name))
        result = relax.Tuple([substituted(value, env) for value in values])
        made = writer.finish(self.main, result)
        return relax.Function(params, made.body, ret_ty=made.ret_ty), begins

    def _result_of(self, value: relax.Expr) -> str:
        """The one result of the region that ``value`` is made of."""
        outputs = self._outputs()
        _, begins = self._needed([value])
        assert len(begins) == 1 and begins[0] in outputs, "keys and values come from the region"
        return outputs[begins[0]]

    def _kernels(self) -> tvm.IRModule:
        """The host's copies between layouts."""
        gone = {gv.name_hint for gv in region_functions(self.pmod)} | {"main"}
        kept = {g: f for g, f in self.pmod.functions.items() if g.name_hint not in gone}
        return tvm.IRModule(kept)

    def _built(self, functions: Mapping[str, relax.Function]) -> relax.VirtualMachine:
        mod = self._kernels()
        for name, function in functions.items():
            mod[name] = function.with_attr("global_symbol", name)
        names = list(functions)
        passes = [
            relax.transform.Normalize(),
            relax.transform.DeadCodeElimination(names),
            relax.get_pipeline("zero"),
            relax.get_pipeline("default_build"),
        ]
        pipeline = tvm.transform.Sequential(passes)
        target = exact_target(native_target())
        exe = relax.build(mod, target, relax_pipeline=pipeline, tir_pipeline=TIR_PIPELINE)
        return relax.VirtualMachine(exe, tvm.cpu())


def _apart(pmod: tvm.IRModule, count: int) -> str:
    """Why the model is no single region."""
    left = [p for p in placements(pmod) if p.device == "cpu" and p.macs]
    named = ", ".join(f"{p.name} ({p.why.text})" for p in left[:3]) or "operators between layers"
    return (
        f"the decoder has {count} regions; one is decoded; on the CPU are {named}; use a machine "
        "with MUL and BATCH 1, and see vta-byoc place for all reasons"
    )
