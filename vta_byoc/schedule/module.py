"""A kernel as a module of the Relax virtual machine, with the device that executes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.devices import driver
from vta_byoc.hw.sim.target import as_target, exact_target
from vta_byoc.ir.host_loops import TIR_PIPELINE
from vta_byoc.passes.program_call import ProgramCall
from vta_byoc.runtime.executable import with_signature


def build_module(
    program: Program, name: str, target: Target | Mapping[str, Any] | None, device: str
) -> tvm.runtime.Module:
    """What `Kernel.module` returns for a kernel's program."""
    host = as_target(target)
    mod = with_signature(_main(program, name))
    mod = mod.with_attr("external_mods", [driver(device).module(program.config, host)])
    pipeline = tvm.transform.Sequential(
        [relax.get_pipeline("zero"), relax.get_pipeline("default_build")]
    )
    executable = relax.build(
        mod, exact_target(host), relax_pipeline=pipeline, tir_pipeline=TIR_PIPELINE
    )
    return executable.mod


def _main(program: Program, name: str) -> tvm.IRModule:
    """A module whose ``main`` is one call of the kernel's program."""
    inputs, (output,) = program.of_kind("input"), program.of_kind("output")
    params = [
        relax.Var(tensor.name, relax.TensorType(tensor.shape, tensor.dtype)) for tensor in inputs
    ]
    values = {tensor.name: param for tensor, param in zip(inputs, params, strict=True)}
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            call = ProgramCall(builder.emit, program, name, 0)
            (result,) = call.outputs(values, [output.name])
            returned = builder.emit_output(result)
        builder.emit_func_output(returned)
    return builder.get()
