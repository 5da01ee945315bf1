"""Fold inference-time batch normalization, and any scaling of channels, into the layer before.

TVM's FoldBatchnormToConv2D needs a convolution without bias and leaves the new weights as
expressions that FoldConstant then compiles one by one (5 s for ResNet-18); this pass computes
them with NumPy, takes a bias along, folds into every kind of layer, and keeps every name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Tuple, TupleGetItem

from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    is_constant,
    is_float32,
    op_name,
    per_channel,
    straight_bindings,
    substituted,
    users_of,
    with_main,
)

BATCH_NORM = "relax.nn.batch_norm"
SCALINGS = ("relax.multiply", "relax.divide")


@dataclass(frozen=True)
class _Norm:
    """Channel c of `axis` of `data` becomes scale[c] * x + shift[c]."""

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


# ---------------------------------------------------------------- layers that take a scale
def _scaled_transpose(weight: np.ndarray, scale: np.ndarray, groups: int) -> np.ndarray:
    """Weights (I, O / groups, ...): the inputs of group g make the outputs of group g."""
    factors = scale.reshape(groups, 1, -1, *([1] * (weight.ndim - 2)))
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return (grouped * factors).reshape(weight.shape)


def _scaled(call: relax.Call, scale: np.ndarray) -> np.ndarray:
    """The weights of a layer times one factor per output channel, float64."""
    weight = call.args[1].value.numpy().astype("float64")
    name = op_name(call)
    if name in _TRANSPOSED:
        return _scaled_transpose(weight, scale, int(call.attrs.groups))
    weight *= scale if name == "relax.matmul" else scale.reshape(-1, *([1] * (weight.ndim - 1)))
    return weight


def _output_channels(call: relax.Call) -> int | None:
    """How many channels a layer's constant weights make; None if it is no such layer."""
    name = op_name(call)
    if name not in _KERNELS or not is_constant(call.args[1]):
        return None
    shape = call.args[1].value.shape
    if name == "relax.matmul":
        return int(shape[1]) if len(shape) == 2 else None
    if str(call.attrs.kernel_layout) != _KERNELS[name]:
        return None
    return int(shape[1]) * int(call.attrs.groups) if name in _TRANSPOSED else int(shape[0])


_TRANSPOSED = {"relax.nn.conv1d_transpose": "IOW", "relax.nn.conv2d_transpose": "IOHW"}
_KERNELS = {
    "relax.nn.conv1d": "OIW",
    "relax.nn.conv2d": "OIHW",
    "relax.nn.conv3d": "OIDHW",
    **_TRANSPOSED,
    "relax.matmul": "",
}
"""Layers with weights -> the layout of their kernels."""


# ---------------------------------------------------------------- the pass
class _Folder:
    def __init__(self, main: relax.Function) -> None:
        self.main = main
        self.bindings = straight_bindings(main)
        self.users = users_of(main)
        self.producers = {binding.var: binding.value for binding in self.bindings}
        self.writer = FunctionWriter()
        self.env: dict[relax.Var, relax.Expr] = {}
        self.weight_scale: dict[relax.Var, np.ndarray] = {}
        """Layer -> factor of each of its output channels."""
        self.new_bias: dict[relax.Var, np.ndarray] = {}
        """Bias addition -> the bias after folding, one value per channel."""
        self.norms = {b.var: _Norm.of(b.value) for b in self.bindings if self._is_foldable_norm(b)}
        self.absorbed = {var for var, norm in self.norms.items() if self._plan(norm)}
        """Normalizations whose scale is in the weights of the layer before."""
        self.scalings = {b.var for b in self.bindings if self._absorbs_scaling(b)}
        """Multiplications by constants that are in the weights of the layer before."""

    def run(self) -> relax.Function:
        for binding in self.bindings:
            if binding.var not in self.norms:
                self.env[binding.var] = self._rewritten(binding.var, binding.value)
        return self.writer.finish(self.main, substituted(self.main.body.body, self.env))

    def _rewritten(self, var: relax.Var, old: relax.Expr) -> relax.Expr:
        """What `var` becomes: a new variable, or what an alias stands for."""
        if isinstance(old, TupleGetItem) and old.tuple_value in self.norms:
            return self._normalized(var, old.tuple_value)
        if var in self.scalings:
            return substituted(_operand(old), self.env)
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
        layer, bias_add = self._layer_before(norm.data)
        call = self.producers.get(layer)
        if op_name(call) == "relax.matmul" and norm.data.ty.ndim != 2:
            return False
        return self._fold(layer, bias_add, norm.scale, norm.shift)

    def _layer_before(self, data: relax.Expr) -> tuple[relax.Expr, relax.Var | None]:
        """What makes `data`, and the addition between them if there is one."""
        if op_name(self.producers.get(data)) == "relax.add":
            return self.producers[data].args[0], data
        return data, None

    def _fold(
        self, layer: relax.Expr, bias_add: relax.Var | None, scale: np.ndarray, shift: np.ndarray
    ) -> bool:
        call: relax.Expr = self.producers.get(layer)
        if _output_channels(call) != scale.size or layer in self.weight_scale:
            return False
        if len(self.users[layer]) != 1:
            return False
        if bias_add is not None:
            axis = layer.ty.ndim - 1 if op_name(call) == "relax.matmul" else 1
            bias = self._channel_bias(bias_add, axis, scale.size)
            if bias is None or len(self.users[bias_add]) != 1:
                return False
            self.new_bias[bias_add] = bias * scale + shift
        self.weight_scale[layer] = scale
        return True

    def _absorbs_scaling(self, binding: relax.VarBinding) -> bool:
        """Whether the binding multiplies a layer, with or without bias, by constants per channel.

        If it does, the change of the layer is noted.
        """
        if not is_float32(binding.var):  # integers wrap, and weights are of 8 bits
            return False
        call = binding.value
        data = _operand(call) if op_name(call) in SCALINGS else None
        if not isinstance(data, relax.Var) or binding.var.ty.ndim != data.ty.ndim:
            return False
        layer, bias_add = self._layer_before(data)
        channels = _output_channels(self.producers.get(layer))
        if channels is None:
            return False
        is_matmul = op_name(self.producers[layer]) == "relax.matmul"
        constant = next(arg for arg in call.args if is_constant(arg)).value.numpy()
        axis = data.ty.ndim - 1 if is_matmul else 1
        scale = per_channel(constant, data.ty.ndim, axis, channels)
        if scale is None or (op_name(call) == "relax.divide" and not scale.all()):
            return False
        scale = 1 / scale if op_name(call) == "relax.divide" else scale
        return self._fold(layer, bias_add, scale, np.zeros(channels))

    def _channel_bias(self, bias_add: relax.Var, axis: int, channels: int) -> np.ndarray | None:
        bias = self.producers[bias_add].args[1]
        if not is_constant(bias):
            return None
        return per_channel(bias.value.numpy(), bias_add.ty.ndim, axis, channels)

    def _with_folded_constant(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        if var in self.weight_scale:
            weight = _scaled(value, self.weight_scale[var])
        elif var in self.new_bias:
            weight = self._shaped_bias(var, self.new_bias[var])
        else:
            return value
        args = [value.args[0], relax.const(weight.astype("float32"))]
        return relax.Call(value.op, args, value.attrs, value.ty_args)

    def _shaped_bias(self, bias_add: relax.Var, bias: np.ndarray) -> np.ndarray:
        """`bias` as it broadcasts over the result of its layer."""
        layer = self.producers[self.producers[bias_add].args[0]]
        after = 0 if op_name(layer) == "relax.matmul" else bias_add.ty.ndim - 2
        return bias.reshape((1,) * (bias_add.ty.ndim - 1 - after) + (-1,) + (1,) * after)


def _operand(call: relax.Call) -> relax.Expr | None:
    """The operand of a multiplication or division by a constant; None without a constant."""
    left, right = call.args
    if is_constant(right):
        return left
    return right if is_constant(left) and op_name(call) == "relax.multiply" else None


def fold_batch_norm(mod: tvm.IRModule) -> tvm.IRModule:
    """Fold what scales and shifts the channels of a layer of `main` into its constants.

    That is every batch normalization and every multiplication or division by constants that
    follows a convolution, a transposed convolution or a matmul (with or without bias); other
    normalizations become a multiply and an add per channel.  A layer whose result has another
    reader keeps its weights.  Statistics computed at run time (training mode) stay as they are.
    """
    while True:
        folder = _Folder(mod["main"])
        mod = with_main(mod, folder.run())
        if not folder.norms and not folder.scalings:
            return mod
