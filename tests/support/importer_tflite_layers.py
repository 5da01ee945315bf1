"""Cases of TFLite's layers, pools and reductions."""

from __future__ import annotations

from typing import Any

from ai_edge_litert import schema_py_generated as schema
from importer_tflite_graph import ACTIVATIONS, Lite


def reduction(g: Lite) -> None:
    shape = g.shape(1)
    axes = g.const(g.axes(len(shape)))
    g.test(g.tensor(shape), axes, kind="ReducerOptions", keepDims=g.flag())


def image(g: Lite, channels: int = 0, low: int = 4) -> tuple[int, ...]:
    return (g.size(1, 2), g.size(low, 8), g.size(low, 8), channels or g.size(1, 4))


def _window(g: Lite) -> dict[str, Any]:
    return {
        "padding": g.pick(schema.Padding.SAME, schema.Padding.VALID),
        "strideH": g.size(1, 3),
        "strideW": g.size(1, 3),
        "fusedActivationFunction": g.pick(*ACTIVATIONS),
    }


def _dilated(g: Lite) -> dict[str, Any]:
    window = _window(g)
    if g.flag():
        window |= {"strideH": 1, "strideW": 1}
        window |= {"dilationHFactor": g.size(1, 2), "dilationWFactor": g.size(1, 2)}
    else:
        window |= {"dilationHFactor": 1, "dilationWFactor": 1}
    return window


def conv(g: Lite) -> None:
    groups, outputs = g.size(1, 2), g.size(1, 3)
    depth = g.size(1, 3)
    weight = g.weights(groups * outputs, g.size(1, 3), g.size(1, 3), depth)
    bias = g.weights(groups * outputs)
    g.test(
        g.tensor(image(g, groups * depth, 6)), weight, bias, kind="Conv2DOptions", **_dilated(g)
    )


def depthwise(g: Lite) -> None:
    channels, times = g.size(1, 4), g.size(1, 2)
    weight = g.weights(1, g.size(1, 3), g.size(1, 3), channels * times)
    options = _dilated(g) | {"depthMultiplier": times}
    bias = g.weights(channels * times)
    g.test(g.tensor(image(g, channels, 6)), weight, bias, kind="DepthwiseConv2DOptions", **options)


def transpose_conv(g: Lite) -> None:
    options = _window(g) | {"fusedActivationFunction": ACTIVATIONS[0]}
    shape, outputs = image(g, low=2), g.size(1, 3)
    kernel = [g.size(1, 3), g.size(1, 3)]
    strides = (options["strideH"], options["strideW"])
    if options["padding"] == schema.Padding.SAME:
        size = [n * s - g.size(0, s - 1) for n, s in zip(shape[1:3], strides, strict=True)]
    else:
        size = [
            (n - 1) * s + k + g.size(0, s - 1)
            for n, s, k in zip(shape[1:3], strides, kernel, strict=True)
        ]
    wanted = g.const([shape[0], *size, outputs])
    weight = g.weights(outputs, *kernel, shape[3])
    g.test(wanted, weight, g.tensor(shape), kind="TransposeConvOptions", **options)


def pool(g: Lite) -> None:
    sizes = {"filterHeight": g.size(1, 3), "filterWidth": g.size(1, 3)}
    g.test(g.tensor(image(g)), kind="Pool2DOptions", **_window(g), **sizes)


def fully_connected(g: Lite) -> None:
    depth, outputs = g.size(), g.size()
    keep = g.flag()
    outer = g.shape(1, 3)
    options = {"fusedActivationFunction": g.pick(*ACTIVATIONS), "keepNumDims": keep}
    bias = g.pick(-1, g.weights(outputs))
    weight = g.weights(outputs, depth)
    g.test(g.tensor((*outer, depth)), weight, bias, kind="FullyConnectedOptions", **options)


def softmax(g: Lite) -> None:
    g.test(g.tensor(g.shape(1)), kind="SoftmaxOptions", beta=g.pick(1.0, 0.5, 2.0))


def log_softmax(g: Lite) -> None:
    g.test(g.tensor(g.shape(1)), kind="LogSoftmaxOptions")


def l2_normalization(g: Lite) -> None:
    g.test(g.tensor(g.shape(1)), kind="L2NormOptions", fusedActivationFunction=ACTIVATIONS[0])


def batch_matmul(g: Lite) -> None:
    """Both computed, or the right one constant."""
    outer = [g.size() for _ in range(g.size(0, 2))]
    rows, depth, columns = g.size(), g.size(), g.size()
    turned = [g.flag(), g.flag()]
    left, right = ([*outer, rows, depth], [*outer, depth, columns])
    for shape, turn in zip((left, right), turned, strict=True):
        if turn:
            shape[-2:] = shape[-1], shape[-2]
    other = g.weights(*right) if g.flag() else g.tensor(right)
    g.test(g.tensor(left), other, kind="BatchMatMulOptions", adjX=turned[0], adjY=turned[1])


def extreme(g: Lite) -> None:
    """Halves are often equal: the first counts."""
    shape = g.shape(1)
    kind = "Arg" + ("Max" if g.operator == "ARG_MAX" else "Min") + "Options"
    dtype = g.pick("int32", "int64")
    wanted = getattr(schema.TensorType, dtype.upper())
    g.test(g.tensor(shape), g.const(g.axis(len(shape))), kind=kind, dtype=dtype, outputType=wanted)
