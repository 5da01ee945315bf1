# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""A device that executes nothing: for dry runs, at the speed of clearing the arena."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tvm
from tvm.script import tirx as T
from tvm.target import Target

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.faults import COUNTER_SLOTS
from vta_byoc.hw.sim.interpreter import symbol
from vta_byoc.hw.sim.target import as_target, device_code


def build_null_device(
    config: VTAConfig, target: Target | Mapping[str, Any] | None = None
) -> tvm.runtime.Module:
    """The module of a device whose arena and counters are zeros."""
    return _build(symbol(config), str(as_target(target)))


@T.jit
def _null_run(
    insn_h: T.handle,
    inputs_h: T.handle,
    image_h: T.handle,
    region: T.int64,
    arena_h: T.handle,
    counters_h: T.handle,
    *,
    name: T.constexpr,
):
    T.func_attr({"tirx.noalias": True, "global_symbol": name})
    n = T.int64()
    n_inputs = T.int64()
    n_image = T.int64()
    n_arena = T.int64()
    T.match_buffer(insn_h, (n, 2), "uint64", align=8)
    T.match_buffer(inputs_h, (n_inputs,), "int8", align=1)
    T.match_buffer(image_h, (n_image,), "int8", align=1)
    arena = T.match_buffer(arena_h, (n_arena,), "int8")
    counters = T.match_buffer(counters_h, (COUNTER_SLOTS,), "int64")
    for i in T.serial(n_arena):
        arena[i] = T.int8(0)
    for i in T.serial(COUNTER_SLOTS):
        counters[i] = T.int64(0)


@functools.cache
def _build(name: str, target: str) -> tvm.runtime.Module:
    module = tvm.IRModule({name: _null_run.specialize(name=name)})
    return device_code(module, target)
