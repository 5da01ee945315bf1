"""The values that an int8 tensor can hold, as its definition tells."""

from __future__ import annotations

from integer_models import IntegerNet
from tvm import relax

from vta_byoc.ir.chains import Graph

WHOLE = (-128, 127)


def test_the_last_clamps_tell() -> None:
    net = IntegerNet(x=(1, 16, 4, 4))
    (x,) = net.params
    relu = net.conv(x, 16, name="relu")
    plain = net.conv(relu, 16, relu=False, name="plain")
    pooled = net.op("nn.max_pool2d", relu, (2, 2), strides=(2, 2), name="pooled")
    flat = net.op("reshape", pooled, (1, 64), name="flat")
    low = net.op("maximum", plain, relax.const(-5, "int8"), name="low")
    both = net.op("minimum", low, relax.const(9, "int8"), name="both")
    crossed = net.op("maximum", both, relax.const(20, "int8"), name="crossed")
    moved = net.op("add", relu, relax.const(1, "int8"), name="moved")
    graph = Graph(net.module(flat, both, crossed, moved)["main"])
    found = {str(b.var.name): graph.interval(b.var) for b in graph.bindings}
    assert found["relu"] == found["pooled"] == found["flat"] == (0, 127)
    assert found["plain"] == found["moved"] == WHOLE
    assert (found["low"], found["both"], found["crossed"]) == ((-5, 127), (-5, 9), (20, 20))
    assert graph.interval(x) == WHOLE
