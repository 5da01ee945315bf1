"""Three small networks that every framework can express, to be quantized by its own tools.

A network is a list of layers with weights from its name, so that ONNX, TensorFlow and PyTorch build
the same one.  `onnx_model` is here; `tests/fixtures/make_tflite.py` has TensorFlow's, and
`torch_module` PyTorch's.  Batch normalization is left out: quantizers fold it anyway.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

F32 = npt.NDArray[np.float32]
OPSET = 17
CALIBRATION = 16
"""Images that ranges are chosen on."""


@dataclass(frozen=True)
class Layer:
    """One operator.

    Attributes:
        op: "conv", "up" (transposed convolution), "dense", "add", "concat", "relu", "relu6",
            "max_pool", "mean" (of the plane, to (N, C)).
        inputs: names of the layers read.
        shape: of the weights: (O, I / groups, KH, KW), (I, O, KH, KW) for "up", (O, I) for "dense".
        stride, pad, groups: of windows; `pad` on every side.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...] = ()
    stride: int = 1
    pad: int = 0
    groups: int = 1

    def weights(self) -> tuple[F32, F32]:
        """Weights (He's deviation, channels that differ in reach) and bias."""
        rng = np.random.RandomState(zlib.crc32(self.name.encode()))
        outputs = self.shape[1] if self.op == "up" else self.shape[0]
        fan_in = np.prod(self.shape) / outputs / (self.stride**2 if self.op == "up" else 1)
        spread = rng.uniform(0.6, 1.4, outputs) * np.sqrt(2 / fan_in)
        axis = 1 if self.op == "up" else 0
        along = [-1 if i == axis else 1 for i in range(len(self.shape))]
        weight = rng.standard_normal(self.shape) * spread.reshape(along)
        bias = rng.standard_normal(outputs) * 0.1
        return weight.astype("float32"), bias.astype("float32")


@dataclass
class Network:
    """Layers in order on an image (1, 3, size, size); the last one is the result."""

    name: str
    size: int
    layers: list[Layer] = field(default_factory=list)

    def add(self, op: str, *inputs: str, name: str = "", **options: Any) -> str:
        """Add a layer that reads the layers `inputs`; its name, for those that read it."""
        name = name or f"{op}{len(self.layers)}"
        self.layers.append(Layer(op, name, inputs, **options))
        return name

    def conv(
        self, x: str, ci: int, co: int, k: int = 3, *, act: str = "relu", **options: Any
    ) -> str:
        """A convolution that keeps the size at stride 1, and its activation."""
        shape = (co, ci // options.get("groups", 1), k, k)
        y = self.add("conv", x, shape=shape, pad=k // 2, **options)
        return self.add(act, y) if act else y

    def images(self, count: int, seed: int) -> F32:
        """Smooth random images, float32 (count, 3, size, size)."""
        rng = np.random.RandomState(seed)
        coarse = rng.standard_normal((count, 3, self.size // 4, self.size // 4))
        fine = rng.standard_normal((count, 3, self.size, self.size))
        return (np.kron(coarse, np.ones((1, 1, 4, 4))) + 0.3 * fine).astype("float32")

    def calibration(self) -> F32:
        """The images that scales are chosen from: other ones than those that are compared."""
        return self.images(CALIBRATION, 1)


def resnet18_like() -> Network:
    """ResNet-18's graph at an eighth of its widths."""
    n = Network("resnet18_like", 64)
    x = n.conv("data", 3, 8, 7, stride=2)
    x = n.add("max_pool", x, shape=(3, 3), stride=2, pad=1)
    inputs = 8
    for stage, width in enumerate((8, 16, 32, 64)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            short = x if inputs == width else n.conv(x, inputs, width, 1, act="", stride=stride)
            y = n.conv(n.conv(x, inputs, width, stride=stride), width, width, act="")
            x, inputs = n.add("relu", n.add("add", y, short)), width
    n.add("dense", n.add("mean", x), name="logits", shape=(10, 64))
    return n


def mobilenet_v2_like() -> Network:
    """MobileNet v2's inverted residuals, fewer and narrower."""
    n = Network("mobilenet_v2_like", 48)
    x, inputs = n.conv("data", 3, 16, stride=2, act="relu6"), 16
    for expansion, width, blocks, stride in (
        (1, 8, 1, 1),
        (4, 16, 2, 2),
        (4, 24, 2, 2),
        (4, 32, 2, 2),
    ):
        for block in range(blocks):
            inner, step = expansion * inputs, 1 if block else stride
            y = x if expansion == 1 else n.conv(x, inputs, inner, 1, act="relu6")
            y = n.conv(y, inner, inner, act="relu6", stride=step, groups=inner)
            y = n.conv(y, inner, width, 1, act="")
            x, inputs = (n.add("add", y, x) if step == 1 and inputs == width else y), width
    x = n.conv(x, inputs, 64, 1, act="relu6")
    n.add("dense", n.add("mean", x), name="logits", shape=(10, 64))
    return n


def unet_like() -> Network:
    """A U-Net of two levels: transposed convolutions on the way up, concatenations across."""
    n = Network("unet_like", 32)
    first = n.conv(n.conv("data", 3, 8), 8, 8)
    second = n.conv(n.add("max_pool", first, shape=(2, 2), stride=2), 8, 16)
    x = n.conv(n.add("max_pool", second, shape=(2, 2), stride=2), 16, 32)
    for skip, ci, co in ((second, 32, 16), (first, 16, 8)):
        x = n.add("relu", n.add("up", x, shape=(ci, co, 2, 2), stride=2))
        x = n.conv(n.add("concat", x, skip), 2 * co, co)
    n.conv(x, 8, 4, 1, act="")
    return n


NETWORKS = {
    network.name: network for network in (resnet18_like(), mobilenet_v2_like(), unet_like())
}


# ---------------------------------------------------------------- ONNX
_ONNX = {
    "conv": "Conv", "up": "ConvTranspose", "dense": "Gemm", "add": "Add", "concat": "Concat",
    "relu": "Relu", "relu6": "Clip", "max_pool": "MaxPool", "mean": "GlobalAveragePool",
}  # fmt: skip


def onnx_model(network: Network) -> onnx.ModelProto:
    """The float network."""
    nodes, weights = (
        [],
        [
            numpy_helper.from_array(np.asarray(v, "float32"), n)
            for n, v in (("zero", 0), ("six", 6))
        ],
    )
    for layer in network.layers:
        inputs, attrs = list(layer.inputs), _window(layer)
        if layer.op in ("conv", "up", "dense"):
            for part, value in zip(("weight", "bias"), layer.weights(), strict=True):
                weights.append(numpy_helper.from_array(value, f"{layer.name}.{part}"))
                inputs.append(weights[-1].name)
        inputs += ["zero", "six"] if layer.op == "relu6" else []
        output = f"{layer.name}.plane" if layer.op == "mean" else layer.name
        nodes.append(helper.make_node(_ONNX[layer.op], inputs, [output], name=output, **attrs))
        if layer.op == "mean":
            nodes.append(helper.make_node("Flatten", [output], [layer.name], name=layer.name))
    side, result = network.size, network.layers[-1]
    shape = (1, 10) if result.op == "dense" else (1, result.shape[0], side, side)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("data", (1, 3, side, side)), (result.name, shape))
    ]
    graph = helper.make_graph(nodes, network.name, ends[:1], ends[1:], weights)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def _window(layer: Layer) -> dict[str, Any]:
    if layer.op == "dense":
        return {"transB": 1}
    if layer.op == "concat":
        return {"axis": 1}
    if layer.op not in ("conv", "up", "max_pool"):
        return {}
    attrs = {"strides": [layer.stride] * 2, "pads": [layer.pad] * 4}
    if layer.op == "max_pool":
        return {**attrs, "kernel_shape": list(layer.shape)}
    return {**attrs, "group": layer.groups}


def quantized_onnx(network: Network, path: Path, **options: Any) -> Path:
    """The network quantized by ONNX Runtime's static quantizer with `options` of it."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.images: Iterator[F32] = iter(network.calibration())

        def get_next(self) -> dict[str, F32] | None:
            image = next(self.images, None)
            return None if image is None else {"data": image[None]}

    source = path.with_suffix(".float.onnx")
    onnx.save(onnx_model(network), str(source))
    quantize_static(str(source), str(path), Reader(), **options)
    return path


# ---------------------------------------------------------------- PyTorch
def torch_module(network: Network) -> Any:
    """The float network as a torch.nn.Module with an attribute for every layer with weights."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for layer in network.layers:
                if layer.op in ("conv", "up", "dense"):
                    self.add_module(layer.name, _torch_layer(layer))

        def forward(self, data: Any) -> Any:
            values = {"data": data}
            for layer in network.layers:
                values[layer.name] = self.compute(layer, [values[name] for name in layer.inputs])
            return values[network.layers[-1].name]

        def compute(self, layer: Layer, x: Sequence[Any]) -> Any:
            if layer.op in ("conv", "up", "dense"):
                return getattr(self, layer.name)(x[0])
            functions = {
                "add": lambda: x[0] + x[1],
                "concat": lambda: torch.cat(list(x), 1),
                "relu": lambda: F.relu(x[0]),
                "relu6": lambda: F.relu6(x[0]),
                "max_pool": lambda: F.max_pool2d(x[0], layer.shape, layer.stride, layer.pad),
                "mean": lambda: F.adaptive_avg_pool2d(x[0], 1).flatten(1),
            }
            return functions[layer.op]()

    return Module().eval()


def _torch_layer(layer: Layer) -> Any:
    import torch
    from torch import nn

    weight, bias = layer.weights()
    if layer.op == "dense":
        made: Any = nn.Linear(layer.shape[1], layer.shape[0])
    elif layer.op == "up":
        made = nn.ConvTranspose2d(*layer.shape[:2], layer.shape[2:], layer.stride)
    else:
        outputs, inputs, *kernel = layer.shape
        made = nn.Conv2d(
            inputs * layer.groups, outputs, kernel, layer.stride, layer.pad, groups=layer.groups
        )
    made.weight.data, made.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
    return made


def quantized_torch(network: Network) -> Any:
    """The converted pt2e program (int8, weights per channel) as a callable module.

    The quantizer scales weights of transposed convolutions by input channel, which no integer sum
    can apply: those layers stay float.
    """
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    images = torch.from_numpy(network.calibration())
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xnnpack.XNNPACKQuantizer().set_global(config)
    program = torch.export.export(torch_module(network), (images[:1],))
    prepared = prepare_pt2e(program.module(), quantizer)
    for i in range(len(images)):
        prepared(images[i : i + 1])
    return convert_pt2e(prepared)
