"""Work is counted by what operators compute, whatever they are called."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from hypothesis import HealthCheck, Phase, given, settings
from integer_models import IntegerNet
from network_runs import imported, numpy_calibration
from random_graphs import Network, networks
from small_models import Net
from tvm import relax

import vta_byoc as vta
from vta_byoc.ir.operator_work import OperatorWork, _legalized, work_of
from vta_byoc.partition import Placement, placements
from vta_byoc.partitioning.placement import CPU, VTA
from vta_byoc.pipeline import partition_for_vta
from vta_byoc.quantization.scales import Rescale
from vta_byoc.reports.placement.summary import alu_share, macs_share, shortfalls

RX = relax.op
Make = Callable[[list[relax.Var]], relax.Expr]
EMPTY = tvm.IRModule()


def call(make: Make, *shapes: tuple[int, ...], dtype: str = "float32") -> relax.Call:
    params = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    return relax.BlockBuilder().normalize(make(params))


NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
CONTRACTIONS: dict[str, tuple[int, Make, list[tuple[int, ...]]]] = {
    "conv1d": (
        6 * 5 * 2 * 3,
        lambda x: RX.nn.conv1d(*x, strides=2, padding=1, groups=2),
        [(1, 4, 9), (6, 2, 3)],
    ),
    "conv2d": (
        2 * 6 * 5 * 7 * 2 * 9,
        lambda x: RX.nn.conv2d(*x, strides=(2, 1), padding=1, groups=2),
        [(2, 4, 9, 7), (6, 2, 3, 3)],
    ),
    "dilated": (
        5 * 5 * 3 * 2 * 9,
        lambda x: RX.nn.conv2d(*x, dilation=2),
        [(1, 2, 9, 9), (3, 2, 3, 3)],
    ),
    "channels last": (
        7 * 5 * 5 * 9 * 4,
        lambda x: RX.nn.conv2d(*x, **NHWC),
        [(1, 9, 7, 4), (3, 3, 4, 5)],
    ),
    "conv3d": (8 * 27 * 4 * 27, lambda x: RX.nn.conv3d(*x), [(1, 4, 5, 5, 5), (8, 4, 3, 3, 3)]),
    "matmul": (3 * 2 * 4 * 6 * 5, lambda x: RX.matmul(*x), [(3, 1, 4, 5), (2, 5, 6)]),
    "vectors": (5, lambda x: RX.matmul(*x), [(5,), (5,)]),
    "attention": (
        2 * 5 * 7 * (8 + 8),
        lambda x: RX.nn.attention(*x),
        [(1, 5, 2, 8), (1, 7, 2, 8), (1, 7, 2, 8)],
    ),
}


@pytest.mark.parametrize("kind", CONTRACTIONS)
def test_contractions(kind: str) -> None:
    """The formula by shapes and the loops that TVM makes of an operator agree."""
    macs, make, shapes = CONTRACTIONS[kind]
    made = call(make, *shapes)
    assert work_of(made, EMPTY) == OperatorWork(macs)
    assert _legalized(made).macs == macs


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions_count_no_zeros_between_pixels(rank: int) -> None:
    """Every pixel of the input meets every tap of every output channel of its group."""
    data, weight = (1, 4, *[5] * rank), (4, 3, *[2] * rank)
    function = getattr(RX.nn, f"conv{rank}d_transpose", None)
    if function is None:
        pytest.skip(f"TVM has no transposed convolution of {rank} axes")
    made = call(lambda x: function(*x, strides=2, groups=2), data, weight)
    assert work_of(made, EMPTY) == OperatorWork(math.prod(data) * 3 * 2**rank)


NO_CONTRACTIONS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "norm": (lambda x: RX.nn.layer_norm(x[0], _ones(8), _ones(8), axes=[-1]), (4, 8)),
    "softmax": (lambda x: RX.nn.softmax(x[0]), (4, 8)),
    "mean": (lambda x: RX.mean(x[0], [1]), (4, 8)),
    "pool": (lambda x: RX.nn.avg_pool2d(x[0], (2, 2)), (1, 2, 6, 6)),
    "cubic": (lambda x: RX.image.resize2d(x[0], (6, 6), method="cubic"), (1, 2, 4, 4)),
    "product": (lambda x: RX.multiply(x[0], x[0]), (4, 8)),
}


def _ones(size: int) -> relax.Expr:
    return relax.const(np.ones(size, np.float32))


@pytest.mark.parametrize("kind", NO_CONTRACTIONS)
def test_what_adds_up_no_products_of_two_operands_has_no_macs(kind: str) -> None:
    make, shape = NO_CONTRACTIONS[kind]
    assert work_of(call(make, shape), EMPTY) == OperatorWork()


INTEGERS: dict[str, tuple[int, Make, list[tuple[int, ...]]]] = {
    "broadcast": (32, lambda x: RX.add(*x), [(4, 1), (1, 8)]),
    "shift": (32, lambda x: RX.right_shift(x[0], relax.const(3, "int8")), [(4, 8)]),
    "max_pool2d": (4 * 64 * 9, lambda x: RX.nn.max_pool2d(x[0], (3, 3), padding=1), [(1, 4, 8, 8)]),
    "max_pool1d": (4 * 6 * 3, lambda x: RX.nn.max_pool1d(x[0], 3), [(1, 4, 8)]),
    "sum": (256, lambda x: RX.sum(x[0], [2, 3]), [(1, 4, 8, 8)]),
    "largest": (32, lambda x: RX.max(x[0], [1]), [(4, 8)]),
    "clip": (64, lambda x: RX.clip(x[0], 0, 5), [(4, 8)]),
    "relu": (32, lambda x: RX.nn.relu(x[0]), [(4, 8)]),
    "negative": (32, lambda x: RX.negative(x[0]), [(4, 8)]),
    "flip": (0, lambda x: RX.flip(x[0], 1), [(4, 8)]),
    "nearest": (
        0,
        lambda x: RX.image.resize2d(x[0], (6, 6), method="nearest_neighbor"),
        [(1, 2, 4, 4)],
    ),
}


@pytest.mark.parametrize("kind", INTEGERS)
def test_integer_operations(kind: str) -> None:
    count, make, shapes = INTEGERS[kind]
    made = call(make, *shapes, dtype="int8")
    assert work_of(made, EMPTY) == OperatorWork(0, count)
    if kind not in ("flip", "nearest"):
        assert _legalized(made).alu_ops == count


# ---------------------------------------------------------------- of models
def placed(net: Net, folder: Path, *outputs: str) -> dict[str, Placement]:
    path = folder / "net.onnx"
    onnx.save(net.model(*outputs), str(path))
    mod = vta.load_model(path)
    rng = np.random.default_rng(0)
    samples = [
        rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim], "float32")
        for i in net.inputs
    ]
    qmod = vta.quantize(mod, calibration=[tuple(samples)])
    return {op.name: op for op in placements(partition_for_vta(qmod))}


def test_layers_of_the_cpu_count(tmp_path: Path) -> None:
    """`--fail-under` does not pass a model whose work VTA cannot do."""
    net = Net(0, x=(1, 4, 6, 6, 6), a=(2, 4, 8), b=(2, 8, 5))
    conv = net.node("Conv", "x", net.normal(8, 4, 3, 3, 3), name="conv3d")
    product = net.node("MatMul", "a", "b", name="product")
    contracted = net.node("Einsum", "a", "b", name="einsum", equation="bij,bjk->bki")
    ops = placed(net, tmp_path, conv, product, contracted)
    macs = {name: op.macs for name, op in ops.items() if op.macs}
    assert macs == {"conv3d": 8 * 64 * 4 * 27, "product": 320, "einsum": 320}
    assert {name for name, op in ops.items() if op.device != CPU} == {"conv3d", "product"}
    assert macs_share(ops.values()).percent == 100 * (1 - 320 / sum(macs.values()))
    (line,) = shortfalls(list(ops.values()), 100)
    assert line.startswith("99.4 % of the MACs run on VTA, 100 % must")


def test_average_pooling_is_sums_and_a_relu_belongs_to_its_layer(tmp_path: Path) -> None:
    net = Net(0, x=(1, 16, 8, 8))
    relu = net.node("Relu", net.conv("x", 16, 16, name="conv"), name="relu")
    pool = net.node("AveragePool", "x", name="pool", kernel_shape=[2, 2], strides=[2, 2])
    ops = placed(net, tmp_path, relu, pool)
    assert ops["pool"].macs == 0 and ops["pool"].alu_ops >= 16 * 64
    assert (ops["relu"].op, ops["relu"].device) == ("relax.nn.relu", VTA)
    assert (ops["relu"].reason, ops["relu"].alu_ops) == ("computed in conv", 0)
    assert macs_share(ops.values()).percent == alu_share(ops.values()).percent == 100


def test_a_product_between_two_views_is_one_row() -> None:
    """As PyTorch exports a linear layer of three axes: view, addmm, view under one name."""
    net = IntegerNet(x=(10, 16))
    x = net.op("reshape", net.params[0], shape=(2, 5, 16), name="before")
    rows = net.op("reshape", x, shape=(10, 16), name="linear__view")
    weight = net.rng.integers(-127, 128, (16, 8)).astype("int8")
    bias = np.zeros(8, "int32")
    dense = net.matmul(rows, weight, bias, Rescale(7), "linear__product")
    result = net.op("reshape", dense, shape=(2, 5, 8), name="linear")
    ops = {op.name: op for op in placements(partition_for_vta(net.module(result)))}
    assert (ops["linear"].op, ops["linear"].device) == ("relax.matmul", VTA)
    assert ops["linear"].on_vta.macs == ops["linear"].macs == 10 * 16 * 8


def onnx_macs(model: onnx.ModelProto) -> int:
    """By the formulas of the operators' definitions, from the shapes in the file."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {w.name: tuple(w.dims) for w in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        shapes[value.name] = tuple(d.dim_value for d in dims)
    total, read = 0, {output.name for output in graph.output}
    for node in reversed(graph.node):  # what nothing reads is not computed
        if not read & set(node.output):
            continue
        read.update(node.input)
        if node.op_type in ("Conv", "ConvTranspose"):
            moved = node.output[0] if node.op_type == "Conv" else node.input[0]
            total += math.prod(shapes[moved]) * math.prod(shapes[node.input[1]][1:])
        elif node.op_type == "MatMul":
            total += math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
        elif node.op_type == "Gemm":
            attrs = {a.name: a.i for a in node.attribute}
            total += math.prod(shapes[node.output[0]]) * (
                shapes[node.input[0]][0 if attrs.get("transA") else -1]
            )
    return total


@settings(
    max_examples=12,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(networks())
def test_totals_of_random_networks(network: Network) -> None:
    """As many MACs as the ONNX file has, in rows that add up; operators are listed once."""
    with numpy_calibration():
        qmod = vta.quantize(imported(network), calibration=[network.samples(1)], **network.form)
    ops = placements(partition_for_vta(qmod))
    assert len({op.name for op in ops}) == len(ops)
    assert macs_share(ops).total == onnx_macs(network.model)
    for op in ops:
        assert op.on_vta + op.on_cpu == OperatorWork(op.macs, op.alu_ops)
        assert min(op.on_vta.macs, op.on_vta.alu_ops, op.on_cpu.macs, op.on_cpu.alu_ops) >= 0
