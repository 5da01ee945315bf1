"""`relay.build`: from a Relay module to a library of this product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.boundary import boundary
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import finished_relay, output_names
from vta_byoc.importers.relay.importer import import_module
from vta_byoc.importers.relay.parameters import Tensors
from vta_byoc.importers.relay.read import given_params
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    op_name,
    source_name,
    straight_bindings,
    substituted,
    with_main,
)
from vta_byoc.ir.chains import dtype_of, is_widening
from vta_byoc.ir.quantization_record import CAME_INTEGER
from vta_byoc.options import BuildOptions
from vta_byoc.pipeline import compile_module
from vta_byoc.quantization.calibration.samples import Sample
from vta_byoc.quantize import quantize
from vta_byoc.relay.executor import Library
from vta_byoc.relay.module import WHAT, Module

LAYERS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.matmul")


def build(
    mod: Module,
    target: object = None,
    params: Mapping[str, np.ndarray] | str | None = None,
    *,
    config: VTAConfig | None = None,
    calibration: Iterable[Sample] | None = None,
    random_params: int | None = None,
    device: str = "sim",
) -> Library:
    """Compile a Relay module for VTA and the CPU.

    Args:
        mod: from `fromtext`, with the operators that `graph_pack` chose.
        target: a `tvm.target.Target` of the host; texts such as "ext_dev -device=vta" are the
            machine that `config` is, and are not read.
        params: parameters by name, or the path of a file of `save_param_dict`.
        config: the machine; the default preset when None.
        calibration: samples, for a float module; one that came quantized needs none.
        random_params: seed of random values for weights that are missing.
        device: "sim", "tsim", "null" or "rtl", as of `vta_byoc.build`.

    Raises:
        VTAError: values are missing, an operator is not read, a float module has no samples.
    """
    machine = config or VTAConfig()
    with boundary("imported", WHAT):
        tensors = Tensors(given_params(params), random_params)
        imported = import_module(mod.functions, WHAT, tensors, {})
        kept = mod.span.outside(imported.operators) if mod.span else []
        relaxed = finished_relay(imported)
    if relaxed.get_attr(CAME_INTEGER) is not None:
        quantized = quantize(kept_on_cpu(relaxed, kept), config=machine)
    else:
        known = {source_name(b.var) for b in straight_bindings(relaxed["main"])}
        names = [name for name in kept if name in known]
        quantized = quantize(relaxed, calibration=calibration, config=machine, keep_float=names)
    host = target if isinstance(target, tvm.target.Target) else None
    exe = compile_module(quantized, options=BuildOptions(machine, device, host)).exe
    inputs = [str(param.name) for param in relaxed["main"].params]
    weights = [p.name for f in mod.functions.functions.values() for p in f.params]
    results = len(output_names(relaxed))
    return Library(exe, inputs, results, frozenset(weights) - frozenset(inputs))


def kept_on_cpu(mod: tvm.IRModule, names: Iterable[str]) -> tvm.IRModule:
    """Give operators of an integer module a form that only the CPU takes.

    Layers multiply int32 then, and int8 becomes int32 by way of int64: the same integers.
    """
    kept, writer = frozenset(names), FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    if not kept:
        return mod
    for binding in straight_bindings(mod["main"]):
        value, name = substituted(binding.value, env), str(binding.var.name)
        if source_name(binding.var) in kept:
            value = _for_cpu(writer, value, name)
        env[binding.var] = writer.emit(value, name)
    main = mod["main"]
    return with_main(mod, writer.finish(main, substituted(main.body.body, env)))


def _for_cpu(writer: FunctionWriter, value: relax.Expr, name: str) -> relax.Expr:
    if is_widening(value):
        wide = writer.emit(relax.op.astype(value.args[0], "int64"), f"{name}{SEPARATOR}wide")
        return relax.op.astype(wide, "int32")
    if op_name(value) in LAYERS and dtype_of(value.args[0]) == "int8":
        data = writer.emit(relax.op.astype(value.args[0], "int64"), f"{name}{SEPARATOR}data")
        data = writer.emit(relax.op.astype(data, "int32"), f"{name}{SEPARATOR}int32")
        weight = relax.const(value.args[1].value.numpy().astype("int32"))
        return relax.Call(value.op, [data, weight], value.attrs, value.ty_args)
    return value
