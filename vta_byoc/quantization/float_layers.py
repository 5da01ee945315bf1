"""The layers with constant weights of a float module, and how to change their constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    is_constant,
    is_float32,
    op_name,
    per_channel,
    static_shape,
    straight_bindings,
    substituted,
    users_of,
    with_main,
)

KERNELS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv2d_transpose": ("NCHW", "IOHW"),
    "relax.matmul": ("", ""),
}
"""Operator -> layouts of data and weights."""
Users = Mapping[relax.Var, list["relax.VarBinding | None"]]


@dataclass(frozen=True)
class FloatLayer:
    """A layer and the constants that are added to its channels right after it.

    Attributes:
        var, call: the layer; `call.args[1]` are its weights.
        axis: of the result that holds the channels.
        biases: the additions, in order; nothing else reads what they add to.
    """

    var: relax.Var
    call: relax.Call
    axis: int
    biases: tuple[relax.VarBinding, ...]

    @property
    def channels(self) -> int:
        """How many channels the result has."""
        return static_shape(self.var)[self.axis]

    @property
    def end(self) -> relax.Var:
        """The layer's result with all biases."""
        return self.biases[-1].var if self.biases else self.var

    @property
    def weight(self) -> np.ndarray:
        """The float32 weights, in the layout of the operator."""
        return np.asarray(self.call.args[1].value.numpy())

    def bias(self, binding: relax.VarBinding) -> np.ndarray:
        """What one of `biases` adds, float64 [channels]."""
        values = added_constant(binding, self.var.ty.ndim, self.axis, self.channels)
        assert values is not None
        return values

    def as_bias(self, values: np.ndarray) -> np.ndarray:
        """[channels] as a float32 constant that broadcasts over the result."""
        shape = [1] * self.var.ty.ndim
        shape[self.axis] = -1
        return values.reshape(shape).astype("float32")


def float_layers(main: relax.Function) -> list[FloatLayer]:
    """In order of execution."""
    users = users_of(main)
    return [_layer(b, users) for b in straight_bindings(main) if _is_layer(b.value)]


def _is_layer(call: relax.Expr) -> bool:
    layouts = KERNELS.get(op_name(call))
    if layouts is None or not is_constant(call.args[1]) or not is_float32(call.args[0]):
        return False
    if not layouts[0]:
        return len(call.args[1].value.shape) == 2 and call.args[0].ty.ndim >= 2
    data, out = str(call.attrs.data_layout), str(call.attrs.out_layout)
    return (data, str(call.attrs.kernel_layout)) == layouts and out in ("", data)


def _layer(binding: relax.VarBinding, users: Users) -> FloatLayer:
    var, biases = binding.var, []
    axis = var.ty.ndim - 1 if op_name(binding.value) == "relax.matmul" else 1
    channels, end = static_shape(var)[axis], var
    while (user := only_user(users, end)) is not None:
        if added_constant(user, var.ty.ndim, axis, channels) is None:
            break
        biases.append(user)
        end = user.var
    return FloatLayer(var, binding.value, axis, tuple(biases))


def only_user(users: Users, var: relax.Var) -> relax.VarBinding | None:
    """The one binding that reads `var`, if nothing else does."""
    readers = users.get(var, [])
    return readers[0] if len(readers) == 1 else None


def added_constant(
    binding: relax.VarBinding, ndim: int, axis: int, channels: int
) -> np.ndarray | None:
    """What `binding` adds to each channel of a tensor of rank `ndim`; None if it is no such sum."""
    call = binding.value
    if op_name(call) != "relax.add" or binding.var.ty.ndim != ndim:
        return None
    constants = [arg for arg in call.args if is_constant(arg)]
    if len(constants) != 1:
        return None
    return per_channel(constants[0].value.numpy(), ndim, axis, channels)


def with_constants(
    mod: tvm.IRModule,
    constants: Mapping[relax.Var, np.ndarray],
    added: Mapping[relax.Var, np.ndarray] | None = None,
) -> tvm.IRModule:
    """A copy of `mod` with other constants.

    Args:
        mod: float module of `load_model`.
        constants: variable of a call with one constant -> the float32 array in its place.
        added: variable -> float32 array that is added to it; the sum's name belongs to the
            same operator.
    """
    main, writer = mod["main"], FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    for binding in straight_bindings(main):
        var, value = binding.var, substituted(binding.value, env)
        if var in constants:
            value = _replaced(value, constants[var])
        env[var] = writer.emit(value, var.name)
        if added and var in added:
            total = relax.op.add(env[var], relax.const(added[var]))
            env[var] = writer.emit(total, f"{var.name}{SEPARATOR}corrected")
    return with_main(mod, writer.finish(main, substituted(main.body.body, env)))


def _replaced(call: relax.Call, values: np.ndarray) -> relax.Call:
    args = [relax.const(values) if is_constant(arg) else arg for arg in call.args]
    return relax.Call(call.op, args, call.attrs, call.ty_args, call.span)
