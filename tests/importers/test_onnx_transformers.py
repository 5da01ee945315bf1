"""Attention, normalization and their like as ONNX, its runtime and exporters write them."""

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
from vta_byoc.importers.onnx.absent import ABSENT
from vta_byoc.importers.onnx.fused import FUSED, RUNTIME
from vta_byoc.ir.bindings import op_name, source_name, straight_bindings

BATCH, TOKENS, KEYS, WIDTH, HEADS = 2, 5, 7, 32, 4
SIZE = WIDTH // HEADS
RNG = np.random.default_rng(0)
Inputs = dict[str, np.ndarray | None]
"""By name, in order; x... are inputs of the model, the others constants, None is left out."""


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def model_of(
    op: str, inputs: Inputs, results: int, domain: str, opset: int, attrs: dict[str, Any]
) -> onnx.ModelProto:
    given = {name: value for name, value in inputs.items() if value is not None}
    fed = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in given.items()
        if n.startswith("x")
    ]
    constants = [numpy_helper.from_array(v, n) for n, v in given.items() if not n.startswith("x")]
    names = [name if value is not None else "" for name, value in inputs.items()]
    outputs = [f"y{i}" for i in range(results)]
    node = helper.make_node(op, names, outputs, name="node", domain=domain, **attrs)
    result = helper.make_tensor_value_info("y0", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "graph", fed, [result], constants)
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    shape = wanted(model, feed(inputs)).shape
    known = helper.make_tensor_value_info("y0", onnx.TensorProto.FLOAT, shape)
    model.graph.output[0].CopyFrom(known)
    return model


def feed(inputs: Inputs) -> dict[str, np.ndarray]:
    return {n: v for n, v in inputs.items() if v is not None and n.startswith("x")}


def wanted(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(["y0"], given)[0])


def loaded(model: onnx.ModelProto, folder: Path) -> Any:
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    return vta.load_model(path)


X = noise(BATCH, TOKENS, WIDTH)
PROJECTION: Inputs = {"x": X, "w": noise(WIDTH, 3 * WIDTH) / 4, "b": noise(3 * WIDTH)}
ROWS: Inputs = {"x": X, "x1": noise(BATCH, KEYS, WIDTH), "x2": noise(BATCH, KEYS, WIDTH)}
SAME: Inputs = {"x": X, "x1": noise(BATCH, TOKENS, WIDTH), "x2": noise(BATCH, TOKENS, WIDTH)}
HEADED: Inputs = {
    "x": noise(BATCH, HEADS, TOKENS, SIZE),
    "x1": noise(BATCH, HEADS // 2, KEYS, SIZE),
    "x2": noise(BATCH, HEADS // 2, KEYS, SIZE + 4),
}
PAST: Inputs = {
    "xk": noise(BATCH, HEADS // 2, 3, SIZE),
    "xv": noise(BATCH, HEADS // 2, 3, SIZE + 4),
}
TABLES: Inputs = {"c": noise(9, SIZE // 2), "s": noise(9, SIZE // 2)}
PLACES = np.array([[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]], "int64")
SCALED: Inputs = {"x": X, "g": noise(WIDTH)}
SUMMED: Inputs = {"x": X, "x1": noise(BATCH, TOKENS, WIDTH), "g": noise(WIDTH)}
PROMPT: Inputs = {
    "x": noise(BATCH, TOKENS, 4 * 16),
    "x1": noise(BATCH, TOKENS, 2 * 16),
    "x2": noise(BATCH, TOKENS, 2 * 16),
    "p": None,
    "q": None,
    "l": np.full(BATCH, TOKENS - 1, "int32"),
    "t": np.array(TOKENS, "int32"),
}
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], "int32")
EPS = {"epsilon": 1e-5}
EMBEDDED: Inputs = {
    "x": RNG.integers(0, 20, (BATCH, TOKENS)).astype("int32"),
    "x1": RNG.integers(0, 2, (BATCH, TOKENS)).astype("int32"),
    "w": noise(20, WIDTH),
    "p": noise(9, WIDTH),
    "s": noise(2, WIDTH),
    "g": noise(WIDTH),
    "b": noise(WIDTH),
}

# name: operator, inputs, domain, opset, attributes, results
CASES: dict[str, tuple[str, Inputs, str, int, dict[str, Any], int]] = {
    "attention": ("Attention", PROJECTION, RUNTIME, 14, {"num_heads": 4}, 1),
    "attention causal": (
        "Attention",
        PROJECTION,
        RUNTIME,
        12,
        {"num_heads": 4, "unidirectional": 1, "scale": 0.2},
        1,
    ),
    "attention mask": ("Attention", {**PROJECTION, "xm": MASK}, RUNTIME, 14, {"num_heads": 2}, 1),
    "attention lengths": (
        "Attention",
        {**PROJECTION, "xm": np.array([3, 4], "int32")},
        RUNTIME,
        14,
        {"num_heads": 4, "unidirectional": 1},
        1,
    ),
    "attention mask of pairs": (
        "Attention",
        {**PROJECTION, "xm": np.tril(np.ones((BATCH, TOKENS, TOKENS), "int32"))},
        RUNTIME,
        14,
        {"num_heads": 4},
        1,
    ),
    "attention added": (
        "Attention",
        {**PROJECTION, "m": None, "p": None, "xb": noise(BATCH, HEADS, TOKENS, TOKENS)},
        RUNTIME,
        14,
        {"num_heads": 4},
        1,
    ),
    "attention widths": (
        "Attention",
        {"x": X, "w": noise(WIDTH, 16 + 16 + 24) / 4, "b": noise(56)},
        RUNTIME,
        14,
        {"num_heads": 4, "qkv_hidden_sizes": [16, 16, 24]},
        1,
    ),
    "attention ends and starts": (
        "Attention",
        {**PROJECTION, "xm": np.array([4, 5, 1, 0], "int32")},
        RUNTIME,
        14,
        {"num_heads": 4, "mask_filter_value": -3.0},
        1,
    ),
    "attention of padding in front": (
        "Attention",
        {**PROJECTION, "xm": MASK[:, ::-1].copy()},
        RUNTIME,
        14,
        {"num_heads": 4, "unidirectional": 1},
        1,
    ),
    "multi head": ("MultiHeadAttention", ROWS, RUNTIME, 14, {"num_heads": 4}, 1),
    "multi head of split keys": (
        "MultiHeadAttention",
        {"x": X, "x1": noise(BATCH, HEADS, KEYS, SIZE), "x2": noise(BATCH, HEADS, KEYS, SIZE)},
        RUNTIME,
        14,
        {"num_heads": HEADS},
        1,
    ),
    "multi head masked": (
        "MultiHeadAttention",
        {
            **ROWS,
            "b": noise(3 * WIDTH),
            "xm": np.array([[1] * 5 + [0] * 2, [1] * 7], "int32"),
            "xb": noise(1, HEADS, TOKENS, KEYS),
        },
        RUNTIME,
        14,
        {"num_heads": 4, "scale": 0.3},
        1,
    ),
    "multi head causal": (
        "MultiHeadAttention",
        SAME,
        RUNTIME,
        14,
        {"num_heads": 4, "unidirectional": 1},
        1,
    ),
    "grouped": (
        "GroupQueryAttention",
        PROMPT,
        RUNTIME,
        14,
        {"num_heads": 4, "kv_num_heads": 2},
        3,
    ),
    "grouped rotary": (
        "GroupQueryAttention",
        {**PROMPT, "c": noise(9, 8), "s": noise(9, 8)},
        RUNTIME,
        14,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
        3,
    ),
    "opset 23 shared": ("Attention", HEADED, "", 23, {}, 1),
    "opset 23 causal": (
        "Attention",
        {**SAME, "m": noise(TOKENS, TOKENS)},
        "",
        23,
        {"q_num_heads": 4, "kv_num_heads": 4, "is_causal": 1, "scale": 0.2},
        1,
    ),
    "opset 23 mask": (
        "Attention",
        {**HEADED, "xm": np.tril(np.ones((TOKENS, KEYS), bool), 2)},
        "",
        23,
        {"softcap": 2.0},
        1,
    ),
    "opset 23 causal, more keys": ("Attention", HEADED, "", 23, {"is_causal": 1}, 1),
    "opset 25 window": (
        "Attention",
        HEADED,
        "",
        25,
        {"left_window_size": 1, "right_window_size": 2},
        1,
    ),
    "opset 25 causal window": (
        "Attention",
        HEADED,
        "",
        25,
        {"is_causal": 1, "left_window_size": 1},
        1,
    ),
    "opset 23 past": (
        "Attention",
        {**HEADED, "m": None, **PAST},
        "",
        23,
        {"is_causal": 1},
        3,
    ),
    "rotary": (
        "RotaryEmbedding",
        {"x": X, "xp": np.array([1], "int64"), **TABLES},
        RUNTIME,
        14,
        {"num_heads": 4},
        1,
    ),
    "rotary interleaved": (
        "RotaryEmbedding",
        {"x": noise(BATCH, HEADS, TOKENS, SIZE), "xp": PLACES, **TABLES},
        RUNTIME,
        14,
        {"interleaved": 1},
        1,
    ),
    "opset 23 rotary": (
        "RotaryEmbedding",
        {"x": noise(BATCH, HEADS, TOKENS, SIZE), **TABLES, "xp": PLACES},
        "",
        23,
        {},
        1,
    ),
    "opset 23 rotary of a part": (
        "RotaryEmbedding",
        {
            "x": X,
            "xc": noise(BATCH, TOKENS, SIZE // 4),
            "xs": noise(BATCH, TOKENS, SIZE // 4),
        },
        "",
        23,
        {"num_heads": 4, "rotary_embedding_dim": SIZE // 2},
        1,
    ),
    "layer norm": ("LayerNormalization", {**SCALED, "b": noise(WIDTH)}, "", 14, EPS, 1),
    "opset 17 layer norm": ("LayerNormalization", SCALED, "", 17, EPS, 1),
    "rms norm of the runtime": ("SimplifiedLayerNormalization", SCALED, "", 14, EPS, 1),
    "opset 23 rms norm": ("RMSNormalization", SCALED, "", 23, {**EPS, "axis": 2}, 1),
    "skip": ("SkipLayerNormalization", SUMMED, RUNTIME, 14, EPS, 1),
    "skip with bias": (
        "SkipLayerNormalization",
        {**SUMMED, "b": noise(WIDTH), "c": noise(WIDTH)},
        RUNTIME,
        14,
        {},
        4,
    ),
    "skip rms": (
        "SkipSimplifiedLayerNormalization",
        {**SUMMED, "b": noise(WIDTH)},
        RUNTIME,
        14,
        EPS,
        1,
    ),
    "skip rms of small numbers": (
        "SkipSimplifiedLayerNormalization",
        {name: value * np.float32(1e-4) for name, value in SUMMED.items() if value is not None},
        RUNTIME,
        14,
        {},
        1,
    ),
    "quick gelu": ("QuickGelu", {"x": X}, RUNTIME, 14, {"alpha": 1.5}, 1),
    "gelu": ("Gelu", {"x": X}, RUNTIME, 14, {}, 1),
    "fast gelu": ("FastGelu", {"x": X, "b": noise(WIDTH)}, RUNTIME, 14, {}, 1),
    "bias gelu": ("BiasGelu", {"x": X, "b": noise(WIDTH)}, RUNTIME, 14, {}, 1),
    "fused product": (
        "FusedMatMul",
        {"x": noise(BATCH, TOKENS, 8), "x1": noise(BATCH, KEYS, 8)},
        RUNTIME,
        14,
        {"transB": 1, "alpha": 0.25},
        1,
    ),
    "embedding": ("EmbedLayerNormalization", EMBEDDED, RUNTIME, 14, EPS, 2),
    "embedding of places": (
        "EmbedLayerNormalization",
        {**EMBEDDED, "x1": None, "s": None, "m": None, "q": PLACES.astype("int32")},
        RUNTIME,
        14,
        {},
        3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    op, inputs, domain, opset, attrs, results = CASES[name]
    model = model_of(op, inputs, results, domain, opset, attrs)
    found = call(loaded(model, tmp_path), *feed(inputs).values())
    first = found[0] if isinstance(found, list | tuple) else found
    np.testing.assert_allclose(first, wanted(model, feed(inputs)), rtol=2e-5, atol=2e-5)


def test_every_operator_is_tested() -> None:
    elsewhere = {"STFT", *ABSENT}  # test_onnx_spectra.py, test_importers.py
    assert {op for _, op in FUSED} - elsewhere <= {case[0] for case in CASES.values()}


def test_products_are_named_and_hold_no_fused_node(tmp_path: Path) -> None:
    op, inputs, domain, opset, attrs, results = CASES["attention"]
    mod = loaded(model_of(op, inputs, results, domain, opset, attrs), tmp_path)
    products = [
        source_name(b.var)
        for b in straight_bindings(mod["main"])
        if op_name(b.value) == "relax.matmul"
    ]
    assert products == ["node_query", "node_key", "node_value", "node_scores", "node_output"]


REFUSED: dict[str, tuple[str, Inputs, str, int, dict[str, Any], str]] = {
    "cache": (
        "MultiHeadAttention",
        {
            **SAME,
            "b": None,
            "m": None,
            "r": None,
            "x4": noise(BATCH, HEADS, KEYS, SIZE),
            "x5": noise(BATCH, HEADS, KEYS, SIZE),
        },
        RUNTIME,
        14,
        {"num_heads": 4},
        "it has past keys; a whole sequence is taken, without a cache of keys",
    ),
    "packed": (
        "GroupQueryAttention",
        {
            "x": noise(BATCH, TOKENS, 8 * 16),
            "k": None,
            "v": None,
            "p": None,
            "q": None,
            "l": np.full(BATCH, TOKENS - 1, "int32"),
            "t": np.array(TOKENS, "int32"),
        },
        RUNTIME,
        14,
        {"num_heads": 4, "kv_num_heads": 2},
        "its queries, keys and values are packed; give them one by one",
    ),
    "bias and split keys": (
        "MultiHeadAttention",
        {
            "x": X,
            "x1": noise(BATCH, HEADS, KEYS, SIZE),
            "x2": noise(BATCH, HEADS, KEYS, SIZE),
            "b": noise(3 * WIDTH),
        },
        RUNTIME,
        14,
        {"num_heads": 4},
        "it has a bias and split keys; add the bias before they are split",
    ),
    "keys as a result": (
        "Attention",
        PROJECTION,
        RUNTIME,
        14,
        {"num_heads": 4},
        "it has 2 results; 1 is taken",
    ),
    "computed weights": (
        "Attention",
        {"x": X, "xw": noise(WIDTH, 3 * WIDTH), "b": noise(3 * WIDTH)},
        RUNTIME,
        14,
        {"num_heads": 4},
        "its weights are computed while the model runs; they must be constants",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str, tmp_path: Path) -> None:
    op, inputs, domain, opset, attrs, reason = REFUSED[name]
    results = 3 if op == "GroupQueryAttention" else 1 + (name == "keys as a result")
    model = model_of(op, inputs, results, domain, opset, attrs)
    with pytest.raises(VTAError) as caught:
        loaded(model, tmp_path)
    assert str(caught.value) == (
        f'node "node" ({op}) cannot be imported: {reason}; TVM\'s ONNX importer does not take '
        "this form; simplify the model or export it with another opset"
    )


def test_another_domain_with_a_known_name_is_refused(tmp_path: Path) -> None:
    op, inputs, domain, opset, attrs, results = CASES["attention"]
    model = model_of(op, inputs, results, domain, opset, attrs)
    model.graph.node[0].domain = "some.where"
    model.opset_import.append(helper.make_opsetid("some.where", 1))
    with pytest.raises(VTAError, match="has the operator some.where.Attention; "):
        loaded(model, tmp_path)
