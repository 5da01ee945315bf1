"""ONNX models of 16-bit floats and of doubles are imported as models of float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from small_models import call

import vta_byoc as vta
from vta_byoc.importers.load import load_model
from vta_byoc.partition import placements

KINDS = {
    "half": (np.float16, TensorProto.FLOAT16, 2e-2),
    "double": (np.float64, TensorProto.DOUBLE, 1e-5),
    "brain": (bfloat16, TensorProto.BFLOAT16, 5e-2),
}


def network(folder: Path, kind: str) -> Path:
    """A convolution, a branch, a cast there and back, a constant; all of one kind of floats."""
    dtype, element, _ = KINDS[kind]
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / 4).astype(dtype), name)
        for name, shape in (("w", (16, 16, 3, 3)), ("b", (16,)))
    ]
    two = numpy_helper.from_array(np.array(2, dtype), "two")
    yes = numpy_helper.from_array(np.array(True), "yes")
    result = helper.make_tensor_value_info("r", element, [1, 16, 8, 8])
    branches = [
        helper.make_graph([helper.make_node(op, ["doubled"], ["r"])], op, [], [result])
        for op in ("Relu", "Neg")
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1] * 4),
        helper.make_node("Constant", [], ["two"], value=two),
        helper.make_node("Mul", ["conv", "two"], ["doubled"]),
        helper.make_node(
            "If", ["yes"], ["branch"], then_branch=branches[0], else_branch=branches[1]
        ),
        helper.make_node("Cast", ["branch"], ["single"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["single"], ["y"], to=element),
    ]
    ends = [helper.make_tensor_value_info(n, element, [1, 16, 8, 8]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [*weights, yes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    path = folder / f"{kind}.onnx"
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("kind", ["half", "double"])
def test_equals_onnx(kind: str, tmp_path: Path) -> None:
    """ONNX's reference implementation: ONNX Runtime has no convolution of doubles."""
    path, (dtype, _, tolerance) = network(tmp_path, kind), KINDS[kind]
    x = np.random.default_rng(1).standard_normal((1, 16, 8, 8)).astype(dtype)
    (want,) = ReferenceEvaluator(str(path)).run(None, {"x": x})
    (got,) = call(load_model(path), x.astype("float32"))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("kind", KINDS)
def test_layer_is_quantized(kind: str, tmp_path: Path) -> None:
    mod, rng = load_model(network(tmp_path, kind)), np.random.default_rng(0)
    batches = [[rng.standard_normal((1, 16, 8, 8)).astype("float32")] for _ in range(2)]
    config = vta.VTAConfig.preset("sim")
    qmod = vta.quantize(mod, calibration=batches, config=config)
    (layer,) = (p for p in placements(vta.partition_for_vta(qmod, config=config)) if p.macs)
    assert layer.device == "vta"


def test_what_float32_cannot_hold_is_infinite(tmp_path: Path) -> None:
    bound = numpy_helper.from_array(np.array(1e300), "bound")
    ends = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [2]) for n in ("x", "y")]
    node = helper.make_node("Min", ["x", "bound"], ["y"])
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], [bound])
    path = tmp_path / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    x = np.array([1, 3e38], "float32")
    np.testing.assert_array_equal(call(load_model(path), x)[0], x)
