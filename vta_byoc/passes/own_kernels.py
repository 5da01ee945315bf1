"""Calls of users' kernels inside a network: a place on VTA, and a program each.

A `call_tir` of a PrimFunc with the attribute KERNEL_ATTR is computed by the registered kernel of
that name. It is a region of its own: what is between it and its neighbours is in plain layouts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    is_constant,
    op_name,
    source_name,
    straight_bindings,
    substituted,
)
from vta_byoc.ir.legality import LOWERED, PLACED, REGIONS_ATTR
from vta_byoc.ir.stage import Stage
from vta_byoc.partitioning.left_out import names_left_out
from vta_byoc.partitioning.placement import VTA, Placement, Taken, placements, with_placements
from vta_byoc.passes.lower_regions import LoweredRegions
from vta_byoc.passes.program_call import ProgramCall
from vta_byoc.registry.kernels import KERNEL_ATTR, KernelEntry, kernel_entry
from vta_byoc.runtime.executable import SIGNATURE, region_name
from vta_byoc.runtime.library import with_about

PLACE_KERNELS = Stage("PlaceKernels", PLACED, PLACED, "gives VTA the calls of registered kernels")
LOWER_KERNELS = Stage("LowerKernels", LOWERED, LOWERED, "compiles each of them to a program")

OPAQUE = 8
"""TVM's `op_pattern` of a function that nothing is fused with."""


@dataclass(frozen=True)
class KernelCall:
    """One call of a user's kernel in ``main``.

    Attributes:
        result: the variable that it is bound to.
        entry: the registered kernel.
        definition: the function that it computes, without the attribute.
        args: what is given for all of its parameters but the last, in order.
    """

    result: relax.Var
    entry: KernelEntry
    definition: tirx.PrimFunc
    args: tuple[relax.Expr, ...]

    @functools.cached_property
    def values(self) -> dict[str, relax.Expr]:
        """What is given that is no constant, by the name of the symbol in the program."""
        named = zip(self._parameters, self.args, strict=True)
        return {self._symbol(name): arg for name, arg in named if not is_constant(arg)}

    @property
    def _parameters(self) -> list[str]:
        return [str(param.name) for param in self.definition.params[:-1]]

    def _symbol(self, parameter: str) -> str:
        return f"{self.result.name}{SEPARATOR}{parameter}"

    def program(self, config: VTAConfig) -> Program:
        """The program of this call, whose output is called as the result is.

        Raises:
            VTAError: the kernel does not compile, or computes something of another type.
        """
        constants: dict[str, np.ndarray] = {
            name: arg.value.numpy()
            for name, arg in zip(self._parameters, self.args, strict=True)
            if is_constant(arg)
        }
        layer = source_name(self.result)
        try:
            program = self.entry.compile(self.definition, config, layer, constants)
        except VTAError as err:
            raise VTAError(
                f'{layer} asks for kernel "{self.entry.name}" of {self.entry.by}: {err}'
            ) from err
        (output,) = program.of_kind("output")
        names = {tensor.name: self._symbol(tensor.name) for tensor in program.of_kind("input")}
        names |= {tensor.name: self._symbol(tensor.name) for tensor in program.of_kind("const")}
        return renamed(program, {**names, output.name: str(self.result.name)})


def renamed(program: Program, names: Mapping[str, str]) -> Program:
    """``program`` with other names for some of its symbols."""

    def other(name: str) -> str:
        return names.get(name, name)

    return dataclasses.replace(
        program,
        symbols=tuple(dataclasses.replace(s, name=other(s.name)) for s in program.symbols),
        relocations=tuple(
            dataclasses.replace(r, symbol=other(r.symbol)) for r in program.relocations
        ),
        layers=tuple(dataclasses.replace(x, output=other(x.output)) for x in program.layers),
    )


def kernel_calls(mod: tvm.IRModule) -> Iterator[KernelCall]:
    """The calls of users' kernels in ``main`` that VTA is to compute, in order.

    Raises:
        VTAError: a kernel that is not registered, or arguments that its function does not take.
    """
    for binding in straight_bindings(mod["main"]):
        call = binding.value
        if op_name(call) != "relax.call_tir":
            continue
        function = mod[call.args[0]]
        if KERNEL_ATTR not in (function.attrs or {}):
            continue
        if source_name(binding.var) in names_left_out(mod):
            continue
        entry = kernel_entry(str(function.attrs[KERNEL_ATTR]))
        made = KernelCall(
            binding.var, entry, function.without_attr(KERNEL_ATTR), tuple(call.args[1].fields)
        )
        _check_types(made)
        yield made


def _check_types(call: KernelCall) -> None:
    """The tensors of a call must be what its function is made for."""
    given = [*call.args, call.result]
    params = list(call.definition.params)
    if len(given) != len(params):
        raise VTAError(
            f"{source_name(call.result)} gives {len(given) - 1} tensors to kernel "
            f'"{call.entry.name}"; its function takes {len(params) - 1}; give one for each'
        )
    for tensor, param in zip(given, params, strict=True):
        have = _type(tensor.ty.shape, tensor.ty.dtype)
        want = _type(getattr(param, "shape", ()), param.dtype)
        if have != want:
            raise VTAError(
                f'{source_name(call.result)} asks kernel "{call.entry.name}" for {param.name} of '
                f"{have}; its function has {want}; call a function of these shapes"
            )


def _type(shape: relax.Expr | Sequence[tvm.ir.Expr], dtype: str) -> str:
    sizes = [str(getattr(size, "value", size)) for size in getattr(shape, "values", shape)]
    return f"{dtype} ({', '.join(sizes)})"


# ---------------------------------------------------------------- the stages
def place_kernels(config: VTAConfig) -> tvm.transform.Pass:
    """Note in the placement record that VTA runs the calls of kernels, and what they cost."""

    @PLACE_KERNELS
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = _without_fusion(mod)
        calls = {source_name(call.result): call for call in kernel_calls(mod)}
        if not calls:
            return mod
        records = [
            _placed(record, calls[record.name], config) if record.name in calls else record
            for record in placements(mod)
        ]
        return with_placements(mod, records)

    return run


def _without_fusion(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` whose functions of kernels the host calls as they are, where the user wants that.

    TVM cannot fuse a function of TE into its own: their shapes are int32 and int64.
    """
    result = mod
    for gv, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc) and KERNEL_ATTR in (func.attrs or {}):
            result = result.clone() if result is mod else result
            result.update_func(gv, func.with_attr("op_pattern", OPAQUE))
    return result


def _placed(record: Placement, call: KernelCall, config: VTAConfig) -> Placement:
    """``record`` of a call that the CPU would compute otherwise."""
    cycles = simulate(call.program(config)).cycles
    why = Taken(kernel=f"{call.entry.name} of {call.entry.by}")
    return dataclasses.replace(
        record, device=VTA, why=why, cycles=cycles, other_macs=0, other_alu_ops=0
    )


def lower_kernels(config: VTAConfig, record: LoweredRegions) -> tvm.transform.Pass:
    """Compile every call of a kernel and replace it by a call of the driver; fills ``record``."""

    @LOWER_KERNELS
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        calls = {call.result: call for call in kernel_calls(mod)}
        if not calls:
            return with_about(mod, config, record.programs)
        result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
        main = _rewritten(mod["main"], calls, config, record)
        result.update_func(result.get_global_var("main"), main)
        result = relax.transform.DeadCodeElimination(["main", SIGNATURE])(
            relax.transform.Normalize()(result)
        )
        result = with_about(result, config, record.programs)
        return result.with_attr(REGIONS_ATTR, list(record.programs))

    return run


def _rewritten(
    main: relax.Function,
    calls: Mapping[relax.Var, KernelCall],
    config: VTAConfig,
    record: LoweredRegions,
) -> relax.Function:
    """``main`` with calls of the driver for ``calls``, numbered after the regions."""
    writer = FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    for binding in straight_bindings(main):
        var = binding.var
        if var not in calls:
            env[var] = writer.emit(substituted(binding.value, env), str(var.name))
            continue
        program, number = calls[var].program(config), len(record.programs)
        record.programs[region_name(number)] = program
        values = {name: substituted(arg, env) for name, arg in calls[var].values.items()}
        call = ProgramCall(writer.emit, program, region_name(number), number)
        (env[var],) = call.outputs(values, [str(var.name)])
    return writer.finish(main, substituted(main.body.body, env))
