"""RNN, GRU and LSTM nodes: every form against ONNX Runtime, in one model."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from small_models import Net, call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import op_name, source_name, straight_bindings

STEPS, BATCH, SIZE, HIDDEN = 3, 2, 4, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def layer(net: Net, op: str, direction: str, whole: bool, **attrs: Any) -> list[str]:
    """A node's outputs; `whole`: with biases, lengths, peepholes and states that are inputs."""
    count, rows = DIRECTIONS[direction], GATES[op] * HIDDEN
    given = ["x", net.normal(count, rows, SIZE), net.normal(count, rows, HIDDEN)]
    if whole:
        lengths = net.const([STEPS] * BATCH, "int32")
        given += [net.normal(count, 2 * rows), lengths, "h" if count == 2 else "one"]
    if whole and op == "LSTM":
        given += [net.normal(count, BATCH, HIDDEN), net.normal(count, 3 * HIDDEN)]
    outputs = 3 if op == "LSTM" else 2
    attrs = {"hidden_size": HIDDEN, "direction": direction, **attrs}
    return list(net.node(op, *given, outputs=outputs, **attrs))


def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {
        "x": (STEPS, BATCH, SIZE), "h": (2, BATCH, HIDDEN), "one": (1, BATCH, HIDDEN)
    }  # fmt: skip
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def test_every_form_computes_what_onnx_runtime_does(tmp_path: Path) -> None:
    arrays = inputs()
    net = Net(**{name: list(array.shape) for name, array in arrays.items()})
    results = []
    for op, direction, whole in itertools.product(GATES, DIRECTIONS, (False, True)):
        results += layer(net, op, direction, whole)
    results += layer(net, "GRU", "bidirectional", True, linear_before_reset=1)
    results += layer(net, "GRU", "forward", False, linear_before_reset=1)
    results += layer(net, "RNN", "bidirectional", True, activations=["Relu", "Tanh"])
    path = net.save(tmp_path / "net.onnx", *results)
    expected = onnxruntime.InferenceSession(str(path)).run(None, arrays)
    for got, want in zip(call(load_model(path), *arrays.values()), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)


def test_batch_first(tmp_path: Path) -> None:
    """Layout 1, which ONNX Runtime does not run, is layout 0 with its first axes exchanged."""
    arrays = inputs()
    models = []
    for layout in (0, 1):
        swap = (1, 0, 2) if layout else (0, 1, 2)
        shapes = {name: list(array.transpose(swap).shape) for name, array in arrays.items()}
        net = Net(**shapes)
        weights = net.normal(2, 15, SIZE), net.normal(2, 15, HIDDEN), net.normal(2, 30)
        attrs = {"hidden_size": HIDDEN, "direction": "bidirectional", "layout": layout}
        y, end = net.node("GRU", "x", *weights, "", "h", outputs=2, **attrs)
        mod = load_model(net.save(tmp_path / f"{layout}.onnx", y, end))
        feed = [np.ascontiguousarray(array.transpose(swap)) for array in arrays.values()]
        models.append(call(mod, *feed))
    (y0, end0), (y1, end1) = models
    np.testing.assert_allclose(y1, y0.transpose(2, 0, 1, 3), atol=1e-6)
    np.testing.assert_allclose(end1, end0.transpose(1, 0, 2), atol=1e-6)


def test_products_have_names_of_their_own(tmp_path: Path) -> None:
    net = Net(x=[STEPS, BATCH, SIZE])
    weights = net.normal(1, 20, SIZE), net.normal(1, 20, HIDDEN)
    y = net.node("LSTM", "x", *weights, name="cell", outputs=3, hidden_size=HIDDEN)[0]
    mod = load_model(net.save(tmp_path / "net.onnx", y))
    made = straight_bindings(mod["main"])
    products = [source_name(b.var) for b in made if op_name(b.value) == "relax.matmul"]
    # The first state is zero: it needs no product.
    assert products == ["cell_input", *["cell_state"] * (STEPS - 1)]
    assert source_name(made[-1].var) == "cell"


@pytest.mark.parametrize(
    "attrs, reason",
    [
        ({"clip": 1.0}, "clip = 1.0 is not supported; only 0 is"),
        (
            {"activations": ["Sigmoid", "Affine", "Tanh"]},
            "its activation is Affine; Relu, Sigmoid, Tanh are supported",
        ),
    ],
)
def test_refused(tmp_path: Path, attrs: dict[str, Any], reason: str) -> None:
    net = Net(x=[STEPS, BATCH, SIZE])
    weights = net.normal(1, 20, SIZE), net.normal(1, 20, HIDDEN)
    y = net.node("LSTM", "x", *weights, name="cell", outputs=3, hidden_size=HIDDEN, **attrs)[0]
    assert message(net.save(tmp_path / "net.onnx", y)) == (
        f'node "cell" (LSTM) cannot be imported: {reason}; TVM\'s ONNX importer does not take '
        "this form; simplify the model or export it with another opset"
    )


def test_lengths_and_weights_that_are_computed(tmp_path: Path) -> None:
    for index, what in ((1, "weights"), (4, "lengths")):
        net = Net(x=[STEPS, BATCH, SIZE], w=[1, 5, SIZE])
        given = ["x", net.normal(1, 5, SIZE), net.normal(1, 5, HIDDEN), "", ""]
        given[index] = "w" if what == "weights" else net.const([2, 3], "int32")
        y = net.node("RNN", *given, name="cell", outputs=2, hidden_size=HIDDEN)[0]
        path = net.save(tmp_path / "net.onnx", y)
        assert onnx.load(str(path)).graph.node
        reason = (
            "its weights are computed while the model runs; they must be constants"
            if what == "weights"
            else f"sequence_lens must be left out, or {STEPS} for every sequence"
        )
        assert message(path).startswith(f'node "cell" (RNN) cannot be imported: {reason}; ')


def message(path: Path) -> str:
    with pytest.raises(VTAError) as caught:
        load_model(path)
    return str(caught.value)
