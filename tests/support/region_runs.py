"""Partitioned modules run piece by piece: regions on the simulator, everything else on LLVM.

As `layer_runs`, but the host's functions are the compiler's own, each built by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from layer_runs import partitioned
from operators_llvm import OPERATORS, results
from tvm import relax
from tvm.ir import TupleGetItem

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator
from vta_byoc.ir.bindings import is_constant, straight_bindings
from vta_byoc.partition import Placement
from vta_byoc.partitioning.region import Region, RegionCall, region_calls
from vta_byoc.passes.lower_regions import compile_region
from vta_byoc.validation.bit_exact import (
    TensorCheck,
    compare_outputs,
    same_packed,
    stored_tensors,
)


def compared(
    integers: tvm.IRModule, config: VTAConfig, inputs: Sequence[np.ndarray]
) -> tuple[list[TensorCheck], list[Placement]]:
    """Compile a module of the integer dialect, and compare it with the dialect on LLVM.

    Returns:
        What is equal and what is not: the results, and every tensor that a region stores; and
        where the operators run.
    """
    run = partitioned(integers, config, planned=False)
    parts = _Parts(run.module, config)
    return parts.checks(integers, inputs), list(run.placement.values())


@dataclass(frozen=True)
class Found:
    """What a module became: programs by region, and where the operators run."""

    programs: dict[str, Program]
    placement: list[Placement]


def equal_parts(
    integers: tvm.IRModule, config: VTAConfig, samples: Iterable[Sequence[np.ndarray]]
) -> Found:
    """Compile as `compared` does; all that it compares is equal for each of ``samples``."""
    run = partitioned(integers, config, planned=False)
    parts = _Parts(run.module, config)
    for inputs in samples:
        checks = parts.checks(integers, inputs)
        assert all(check.equal for check in checks), list(map(str, checks))
    return Found(parts.programs, list(run.placement.values()))


class _Parts:
    """The regions and the host's operators of a partitioned module."""

    def __init__(self, mod: tvm.IRModule, config: VTAConfig) -> None:
        self._mod, self._config = mod, config
        self._regions = region_calls(mod)
        self.stored: dict[tuple[str, str], np.ndarray] = {}
        """Packed, by the region and the name."""
        self.programs: dict[str, Program] = {}
        """By the region."""

    def checks(self, integers: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[TensorCheck]:
        """The results of ``main`` and what regions store against ``integers`` on LLVM."""
        got = self.results(inputs)
        wanted = OPERATORS.reference(integers, [name for _, name in self.stored], inputs)
        found = compare_outputs(["out"], got, wanted)
        for (region, name), packed in self.stored.items():
            found.append(same_packed(name, region, packed, wanted.tensors[name]))
        return found

    def results(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What ``main`` returns."""
        main = self._mod["main"]
        OPERATORS.build(self._mod)
        env: dict[Any, Any] = dict(zip(main.params, map(tvm.runtime.tensor, inputs), strict=True))
        for binding in straight_bindings(main):
            var, value = binding.var, binding.value
            if isinstance(value, TupleGetItem):
                env[var] = env[value.tuple_value][value.index]
            elif var in self._regions:
                env[var] = self._region(self._regions[var], env)
            else:
                env[var] = OPERATORS.called(self._mod, value, env)
        return results(main, env)

    def _region(self, called: RegionCall, env: dict[Any, Any]) -> Any:
        region, args = Region.of(called.func), called.call.args
        if called.name not in self.programs:
            known = {i: arg.value.numpy() for i, arg in enumerate(args) if is_constant(arg)}
            program = compile_region(self._mod, called.func, known, self._config)
            self.programs[called.name] = program
        program = self.programs[called.name]
        names = zip(region.params, args, strict=True)
        inputs = {name: env[arg].numpy() for name, arg in names if not is_constant(arg)}
        arena = simulator.run(program, inputs).arena
        for name, packed in stored_tensors(program, arena).items():
            self.stored[called.name, name] = packed
        stored = [tvm.runtime.tensor(program.view(arena, name).copy()) for name in region.outputs]
        return stored if isinstance(called.call.ty, relax.TupleType) else stored[0]
