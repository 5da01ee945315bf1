"""GELU and SiLU on VTA, in their hard forms: x * min(max(k * x + 3, 0), 6) / 6.

That is hard-swish (k = 1) for SiLU; with k = 1.702 it is near GELU. Without this plug-in both are
programs within one step of the exact function. The hard forms differ by up to 0.143 (SiLU) and
0.069 (GELU), before rounding.
"""

import numpy as np
from tvm import relax

from vta_byoc.extend import register_integer_op
from vta_byoc.extend.rules import close, const, follow, moves_as_int8, requantizer, source_name

SLOPES = {"relax.nn.silu": 1.0, "relax.nn.gelu": 1.702}


def hardswish(q, binding):
    value = q.value(binding.value.args[0])
    if not moves_as_int8(q, binding, value):
        return False
    scale, end, name = q.scale(value), follow(q, binding.var), source_name(binding.var)
    step = SLOPES[binding.value.op.name] * scale.step  # of k * x
    three, six = round(3 / step), round(6 / step)
    if not 1 <= six < 2**15:  # the ALU's immediates; the scale is far from that of any activation
        return False

    def centred(part, offset):  # int32, less the zero point
        wide = q.write.emit(relax.op.astype(q.int8(value), "int32"), f"{name}__{part}")
        moved = relax.op.add(wide, const(offset - scale.zero, "int32"))
        return q.write.emit(moved, f"{name}__{part}_moved")

    gate = q.write.emit(relax.op.maximum(centred("gate", three), const(0, "int32")), f"{name}__low")
    gate = q.write.emit(relax.op.minimum(gate, const(six, "int32")), f"{name}__high")
    product = q.write.emit(relax.op.multiply(centred("x", 0), gate), f"{name}__acc")
    unit, bound = scale.step * step / 6, 256 * six
    target = end.scale or q.policy.scale(q.ranges[end.last], name)
    ratio = np.array(unit / target.step)
    rescale = requantizer(ratio, np.array(bound), target.zero, *end.limits(target))
    out = q.write.fixed_point(product, rescale, (), name)
    return close(q, binding, end, out, target, rescale, "scale its input down")


def register():
    for operator in SLOPES:
        register_integer_op(operator, hardswish, replace=True)
