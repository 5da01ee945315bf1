"""Bit-for-bit comparison of a compiled model with its integer reference.

The reference is the quantized module itself, built for the host before anything was marked or
packed.  Every result of the model is compared, and every tensor that a region stores: its results
as they are, what lies between its layers from a second run of the same instructions, in which no
two tensors share bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.hw.program.program import STORED, Program
from vta_byoc.hw.sim import simulator
from vta_byoc.ir.bindings import FunctionWriter, straight_bindings, substituted, with_main
from vta_byoc.ir.names import POOLED, ROUTED, SCRATCH, channels_in
from vta_byoc.ir.reference import ReferenceMachine
from vta_byoc.pipeline import Compiled
from vta_byoc.runtime.execute import Inputs, profile, run_vm
from vta_byoc.runtime.profile import Profile
from vta_byoc.workload.layout import read_packed

OUTPUT = "output"
"""`TensorCheck.where` of a result of the model."""


@dataclass(frozen=True)
class TensorCheck:
    """One tensor against the reference.

    Attributes:
        name: the model's operator, or the name of the model's output.
        where: the region that stored it, or ``output``.
        size: number of elements.
        n_different: how many of them differ.
        first: index of the first one that differs, with both values; None when all are equal.
    """

    name: str
    where: str
    size: int
    n_different: int
    first: tuple[int, ...] | None = None
    value: float | int | None = None
    reference: float | int | None = None

    @property
    def equal(self) -> bool:
        """Whether every bit is the same."""
        return self.n_different == 0

    def __str__(self) -> str:
        if self.equal:
            return f"{self.where} {self.name}: all {self.size} values equal"
        assert self.first is not None
        index = ", ".join(map(str, self.first))
        return (
            f"{self.where} {self.name}: {self.n_different} of {self.size} values differ, first at "
            f"[{index}]: {self.value}, reference {self.reference}"
        )


@dataclass(frozen=True)
class Reference:
    """What the reference computes for one set of inputs.

    ``outputs`` are the model's results in order, ``tensors`` the unpacked values of what regions
    store, by the name of the symbol.
    """

    outputs: list[np.ndarray]
    tensors: Mapping[str, np.ndarray]


def reference_runner(
    qmod: tvm.IRModule, programs: Mapping[str, Program]
) -> Callable[[Inputs], Reference]:
    """Build the quantized module for the host once; the result runs it on inputs.

    Args:
        qmod: the result of :func:`vta_byoc.quantize`.
        programs: region name -> Program; the tensors they store are kept beside the outputs.
    """
    names = [name for program in programs.values() for name in stored(program)]
    whole = list(dict.fromkeys(channels_in(name)[0] for name in names))
    observed, count = observing(qmod, whole)
    machine = ReferenceMachine(observed)

    def run(inputs: Inputs) -> Reference:
        values = run_vm(machine.for_next_run(), inputs)
        tensors = dict(zip(whole, values[count:], strict=True))
        return Reference(values[:count], {name: values_of(tensors, name) for name in names})

    return run


def values_of(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """What of ``tensors`` of the model a program stores as ``name``: a whole one, or channels."""
    whole, channels = channels_in(name)
    return tensors[name] if whole == name else tensors[whole][:, channels]


def stored(program: Program) -> list[str]:
    """Symbols that a program stores to DRAM: its results and what it keeps between layers.

    A tensor that the model does not have is not among them: as a pool was computed first, as its
    channels have another order, or as only the kernels of one layer know of it.
    """
    names = [s.name for kind in STORED for s in program.of_kind(kind)]
    own = (SCRATCH, ROUTED)
    return [n for n in names if not n.endswith(POOLED) and not any(mark in n for mark in own)]


def compare_outputs(
    names: Sequence[str], values: Sequence[np.ndarray], reference: Reference
) -> list[TensorCheck]:
    """The model's results, in order."""
    pairs = zip(names, values, reference.outputs, strict=True)
    return [same_bits(name, OUTPUT, got, want) for name, got, want in pairs]


def compare_stored(
    run: Profile, programs: Mapping[str, Program], reference: Reference
) -> list[TensorCheck]:
    """Every tensor that the regions stored in ``run`` (a profile with ``arenas=True``)."""
    checks = []
    for region in run.regions:
        assert region.arena is not None, "profile(..., arenas=True) keeps the arenas"
        program = programs[region.name]
        for name, packed in stored_tensors(program, region.arena).items():
            checks.append(same_packed(name, region.name, packed, reference.tensors[name]))
    return checks


def stored_tensors(program: Program, arena: np.ndarray) -> dict[str, np.ndarray]:
    """Every tensor that a run of ``program`` stored, packed, by symbol, in the order of `stored`.

    Args:
        program: what ran.
        arena: the arena (int8) after the run.  The results are what it holds.  Where temporaries
            share bytes it has not kept them all: they come from a run of
            ``program.without_sharing()`` on the inputs in ``arena``, on the functional simulator.
    """
    apart, kept = program.without_sharing(), arena
    if apart is not program:
        inputs = {s.name: program.view(arena, s.name) for s in program.of_kind("input")}
        kept = simulator.run(apart, inputs).arena
    results = {s.name for s in program.of_kind("output")}
    return {
        name: program.view(arena, name) if name in results else apart.view(kept, name)
        for name in stored(program)
    }


def same_packed(name: str, where: str, packed: np.ndarray, reference: np.ndarray) -> TensorCheck:
    """Compare a tensor with the reference, in the layout that it has: packed, or the same."""
    if packed.shape == reference.shape:
        return same_bits(name, where, packed, reference)
    forms = read_packed(packed, reference.shape)
    checks = [same_bits(name, where, form, reference) for form in forms]
    return min(checks, key=lambda check: check.n_different)


def compare_layers(qmod: tvm.IRModule, compiled: Compiled, inputs: Inputs) -> list[TensorCheck]:
    """Run device and reference once and compare every tensor that a region stores.

    Args:
        qmod: the quantized module that ``compiled`` was made from.
        compiled: the result of :func:`vta_byoc.pipeline.compile_module`.
        inputs: as for :func:`vta_byoc.profile`.
    """
    run = profile(compiled.exe, inputs, arenas=True)
    reference = reference_runner(qmod, compiled.programs)(inputs)
    return compare_stored(run, compiled.programs, reference)


def same_bits(name: str, where: str, value: np.ndarray, reference: np.ndarray) -> TensorCheck:
    """Compare two arrays of one shape and dtype bit for bit (so NaN equals the same NaN)."""
    assert value.shape == reference.shape and value.dtype == reference.dtype, name
    different = np.argwhere(_bits(value) != _bits(reference))
    if not len(different):
        return TensorCheck(name, where, value.size, 0)
    first = tuple(int(i) for i in different[0])
    got, want = value[first].item(), reference[first].item()
    return TensorCheck(name, where, value.size, len(different), first, got, want)


def _bits(array: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(array)
    return flat.view(f"u{flat.itemsize}").reshape(array.shape)


def observing(qmod: tvm.IRModule, names: Sequence[str]) -> tuple[tvm.IRModule, int]:
    """``qmod`` with the variables ``names`` as further results, and how many results it had."""
    main, writer = qmod["main"], FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    by_name: dict[str, relax.Expr] = {}
    for binding in straight_bindings(main):
        env[binding.var] = writer.emit(substituted(binding.value, env), str(binding.var.name))
        by_name[str(binding.var.name)] = env[binding.var]
    body = substituted(main.body.body, env)
    results = list(body.fields) if isinstance(body, Tuple) else [body]
    # No guessing: the wrong tensor would be reported as a difference.
    unknown = [name for name in names if name not in by_name]
    assert not unknown, f"regions store {unknown}, which the quantized module does not have"
    everything = relax.Tuple([*results, *(by_name[name] for name in names)])
    return with_main(qmod, writer.finish(main, everything)), len(results)
