"""Networks with operators that TVM's ONNX importer lacks: equal to the reference, and refusals.

Single operators are drawn in `test_importers.py`, and ONNX's own tests run in
`test_onnx_conformance.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from small_models import Net, call

import vta_byoc as vta
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.trace.implementations import implementation
from vta_byoc.importers.load import load_model
from vta_byoc.partition import placements
from vta_byoc.partitioning.placement import Placement
from vta_byoc.pipeline import compile_module
from vta_byoc.validation.divergence import compare_with_reference

SIM = vta.VTAConfig.preset("sim")
HALF = {"kernel_shape": [2, 2], "strides": [2, 2]}


def _pooled_places(n: Net) -> str:
    """As SegNet: what is pooled on the way down goes back to its places on the way up."""
    x = n.node("Relu", n.conv("x", 4, 8, name="down"))
    pooled, places = n.node("MaxPool", x, name="pool", outputs=2, **HALF)
    y = n.node("Relu", n.conv(pooled, 8, 8, name="inner"))
    return n.conv(n.node("MaxUnpool", y, places, name="unpool", **HALF), 8, 4, name="up")


def _columns(n: Net) -> str:
    """Overlapping blocks of an image, each of them computed by itself."""
    columns = n.node("Reshape", n.conv("x", 4, 18, name="blocks"), n.const([1, 18, 64], "int64"))
    image, block = n.const([10, 10], "int64"), n.const([3, 3], "int64")
    return n.conv(n.node("Col2Im", columns, image, block, name="image"), 2, 4, name="end")


def _spectrum(n: Net) -> str:
    """Of each row, and back from what a layer makes of it."""
    rows = n.node("Reshape", n.conv("x", 4, 2, name="start"), n.const([2, 64, 1], "int64"))
    parts = n.node("DFT", rows, name="spectrum", onesided=1)
    known = n.node("Mul", parts, n.normal(33, 1), name="filtered")
    real = n.node("DFT", known, name="signal", inverse=1, onesided=1)
    image = n.node("Reshape", real, n.const([1, 2, 8, 8], "int64"))
    return n.conv(image, 2, 4, name="end")


def _sequences(n: Net) -> str:
    """Some rows of an image in the opposite order."""
    rows = n.node("Reshape", n.conv("x", 4, 8, name="start"), n.const([8, 8, 8], "int64"))
    lengths = n.const([8, 5, 1, 8, 2, 8, 3, 7], "int64")
    turned = n.node("ReverseSequence", rows, lengths, name="turned", time_axis=1, batch_axis=0)
    image = n.node("Reshape", turned, n.const([1, 8, 8, 8], "int64"))
    return n.conv(image, 8, 4, name="end")


def _unit_length(n: Net) -> str:
    """As networks end that compare faces."""
    flat = n.node("Flatten", n.conv("x", 4, 8, name="start"))
    return n.node("LpNormalization", n.dense(flat, 512, 16, name="dense"), name="unit", axis=1)


NETWORKS: dict[str, tuple[Callable[[Net], str], int, float]] = {
    "places": (_pooled_places, 13, 6),
    "columns": (_columns, 18, 20),
    "spectrum": (_spectrum, 20, 20),
    "sequences": (_sequences, 13, 20),
    "unit length": (_unit_length, 13, 20),
}
"""Name -> builder, opset, and the least SQNR in dB of a quantized output."""


def saved(net: Net, output: str, opset: int, path: Path) -> Path:
    model = net.model(output)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", opset))
    with contextlib.suppress(onnx.shape_inference.InferenceError):  # of nodes that are refused
        model = onnx.shape_inference.infer_shapes(model)
    result = model.graph.output[0].type.tensor_type
    if not result.HasField("shape"):
        result.shape.SetInParent()
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_equals_its_runtime_and_the_reference(name: str, tmp_path: Path) -> None:
    build, opset, least = NETWORKS[name]
    net = Net(x=[1, 4, 8, 8])
    path = saved(net, build(net), opset, tmp_path / "net.onnx")
    mod = load_model(path)
    rng = np.random.default_rng(0)
    samples = [[rng.standard_normal((1, 4, 8, 8)).astype("float32")] for _ in range(4)]
    (want,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": samples[0][0]})
    (got,) = call(mod, *samples[0])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    qmod = vta.quantize(mod, calibration=samples, config=SIM)
    compiled = compile_module(qmod, config=SIM)
    assert compare_with_reference(qmod, compiled, samples[0], implementation("sim")) is None
    (quantized,) = call(qmod, *samples[0])
    error = np.square(quantized - want).mean() / np.square(want).mean()
    assert -10 * np.log10(error) >= least


def placed(name: str, tmp_path: Path) -> dict[str, Placement]:
    build, opset, _least = NETWORKS[name]
    net = Net(x=[1, 4, 8, 8])
    mod = load_model(saved(net, build(net), opset, tmp_path / "net.onnx"))
    samples = [[np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype("float32")]]
    pmod = vta.partition_for_vta(vta.quantize(mod, calibration=samples, config=SIM), config=SIM)
    return {each.name: each for each in placements(pmod)}


def test_a_spectrum_is_a_layer_of_vta(tmp_path: Path) -> None:
    found = placed("spectrum", tmp_path)
    on_vta = {name for name, each in found.items() if each.device == "vta" and each.macs}
    assert on_vta >= {"spectrum", "signal"}


def test_of_a_pool_whose_places_the_cpu_computes_the_maxima_are_reported(tmp_path: Path) -> None:
    pool = placed("places", tmp_path)["pool"]
    assert pool.device == "cpu" and pool.on_vta.alu_ops
    assert "; VTA computes its nn.max_pool2d; " in pool.reason


def _dilated(n: Net) -> str:
    attrs = {"kernel_shape": [2, 2], "dilations": [2, 2], "auto_pad": "SAME_UPPER"}
    return n.node("MaxPool", "x", name="n", **attrs)


def _left_out(n: Net) -> str:
    attrs = {"kernel_shape": [1, 1], "strides": [4, 4], "auto_pad": "SAME_LOWER"}
    return n.node("MaxPool", "x", name="n", **attrs)


def _left_out_by_a_layer(n: Net) -> str:
    weight = n.normal(2, 4, 1, 1)
    return n.node("Conv", "x", weight, name="n", strides=[4, 4], auto_pad="SAME_UPPER")


def _blocks(image: list[int], block: list[int]) -> Callable[[Net], str]:
    def build(n: Net) -> str:
        columns = n.node("Reshape", "x", n.const([1, 16, 16], "int64"))
        sizes = n.const(image, "int64"), n.const(block, "int64")
        return n.node("Col2Im", columns, *sizes, name="n")

    return build


REFUSED: dict[str, tuple[Callable[[Net], str], str]] = {
    "dilated": (
        _dilated,
        "n (MaxPool): auto_pad SAME_UPPER of a dilated window is not the same in every runtime",
    ),
    "left out by a layer": (
        _left_out_by_a_layer,
        "n (Conv): auto_pad SAME_UPPER of windows shorter than their strides leaves 3 elements "
        "out, other ones in every runtime",
    ),
    "left out": (
        _left_out,
        "n (MaxPool): auto_pad SAME_LOWER of windows shorter than their strides leaves 3 elements "
        "out, other ones in every runtime",
    ),
    "axes of an image": (
        _blocks([2, 2, 2], [2, 2, 2]),
        "n (Col2Im): its image has 3 axes; 1 or 2 are taken",
    ),
    "blocks of an image": (
        _blocks([9, 9], [4, 4]),
        "n (Col2Im): it has columns (16, 16); blocks of [4, 4] lie at [6, 6] places of an image of "
        "[9, 9]",
    ),
    "axis that is computed": (
        lambda n: n.node(
            "CumProd", "x", n.node("Cast", n.node("ReduceMax", "x", keepdims=0), to=7), name="n"
        ),
        "n (CumProd): its axis is computed while the model runs; it must be a constant",
    ),
    "lengths": (
        lambda n: n.node("ReverseSequence", "x", n.const([4, 9], "int64"), name="n"),
        "n (ReverseSequence): its lengths are [4, 9]; 0 to 4 is taken",
    ),
    "onesided": (
        lambda n: n.node("DFT", "x", name="n", onesided=1),
        "n (DFT): onesided is 1 and its signal is complex; a real one, (..., 1), is taken",
    ),
    "places of volumes": (
        lambda n: n.node(
            "MaxPool",
            n.node("Reshape", "x", n.const([1, 2, 4, 4, 8], "int64")),
            name="n",
            outputs=2,
            kernel_shape=[2, 2, 2],
            storage_order=1,
        )[1],
        "n (MaxPool): storage_order is 1 with 3 spatial axes; 1 or 2 are taken",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    build, text = REFUSED[name]
    net = Net(x=[4, 2, 16, 2])
    path = saved(net, build(net), 26 if "computed" in name else 18, tmp_path / "net.onnx")
    with pytest.raises(VTAError) as caught:
        load_model(path)
    node, reason = text.split(": ", 1)
    assert str(caught.value) == (
        f'node "{node.split()[0]}" {node.split()[1]} cannot be imported: {reason}; TVM\'s ONNX '
        "importer does not take this form; simplify the model or export it with another opset"
    )
