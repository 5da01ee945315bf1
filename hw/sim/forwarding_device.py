# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""A device whose function hands its tensors to a function of this process by name.

So a driver in Python, or one behind a connection, runs the regions of a compiled model: the code in
the executable is a call, and who loads the executable decides what answers it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.target import Target

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.driver.protocol import AnyRunner, DeviceError, DeviceTimeout
from vta_byoc.hw.faults import COUNTER_SLOTS
from vta_byoc.hw.sim.interpreter import symbol
from vta_byoc.hw.sim.target import as_target, device_code

# An error that crosses compiled code comes back by the name of its class.
tvm_ffi.register_error("DeviceError", DeviceError)
tvm_ffi.register_error("DeviceTimeout", DeviceTimeout)
PREFIX = "vta_byoc.device"
"""Names of the functions that answer begin with it."""


def answer_name(device: str, config: VTAConfig) -> str:
    """The name of the function of this process that answers for `device` as machine `config`."""
    return f"{PREFIX}.{device}.{symbol(config)}"


def build_forwarding_device(
    device: str, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
) -> tvm.runtime.Module:
    """The module whose function calls the one that `answer_name` names."""
    return _build(symbol(config), answer_name(device, config), str(as_target(target)))


def answer_with(device: str, config: VTAConfig, runner: Callable[[], AnyRunner]) -> None:
    """Let the device that `runner` opens, once and when it is first needed, answer for `device`."""
    opened = functools.cache(runner)

    def run(insns: Any, inputs: Any, image: Any, _region: int, arena: Any, counters: Any) -> None:
        given = _view(insns), _view(inputs), _view(image)
        _, counted = opened().run(config, *given, int(arena.shape[0]), _view(arena))
        values = np.zeros(COUNTER_SLOTS, np.int64)
        values[: len(COUNTER_NAMES)] = [counted[name] for name in COUNTER_NAMES]
        counters.copyfrom(values)

    tvm_ffi.register_global_func(answer_name(device, config), run, override=True)


def _view(tensor: Any) -> np.ndarray:
    """The elements of a tensor that compiled code lends to this process for a call: no copy."""
    shape, dtype = tuple(map(int, tensor.shape)), np.dtype(str(tensor.dtype))
    nbytes = int(np.prod(shape)) * dtype.itemsize
    if not nbytes:
        return np.zeros(shape, dtype)
    octets = (ctypes.c_uint8 * nbytes).from_address(tensor.data_ptr())
    return np.frombuffer(memoryview(octets), dtype).reshape(shape)


@T.jit
def _forward(
    insn_h: T.handle,
    inputs_h: T.handle,
    image_h: T.handle,
    region: T.int64,
    arena_h: T.handle,
    counters_h: T.handle,
    *,
    name: T.constexpr,
    answer: T.constexpr,
):
    T.func_attr({"tirx.noalias": True, "global_symbol": name})
    n = T.int64()
    n_inputs = T.int64()
    n_image = T.int64()
    n_arena = T.int64()
    insn = T.match_buffer(insn_h, (n, 2), "uint64", align=8)
    inputs = T.match_buffer(inputs_h, (n_inputs,), "int8", align=1)
    image = T.match_buffer(image_h, (n_image,), "int8", align=1)
    arena = T.match_buffer(arena_h, (n_arena,), "int8")
    counters = T.match_buffer(counters_h, (COUNTER_SLOTS,), "int64")
    T.evaluate(
        T.tvm_call_packed(
            answer,
            T.tvm_stack_make_array(insn.data, T.tvm_stack_make_shape(n, 2), 0, 2, T.uint64(0), 0),
            T.tvm_stack_make_array(
                inputs.data, T.tvm_stack_make_shape(n_inputs), 0, 1, T.int8(0), 0
            ),
            T.tvm_stack_make_array(image.data, T.tvm_stack_make_shape(n_image), 0, 1, T.int8(0), 0),
            region,
            T.tvm_stack_make_array(arena.data, T.tvm_stack_make_shape(n_arena), 0, 1, T.int8(0), 0),
            T.tvm_stack_make_array(
                counters.data, T.tvm_stack_make_shape(COUNTER_SLOTS), 0, 1, T.int64(0), 0
            ),
        )
    )


@functools.cache
def _build(name: str, answer: str, target: str) -> tvm.runtime.Module:
    module = tvm.IRModule({name: _forward.specialize(name=name, answer=answer)})
    return device_code(module, target)
