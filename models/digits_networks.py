"""The networks for digits, and the ONNX file of a trained one.

The convolutional ones are tables of layers, of which `train_digits` makes PyTorch modules as well,
so a network is described once. In the file BatchNorm is not folded and relu6 is a Clip, as
exporters write them. The vision transformer is that of `models._vit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models._exact import F32
from models._vit import Sizes, vit
from models.digits import CLASSES, INPUT, SIZE, VIT

OPSET = 17
IR_VERSION = 8
EPSILON = 1e-5
OUTPUT = "logits"
RELU, RELU6, HARD_SWISH, LINEAR = "relu", "relu6", "hard_swish", ""
POOLED = "pooled"


@dataclass(frozen=True)
class Conv:
    """A convolution without bias, BatchNorm, then `activation`.

    Attributes:
        source: the layer that it reads.
        inputs, channels: channels read and written.
        depthwise: one group per channel.
    """

    name: str
    source: str
    inputs: int
    channels: int
    kernel: int = 3
    stride: int = 1
    activation: str = LINEAR
    depthwise: bool = False

    @property
    def groups(self) -> int:
        """One for each channel of a depthwise layer, else 1."""
        return self.channels if self.depthwise else 1


@dataclass(frozen=True)
class Add:
    """The sum of two layers, then `activation`."""

    name: str
    sources: tuple[str, str]
    activation: str = LINEAR


@dataclass(frozen=True)
class Gate:
    """Squeeze and excitation: the layer times a hard sigmoid for each of its channels.

    The mean over the plane goes through two 1x1 convolutions with biases, relu between them.

    Attributes:
        source: the layer that is read and scaled.
        channels, squeezed: channels of the layer, and between the two convolutions.
    """

    name: str
    source: str
    channels: int
    squeezed: int

    @property
    def convolutions(self) -> tuple[tuple[str, int, int], ...]:
        """Name, inputs and channels of both convolutions."""
        return (
            (f"{self.name}_reduce", self.channels, self.squeezed),
            (f"{self.name}_expand", self.squeezed, self.channels),
        )


Layer = Conv | Add | Gate
VIT_SIZES = Sizes(
    size=SIZE, channels=1, patch=4, width=48, heads=3, hidden=96, depth=3, classes=CLASSES
)
"""16 patches of 4x4 pixels and a token for the class."""


@dataclass(frozen=True)
class _Given:
    """Parameters of `models._vit` by their names in the file."""

    state: Mapping[str, F32]

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> F32:
        """The parameter, of that shape."""
        return self.state[name].reshape(shape)

    def norm(self, name: str, width: int) -> tuple[F32, F32]:
        """Weight and bias."""
        return self.state[f"{name}.weight"], self.state[f"{name}.bias"]


def layers(network: str) -> list[Layer]:
    """What comes before the global average pooling and the dense layer."""
    return {"resnet8": resnet8, "mobilenet": mobilenet, "mobilenet_v3": mobilenet_v3}[network]()


def features(table: list[Layer]) -> int:
    """Channels of the last layer."""
    return [layer.channels for layer in table if isinstance(layer, Conv)][-1]


def resnet8() -> list[Layer]:
    """ResNet-8 of MLPerf Tiny with 48 channels at the end instead of 64."""
    table: list[Layer] = [Conv("stem", INPUT, 1, 16, activation=RELU)]
    source, inputs = "stem", 16
    for stage, channels in enumerate((16, 32, 48), start=1):
        name, stride = f"stage{stage}", 1 if stage == 1 else 2
        first = Conv(f"{name}_conv1", source, inputs, channels, stride=stride, activation=RELU)
        table += [first, Conv(f"{name}_conv2", first.name, channels, channels)]
        if stride > 1:
            table.append(Conv(f"{name}_shortcut", source, inputs, channels, 1, stride))
            source = f"{name}_shortcut"
        table.append(Add(f"{name}_add", (f"{name}_conv2", source), RELU))
        source, inputs = f"{name}_add", channels
    return table


def mobilenet() -> list[Layer]:
    """Five inverted residuals as in MobileNetV2 (expansion, channels, stride), then 1x1 to 96."""
    table: list[Layer] = [Conv("stem", INPUT, 1, 16, activation=RELU6)]
    source, inputs = "stem", 16
    blocks = ((1, 16, 1), (4, 24, 2), (4, 24, 1), (4, 32, 2), (4, 32, 1))
    for block, (expansion, channels, stride) in enumerate(blocks, start=1):
        name, wide, read = f"block{block}", inputs * expansion, source
        if expansion > 1:
            table.append(Conv(f"{name}_expand", read, inputs, wide, 1, activation=RELU6))
            read = f"{name}_expand"
        depthwise = Conv(f"{name}_depthwise", read, wide, wide, 3, stride, RELU6, depthwise=True)
        table += [depthwise, Conv(f"{name}_project", depthwise.name, wide, channels, 1)]
        if stride == 1 and inputs == channels:
            table.append(Add(f"{name}_add", (f"{name}_project", source)))
        source, inputs = table[-1].name, channels
    return [*table, Conv("head", source, inputs, 96, 1, activation=RELU6)]


def mobilenet_v3() -> list[Layer]:
    """Five blocks as in MobileNetV3: gates in four of them, relu first and hard swish later."""
    table: list[Layer] = [Conv("stem", INPUT, 1, 16, activation=HARD_SWISH)]
    source, inputs = "stem", 16
    blocks = (
        (16, 16, 3, 1, RELU, True),
        (48, 24, 3, 2, RELU, False),
        (72, 24, 3, 1, RELU, True),
        (96, 32, 5, 2, HARD_SWISH, True),
        (128, 32, 5, 1, HARD_SWISH, True),
    )
    for block, (wide, channels, kernel, stride, kind, gated) in enumerate(blocks, start=1):
        name, read = f"block{block}", source
        if wide > inputs:
            table.append(Conv(f"{name}_expand", read, inputs, wide, 1, activation=kind))
            read = f"{name}_expand"
        read_by = Conv(f"{name}_depthwise", read, wide, wide, kernel, stride, kind, depthwise=True)
        table.append(read_by)
        if gated:
            table.append(Gate(f"{name}_gate", read_by.name, wide, max(8, wide // 4)))
        table.append(Conv(f"{name}_project", table[-1].name, wide, channels, 1))
        if stride == 1 and inputs == channels:
            table.append(Add(f"{name}_add", (f"{name}_project", source)))
        source, inputs = table[-1].name, channels
    return [*table, Conv("head", source, inputs, 96, 1, activation=HARD_SWISH)]


# ---------------------------------------------------------------- the ONNX file
def to_onnx(network: str, state: Mapping[str, F32]) -> onnx.ModelProto:
    """The checked model of batch 1.

    Args:
        network: "resnet8", "mobilenet", "mobilenet_v3" or "vit".
        state: `<conv>.weight` OIHW; `<conv>.bn.weight`, `.bias`, `.running_mean`,
            `.running_var`, or `<conv>.bias` in a gate; `dense.weight` (CLASSES, features),
            `dense.bias`. Of "vit" the parameters under the names of `models._vit`.
    """
    if network == VIT:
        model = vit(f"digits_{network}", VIT_SIZES, _Given(state), INPUT, OUTPUT)
        onnx.checker.check_model(model, full_check=True)
        return model
    table, nodes = layers(network), list[onnx.NodeProto]()
    for layer in table:
        nodes += _layer_nodes(layer)
    nodes += [
        helper.make_node("GlobalAveragePool", [table[-1].name], [POOLED], name=POOLED),
        helper.make_node("Flatten", [POOLED], ["flat"], name="flat", axis=1),
        _gemm(),
    ]
    read = {name for node in nodes for name in node.input}
    tensors = {name: values for name, values in state.items() if name in read}
    bounds = {"zero": np.float32(0), "six": np.float32(6)}
    tensors |= {name: np.asarray(v) for name, v in bounds.items() if name in read}
    graph = helper.make_graph(
        nodes,
        f"digits_{network}",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, (1, 1, SIZE, SIZE))],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, (1, CLASSES))],
        [numpy_helper.from_array(np.asarray(v, order="C"), n) for n, v in tensors.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model


def _layer_nodes(layer: Layer) -> list[onnx.NodeProto]:
    if isinstance(layer, Conv):
        return _conv_nodes(layer)
    return _add_nodes(layer) if isinstance(layer, Add) else _gate_nodes(layer)


def _conv_nodes(layer: Conv) -> list[onnx.NodeProto]:
    name, result = layer.name, f"{layer.name}.bn" if layer.activation else layer.name
    parts = ("weight", "bias", "running_mean", "running_var")
    conv = helper.make_node(
        "Conv", [layer.source, f"{name}.weight"], [f"{name}.conv"], name=f"{name}.conv",
        kernel_shape=[layer.kernel] * 2, strides=[layer.stride] * 2,
        pads=[layer.kernel // 2] * 4, group=layer.groups,
    )  # fmt: skip
    norm = helper.make_node(
        "BatchNormalization", [f"{name}.conv", *(f"{name}.bn.{part}" for part in parts)],
        [result], name=f"{name}.bn", epsilon=EPSILON,
    )  # fmt: skip
    return [conv, norm, *_activation(layer, result)]


def _add_nodes(layer: Add) -> list[onnx.NodeProto]:
    result = f"{layer.name}.sum" if layer.activation else layer.name
    add = helper.make_node("Add", list(layer.sources), [result], name=result)
    return [add, *_activation(layer, result)]


def _gate_nodes(layer: Gate) -> list[onnx.NodeProto]:
    """Mean, convolution, relu, convolution, hard sigmoid, product."""
    mean, (first, second) = f"{layer.name}_mean", (c[0] for c in layer.convolutions)
    chain = (
        ("GlobalAveragePool", [layer.source], mean, {}),
        ("Conv", [mean, f"{first}.weight", f"{first}.bias"], first, {"kernel_shape": [1, 1]}),
        ("Relu", [first], f"{first}.relu", {}),
        ("Conv", [f"{first}.relu", f"{second}.weight", f"{second}.bias"], second,
         {"kernel_shape": [1, 1]}),
        ("HardSigmoid", [second], f"{layer.name}_share", {"alpha": 1 / 6, "beta": 0.5}),
        ("Mul", [layer.source, f"{layer.name}_share"], layer.name, {}),
    )  # fmt: skip
    return [
        helper.make_node(kind, inputs, [result], name=result, **attributes)
        for kind, inputs, result, attributes in chain
    ]


def _activation(layer: Conv | Add, source: str) -> list[onnx.NodeProto]:
    name = f"{layer.name}.{layer.activation}"
    if layer.activation == RELU:
        return [helper.make_node("Relu", [source], [layer.name], name=name)]
    if layer.activation == RELU6:
        return [helper.make_node("Clip", [source, "zero", "six"], [layer.name], name=name)]
    if layer.activation == HARD_SWISH:
        return [helper.make_node("HardSwish", [source], [layer.name], name=name)]
    return []


def _gemm() -> onnx.NodeProto:
    inputs = ["flat", "dense.weight", "dense.bias"]
    return helper.make_node("Gemm", inputs, [OUTPUT], name="dense", transB=1)
