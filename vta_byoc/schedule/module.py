"""A kernel as a module of the Relax virtual machine, with the device that executes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax
from tvm.target import Target

from vta_byoc.hw.sim.simulator import driver
from vta_byoc.hw.sim.target import as_target, exact_target
from vta_byoc.ir.host_loops import TIR_PIPELINE
from vta_byoc.passes.program_call import ProgramCall
from vta_byoc.runtime.executable import with_signature

if TYPE_CHECKING:
    from vta_byoc.schedule.compiled import Kernel


def build_module(
    kernel: Kernel, target: Target | Mapping[str, Any] | None, device: str
) -> tvm.runtime.Module:
    """What `Kernel.module` returns."""
    host = as_target(target)
    mod = with_signature(_main(kernel))
    mod = mod.with_attr("external_mods", [driver(device).module(kernel.config, host)])
    pipeline = tvm.transform.Sequential(
        [relax.get_pipeline("zero"), relax.get_pipeline("default_build")]
    )
    executable = relax.build(
        mod, exact_target(host), relax_pipeline=pipeline, tir_pipeline=TIR_PIPELINE
    )
    return executable.mod


def _main(kernel: Kernel) -> tvm.IRModule:
    """A module whose ``main`` is one call of the kernel's program."""
    params = [
        relax.Var(tensor.name, relax.TensorType(tensor.shape, tensor.dtype))
        for tensor in kernel.inputs
    ]
    values = {tensor.name: param for tensor, param in zip(kernel.inputs, params, strict=True)}
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            call = ProgramCall(builder.emit, kernel.program, kernel.name, 0)
            (result,) = call.outputs(values, [kernel.output.name])
            returned = builder.emit_output(result)
        builder.emit_func_output(returned)
    return builder.get()
