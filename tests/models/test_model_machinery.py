"""What the model zoo is made with: exact operators, scripts, inputs, the cache."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # models/ is not installed

from models import NAMES, _command, dcgan, squeezenet, yolov3_tiny
from models._build import ModelBuilder
from models._exact import conv_transpose2d, on_int8_grid

ROOT = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------- operators
@pytest.mark.parametrize("kernel,stride,pad,size", [(4, 2, 1, 5), (4, 1, 0, 1), (3, 2, 0, 4)])
def test_conv_transpose2d(kernel: int, stride: int, pad: int, size: int) -> None:
    rng = np.random.RandomState(kernel + size)
    x = rng.randint(-64, 64, (2, 3, size, size + 1)).astype(np.float32) / 32
    w = on_int8_grid(rng.uniform(-1, 1, (3, 5, kernel, kernel)))
    attrs = {"strides": [stride] * 2, "pads": [pad] * 4}
    wanted = onnx_result("ConvTranspose", x, w, **attrs)
    np.testing.assert_array_equal(conv_transpose2d(x, w, stride=stride, pad=pad), wanted)


@pytest.mark.parametrize("size", [7, 8, 9, 10])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": 3, "stride": 2, "ceil": True},
        {"kernel": 3, "stride": 2, "pad": 1},
        {"kernel": 2, "stride": 1, "pad": (0, 0, 1, 1)},
        {"kernel": 2, "stride": 2},
    ],
)
def test_max_pool(size: int, options: dict[str, Any]) -> None:
    x = np.random.RandomState(size).standard_normal((1, 2, size, size + 1)).astype(np.float32) - 2
    b = ModelBuilder("pool", seed=0, input_name="x", images=x)
    y = b.max_pool(b.input, "y", **options)
    (wanted,) = ort.InferenceSession(b.build(y).SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(y.data, wanted)


def onnx_result(op: str, x: np.ndarray, w: np.ndarray, **attrs: Any) -> np.ndarray:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(op, ["x", "w"], ["y"], **attrs)
    graph = helper.make_graph([node], op, [value], [end], [numpy_helper.from_array(w, "w")])
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    (y,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return np.asarray(y)


# ---------------------------------------------------------------- the same bytes
def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    done = script("squeezenet", "-o", path, "--size", 32, **limits)
    assert done.returncode == 0, done.stderr
    model = squeezenet.build(size=32)
    assert path.read_bytes() == model.SerializeToString(deterministic=True)


def test_seed_changes_every_layer() -> None:
    first, other = (squeezenet.build(size=32, seed=seed).graph.initializer for seed in (0, 1))
    for a, b in zip(first, other, strict=True):
        assert a.name == b.name and a.raw_data != b.raw_data, a.name


# ---------------------------------------------------------------- inputs, scripts, cache
def test_latent_vectors() -> None:
    z = dcgan.sample_inputs(3, 5)
    assert z.shape == (3, 100, 1, 1) and z.dtype == np.float32
    np.testing.assert_array_equal(z[:2], dcgan.sample_inputs(2, 5))
    np.testing.assert_array_equal(z * 32, np.rint(z * 32))  # int8 holds them exactly
    assert np.abs(z).max() <= 120 / 32 and 0.8 < z.std() < 1.2
    assert not np.array_equal(z, dcgan.calibration_inputs(3))


def test_every_model_has_the_same_interface() -> None:
    for name in NAMES:
        module = importlib.import_module(f"models.{name}")
        assert module.calibration_inputs(1).dtype == np.float32, name
        assert module.calibration_inputs(1).shape == module.sample_inputs(1, 3).shape, name
        assert callable(module.build) and callable(module.cached), name


@pytest.mark.parametrize("name", NAMES)
def test_scripts_run_as_scripts(name: str) -> None:
    done = script(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Write {name} as an ONNX file" in done.stdout


def script(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "models" / f"{name}.py", *arguments]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_main_writes_model_and_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dcgan, "build", lambda *, seed: onnx.ModelProto(producer_name="dcgan"))
    paths = [tmp_path / name for name in ("net.onnx", "several.npz", "one.npy")]
    model, several, one = map(str, paths)
    assert dcgan.main(["-o", model, "--calibration", several, "--sample", one]) == 0
    assert capsys.readouterr().out.startswith(f"dcgan: wrote {model}, ")
    np.testing.assert_array_equal(np.load(several)["z"], dcgan.calibration_inputs())
    np.testing.assert_array_equal(np.load(one), dcgan.sample_inputs(1, _command.SAMPLE_SEED))


def test_sizes_that_cannot_be_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-o", str(tmp_path / "net.onnx")]
    assert yolov3_tiny.MODEL.main([*arguments, "--size", "100"]) == 2
    limits = "multiples of 32, 32 to 512 can be built"
    assert capsys.readouterr().err == f"error: image size 100; {limits}; change --size\n"
    assert dcgan.main([*arguments, "--size", "64"]) == 2
    assert capsys.readouterr().err == (
        "error: unrecognized arguments: --size 64; run with --help for the options\n"
    )
    assert not list(tmp_path.iterdir())


def test_cache_keeps_one_version(tmp_path: Path) -> None:
    def build(*, seed: int) -> onnx.ModelProto:
        return onnx.ModelProto(producer_name=str(seed))

    options = (_command.SEED,)
    stale, other = tmp_path / f"net-3-{16 * '0'}.onnx", tmp_path / f"net-4-{16 * '0'}.onnx"
    for path in (stale, other):
        path.write_text("old")
    path = _command.cached("net", build, options=options, directory=tmp_path, seed=3)
    assert onnx.load(path).producer_name == "3"
    assert {*tmp_path.iterdir()} == {path, other}
