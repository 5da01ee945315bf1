"""Token ids, masks of the input, recurrent layers and attention: quantized, compiled, bit-exact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_runs import cli, refused, save
from onnx import TensorProto, helper
from small_models import Net

from vta_byoc.importers.load import load_model
from vta_byoc.quantization.calibration.random_inputs import random_sample, table_rows
from vta_byoc.quantization.calibration.samples import default_calibration as noise

STEPS, WIDTH, ROWS = 2, 16, 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ids and a mask of truth values -> embedding, LSTM, GRU, attention that is masked by -inf,
    a linear layer."""
    net = Net()
    net.inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [STEPS, 1]),
        helper.make_tensor_value_info("mask", TensorProto.BOOL, [1, STEPS]),
    ]
    x = net.node("Gather", net.normal(ROWS, WIDTH), "ids", name="embedding")
    for op, gates, outputs in (("LSTM", 4, 3), ("GRU", 3, 2)):
        rows, scale = gates * WIDTH, WIDTH**-0.5
        weights = [net.normal(1, rows, WIDTH, scale=scale) for _ in range(2)]
        attrs = {"hidden_size": WIDTH, "name": op.lower()}
        whole = net.node(op, x, *weights, net.normal(1, 2 * rows), outputs=outputs, **attrs)[0]
        x = net.node("Squeeze", whole, net.const([1], "int64"), name=f"{op.lower()}_out")
    x = net.node("Transpose", x, perm=[1, 0, 2])
    q = net.node("MatMul", x, net.normal(WIDTH, WIDTH, scale=0.25), name="query")
    scores = net.node("MatMul", q, net.node("Transpose", x, perm=[0, 2, 1]))
    hidden = net.node("Where", "mask", net.const(0.0), net.const(-np.inf), name="hidden")
    shares = net.node("Softmax", net.node("Add", scores, hidden, name="masked"), axis=-1)
    y = net.node("MatMul", shares, x, name="mixed")
    result = net.node("MatMul", y, net.normal(WIDTH, 5, scale=0.25), name="head")
    return net.save(tmp_path_factory.mktemp("ids") / "net.onnx", result)


def test_run_and_check(model: Path, tmp_path: Path) -> None:
    ids = save(tmp_path / "ids.npy", np.array([[0], [ROWS - 1]]))
    mask = save(tmp_path / "mask.npy", np.array([[True, False]]))
    result = cli("run", model, "--input", ids, "--input", f"mask={mask}", "--check", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["inputs"]["ids"]["dtype"] == "int64"
    assert report["bit_exact"]
    rows = {row["name"]: row for row in report["placement"]["ops"]}
    for name in ("lstm_input", "lstm_state", "gru_input", "gru_state", "query", "head"):
        assert rows[name]["device"] == "vta" and rows[name]["macs"], name


def test_noise_picks_rows_and_hides_nothing(model: Path) -> None:
    mod = load_model(model)
    assert table_rows(mod) == {"ids": ROWS}
    for sample in noise(mod, 4, seed=0):
        assert sample["mask"].all() and 0 <= sample["ids"].min() <= sample["ids"].max() < ROWS
    one, other = (random_sample(mod, np.random.default_rng(3)) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_what_does_not_fit(model: Path, tmp_path: Path) -> None:
    mask = save(tmp_path / "mask.npy", np.ones((1, STEPS), bool))
    ids = save(tmp_path / "ids.npy", np.zeros((STEPS, 1), np.int32))
    given = ("run", model, "--input", f"mask={mask}", "--input", f"ids={ids}")
    assert refused(*given) == (
        f'input "ids" from "{ids}" has dtype int32; the model takes int64; convert it with '
        '.astype("int64")'
    )
    save(ids, np.full((STEPS, 1), ROWS))
    assert refused(*given) == (
        f'input "ids" from "{ids}" has values from 12 to 12; they pick from a table of 12 rows; '
        "give numbers from 0 to 11"
    )
    samples = tmp_path / "samples.npz"
    np.savez(samples, ids=np.zeros((STEPS, 1), np.float32), mask=np.ones((1, STEPS), bool))
    assert refused("run", model, "--calibration", samples) == (
        'calibration sample 0, input "ids" has dtype float32; the input takes int64; convert it '
        'with .astype("int64")'
    )


def test_a_dtype_that_no_input_has(model: Path, tmp_path: Path) -> None:
    changed = onnx.load(str(model))
    changed.graph.input[0].type.tensor_type.elem_type = TensorProto.INT16
    onnx.save(changed, str(tmp_path / "net.onnx"))
    assert refused("run", tmp_path / "net.onnx") == (
        'input "ids" has dtype int16; inputs must be tensors of float, int8, uint8, int32, int64, '
        "bool; export the model with one of these"
    )
