"""The model zoo: the published networks, the same bytes, worth quantizing; at reduced size."""

from __future__ import annotations

import collections
import hashlib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # models/ is not installed

from models import dcgan

SMALL = 64


@dataclass(frozen=True)
class Published:
    """A network at its full size.

    Attributes:
        parameters: without the statistics of BatchNorm.
        statistics: of BatchNorm.
        macs: of convolutions and fully connected layers.
        shapes: of a few weights.
        wires: the first inputs of a few nodes.
        attributes: some of a few nodes.
        outputs: shapes at SMALL.
        values: int8 values in the worst layer at SMALL.
        sha256: of all initializers at SMALL.
    """

    size: int
    parameters: int
    statistics: int
    macs: int
    operators: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    wires: dict[str, tuple[str, ...]]
    attributes: dict[str, dict[str, Any]]
    outputs: dict[str, tuple[int, ...]]
    values: int
    sha256: str


PUBLISHED = {
    "resnet50": Published(
        size=224,
        parameters=25_557_032,
        statistics=53_120,
        macs=4_089_184_256,
        operators={
            "Conv": 53,
            "BatchNormalization": 53,
            "Relu": 49,
            "Add": 16,
            "MaxPool": 1,
            "GlobalAveragePool": 1,
            "Flatten": 1,
            "Gemm": 1,
        },
        shapes={
            "conv1.weight": (64, 3, 7, 7),
            "layer1.0.downsample.conv.weight": (256, 64, 1, 1),
            "layer3.5.conv2.weight": (256, 256, 3, 3),
            "layer4.2.conv3.weight": (2048, 512, 1, 1),
            "fc.weight": (1000, 2048),
        },
        wires={
            "layer2.0.add": ("layer2.0.bn3", "layer2.0.downsample.bn"),
            "layer2.1.add": ("layer2.1.bn3", "layer2.0.relu3"),
        },
        attributes={
            "layer2.0.conv1": {"strides": [1, 1]},
            "layer2.0.conv2": {"strides": [2, 2]},
        },
        outputs={"logits": (1, 1000)},
        values=60,
        sha256="e353daa9b46ecab0e74ca095105e3178af484d522699787372f378a141f44a91",
    ),
    "vgg16": Published(
        size=224,
        parameters=138_357_544,
        statistics=0,
        macs=15_470_264_320,
        operators={"Conv": 13, "Relu": 15, "MaxPool": 5, "Flatten": 1, "Gemm": 3},
        shapes={
            "conv1_1.weight": (64, 3, 3, 3),
            "conv5_3.weight": (512, 512, 3, 3),
            "fc6.weight": (4096, 2048),
            "fc7.weight": (4096, 4096),
            "fc8.weight": (1000, 4096),
        },
        wires={
            "fc6": ("flatten",),
            "fc8": ("relu7",),
        },
        attributes={},
        outputs={"logits": (1, 1000)},
        values=105,
        sha256="5c64b6c7c4bf1e96248ce7a7e587ec102c0940d95925338fc27e1d837cc96467",
    ),
    "mobilenet_v1": Published(
        size=224,
        parameters=4_231_976,
        statistics=21_888,
        macs=568_740_352,
        operators={
            "Conv": 27,
            "BatchNormalization": 27,
            "Relu": 27,
            "GlobalAveragePool": 1,
            "Flatten": 1,
            "Gemm": 1,
        },
        shapes={
            "conv1.weight": (32, 3, 3, 3),
            "block1.dw.weight": (32, 1, 3, 3),
            "block13.dw.weight": (1024, 1, 3, 3),
            "block13.pw.weight": (1024, 1024, 1, 1),
        },
        wires={
            "block2.dw": ("block1.pw.relu",),
            "avgpool": ("block13.pw.relu",),
        },
        attributes={
            "block2.dw": {"group": 64, "strides": [2, 2]},
        },
        outputs={"logits": (1, 1000)},
        values=88,
        sha256="e85800586e5cb03af8d45980e00bc1fc390a1500d2083eaac8667bb4a1beab16",
    ),
    "mobilenet_v2": Published(
        size=224,
        parameters=3_504_872,
        statistics=34_112,
        macs=300_774_272,
        operators={
            "Conv": 52,
            "BatchNormalization": 52,
            "Clip": 35,
            "Add": 10,
            "GlobalAveragePool": 1,
            "Flatten": 1,
            "Gemm": 1,
        },
        shapes={
            "block1.0.dw.weight": (32, 1, 3, 3),
            "block2.0.expand.weight": (96, 16, 1, 1),
            "block6.2.dw.weight": (960, 1, 3, 3),
            "block7.0.project.weight": (320, 960, 1, 1),
            "conv2.weight": (1280, 320, 1, 1),
        },
        wires={
            "block1.0.dw": ("conv1.relu6",),
            "block2.0.expand": ("block1.0.project.bn",),
            "block4.2.add": ("block4.2.project.bn", "block4.1.add"),
        },
        attributes={
            "block6.0.dw": {"group": 576, "strides": [2, 2]},
        },
        outputs={"logits": (1, 1000)},
        values=76,
        sha256="57fd5f68a6ff08e44b2df6807e42bb7a73861cb57740b3c9ee3cc558089cdd19",
    ),
    "squeezenet": Published(
        size=224,
        parameters=1_235_496,
        statistics=0,
        macs=349_151_936,
        operators={
            "Conv": 26,
            "Relu": 26,
            "MaxPool": 3,
            "Concat": 8,
            "GlobalAveragePool": 1,
            "Flatten": 1,
        },
        shapes={
            "conv1.weight": (64, 3, 3, 3),
            "fire2.squeeze.weight": (16, 64, 1, 1),
            "fire9.expand3x3.weight": (256, 64, 3, 3),
            "conv10.weight": (1000, 512, 1, 1),
        },
        wires={
            "fire2.concat": ("fire2.expand1x1.relu", "fire2.expand3x3.relu"),
            "fire4.squeeze": ("pool3",),
            "avgpool": ("relu10",),
        },
        attributes={
            "pool1": {"ceil_mode": 1, "strides": [2, 2]},
        },
        outputs={"logits": (1, 1000)},
        values=88,
        sha256="feaf30004626cd63b96488dec9c6db05698c435a11a4f84be9d3956ba53cdf02",
    ),
    "yolov3_tiny": Published(
        size=416,
        parameters=8_852_366,
        statistics=6_368,
        macs=2_782_480_896,
        operators={
            "Conv": 13,
            "BatchNormalization": 11,
            "LeakyRelu": 11,
            "MaxPool": 6,
            "Resize": 1,
            "Concat": 1,
        },
        shapes={
            "conv0.weight": (16, 3, 3, 3),
            "conv12.weight": (1024, 512, 3, 3),
            "conv13.weight": (256, 1024, 1, 1),
            "conv21.weight": (256, 384, 3, 3),
            "conv22.weight": (255, 256, 1, 1),
        },
        wires={
            "route20": ("upsample19", "leaky8"),
            "conv14": ("leaky13",),
            "conv18": ("leaky13",),
        },
        attributes={
            "pool11": {"pads": [0, 0, 1, 1], "strides": [1, 1]},
            "leaky0": {"alpha": float(np.float32(0.1))},
        },
        outputs={"yolo16": (1, 255, 2, 2), "yolo23": (1, 255, 4, 4)},
        values=112,
        sha256="04b3d74ca53e28ec1b63ca6f89cd45ee681906e75185d7f7ab37b9106b6b7c8d",
    ),
    "dcgan": Published(
        size=64,
        parameters=12_658_432,
        statistics=3_840,
        macs=410_583_040,
        operators={"ConvTranspose": 5, "BatchNormalization": 4, "Relu": 4, "Tanh": 1},
        shapes={
            "deconv1.weight": (100, 1024, 4, 4),
            "deconv2.weight": (1024, 512, 4, 4),
            "deconv5.weight": (128, 3, 4, 4),
        },
        wires={
            "deconv2": ("relu1",),
            "tanh": ("deconv5",),
        },
        attributes={
            "deconv1": {"strides": [1, 1], "pads": [0, 0, 0, 0]},
            "deconv2": {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        },
        outputs={"image": (1, 3, 64, 64)},
        values=105,
        sha256="d645ec5a232091b6df292f83e9c6e11818a1f78c180633f7679d70497499c568",
    ),
}
"""MACs: torchvision's documentation (ResNet-50, VGG-16, MobileNet v2, SqueezeNet 1.1), the papers
(MobileNet v1), half of the operations that Darknet prints (YOLOv3-tiny)."""


@dataclass
class Small:
    """A network built at SMALL, with what the builder knows of it."""

    name: str
    model: onnx.ModelProto
    inputs: np.ndarray
    outputs: dict[str, np.ndarray]
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def published(self) -> Published:
        return PUBLISHED[self.name]


@pytest.fixture(scope="module", params=PUBLISHED)
def small(request: pytest.FixtureRequest) -> Iterator[Small]:
    module = importlib.import_module(f"models.{request.param}")
    if module is dcgan:
        b = dcgan.builder()
        outputs = dcgan.network(b)
    else:
        b = module.MODEL.builder(size=SMALL)
        outputs = module.network(b, module.MODEL.classes)
    model = b.build(*outputs)
    made = Small(request.param, model, b.input.data, {y.name: y.data for y in outputs})
    made.weights = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    yield made


def samples(name: str, n: int, seed: int) -> np.ndarray:
    module = importlib.import_module(f"models.{name}")
    options = {} if module is dcgan else {"size": SMALL}
    return np.asarray(module.sample_inputs(n, seed, **options))


def calibration(name: str) -> np.ndarray:
    module = importlib.import_module(f"models.{name}")
    return np.asarray(module.calibration_inputs(**({} if module is dcgan else {"size": SMALL})))


# ---------------------------------------------------------------- the networks
def test_operators(small: Small) -> None:
    onnx.checker.check_model(small.model, full_check=True)
    counts = collections.Counter(node.op_type for node in small.model.graph.node)
    assert counts == small.published.operators
    for name, shape in small.published.shapes.items():
        assert small.weights[name].shape == shape, name


def test_names(small: Small) -> None:
    graph = small.model.graph
    names = [node.name for node in graph.node]
    assert len({*names}) == len(names)
    ends = {value.name for value in graph.output}
    assert all(node.output[0] == node.name for node in graph.node if node.output[0] not in ends)
    shapes = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in graph.output
    }
    assert shapes == small.published.outputs


def test_parameters_and_macs_are_the_published_ones(small: Small) -> None:
    """At full size: the layers' shapes follow from the input's."""
    full = at_size(small.model, small.published.size)
    shapes = value_shapes(full)
    weights = {w.name: list(w.dims) for w in full.graph.initializer}
    macs = 0
    for node in full.graph.node:
        w = weights.get(node.input[1], []) if len(node.input) > 1 else []
        if node.op_type == "Gemm":
            w[1] = shapes.get(node.input[0], [0, w[1]])[1]  # of VGG-16's fc6 the size decides
            macs += int(np.prod(w))
        elif node.op_type == "Conv":
            macs += int(np.prod(w[1:]) * np.prod(shapes[node.output[0]]))
        elif node.op_type == "ConvTranspose":
            macs += int(np.prod(w) * np.prod(shapes[node.input[0]][2:]))
    assert macs == small.published.macs
    parts = ("running_mean", "running_var")
    statistics = sum(int(np.prod(w)) for name, w in weights.items() if name.endswith(parts))
    trained = (".weight", ".bias")
    parameters = sum(int(np.prod(w)) for name, w in weights.items() if name.endswith(trained))
    assert (parameters, statistics) == (small.published.parameters, small.published.statistics)


def at_size(model: onnx.ModelProto, size: int) -> onnx.ModelProto:
    """The model for another input size, without the data of its weights."""
    out = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    out.graph.name = model.graph.name
    out.graph.node.extend(model.graph.node)
    out.graph.input.extend(model.graph.input)
    for dim in out.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = size if dim.dim_value > 1 else 1
    for value in model.graph.output:
        out.graph.output.append(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, None))
    for w in model.graph.initializer:
        has_data = np.prod(w.dims) <= 4  # the scales of Resize decide shapes
        bare = TensorProto(name=w.name, dims=w.dims, data_type=w.data_type)
        out.graph.initializer.append(w if has_data else bare)
    return out


def value_shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def test_nodes(small: Small) -> None:
    nodes = {node.name: node for node in small.model.graph.node}
    for name, inputs in small.published.wires.items():
        assert tuple(nodes[name].input[: len(inputs)]) == inputs, name
    for name, wanted in small.published.attributes.items():
        found = {a.name: helper.get_attribute_value(a) for a in nodes[name].attribute}
        assert {key: found[key] for key in wanted} == wanted, name


# ---------------------------------------------------------------- the same bytes
def test_weights_are_the_published_ones(small: Small) -> None:
    digest = hashlib.sha256()
    for name, values in small.weights.items():
        digest.update(name.encode())
        digest.update(values.astype("<f4").tobytes())
    assert digest.hexdigest() == small.published.sha256, small.name


def test_onnxruntime_agrees_with_the_builder(small: Small) -> None:
    """Scales rest on the builder's own forward pass."""
    session = ort.InferenceSession(small.model.SerializeToString())
    for i, x in enumerate(small.inputs[:2]):
        for got, (name, wanted) in zip(
            session.run([*small.outputs], {session.get_inputs()[0].name: x[None]}),
            small.outputs.items(),
            strict=True,
        ):
            error = np.abs(got[0] - wanted[i]).max()
            assert error <= 5e-3 * np.abs(wanted[i]).max(), f"{name} differs by {error}"


# ---------------------------------------------------------------- worth quantizing
ABSORBED = {"BatchNormalization", "Relu", "Clip", "LeakyRelu", "Tanh", "Flatten"}


def test_int8_would_do(small: Small) -> None:
    """Power-of-two scales from the calibration, tried on inputs that the builder has not seen.

    The true int8 network is measured at full size: see docs/models.md.
    """
    model = with_layers(small.model)
    session = ort.InferenceSession(model.SerializeToString())
    seen, new = (run(session, x) for x in (calibration(small.name), samples(small.name, 8, 1)))
    for name, values in new.items():
        if name in small.outputs:
            rows = values.reshape(8, -1) - values.reshape(8, -1).mean(axis=0)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            cosine = (rows @ rows.T)[np.triu_indices(8, 1)].max()
            print(f"{small.name}: {name}: largest cosine between two inputs {cosine:.3f}")
            assert cosine <= 0.9, name
            continue
        scale = 2.0 ** np.ceil(np.log2(np.abs(seen[name]).max() / 127))
        ints = np.clip(np.rint(values / scale), -128, 127)
        distinct, saturated = len(np.unique(ints)), np.mean((ints == 127) | (ints == -128))
        print(f"{small.name}: {name}: {distinct} values, {100 * saturated:.3f} % saturated")
        assert distinct >= small.published.values, f"{name} uses {distinct} of 256 int8 values"
        assert saturated <= 0.01, f"{name} saturates {100 * saturated:.2f} %"


def with_layers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every tensor that is stored between layers as an output."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    ends = {value.name for value in model.graph.output}
    for node in model.graph.node:
        readers = [user for user in model.graph.node if node.output[0] in user.input]
        is_inner = len(readers) == 1 and readers[0].op_type in ABSORBED
        if node.output[0] not in ends and not is_inner:
            value = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
            out.graph.output.append(value)
    return out


def run(session: ort.InferenceSession, inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Every output, stacked over the inputs."""
    names = [value.name for value in session.get_outputs()]
    source = session.get_inputs()[0].name
    runs = [session.run(names, {source: x[None]}) for x in inputs]
    return {name: np.concatenate([y[i] for y in runs]) for i, name in enumerate(names)}
