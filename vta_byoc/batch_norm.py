"""Fold inference-time batch normalization into the layer before it.

TVM's FoldBatchnormToConv2D needs a convolution without bias and leaves the new weights as
expressions that FoldConstant then compiles one by one (5 s for ResNet-18); this pass computes
them with NumPy, takes a bias along, folds into matmul too, and keeps every name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Tuple, TupleGetItem

from vta_byoc.bindings import (
    SEPARATOR,
    FunctionWriter,
    is_constant,
    op_name,
    per_channel,
    straight_bindings,
    substituted,
    users_of,
    with_main,
)

BATCH_NORM = "relax.nn.batch_norm"


@dataclass(frozen=True)
class _Norm:
    """A batch normalization: channel c of axis 1 of `data` becomes scale[c] * x + shift[c]."""

    data: relax.Expr
    scale: np.ndarray
    shift: np.ndarray

    @staticmethod
    def of(call: relax.Call) -> _Norm:
        gamma, beta, mean, variance = (np.float64(arg.value.numpy()) for arg in call.args[1:5])
        attrs = call.attrs
        scale = (gamma if attrs.scale else 1.0) / np.sqrt(variance + float(attrs.epsilon))
        shift = (beta if attrs.center else 0.0) - mean * scale
        return _Norm(call.args[0], scale, shift)

    def constant(self, values: np.ndarray) -> relax.Expr:
        """One value per channel in the shape that broadcasts over `data`."""
        shape = (1, -1) + (1,) * (self.data.ty.ndim - 2)
        return relax.const(values.reshape(shape).astype("float32"))


class _Folder:
    def __init__(self, main: relax.Function) -> None:
        self.main = main
        self.bindings = straight_bindings(main)
        self.users = users_of(main)
        self.producers = {binding.var: binding.value for binding in self.bindings}
        self.writer = FunctionWriter()
        self.env: dict[relax.Var, relax.Expr] = {}
        self.weight_scale: dict[relax.Var, np.ndarray] = {}
        """Convolution or matmul -> factor of each of its output channels."""
        self.new_bias: dict[relax.Var, np.ndarray] = {}
        """Bias addition -> the bias after folding, one value per channel."""
        self.norms = {b.var: _Norm.of(b.value) for b in self.bindings if self._is_foldable_norm(b)}
        self.absorbed = {var for var, norm in self.norms.items() if self._plan(norm)}
        """Normalizations whose scale is in the weights of the layer before."""

    def run(self) -> relax.Function:
        for binding in self.bindings:
            if binding.var not in self.norms:
                self.env[binding.var] = self._rewritten(binding.var, binding.value)
        return self.writer.finish(self.main, substituted(self.main.body.body, self.env))

    def _rewritten(self, var: relax.Var, old: relax.Expr) -> relax.Expr:
        """What `var` becomes: a new variable, or what an alias stands for."""
        if isinstance(old, TupleGetItem) and old.tuple_value in self.norms:
            return self._normalized(var, old.tuple_value)
        value = substituted(old, self.env)
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Tuple):
            value = value.tuple_value.fields[value.index]
        if isinstance(value, relax.Var | Tuple) or is_constant(value):
            return value
        return self.writer.emit(self._with_folded_constant(var, value), var.name)

    def _normalized(self, var: relax.Var, norm_var: relax.Var) -> relax.Expr:
        """The output of a normalization: what was absorbed is not computed again."""
        norm = self.norms[norm_var]
        data = substituted(norm.data, self.env)
        if norm_var not in self.absorbed:
            scaled = relax.op.multiply(data, norm.constant(norm.scale))
            data = self.writer.emit(scaled, f"{var.name}{SEPARATOR}scale")
        elif norm.data in self.new_bias:
            return data
        return self.writer.emit(relax.op.add(data, norm.constant(norm.shift)), var.name)

    def _is_foldable_norm(self, binding: relax.VarBinding) -> bool:
        """Constant statistics, channels on axis 1, only the normalized tensor is used."""
        call = binding.value
        return (
            op_name(call) == BATCH_NORM
            and int(call.attrs.axis) == 1
            and not call.attrs.training
            and all(is_constant(arg) for arg in call.args[1:5])
            and all(
                user is not None and isinstance(user.value, TupleGetItem) and user.value.index == 0
                for user in self.users.get(binding.var, [])
            )
        )

    def _plan(self, norm: _Norm) -> bool:
        """Note what folding into the producer of the data changes; False if it cannot fold."""
        channels = norm.scale.size
        bias_add, layer = None, norm.data
        if op_name(self.producers.get(norm.data)) == "relax.add":
            bias_add, layer = norm.data, self.producers[norm.data].args[0]
        if not self._is_private_layer(layer, channels):
            return False
        if bias_add is not None:
            bias = self._channel_bias(bias_add, channels)
            if bias is None or len(self.users[bias_add]) != 1:
                return False
            self.new_bias[bias_add] = bias * norm.scale + norm.shift
        self.weight_scale[layer] = norm.scale
        return True

    def _is_private_layer(self, layer: relax.Expr, channels: int) -> bool:
        call: Any = self.producers.get(layer)
        if op_name(call) not in _WEIGHT_SCALERS or len(self.users[layer]) != 1:
            return False
        if layer in self.weight_scale or not is_constant(call.args[1]):
            return False
        shape = call.args[1].value.shape
        if op_name(call) == "relax.matmul":
            return len(shape) == 2 and shape[1] == channels and layer.ty.ndim == 2
        return str(call.attrs.kernel_layout) == "OIHW" and shape[0] == channels

    def _channel_bias(self, bias_add: relax.Var, channels: int) -> np.ndarray | None:
        bias = self.producers[bias_add].args[1]
        if not is_constant(bias):
            return None
        return per_channel(bias.value.numpy(), bias_add.ty.ndim, 1, channels)

    def _with_folded_constant(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        if var in self.weight_scale:
            weight = _WEIGHT_SCALERS[op_name(value)](
                np.float64(value.args[1].value.numpy()), self.weight_scale[var]
            )
        elif var in self.new_bias:
            shape = (1, -1) + (1,) * (var.ty.ndim - 2)
            weight = self.new_bias[var].reshape(shape)
        else:
            return value
        args = [value.args[0], relax.const(weight.astype("float32"))]
        return relax.Call(value.op, args, value.attrs, value.ty_args)


_WEIGHT_SCALERS = {
    "relax.nn.conv2d": lambda weight, scale: weight * scale.reshape(-1, 1, 1, 1),
    "relax.matmul": lambda weight, scale: weight * scale,
}


def fold_batch_norm(mod: tvm.IRModule) -> tvm.IRModule:
    """Fold every batch normalization of `main` that follows conv2d or matmul (with or without
    bias) into their constants; turn the others into a multiply and an add per channel.

    A layer whose result has another reader keeps its weights.  Statistics computed at run time
    (training mode) stay as they are.
    """
    return with_main(mod, _Folder(mod["main"]).run())
