"""Show the tensors of a module to a Python function while the module runs.

Only one tensor is handed over at a time, so memory does not grow with their number.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tvm
from tvm import relax

from vta_byoc.ir.bindings import FunctionWriter, straight_bindings, substituted, with_main
from vta_byoc.ir.reference import ReferenceMachine

Receive = Callable[[int, np.ndarray], None]
"""(index of the tensor, its values); the values are valid during the call only."""
SAMPLES = 16
"""Runs that a float module is built for: calibration takes about as many samples."""
SHOW = "vta.observe.show"
"""Global function that the observed module calls for each tensor."""
_OBSERVERS: weakref.WeakValueDictionary[int, Observer] = weakref.WeakValueDictionary()
_KEYS = itertools.count()


class Observer:
    """Runs `main` and calls `receive` for each of `tensors`, in the order of execution.

    Args:
        mod: a float or integer module with one straight-line `main` of static shapes.
        tensors: parameters or variables of `main` that are tensors.
        receive: see `Receive`.
    """

    def __init__(self, mod: tvm.IRModule, tensors: Sequence[relax.Var], receive: Receive) -> None:
        self.receive = receive
        self._mod, self._tensors = mod, tensors
        self._key = next(_KEYS)
        self._machine: ReferenceMachine | None = None
        _OBSERVERS[self._key] = self

    def run(self, arrays: Iterable[np.ndarray]) -> None:
        """One run on `arrays`, the inputs in order. The first run compiles the module."""
        if self._machine is None:
            self._machine = ReferenceMachine(self._observed(), floats=SAMPLES)
        self._machine.for_next_run()["main"](*(tvm.runtime.tensor(array) for array in arrays))

    def _observed(self) -> tvm.IRModule:
        main, writer = self._mod["main"], FunctionWriter()
        env: dict[relax.Var, relax.Expr] = {}
        for binding in straight_bindings(main):
            env[binding.var] = writer.emit(substituted(binding.value, env), binding.var.name)
        shown = [
            self._show(writer, env.get(tensor, tensor), index)
            for index, tensor in enumerate(self._tensors)
        ]
        return with_main(self._mod, writer.finish(main, relax.Tuple(shown)))

    def _show(self, writer: FunctionWriter, tensor: relax.Expr, index: int) -> relax.Var:
        """The call that shows a tensor; its result exists only so that the call is kept."""
        address = relax.const(np.array([self._key, index], "int64"))
        done = relax.TensorType((), "float32")
        return writer.emit(relax.call_dps_packed(SHOW, [tensor, address], out_ty=done), "shown")


@tvm.register_global_func(SHOW, override=True)
def _show(
    tensor: tvm.runtime.Tensor, address: tvm.runtime.Tensor, _done: tvm.runtime.Tensor
) -> None:
    key, index = address.numpy()
    _OBSERVERS[int(key)].receive(int(index), tensor.numpy())
