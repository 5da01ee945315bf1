"""Relax functions operator by operator on LLVM, where each operator is built once for all sizes.

A reference that is built as a whole is legalized, fused and compiled again for every network, which
takes longer than all else that happens to a small one. Here TVM legalizes an operator with
variables for its sizes and LLVM compiles that; the next network only calls it. The values are the
same bits for integers and for floats whose every operation rounds alone; sums of products of floats
may differ in their last bits.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import Tuple
from tvm_ffi import StructuralKey

from vta_byoc.hw.sim.target import exact_target, unoptimized_target
from vta_byoc.ir.bindings import is_constant, op_name, static_shape, straight_bindings
from vta_byoc.ir.host_loops import TIR_PIPELINE, without_asserts
from vta_byoc.ir.machine_code import linked
from vta_byoc.ir.names import channels_in
from vta_byoc.ir.observe import Receive
from vta_byoc.quantization import bias_correction
from vta_byoc.quantization.calibration import statistics
from vta_byoc.validation.bit_exact import Reference, values_of

VIEWS = ("relax.reshape", "relax.expand_dims")
"""Operators that change no value and no place."""
CALL_TIR = "relax.call_tir"


class Operators:
    """The operators that were built until now."""

    def __init__(self) -> None:
        self._built: dict[Hashable, Any] = {}

    def build(self, mod: tvm.IRModule) -> None:
        """Build what ``main`` has and no module before it had."""
        new: dict[Hashable, relax.Call] = {}
        for binding in straight_bindings(mod["main"]):
            call = binding.value
            if _is_operator(call) and (key := _signature(mod, call)) not in self._built:
                new.setdefault(key, call)
        if new:
            self._built.update(zip(new, _machine_code(mod, list(new.values())), strict=True))

    def called(self, mod: tvm.IRModule, call: relax.Call, values: Mapping[Any, Any]) -> Any:
        """The value of a call of an operator, or of a PrimFunc of ``mod``."""
        tensors = [_tensor(arg, values) for arg in _tensors(call)]
        if op_name(call) in VIEWS:
            return tvm.runtime.tensor(tensors[0].numpy().reshape(static_shape(call)))
        return self._built[_signature(mod, call)](*tensors)

    def values(self, mod: tvm.IRModule, inputs: Iterable[np.ndarray]) -> dict[Any, Any]:
        """Every variable of ``main``, which has tensors only."""
        self.build(mod)
        main = mod["main"]
        env: dict[Any, Any] = dict(zip(main.params, map(tvm.runtime.tensor, inputs), strict=True))
        for binding in straight_bindings(main):
            value = binding.value
            is_call = isinstance(value, relax.Call)
            env[binding.var] = self.called(mod, value, env) if is_call else _tensor(value, env)
        return env

    def reference(
        self, mod: tvm.IRModule, stored: Sequence[str], inputs: Iterable[np.ndarray]
    ) -> Reference:
        """What a module of the integer dialect computes: its results, and what regions store."""
        values = self.values(mod, inputs)
        named = {str(var.name): value for var, value in values.items()}
        whole = {channels_in(name)[0] for name in stored}
        tensors = {name: named[name].numpy() for name in whole}
        return Reference(
            results(mod["main"], values), {name: values_of(tensors, name) for name in stored}
        )

    @contextlib.contextmanager
    def calibrating(self) -> Iterator[None]:
        """`quantize` and bias correction see their modules computed so."""
        observer = functools.partial(_Observer, self)
        with contextlib.ExitStack() as stack:
            for module in (statistics, bias_correction):
                stack.enter_context(mock.patch.object(module, "Observer", observer))
            yield


OPERATORS = Operators()
"""For all tests of a process."""


class _Observer:
    """`vta_byoc.ir.observe.Observer`, without compiling the module."""

    def __init__(
        self,
        operators: Operators,
        mod: tvm.IRModule,
        tensors: Sequence[relax.Var],
        receive: Receive,
    ) -> None:
        self._operators, self._mod = operators, mod
        self._tensors, self._receive = tensors, receive

    def run(self, arrays: Iterable[np.ndarray]) -> None:
        values = self._operators.values(self._mod, arrays)
        for index, tensor in enumerate(self._tensors):
            self._receive(index, values[tensor].numpy())


def results(main: relax.Function, values: Mapping[Any, Any]) -> list[np.ndarray]:
    """What ``main`` returns, in order."""
    body = main.body.body
    fields = body.fields if isinstance(body, Tuple) else [body]
    return [_tensor(field, values).numpy() for field in fields]


def _is_operator(value: relax.Expr) -> bool:
    is_call = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return is_call and op_name(value) not in VIEWS


def _tensors(call: relax.Call) -> list[relax.Expr]:
    args = call.args[1:] if op_name(call) == CALL_TIR else call.args[:]
    parts = [arg.fields[:] if isinstance(arg, Tuple) else [arg] for arg in args]
    fields = [field for part in parts for field in part]
    return [field for field in fields if isinstance(field.ty, relax.TensorType)]


def _tensor(expr: relax.Expr, values: Mapping[Any, Any]) -> Any:
    return expr.value if is_constant(expr) else values[expr]


# ---------------------------------------------------------------- building
def _signature(mod: tvm.IRModule, call: relax.Call) -> Hashable:
    """What of a call its machine code depends on."""
    if op_name(call) == CALL_TIR:
        return CALL_TIR, StructuralKey(mod[call.args[0]])
    types = tuple(zip(_dtypes(call), _sizes(call), strict=True))
    others = () if _is_plain(call) else tuple(map(str, call.args))
    return op_name(call), str(call.attrs), types, others


def _dtypes(call: relax.Call) -> list[str]:
    return [str(arg.ty.dtype) for arg in _tensors(call)]


def _is_plain(call: relax.Call) -> bool:
    """Whether tensors alone are arguments: others may need to know sizes."""
    return all(isinstance(arg.ty, relax.TensorType) for arg in call.args[:])


def _sizes(call: relax.Call) -> list[tuple[int, ...]]:
    """Sizes of each operand; equal ones as equal numbers where they may be others, and 1 as 1."""
    shapes = [static_shape(arg) for arg in _tensors(call)]
    if not _is_plain(call):
        return shapes
    numbers = {1: 1}
    return [tuple(numbers.setdefault(n, len(numbers) + 1) for n in shape) for shape in shapes]


def _machine_code(mod: tvm.IRModule, calls: Sequence[relax.Call]) -> list[Any]:
    """A function that takes and returns tensors for each call."""
    builder = relax.BlockBuilder()
    for number, call in enumerate(calls):
        params = _params(call)
        with builder.function(f"operator{number}", params):
            builder.emit_func_output(builder.emit(_general(builder, mod, call, params)))
    target = exact_target(unoptimized_target())
    with without_asserts():
        built = linked(relax.build(builder.get(), target, tir_pipeline=TIR_PIPELINE))
    machine = relax.VirtualMachine(built, tvm.cpu())
    return [machine[f"operator{number}"] for number in range(len(calls))]


def _params(call: relax.Call) -> list[relax.Var]:
    """Operands of any sizes that are equal where those of ``call`` are."""
    sizes: dict[int, Any] = {1: 1}
    params = []
    for dtype, shape in zip(_dtypes(call), _sizes(call), strict=True):
        if _is_plain(call):
            shape = [sizes.setdefault(n, tirx.Var(f"n{n}", "int64")) for n in shape]
        params.append(relax.Var(f"x{len(params)}", relax.TensorType(shape, dtype)))
    return params


def _general(
    builder: relax.BlockBuilder, mod: tvm.IRModule, call: relax.Call, params: Sequence[relax.Var]
) -> relax.Expr:
    """``call`` of ``params``."""
    if op_name(call) == CALL_TIR:
        function = builder.add_func(mod[call.args[0]].without_attr("global_symbol"), "function")
        return relax.call_tir(function, list(params), out_ty=call.ty_args[0])
    left = iter(params)

    def exchanged(arg: relax.Expr) -> relax.Expr:
        if isinstance(arg, Tuple):
            return relax.Tuple([exchanged(field) for field in arg.fields])
        return next(left) if isinstance(arg.ty, relax.TensorType) else arg

    return relax.Call(call.op, [exchanged(arg) for arg in call.args], call.attrs)
