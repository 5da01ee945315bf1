# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""The device `rtl` as a runtime module: a function that hands its buffers to the core.

The core's library is called from this process, so that a library which is exported with it runs in
processes alone that have built the device before.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.target import Target

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.faults import COUNTER_SLOTS, INDEX_SLOT
from vta_byoc.hw.rtl.build import core_config, core_library, digest_of
from vta_byoc.hw.rtl.simulation import MemoryModel, run_core
from vta_byoc.hw.sim.interpreter import symbol
from vta_byoc.hw.sim.target import as_target, device_code


def build_core_device(
    config: VTAConfig, target: Target | Mapping[str, Any] | None = None
) -> tvm.runtime.Module:
    """The module that runs programs on the core of `config`; its library is built here.

    Raises:
        VTAError: the library cannot be built.
    """
    core_library(config)
    return _build(config, symbol(config), str(as_target(target)))


@T.jit
def _core_run(
    insn_h: T.handle,
    inputs_h: T.handle,
    image_h: T.handle,
    region: T.int64,
    arena_h: T.handle,
    counters_h: T.handle,
    *,
    name: T.constexpr,
    callback: T.constexpr,
):
    T.func_attr({"tirx.noalias": True, "global_symbol": name})
    n = T.int64()
    n_inputs = T.int64()
    n_image = T.int64()
    n_arena = T.int64()
    insn = T.match_buffer(insn_h, (n, 2), "uint64", align=8)
    inputs = T.match_buffer(inputs_h, (n_inputs,), "int8", align=1)
    image = T.match_buffer(image_h, (n_image,), "int8", align=1)
    arena = T.match_buffer(arena_h, (n_arena,), "int8", align=1)
    counters = T.match_buffer(counters_h, (COUNTER_SLOTS,), "int64", align=8)
    T.evaluate(
        T.call_packed(
            callback,
            insn.data,
            n,
            inputs.data,
            n_inputs,
            image.data,
            n_image,
            arena.data,
            n_arena,
            counters.data,
        )
    )


@functools.cache
def _build(config: VTAConfig, name: str, target: str) -> tvm.runtime.Module:
    callback = f"vta_byoc.rtl.{digest_of(core_config(config))}"
    tvm.register_global_func(callback, functools.partial(_run, config), override=True)
    module = tvm.IRModule({name: _core_run.specialize(name=name, callback=callback)})
    return device_code(module, target)


def _run(
    config: VTAConfig,
    insns: ctypes.c_void_p,
    n_insns: int,
    inputs: ctypes.c_void_p,
    n_inputs: int,
    image: ctypes.c_void_p,
    n_image: int,
    arena: ctypes.c_void_p,
    n_arena: int,
    counters: ctypes.c_void_p,
) -> None:
    """Fill the arena, run the stream on the core, write what it counted."""
    stream = _view(insns, n_insns * 16).view(np.uint64).reshape(-1, 2)
    filled = np.zeros(n_arena, np.int8)
    filled[:n_inputs] = _view(inputs, n_inputs)
    filled[n_inputs : n_inputs + n_image] = _view(image, n_image)
    done = run_core(config, stream, filled, MemoryModel.of(config))
    _view(arena, n_arena)[:] = done.arena
    found = np.zeros(COUNTER_SLOTS, np.int64)
    found[: len(COUNTER_NAMES)] = [done.counters[name] for name in COUNTER_NAMES]
    found[INDEX_SLOT] = n_insns - 1
    _view(counters, found.nbytes)[:] = found.view(np.int8)


def _view(pointer: ctypes.c_void_p, nbytes: int) -> np.ndarray:
    """The bytes at `pointer`, int8 (nbytes,), no copy."""
    if not nbytes:
        return np.zeros(0, np.int8)
    octets = (ctypes.c_int8 * nbytes).from_address(pointer.value or 0)
    return np.frombuffer(memoryview(octets), np.int8)
