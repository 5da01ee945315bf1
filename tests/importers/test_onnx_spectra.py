"""ONNX's STFT computes what ONNX Runtime does, and is a layer that VTA takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from small_models import call

import vta_byoc as vta
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.partition import placements

LENGTH = 50


def saved(
    folder: Path,
    step: int,
    window: np.ndarray | None,
    length: int | None,
    shape: tuple[int, ...] = (2, LENGTH, 1),
    **attrs: Any,
) -> Path:
    constants = {"step": np.array(step), "window": window}
    constants["length"] = None if length is None else np.array(length)
    names = [name if value is not None else "" for name, value in constants.items()]
    node = helper.make_node("STFT", ["x", *names], ["y"], name="spectrum", **attrs)
    known = [numpy_helper.from_array(v, n) for n, v in constants.items() if v is not None]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, size)
        for name, size in (("x", shape), ("y", (shape[0], None, None, 2)))
    ]
    graph = helper.make_graph([node], "graph", ends[:1], ends[1:], known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    return path


HANN = np.hanning(17)[:-1].astype("float32")


@pytest.mark.parametrize(
    ("step", "window", "length", "attrs"),
    [
        (4, HANN, 16, {}),
        (7, HANN, None, {"onesided": 1}),
        (5, None, 10, {}),
        (3, np.ones(9, "float32"), 9, {"onesided": 0}),
        (1, None, LENGTH, {}),
    ],
)
def test_equals_onnx_runtime(
    step: int, window: np.ndarray | None, length: int | None, attrs: dict[str, int], tmp_path: Path
) -> None:
    path = saved(tmp_path, step, window, length, **attrs)
    x = np.random.default_rng(step).standard_normal((2, LENGTH, 1)).astype("float32")
    (want,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    (got,) = call(load_model(path), x)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_runs_on_vta(tmp_path: Path) -> None:
    mod = load_model(saved(tmp_path, 4, HANN, 16))
    rng = np.random.default_rng(0)
    batches = [[rng.standard_normal((2, LENGTH, 1)).astype("float32")] for _ in range(2)]
    qmod = vta.quantize(mod, calibration=batches, config=vta.VTAConfig.preset("sim"))
    found = placements(vta.partition_for_vta(qmod, config=vta.VTAConfig.preset("sim")))
    (layer,) = (each for each in found if each.op == "relax.nn.conv1d")
    assert layer.device == "vta" and layer.macs == 2 * 9 * 18 * 16


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"window": None, "length": 16, "shape": (2, LENGTH, 2)},
            "its signal has the shape (2, 50, 2); (batch, length, 1) is taken",
        ),
        ({"window": None, "length": None}, "it has neither a window nor a frame length"),
        ({"window": HANN, "length": 8}, "its window has 16 values and a frame 8"),
    ],
)
def test_refused(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(saved(tmp_path, 4, **options))
    assert str(caught.value) == (
        f'node "spectrum" (STFT) cannot be imported: {reason}; TVM\'s ONNX importer does not take '
        "this form; simplify the model or export it with another opset"
    )


def test_a_frame_longer_than_the_signal(tmp_path: Path) -> None:
    with pytest.raises(VTAError, match=r'"spectrum" \(STFT\) makes "y" of shape \(2, -2, 64, 2\)'):
        load_model(saved(tmp_path, 4, None, 64, onesided=0))
