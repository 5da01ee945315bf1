"""Nodes whose results are known before a model runs: computed, as ONNX defines them, or left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from quantized_runs import operators
from small_models import Net, call
from tvm import relax

from vta_byoc.importers.load import load_model
from vta_byoc.importers.onnx.static import MAX_BYTES, SIZES, evaluate
from vta_byoc.ir.bindings import is_constant

OPSET = 20


def known(op: str, *arrays: Any, **attrs: Any) -> list[np.ndarray] | None:
    """What `evaluate` makes of a node of constants; None stands for an input that is left out."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    node = helper.make_node(op, names, ["y"], **attrs)
    inputs = [
        None if array is None else relax.const(np.asarray(array), str(np.asarray(array).dtype))
        for array in arrays
    ]
    results = evaluate(node, inputs, OPSET)
    return None if results is None else [each.value.numpy() for each in results]


@pytest.mark.parametrize(
    "op, arrays, attrs, expected",
    [
        ("Div", ([-7, 7], [2, -2]), {}, np.array([-3, -3])),
        ("Mod", ([-7, 7], [2, 2]), {}, np.array([1, 1])),
        ("Gather", ([5, 6, 7], np.array(-1)), {}, np.array(7)),
        ("Slice", ([1, 2, 3], [-1], [2**63 - 1]), {}, np.array([3])),
        ("Cast", (np.array(2.5),), {"to": onnx.TensorProto.INT64}, np.array(2)),
        ("Range", (np.array(1), np.array(6), np.array(2)), {}, np.array([1, 3, 5])),
        ("ConstantOfShape", (np.array([], "int64"),), {}, np.array(0, "float32")),
        ("Concat", ([1], [2, 3]), {"axis": 0}, np.array([1, 2, 3])),
        ("Equal", ([1, 2], [1]), {}, np.array([True, False])),
        ("Where", ([True, False], [1], [-1]), {}, np.array([1, -1])),
        ("Expand", (np.ones(1, "float32"), [2, 1]), {}, np.ones((2, 1), "float32")),
        ("Trilu", (np.ones((2, 2), "int8"),), {"upper": 0}, np.tril(np.ones((2, 2), "int8"))),
        ("Unsqueeze", (np.array(3), [0]), {}, np.array([3])),
        ("MatMul", (np.ones((2, 1)), np.ones((1, 3))), {}, np.ones((2, 3))),
    ],
)
def test_values(op: str, arrays: Any, attrs: dict[str, Any], expected: np.ndarray) -> None:
    (got,) = known(op, *arrays, **attrs) or (None,)
    np.testing.assert_array_equal(got, expected)
    assert got is not None and got.dtype == expected.dtype and got.shape == expected.shape


@pytest.mark.parametrize(
    "op, arrays, attrs",
    [
        ("Expand", (np.ones(1), [1 << 20, 1 << 20]), {}),
        ("Tile", (np.ones((2, 2)), [1 << 20, 1 << 20]), {}),
        ("ConstantOfShape", ([1 << 30, 1 << 30, 1 << 30],), {}),
        ("Range", (np.array(0), np.array(1 << 40), np.array(1)), {}),
        ("Add", (np.ones((1 << 13, 1)), np.ones((1, 1 << 13))), {}),
        ("MatMul", (np.ones((1 << 13, 1)), np.ones((1, 1 << 13))), {}),
        ("Gather", (np.ones((1, 1 << 13)), np.zeros(1 << 13, "int64")), {}),
        ("Pad", (np.ones((1, 1)), [1 << 20] * 4), {}),
        ("OneHot", (np.zeros(1 << 13, "int64"), np.array(1 << 13), [0, 1]), {}),
    ],
)
def test_nothing_large_is_computed(op: str, arrays: Any, attrs: dict[str, Any]) -> None:
    assert MAX_BYTES == 64 << 20 and op in SIZES
    assert known(op, *arrays, **attrs) is None


def test_dequantized_weights_are_not_computed() -> None:
    weight, scale = np.ones((4, 4), "int8"), np.array(0.5, "float32")
    assert known("DequantizeLinear", weight, scale) is None
    assert known("QuantizeLinear", weight.astype("float32"), scale) is None


def test_what_is_not_known() -> None:
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    shape = evaluate(helper.make_node("Shape", ["x"], ["y"], start=-1), [x], OPSET)
    assert shape is not None and shape[0].value.numpy().tolist() == [3]
    size = evaluate(helper.make_node("Size", ["x"], ["y"]), [x], OPSET)
    assert size is not None and size[0].value.numpy() == 6
    for domain, op in (("", "Neg"), ("com.microsoft", "Shape")):
        assert evaluate(helper.make_node(op, ["x"], ["y"], domain=domain), [x], OPSET) is None
    unknown = relax.Var("x", relax.TensorType(ndim=2, dtype="float32"))
    assert evaluate(helper.make_node("Shape", ["x"], ["y"]), [unknown], OPSET) is None


def test_shape_arithmetic_leaves_nothing_behind(tmp_path: Path) -> None:
    """The form of a channel shuffle: view(n, 2, c // 2, h, w)."""
    net = Net(x=[1, 4, 3, 3])
    shape = net.node("Shape", "x")
    dims = [net.node("Gather", shape, net.const(i, "int64")) for i in range(4)]
    half = net.node("Cast", net.node("Div", dims[1], net.const(2, "int64")), to=7)
    parts = [dims[0], net.const(2, "int64"), half, *dims[2:]]
    rows = [net.node("Unsqueeze", part, net.const([0], "int64")) for part in parts]
    split = net.node("Reshape", "x", net.node("Concat", *rows, axis=0))
    turned = net.node("Transpose", split, perm=[0, 2, 1, 3, 4])
    mod = load_model(net.save(tmp_path / "net.onnx", net.node("Reshape", turned, shape)))
    assert operators(mod) == ["reshape", "permute_dims", "reshape"]
    x = np.arange(36, dtype="float32").reshape(1, 4, 3, 3)
    (got,) = call(mod, x)
    np.testing.assert_array_equal(got, x[:, [0, 2, 1, 3]])


def test_weights_that_are_rearranged_stay_integers(tmp_path: Path) -> None:
    """Transpose(DequantizeLinear(constant)) is a transposed int8 constant."""
    net = Net(x=[2, 4])
    scale = net.const(0.5)
    data = net.node("DequantizeLinear", net.node("QuantizeLinear", "x", scale), scale)
    weight = net.const(np.arange(12).reshape(3, 4), "int8")
    float_weight = net.node("DequantizeLinear", weight, scale)
    product = net.node("MatMul", data, net.node("Transpose", float_weight, perm=[1, 0]))
    mod = load_model(net.save(tmp_path / "net.onnx", product))
    constants = [
        arg.value.numpy()
        for binding in mod["main"].body.blocks[0].bindings
        for arg in getattr(binding.value, "args", [])
        if is_constant(arg) and len(arg.value.shape) == 2
    ]
    assert [array.dtype for array in constants] == [np.int8]
