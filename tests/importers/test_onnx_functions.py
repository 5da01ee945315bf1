"""Operators that ONNX defines by others, results that nobody reads, and what is not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model

HEAD = '<ir_version: 10, opset_import: ["": {}, "com.microsoft": 1]>'


def saved(folder: Path, text: str, opset: int = 18) -> Path:
    path = folder / "net.onnx"
    onnx.save(parser.parse_model(f"{HEAD.format(opset)} {text}"), str(path))
    return path


NETS = {
    "celu": "net (float[2,6] x) => (float[2,6] y) { y = Celu<alpha = 0.5>(x) }",
    "celu without alpha": "net (float[2,6] x) => (float[2,6] y) { y = Celu(x) }",
    "crop and pad": """net (float[2,6] x) => (float[3,4] y) <int64[2] size = {3, 4}>
        { y = CenterCropPad(x, size) }""",
    "in a branch": """net (float[2,6] x) => (float[2,6] y) <bool yes = {1}> {
        y = If(yes) <then_branch = yes () => (float[2,6] a) { a = Celu(x) },
                     else_branch = no () => (float[2,6] b) { b = Neg(x) }> }""",
    "statistics": """net (float[2,6] x) => (float[2,6] y, float[2,1] m, float[2,1] d)
        <float[6] s = {1, 2, 3, 4, 5, 6}> { y, m, d = LayerNormalization(x, s) }""",
    "unread statistics": """net (float[2,6] x) => (float[2,6] y)
        <float[6] s = {1, 2, 3, 4, 5, 6}> { n, m, d = LayerNormalization(x, s) y = Relu(n) }""",
    "unread mask": "net (float[2,6] x) => (float[2,6] y) { d, m = Dropout(x) y = Relu(d) }",
    "past keys": """net (float[1,2,3,4] x, float[1,2,2,4] p) =>
        (float[1,2,3,4] y, float[1,2,5,4] k, float[1,2,5,4] v)
        { y, k, v = Attention<is_causal = 1>(x, x, x, , p, p) }""",
    "several axes": """net (float[2,3,4] x) => (float[2,3,4] y)
        <float[3,4] s = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}>
        { y = RMSNormalization<axis = 1>(x, s) }""",
    "vector": """net (float[4] x) => (float[4] y) <float[4] s = {1, 2, 3, 4}>
        { y = RMSNormalization<axis = 0>(x, s) }""",
    "window": """net (float[1,6] x) => (float[1,6] y) <int64 size = {6}>
        { w = HannWindow(size) y = Mul(x, w) }""",
}


NEW = ("past keys", "several axes", "vector")
"""Of opset 23."""


@pytest.mark.parametrize("name", NETS)
def test_equals_onnx_runtime(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path, NETS[name], 23 if name in NEW else 18)
    session, rng = onnxruntime.InferenceSession(str(path)), np.random.default_rng(0)
    feed = {x.name: rng.standard_normal(x.shape).astype("float32") for x in session.get_inputs()}
    results = call(load_model(path), *feed.values())
    for got, want in zip(results, session.run(None, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_unread_results_leave_one_operator(tmp_path: Path) -> None:
    text = load_model(saved(tmp_path, NETS["unread statistics"])).script()
    assert text.count("nn.layer_norm") == 1 and "R.mean" not in text


REFUSED = {
    "attribute": (
        """net (float[1,2,8] q, float[1,2,8] k, float[1,2,8] v) => (float[1,2,8] y) {
        y = com.microsoft.GroupQueryAttention
            <num_heads = 2, kv_num_heads = 2, smooth_softmax = 1>(q, k, v) }""",
        18,
        'node "y" (GroupQueryAttention) cannot be imported: its attribute smooth_softmax = 1 is '
        "not supported; ",
    ),
    "operand": (
        """net (float[1,2,8] q, float[1,2,8] k, float[1,2,8] v, float[1] bias) => (float[1,2,8] y) {
        y = com.microsoft.GroupQueryAttention
            <num_heads = 2, kv_num_heads = 2>(q, k, v, , , , , , , , bias) }""",
        18,
        'node "y" (GroupQueryAttention) cannot be imported: its operand 10, "bias", is not '
        "supported; ",
    ),
    "function of one that is refused": (
        "net (float[2,6] x) => (float[2,6] y) { y = Bernoulli(x) }",
        18,
        "has the operator RandomUniformLike; ",
    ),
    "integer powers": (
        "net (int32[2] x, int32[2] p) => (int32[2] y) { y = Pow(x, p) }",
        18,
        'node "y" (Pow) cannot be imported: the exponent of integers must be one constant from '
        "0 to 64; ",
    ),
    "4-bit integers": (
        "net (float[2] x) => (int4[2] y) { y = Cast<to = 22>(x) }",
        22,
        'node "y" (Cast) cannot be imported: its result is of dtype int4; taken are float32, bool,',
    ),
    "shift": (
        "net (uint8[2] x) => (uint8[2] y) <uint8 by = {8}> "
        '{ y = BitShift<direction = "LEFT">(x, by) }',
        18,
        'node "y" (BitShift) cannot be imported: it shifts by 8 to 8; 0 to 7 is taken; ',
    ),
    "booleans": (
        "net (bool[2] x) => (bool[1] y) { y = ReduceMax(x) }",
        20,
        'node "y" (ReduceMax) cannot be imported: it reduces booleans; only numbers are reduced; ',
    ),
    "training": (
        "net (float[2] x, bool training) => (float[2] y) <float ratio = {0.5}> "
        "{ y = Dropout(x, ratio, training) }",
        18,
        'node "y" (Dropout) cannot be imported: its operand training_mode may be true; only '
        "inference is imported; ",
    ),
    "past keys alone": (
        "net (float[1,1,2,4] x, float[1,1,3,4] p) => (float[1,1,2,4] y) "
        "{ y = Attention(x, x, x, , p) }",
        23,
        'node "y" (Attention) cannot be imported: it has past keys or past values; both or none '
        "are taken; ",
    ),
    "no key": (
        "net (float[1,1,4,2] q, float[1,1,2,2] k) => (float[1,1,4,2] y) "
        "{ y = Attention<left_window_size = 0>(q, k, k) }",
        25,
        'node "y" (Attention) cannot be imported: 4 tokens see 2 keys, and one of them sees no '
        "key; ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str, tmp_path: Path) -> None:
    text, opset, error = REFUSED[name]
    with pytest.raises(VTAError) as caught:
        load_model(saved(tmp_path, text, opset))
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("text", "opset", "x"),
    [
        ("{ y = IsInf<detect_negative = 0>(x) }", 20, "bool"),
        ("{ y = IsInf<detect_positive = 0>(x) }", 20, "bool"),
        ("{ y = IsInf<detect_positive = 0, detect_negative = 0>(x) }", 20, "bool"),
        ("{ p = Constant<value_ints = [2]>() y = Pow(x, p) }", 18, "float"),
        ("{ p = Constant<value_float = 0.5>() s = Abs(x) y = Pow(s, p) }", 18, "float"),
    ],
)
def test_elements_equal_onnx_runtime(text: str, opset: int, x: str, tmp_path: Path) -> None:
    path = saved(tmp_path, f"net (float[5] x) => ({x}[5] y) {text}", opset)
    values = np.array([1, -2.5, np.inf, -np.inf, 0], "float32")
    (want,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": values})
    np.testing.assert_array_equal(call(load_model(path), values)[0], want)


def test_powers_of_integers_are_products(tmp_path: Path) -> None:
    text = "net (int32[5] x) => (int32[5] y) { p = Constant<value_ints = [3]>() y = Pow(x, p) }"
    x = np.array([1, -2, 1000, 0, 7], "int32")
    np.testing.assert_array_equal(call(load_model(saved(tmp_path, text)), x)[0], x**3)
