"""Operators in the forms of old ONNX opsets compute what they did then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model


def saved(folder: Path, opset: int, text: str) -> Path:
    """A graph in ONNX's own text as a file of an old opset."""
    path = folder / "net.onnx"
    head = f'<ir_version: 3, opset_import: ["": {opset}]>'
    onnx.save(onnx.parser.parse_model(f"{head} net {text}"), str(path))
    return path


SHAPE = (1, 4, 6, 6)


def image(result: str, node: str, weights: str = "") -> str:
    """A network of one node; weights are inputs too, as versions below 4 of the format want it."""
    listed = weights.replace(" = ", "=").split(";") if weights else []
    more = "".join(f", {each.split('=')[0]}" for each in listed)
    head = f"(float[1, 4, 6, 6] x{more}) => (float[{result}] y) <{', '.join(listed)}>"
    return f"{head} {{ {node} }}"


TWICE = "float[4] s = {1, 1, 2, 2}"
OLD = [
    (9, image("1,2,3,6", "y = Slice<axes: ints = [1, 2], starts: ints = [1, -3], "
                         "ends: ints = [3, 100]>(x)")),
    (9, image("1,3,6,6", "y = Slice<starts: ints = [0, 1], ends: ints = [1, 4]>(x)")),
    (10, image("1,4,6,2", "y = Slice(x, a, b, c, d)", "int64[1] a = {5};int64[1] b = {1};"
                          "int64[1] c = {3};int64[1] d = {-2}")),
    (10, image("1,4,12,12", 'y = Resize<mode: string = "nearest">(x, s)', TWICE)),
    (10, image("1,4,12,12", 'y = Resize<mode: string = "linear">(x, s)', TWICE)),
    (10, image("1,4,9,9", 'y = Resize<mode: string = "nearest">(x, s)',
               "float[4] s = {1, 1, 1.5, 1.5}")),
    (10, image("1,4,4,3", 'y = Resize<mode: string = "nearest">(x, s)',
               "float[4] s = {1, 1, 0.66666669, 0.5}")),
    (9, image("1,4,2,6", "y, i = TopK<k: int = 2, axis: int = 2>(x)")),
    (10, image("1,4,2,6", "y, i = TopK<axis: int = 2>(x, k)", "int64[1] k = {2}")),
    (9, image("1,4,6,6", "y = Softmax<axis: int = 1>(x)")),
    (9, image("1,4,6,6", "y = Clip<min: float = -0.5>(x)")),
    (9, image("1,4,9,9", 'y = Pad<pads: ints = [0,0,1,2,0,0,2,1], mode: string = "reflect">(x)')),
    (18, image("1,6,6,9", 'y = Pad<mode: string = "edge">(x, p, , a)',
               "int64[4] p = {1, 2, 2, 0};int64[2] a = {3, -3}")),
    (19, image("1,6,6,9", 'y = Pad<mode: string = "wrap">(x, p, , a)',
               "int64[4] p = {1, 2, 2, 0};int64[2] a = {3, -3}")),
    (11, image("1,1,4,6,6,1", "y = Unsqueeze<axes: ints = [1, 5]>(x)")),
    (11, image("4,6,6", "y = Squeeze<axes: ints = [0]>(x)")),
    (11, image("1,3,6,6", "y, z = Split<axis: int = 1, split: ints = [3, 1]>(x)")),
    (11, image("1,4,6", "y = ReduceSum<axes: ints = [3], keepdims: int = 0>(x)")),
    (11, image("1,4,1,1", "y = ReduceMean<axes: ints = [2, 3]>(x)")),
    (11, image("1,4,1,6", "y = ReduceL2<axes: ints = [2]>(x)")),
    (11, image("1,4,6,1", "y = ReduceLogSumExp<axes: ints = [-1]>(x)")),
    (7, image("1,4,12,12", 'y = Upsample<mode: string = "nearest", '
                           "scales: floats = [1.0, 1.0, 2.0, 2.0]>(x)")),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "text"), OLD)
def test_forms_that_changed(opset: int, text: str, tmp_path: Path) -> None:
    path = saved(tmp_path, opset, text)
    x = np.random.default_rng(3).standard_normal(SHAPE).astype("float32")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    (got,) = call(load_model(path), x)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_scales_that_opset_10_does_not_define(tmp_path: Path) -> None:
    text = image("1,4,12,3", 'y = Resize<mode: string = "nearest">(x, s)',
                 "float[4] s = {1, 1, 2, 0.5}")  # fmt: skip
    with pytest.raises(VTAError) as caught:
        load_model(saved(tmp_path, 10, text))
    assert str(caught.value) == (
        'node "y" (Resize) cannot be imported: scales (1, 1, 2, 0.5) that grow one axis and shrink '
        "another; TVM's ONNX importer does not take this form; simplify the model or export it "
        "with another opset"
    )


# ---------------------------------------------------------------- below opset 7
CHANNEL = np.array([1, 2, 3, 4], "float32")
BROADCAST = "<broadcast: int = 1, axis: int = 1>"


@pytest.mark.parametrize(
    ("node", "weight", "value"),
    [
        (f"y = Add{BROADCAST}(x, s)", "float[4]", CHANNEL.reshape(4, 1, 1)),
        (f"y = Mul{BROADCAST}(x, s)", "float[4]", CHANNEL.reshape(4, 1, 1)),
        ("y = Sub<broadcast: int = 1, axis: int = -1>(x, s)", "float[6]", np.arange(6.0)),
        ("y = Div<broadcast: int = 1>(x, s)", "float[6]", np.arange(1.0, 7.0)),
        (
            f"y = Mul{BROADCAST}(x, s)",
            "float[4, 6]",
            np.arange(24.0).reshape(4, 6, 1),
        ),
    ],
)
def test_operands_that_are_broadcast_from_an_axis(
    node: str, weight: str, value: np.ndarray, tmp_path: Path
) -> None:
    """Neither ONNX Runtime nor ONNX's reference runs these; numpy's rule is written out here."""
    numbers = ", ".join(f"{each:g}" for each in value.reshape(-1))
    path = saved(tmp_path, 6, image("1,4,6,6", node, f"{weight} s = {{{numbers}}}"))
    x = np.random.default_rng(3).standard_normal(SHAPE).astype("float32")
    op = {"A": np.add, "M": np.multiply, "S": np.subtract, "D": np.divide}[node[4]]
    (got,) = call(load_model(path), x)
    np.testing.assert_allclose(got, op(x, value.astype("float32")), rtol=1e-6)


def test_layers_below_opset_7(tmp_path: Path) -> None:
    """A convolution whose bias is added from axis 1, a normalization for inference, Dropout."""
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((2, 4, 1, 1)).astype("float32")
    numbers = ", ".join(f"{each:.9g}" for each in weight.reshape(-1))
    weights = (
        f"float[2,4,1,1] w = {{{numbers}}};float[2] b = {{1, -2}};float[2] g = {{2, 3}};"
        "float[2] o = {0.5, 0.25};float[2] m = {1, 2};float[2] v = {4, 9}"
    )
    body = f"""
        c = Conv(x, w) p = Add{BROADCAST}(c, b)
        n = BatchNormalization<is_test: int = 1, epsilon: float = 0.0>(p, g, o, m, v)
        d = Dropout<is_test: int = 1>(n) y = Relu(d)
    """
    path = saved(tmp_path, 6, image("1,2,6,6", body, weights))
    x = rng.standard_normal(SHAPE).astype("float32")
    (got,) = call(load_model(path), x)
    layer = np.einsum("nchw,oc->nohw", x, weight[:, :, 0, 0]) + np.reshape([1, -2], (2, 1, 1))
    want = (layer - np.reshape([1, 2], (2, 1, 1))) * np.reshape([1, 1], (2, 1, 1))
    want = np.maximum(want + np.reshape([0.5, 0.25], (2, 1, 1)), 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_the_converter_does_not_take(tmp_path: Path) -> None:
    text = image("1,8,6,6", "y = Tile(x, t, a)", "float t = {2};float a = {1}")
    path = saved(tmp_path, 5, text)
    with pytest.raises(VTAError) as caught:
        load_model(path)
    assert str(caught.value) == (
        f'model file "{path}" is of opset 5, and ONNX\'s converter cannot make opset 7 of it: No '
        "Adapter From Version $5 for Tile; export it again with opset 7 or later"
    )
