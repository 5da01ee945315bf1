"""Resizing that TVM's operator does not do: ONNX Runtime's and PyTorch's results, on VTA."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import call

import vta_byoc as vta
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.partition import placements

SHAPE = (1, 16, 7, 9)
PLACES = ("half_pixel", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric")
SCALES = ((1.5, 0.6), (2.3, 1.0), (0.25, 2.0))


def saved(folder: Path, scales: tuple[float, ...], axes: list[int] | None, **attrs: Any) -> Path:
    given = np.array(scales if axes else (1, 1, *scales), "float32")
    if axes:
        attrs["axes"] = axes
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **attrs)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", SHAPE), ("y", ("n", "c", "h", "w")))
    ]
    weights = [numpy_helper.from_array(given, "scales")]
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_equals_onnx_runtime(mode: str, antialias: int, tmp_path: Path) -> None:
    if antialias and mode == "nearest":
        pytest.skip("nothing is filtered where elements are taken")
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    for places, scales, axes in product(PLACES, SCALES, (None, [3, 2])):
        if mode == "nearest" and places == "half_pixel_symmetric":
            continue  # refused: places halfway between elements
        attrs = {"mode": mode, "antialias": antialias, "coordinate_transformation_mode": places}
        path = saved(tmp_path, scales, axes, **attrs)
        (want,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
        (got,) = call(load_model(path), x)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=str((attrs, scales)))


def test_runs_on_vta(tmp_path: Path) -> None:
    mod = load_model(saved(tmp_path, (0.6, 1.5), None, mode="linear", antialias=1))
    rng = np.random.default_rng(0)
    batches = [[rng.standard_normal(SHAPE).astype("float32")] for _ in range(2)]
    config = vta.VTAConfig.preset("sim")
    qmod = vta.quantize(mod, calibration=batches, config=config)
    (layer,) = (p for p in placements(vta.partition_for_vta(qmod, config=config)) if p.macs)
    rows, columns = 16 * 9 * 7 * 4, 16 * 4 * 9 * 13
    assert layer.device == "vta" and layer.macs == rows + columns


def test_a_region_that_no_place_is_in(tmp_path: Path) -> None:
    """Exporters give one whatever the places are; nothing reads it."""
    path = saved(tmp_path, (1.5, 0.6), None, mode="linear")
    model = onnx.load(str(path))
    model.graph.node[0].input[1] = "region"
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(8, "float32"), "region"))
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    (want,) = call(load_model(path), x)
    onnx.save(model, str(path))
    np.testing.assert_array_equal(call(load_model(path), x)[0], want)


@pytest.mark.parametrize(
    ("attrs", "axes", "text"),
    [
        (
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
            None,
            "scales (1.5, 0.6) of a tensor (1, 16, 7, 9) give no whole size for align_corners",
        ),
        (
            {"mode": "nearest", "coordinate_transformation_mode": "half_pixel_symmetric"},
            None,
            "give no whole size for half_pixel_symmetric",
        ),
        (
            {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"},
            None,
            "has keep_aspect_ratio_policy = not_larger; only stretch is imported",
        ),
    ],
)
def test_is_refused(
    attrs: dict[str, Any], axes: list[int] | None, text: str, tmp_path: Path
) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(saved(tmp_path, (1.5, 0.6), axes, **attrs))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 1.3, "mode": "bilinear"},
        {"scale_factor": (0.6, 1.7), "mode": "nearest"},
        {"size": (5, 4), "mode": "bilinear", "antialias": True},
        {"scale_factor": 0.6, "mode": "bicubic", "antialias": True},
    ],
)
def test_equals_pytorch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.interpolate(x, **options)

    x = torch.randn(*SHAPE, generator=torch.Generator().manual_seed(0))
    (got,) = call(load_model(torch.export.export(Net(), (x,))), x.numpy())
    np.testing.assert_allclose(got, Net()(x).numpy(), rtol=1e-4, atol=1e-4)
