"""Small networks for the tests of scope modes: what each one is about is in its first line."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from integer_models import IntegerNet, flatten_net, island_net, residual_net, stem_net
from small_models import Net
from tvm import relax


def diamond_net() -> IntegerNet:
    """Two layers on the result of one, and their sum."""
    net = IntegerNet(x=(1, 16, 6, 6))
    top = net.conv(net.params[0], 24, name="top")
    left, right = net.conv(top, 16, name="left"), net.conv(top, 16, 1, name="right")
    net.result = net.residual(left, right, name="bottom")
    return net


def doubled_net() -> IntegerNet:
    """A tensor added to itself, and the sum joined with itself."""
    net = IntegerNet(x=(2, 16, 5, 5))
    one = net.conv(net.params[0], 16, name="one")
    two = net.residual(one, one, name="twice")
    net.result = net.op("concat", [two, two], axis=1, name="joined")
    return net


def concat_net() -> IntegerNet:
    """Parts that are stored in place, and a slice of the whole."""
    net = IntegerNet(x=(1, 16, 6, 6))
    parts = [net.conv(net.params[0], 32, name="a"), net.conv(net.params[0], 16, 1, name="b")]
    joined = net.op("concat", parts, axis=1, name="joined")
    half = net.op("strided_slice", joined, [1], [16], [40], name="half")
    net.result = net.conv(half, 16, name="last")
    return net


def narrow_net() -> IntegerNet:
    """A layer that could be folded reads what an earlier one has packed."""
    net = IntegerNet(x=(1, 3, 40, 40))
    point = net.conv(net.params[0], 32, 1, stride=2, name="point")
    wide = net.conv(net.params[0], 32, 7, stride=2, name="wide")
    net.result = net.residual(point, wide, name="sum")
    return net


def wide_result_net() -> IntegerNet:
    """A dense layer with int32 results behind a flattened plane."""
    net = IntegerNet(x=(1, 16, 4, 4))
    plane = net.conv(net.params[0], 24, name="plane")
    flat = net.op("reshape", plane, (1, 24 * 16), name="flat")
    weight = net.rng.integers(-127, 128, (24 * 16, 10)).astype("int8")
    product = net.op("matmul", flat, relax.const(weight), out_dtype="int32", name="dense__matmul")
    bias = relax.const(net.rng.integers(-999, 999, 10).astype("int32"))
    net.result = net.op("add", product, bias, name="dense")
    return net


def crossed_island_net() -> IntegerNet:
    """An operator of the host in the middle; ``first`` goes around it, too."""
    net = IntegerNet(x=(1, 16, 6, 6))
    first = net.conv(net.params[0], 16, name="first")
    middle = net.conv(first, 16, name="middle")
    last = net.conv(net.op("abs", middle, name="size"), 16, name="last")
    net.result = net.residual(last, first, name="join")
    return net


NETS: dict[str, Callable[[], IntegerNet]] = {
    "residual": residual_net,
    "island": island_net,
    "crossed island": crossed_island_net,
    "diamond": diamond_net,
    "doubled": doubled_net,
    "concat": concat_net,
    "stem": stem_net,
    "narrow": narrow_net,
    "flattened": flatten_net,
    "int32": wide_result_net,
}


def resnet() -> onnx.ModelProto:
    """ResNet-18 in small: stem, pool, two blocks, the second one strided, average, dense."""
    net = Net(data=(1, 3, 32, 32))
    stem = net.node("Relu", net.conv("data", 3, 16, 7, name="stem", strides=[2, 2]))
    x = net.node("MaxPool", stem, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, name="pool")
    for name, ci, co, step in (("one", 16, 16, 1), ("two", 16, 32, 2)):
        a = net.node("Relu", net.conv(x, ci, co, name=f"{name}_a", strides=[step, step]))
        b = net.conv(a, co, co, name=f"{name}_b")
        other = x if step == 1 else net.conv(x, ci, co, 1, name=f"{name}_s", strides=[step, step])
        x = net.node("Relu", net.node("Add", b, other, name=f"{name}_add"))
    flat = net.node("Flatten", net.node("GlobalAveragePool", x, name="average"), name="flat")
    return net.model(net.dense(flat, 32, 10, name="dense"))


def mobilenet() -> onnx.ModelProto:
    """MobileNetV2 in small: a stem and two inverted residuals, one of them with a shortcut."""
    net = Net(data=(1, 3, 24, 24))
    x = net.conv("data", 3, 16, name="stem", strides=[2, 2])
    x = net.node("Clip", x, net.const(0), net.const(6))
    for name, co, step in (("one", 16, 1), ("two", 24, 2)):
        inner = net.conv(x, 16, 96, 1, name=f"{name}_expand")
        inner = net.node("Clip", inner, net.const(0), net.const(6))
        inner = net.conv(inner, 96, 96, name=f"{name}_depth", group=96, strides=[step, step])
        inner = net.node("Clip", inner, net.const(0), net.const(6))
        out = net.conv(inner, 96, co, 1, name=f"{name}_project")
        x = net.node("Add", out, x, name=f"{name}_add") if step == 1 else out
    return net.model(x)
