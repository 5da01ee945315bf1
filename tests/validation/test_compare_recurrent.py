"""Steps of recurrent layers beside those of ONNX Runtime, whose sequences they are parts of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from operators_llvm import OPERATORS

from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import straight_bindings
from vta_byoc.ir.names import is_step
from vta_byoc.ir.observe import Observer
from vta_byoc.quantization.calibration.samples import default_calibration as noise
from vta_byoc.quantization.tensor_pairs import tensor_pairs
from vta_byoc.quantize import quantize
from vta_byoc.validation.against_runtime import NOT_THERE, Bound, compare
from vta_byoc.validation.runtimes import float_runtime, onnxruntime_runtime

STEPS, SIZE = 3, 8
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LAYERS = [(op, direction) for op in GATES for direction in ("forward", "reverse", "bidirectional")]


QUANTIZED = [
    ("RNN", "forward"),
    ("GRU", "reverse"),
    ("LSTM", "forward"),
    ("LSTM", "reverse"),
    ("LSTM", "bidirectional"),
]
"""Every kind and direction, and every direction of the kind with cells."""


def saved(folder: Path, op: str, direction: str, read: str = "Y") -> Path:
    """A recurrent layer "rec" and a Relu of one of its outputs, which is the model's."""
    rng, count = np.random.default_rng(4), 2 if direction == "bidirectional" else 1
    rows = GATES[op] * SIZE
    shapes = {"W": (count, rows, SIZE), "R": (count, rows, SIZE), "B": (count, 2 * rows)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) * 0.4).astype("float32"), name)
        for name, shape in shapes.items()
    ]
    outputs = [name if name == read else "" for name in ("Y", "Y_h")]
    late = {"linear_before_reset": 1} if op == "GRU" else {}
    nodes = [
        helper.make_node(
            op, ["x", *shapes], outputs, "rec", hidden_size=SIZE, direction=direction, **late
        ),
        helper.make_node("Relu", [read], ["out"], "relu"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, 1, SIZE])
    shape = [count, 1, SIZE] if read == "Y_h" else [STEPS, count, 1, SIZE]
    made = helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "net", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    return path


def steps_of(op: str, direction: str) -> set[str]:
    """What ONNX Runtime shows: results of all steps, and cells after the last one."""
    marks = ["", "back_"] if direction == "bidirectional" else [""]
    names = {f"rec__step_{mark}{step}" for mark in marks for step in range(STEPS)}
    if op != "LSTM":
        return names
    last = {"": 0 if direction == "reverse" else STEPS - 1, "back_": 0}
    return names | {f"rec__cell_{mark}{last[mark]}" for mark in marks}


@pytest.mark.parametrize("read", ["Y", "Y_h"])
@pytest.mark.parametrize(("op", "direction"), LAYERS)
def test_steps_are_those_of_the_float_module(
    op: str, direction: str, read: str, tmp_path: Path
) -> None:
    """Also where the model reads the last state alone."""
    path = saved(tmp_path, op, direction, read)
    mod = load_model(path)
    arrays = {"x": np.random.default_rng(1).standard_normal((STEPS, 1, SIZE), "float32")}
    theirs = onnxruntime_runtime(str(path), mod)(arrays)
    assert {name for name in theirs if name.startswith(("rec__step", "rec__cell"))} == steps_of(
        op, direction
    )
    variables = [b.var for b in straight_bindings(mod["main"]) if is_step(b.var)]
    values: dict[str, np.ndarray] = {}
    Observer(mod, variables, lambda i, x: values.update({str(variables[i].name): x.copy()})).run(
        arrays.values()
    )
    both = values.keys() & theirs.keys()
    assert both >= {name for name in steps_of(op, direction) if "cell" in name}
    assert len(both) >= (STEPS if read == "Y" else 1)
    for name in both:
        found = values[name].reshape(theirs[name].shape)
        np.testing.assert_allclose(found, theirs[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op", "direction"), QUANTIZED)
def test_quantized_steps_are_compared(op: str, direction: str, tmp_path: Path) -> None:
    path = saved(tmp_path, op, direction)
    mod = load_model(path)
    with OPERATORS.calibrating():
        qmod, samples = quantize(mod, calibration=noise(mod, 3, seed=1)), noise(mod, 2, seed=5)
    pairs = tensor_pairs(mod, qmod)
    theirs = compare(mod, qmod, samples, onnxruntime_runtime(str(path), mod), Bound(10))
    own = compare(mod, qmod, samples, float_runtime(mod, pairs), Bound(10))
    assert own.first is theirs.first is None and not own.skipped
    names = [tensor.name for tensor in theirs.tensors]
    assert steps_of(op, direction) <= {*names} and names[-1] == "relu"
    beside = {tensor.name: tensor.sqnr for tensor in own.tensors}
    for tensor in theirs.tensors:
        assert tensor.sqnr > 15 and tensor.sqnr == pytest.approx(beside[tensor.name], abs=0.01)
    assert set(theirs.skipped.values()) <= {NOT_THERE}
    assert not any("__step_" in name for name in theirs.skipped)
