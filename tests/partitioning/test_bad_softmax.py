"""A softmax whose axis lies in lanes stays on the CPU, with its reason."""

from __future__ import annotations

import numpy as np
from integer_models import IntegerNet
from test_bad_layers import check_cpu
from tvm import relax

from vta_byoc.ir.attention import RESULT, SCORE, SHARE, TOP, TOTAL
from vta_byoc.ir.programs import Instructions
from vta_byoc.ir.softmax import Softmax
from vta_byoc.partitioning.program_walk import OPS


def test_a_softmax_over_channels() -> None:
    """As the dialect writes it of an image, but along the axis that lies in lanes."""
    net = IntegerNet(x=(1, 20, 5, 4))
    values = {SCORE: net.op("astype", net.params[0], "int32", name="bad__wide")}

    def follow(program: Instructions, prefix: str) -> None:
        for each in program:
            right = each.right
            by = values[right] if isinstance(right, str) else relax.const(np.int32(right))
            name = f"bad__{prefix}_{each.name}"
            op = OPS[each.op].removeprefix("relax.")
            values[each.name] = net.op(op, values[each.left], by, name=name)

    softmax = Softmax(20, (-6, 5000, 12, 1900, 14, 14, 15, 20000, 20, 0, 20, -128, -128, 127))
    follow(softmax.raised, "raised")
    values[TOP] = net.op("max", values[SCORE], axis=[1], keepdims=True, name="bad__top")
    follow(softmax.room, "room")
    follow(softmax.share, "share")
    values[TOTAL] = net.op("sum", values[SHARE], axis=[1], keepdims=True, name="bad__total")
    follow(softmax.rate, "rate")
    follow(softmax.result, "result")
    reason = (
        "a softmax of a tensor of shape (1, 20, 5, 4) is along axis 1; the last two axes of "
        "(N, C, H, W) are taken, and the second of (groups, T, C) whose tokens fill blocks of a "
        "machine with BATCH 1; leave the softmax to the CPU"
    )
    check_cpu(net, net.module(net.op("astype", values[RESULT], "int8", name="bad")), reason)
