"""What follows an operator and belongs to its group: constant bias, then clamps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import is_constant, op_name, per_channel
from vta_byoc.ir.clamps import interval_of
from vta_byoc.quantization.qdq import quantize_scale
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, Scale


@dataclass
class FusedOperators:
    """Operators after a layer that its group absorbs: constant bias, then clamps.

    Attributes:
        last: the variable whose value the group produces.
        bias: float64, one per channel.
        low, high: the float interval of the clamps.
        scale: of the result, where a quantize operator follows that says it.
        absorbed: the variables of the group after the first.
    """

    last: relax.Var
    bias: np.ndarray | None = None
    low: float = -math.inf
    high: float = math.inf
    scale: Scale | None = None
    absorbed: tuple[relax.Var, ...] = ()

    @property
    def clamps(self) -> bool:
        """Whether the interval is bounded on any side."""
        return not (math.isinf(self.low) and math.isinf(self.high))

    def take(self, binding: relax.VarBinding) -> None:
        """Absorb `binding`, whose result is the group's now."""
        self.last = binding.var
        self.absorbed = (*self.absorbed, binding.var)

    def limits(self, scale: Scale) -> tuple[int, int]:
        """The clamps as int8 at `scale`."""
        return clamp_bound(self.low, scale), clamp_bound(self.high, scale)


def clamp_bound(bound: float, scale: Scale) -> int:
    """A float bound as int8, saturated; infinities give -128 and 127."""
    return int(np.clip(np.rint(bound / scale.step) + scale.zero, INT8_LOW, INT8_HIGH))


def follow(
    q: Quantizer,
    var: relax.Var,
    channels: tuple[int, int] | None = None,
    *,
    clamps: bool = True,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> FusedOperators:
    """The epilogue of the operator `var`.

    Args:
        q: what knows the readers.
        var: the result of the operator.
        channels: the channel axis and their number, where a bias may follow.
        clamps: whether clamps belong to it; else it ends before the first.
        within: what `var` clamps to itself.
    """
    end = FusedOperators(var, None, *within)
    user = q.only_user(var)
    while channels and user and (bias := _bias_of(user, end.last, *channels)) is not None:
        end.bias = bias if end.bias is None else end.bias + bias
        end.take(user)
        user = q.only_user(end.last)
    while clamps and user and (interval := interval_of(user, end.last)) is not None:
        low, high = interval
        end.low, end.high = min(max(end.low, low), high), min(max(end.high, low), high)
        end.take(user)
        user = q.only_user(end.last)
    stated = quantize_scale(user.value) if clamps and user and q.entry(user) else None
    if stated is not None and user is not None:
        end.scale = stated
        end.take(user)
    return end


def _bias_of(
    binding: relax.VarBinding, data: relax.Var, axis: int, channels: int
) -> np.ndarray | None:
    """The constant that `binding` adds to `data` per channel; `data` - constant counts too."""
    call = binding.value
    name = op_name(call)
    if name not in ("relax.add", "relax.subtract") or binding.var.ty.ndim != data.ty.ndim:
        return None
    constants = [arg for arg in call.args if is_constant(arg)]
    if len(constants) != 1 or (name == "relax.subtract" and is_constant(call.args[0])):
        return None
    bias = per_channel(constants[0].value.numpy(), data.ty.ndim, axis, channels)
    return -bias if bias is not None and name == "relax.subtract" else bias
