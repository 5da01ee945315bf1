"""ONNX files become clean float Relax that keeps the model's names; bad files are refused."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from small_models import Net, call
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import FORMATS, Format, load_model, output_names, source_name
from vta_byoc.ir.bindings import UniqueNames, op_name, sanitized, static_shape


def bindings(mod: tvm.IRModule) -> list[tuple[str, str]]:
    """(variable, operator) of every binding of `main`."""
    (block,) = mod["main"].body.blocks
    return [(b.var.name, op_name(b.value).removeprefix("relax.")) for b in block.bindings]


def assert_equals_onnxruntime(path: Path, mod: tvm.IRModule) -> None:
    relax.analysis.well_formed(mod)
    rng = np.random.default_rng(7)
    params = mod["main"].params
    feed = {p.name: rng.standard_normal(static_shape(p)).astype("float32") for p in params}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = session.run(None, feed)
    for ours, theirs in zip(call(mod, *feed.values()), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def refused(text: str, path: Path, **options: Any) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(path, **options)
    assert str(caught.value) == text


# ---------------------------------------------------------------- names
def test_every_operator_carries_its_nodes_name(tmp_path):
    net = Net(**{"image:0": [1, 3, 8, 8]})
    x = net.batch_norm(net.conv("image:0", 3, 4, name="/layer.1/conv"), 4, name="bn1")
    x = net.node("Relu", x, name="relu")
    y = net.batch_norm(net.conv(x, 4, 4, bias=False, name="conv2"), 4, name="bn2")
    x = net.node("Relu", net.node("Add", x, y, name="add"), name="/relu")
    x = net.node("Flatten", net.node("GlobalAveragePool", x, name="pool"), name="")
    x = net.dense(x, 4, 5, name="fc")
    mod = load_model(net.save(tmp_path / "net.onnx", x))
    assert bindings(mod) == [
        ("layer_1_conv__conv2d", "nn.conv2d"),
        ("layer_1_conv", "add"),
        ("relu", "nn.relu"),
        ("conv2", "nn.conv2d"),
        ("bn2", "add"),
        ("add", "add"),
        ("relu_2", "nn.relu"),
        ("pool", "mean"),
        ("t8_0", "reshape"),
        ("fc__matmul", "matmul"),
        ("fc", "add"),
    ]
    assert [p.name for p in mod["main"].params] == ["image:0"]
    assert output_names(mod) == ["t9_0"]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


def test_source_name():
    def named(name: str) -> relax.Var:
        return relax.Var(name, relax.TensorType((1,), "float32"))

    assert [source_name(named(n)) for n in ("conv1", "conv1__acc", "conv1__lhs__shift")] == [
        "conv1"
    ] * 3


def test_names_are_identifiers_and_unique():
    texts = ["/a/b.0/Conv", "1x1", "__x__y_", "...", "a_b_0_Conv"]
    clean = [sanitized(text) for text in texts]
    assert clean == ["a_b_0_Conv", "op_1x1", "x_y", "op", "a_b_0_Conv"]
    names = UniqueNames("_")
    assert [names.fresh(name) for name in clean][-1] == "a_b_0_Conv_2"


def test_output_names_without_a_model():
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    body = relax.SeqExpr([], relax.Tuple([x, x]))
    main = relax.Function([x], body, ret_ty=relax.TupleType([x.ty, x.ty]))
    mod = relax.transform.Normalize()(tvm.IRModule({"main": main}))
    assert output_names(mod) == ["output0", "output1"]


# ---------------------------------------------------------------- batch normalization
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("group", [1, 4])
def test_batch_norm_folds_into_a_convolution(tmp_path, bias, group):
    net = Net(x=[2, 4, 6, 6])
    x = net.batch_norm(net.conv("x", 4, 8, bias=bias, group=group), 8)
    mod = load_model(net.save(tmp_path / "net.onnx", x))
    assert [op for _, op in bindings(mod)] == ["nn.conv2d", "add"]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


def test_batch_norm_folds_into_a_dense_layer(tmp_path):
    net = Net(x=[2, 6])
    x = net.batch_norm(net.dense("x", 6, 3), 3)
    mod = load_model(net.save(tmp_path / "net.onnx", x))
    assert [op for _, op in bindings(mod)] == ["matmul", "add"]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


def test_batch_norm_elsewhere_is_a_multiply_and_an_add(tmp_path):
    net = Net(x=[1, 3, 6, 6])
    x = net.node("Relu", net.batch_norm("x", 3, name="norm"))
    mod = load_model(net.save(tmp_path / "net.onnx", x))
    assert bindings(mod)[:2] == [("norm__scale", "multiply"), ("norm", "add")]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


def test_a_layer_with_another_reader_keeps_its_weights(tmp_path):
    net = Net(x=[1, 3, 6, 6])
    y = net.conv("x", 3, 4)
    z = net.batch_norm(y, 4)
    mod = load_model(net.save(tmp_path / "net.onnx", y, z))
    assert [op for _, op in bindings(mod)] == ["nn.conv2d", "add", "multiply", "add"]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


def test_two_batch_norms_of_one_layer(tmp_path):
    net = Net(x=[1, 3, 6, 6])
    y = net.conv("x", 3, 4, bias=False)
    mod = load_model(net.save(tmp_path / "net.onnx", net.batch_norm(y, 4), net.batch_norm(y, 4)))
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


# ---------------------------------------------------------------- operators kept whole
def test_clip_becomes_maximum_and_minimum(tmp_path):
    net = Net(x=[1, 3, 4, 4])
    low = net.node("Clip", "x", net.const(-0.5), name="low")
    both = net.node("Clip", low, net.const(0.0), net.const(6.0), name="both")
    high = net.node("Clip", both, "", net.const(0.5), name="high")
    mod = load_model(net.save(tmp_path / "net.onnx", high))
    assert bindings(mod) == [
        ("low", "maximum"),
        ("both__maximum", "maximum"),
        ("both", "minimum"),
        ("high", "minimum"),
    ]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_auto_pad_becomes_padding_of_the_convolution(tmp_path, mode, stride):
    net = Net(x=[1, 3, 7, 10])
    x = net.conv("x", 3, 4, 4, auto_pad=mode, strides=[stride, stride])
    mod = load_model(net.save(tmp_path / "net.onnx", x))
    assert [op for _, op in bindings(mod)] == ["nn.conv2d", "add"]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


def test_mean_variance_of_values_that_are_close(tmp_path):
    net = Net(data=(1, 3, 4, 2))
    far = net.node("Add", "data", net.const(1000.0))
    net.save(tmp_path / "net.onnx", net.node("MeanVarianceNormalization", far, axes=[3]))
    assert_equals_onnxruntime(tmp_path / "net.onnx", load_model(tmp_path / "net.onnx"))


def test_pad_stays_one_operator(tmp_path):
    net = Net(x=[1, 3, 4, 5])
    x = net.node("Pad", "x", net.const([0, 0, 1, 2, 0, 0, 3, 0], "int64"), net.const(1.5))
    mod = load_model(net.save(tmp_path / "net.onnx", x))
    assert [op for _, op in bindings(mod)] == ["nn.pad"]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


def test_dropout_and_identity_vanish(tmp_path):
    net = Net(x=[1, 3, 4, 4])
    x = net.node("Relu", net.node("Dropout", net.node("Identity", "x")), name="relu")
    mod = load_model(net.save(tmp_path / "net.onnx", x))
    assert bindings(mod) == [("relu", "nn.relu")]


def test_several_inputs_and_outputs(tmp_path):
    net = Net(a=[1, 4], b=[1, 4])
    left, right = net.node("Split", net.node("Add", "a", "b"), name="split", outputs=2, axis=1)
    product = net.node("Mul", left, right, name="product")
    mod = load_model(net.save(tmp_path / "net.onnx", right, product, left))
    assert [name for name, _ in bindings(mod)] == [
        "t0_0",
        "split",
        "split__1",
        "product",
    ]
    assert output_names(mod) == ["t1_1", "t2_0", "t1_0"]
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


def test_an_output_that_is_an_input(tmp_path):
    net = Net(x=[1, 4])
    same = net.node("Identity", "x")
    mod = load_model(net.save(tmp_path / "net.onnx", same, net.node("Relu", "x")))
    assert_equals_onnxruntime(tmp_path / "net.onnx", mod)


# ---------------------------------------------------------------- shapes
def test_a_given_shape_binds_dynamic_dimensions(tmp_path):
    net = Net(x=["N", 3, None, None])
    x = net.conv("x", 3, 4)
    path = net.save(tmp_path / "net.onnx", x)
    mod = load_model(path, shapes={"x": (2, 3, 5, 7)})
    assert static_shape(mod["main"].params[0]) == (2, 3, 5, 7)
    assert_equals_onnxruntime(path, mod)


@pytest.mark.parametrize(
    "given, example",
    [
        ({}, "x=1,224 --shape state=3,1,224,224"),
        ({"x": (2, 9)}, "state=3,2,9,224"),
        ({"state": (3, 5, 7, 6)}, "x=5,7"),
    ],
)
def test_the_example_knows_batches_and_what_was_given(tmp_path, given, example):
    net = Net(x=["batch", "time"], state=[3, "batch", "time", None])
    path = net.save(tmp_path / "net.onnx", net.node("Add", "x", net.node("Relu", "state")))
    with pytest.raises(VTAError, match=f"give (it|them), for example --shape {example}$"):
        load_model(path, shapes=given)


def test_the_example_of_a_batch_that_is_not_first(tmp_path):
    net = Net(x=[3, "batch_size", None])
    path = net.save(tmp_path / "net.onnx", net.node("Relu", "x"))
    with pytest.raises(VTAError, match="--shape x=3,1,224$"):
        load_model(path)


def test_dynamic_shape(tmp_path):
    net = Net(x=["N", 3, None, 10])
    path = net.save(tmp_path / "net.onnx", net.node("Relu", "x"))
    refused(
        'input "x" has the dynamic shape (N, 3, ?, 10); every dimension must be known; '
        "give it, for example --shape x=1,3,224,10",
        path,
    )
    refused(
        'shape given for "y"; the inputs of the model are x; use one of these names',
        path,
        shapes={"y": (1,)},
    )
    refused(
        'shape (1, 4, 8, 10) given for "x"; the model declares (N, 3, ?, 10); '
        "keep its rank and its fixed dimensions",
        path,
        shapes={"x": (1, 4, 8, 10)},
    )
    refused(
        'shape (0, 3, 8, 10) given for "x"; every dimension must be at least 1; correct the shape',
        path,
        shapes={"x": (0, 3, 8, 10)},
    )


def test_unknown_rank(tmp_path):
    net = Net(x=None)
    refused(
        'input "x" has no shape; every dimension must be known; '
        "give it, for example --shape x=1,3,224,224",
        net.save(tmp_path / "net.onnx", net.node("Relu", "x")),
    )


# ---------------------------------------------------------------- formats
@pytest.mark.parametrize("each", FORMATS.values(), ids=lambda each: each.name)
def test_every_format_has_its_importer(each):
    assert callable(importlib.import_module(each.module).load)
    assert each.suffix == each.suffix.lower()


def test_a_format_is_one_line_and_a_module(tmp_path, monkeypatch):
    """A file of one matrix, in the module that this test is: ReLU of x times it."""
    row = Format("matrix", ".matrix", "one_matrix")
    monkeypatch.setitem(FORMATS, row.suffix, row)
    monkeypatch.setitem(sys.modules, "one_matrix", types.SimpleNamespace(load=one_matrix))
    weights = np.arange(-8, 8, dtype="float32").reshape(4, 4)
    np.savetxt(tmp_path / "net.MATRIX", weights)
    mod = load_model(tmp_path / "net.MATRIX", shapes={"x": (2, 4)})
    x = np.random.default_rng(0).standard_normal((2, 4), "float32")
    assert output_names(mod) == ["y"]
    np.testing.assert_allclose(call(mod, x)[0], np.maximum(x @ weights, 0), rtol=1e-5)
    refused(
        f'model file "{tmp_path / "net.pb"}" does not exist; only .onnx, .pt2, .tflite, .matrix, '
        ".relay, .txt, .json, .tar (ONNX, PyTorch, TFLite, matrix, Relay) can be loaded; check the "
        "path",
        tmp_path / "net.pb",
    )


def one_matrix(path, shapes):
    x = relax.Var("x", relax.TensorType(shapes["x"], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(np.loadtxt(path, "float32"))))
            y = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(y)
    return builder.finalize(), ["y"]


# ---------------------------------------------------------------- bad files
def test_missing_file(tmp_path):
    path = tmp_path / "none.onnx"
    refused(
        f'model file "{path}" does not exist; only .onnx, .pt2, .tflite, .relay, '
        ".txt, .json, .tar (ONNX, PyTorch, TFLite, Relay) "
        "can be loaded; check the path",
        path,
    )
    refused(
        f'model file "{tmp_path}" is a directory; only .onnx, .pt2, .tflite, .relay, .txt, '
        ".json, .tar (ONNX, PyTorch, TFLite, Relay) can be loaded; check the path",
        tmp_path,
    )


def test_unknown_extension(tmp_path):
    path = tmp_path / "net.pb"
    path.write_bytes(b"")
    refused(
        f'model file "{path}" has the extension ".pb"; only .onnx, .pt2, .tflite, .relay, .txt, '
        ".json, .tar (ONNX, PyTorch, TFLite, Relay) can be loaded; export the model to one of them",
        path,
    )


def test_not_a_protobuf(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"<html>404 not found</html>")
    with pytest.raises(VTAError) as caught:
        load_model(path)
    text = str(caught.value)
    assert text.startswith(f'model file "{path}" cannot be read: ')
    assert text.endswith(
        "; it must be an ONNX protobuf with its external data beside it; "
        "export or download the model again"
    )
    assert "\n" not in text


@pytest.mark.parametrize("size", [0.3, 0.9])
def test_truncated_file(tmp_path, size):
    net = Net(x=[1, 3, 8, 8])
    path = net.save(tmp_path / "net.onnx", net.conv("x", 3, 8))
    path.write_bytes(path.read_bytes()[: int(size * path.stat().st_size)])
    with pytest.raises(VTAError, match=f'^model file "{path}" '):
        load_model(path)


def test_empty_graph(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"")
    text = (
        f'model file "{path}" has 0 nodes, 0 inputs and 0 outputs; a model needs at least one '
        "of each; export the model again"
    )
    refused(text, path)


def test_checker_failure(tmp_path):
    net = Net(x=[1, 3])
    net.node("Relu", "missing", name="relu")
    path = net.save(tmp_path / "net.onnx", net.node("Relu", "x"))
    with pytest.raises(VTAError) as caught:
        load_model(path)
    text = str(caught.value)
    assert text.startswith(f'model file "{path}" fails the ONNX checker: Nodes in a graph must be')
    assert text.endswith("; only valid models can be loaded; export the model again")
    assert "\n" not in text


def test_unknown_operator(tmp_path):
    net = Net(x=[1, 3])
    path = net.save(tmp_path / "net.onnx", net.node("Frobnicate", "x", name="frob"))
    with pytest.raises(VTAError) as caught:
        load_model(path)
    first, *rest = str(caught.value).split("; ")
    assert first == 'node "frob" has the operator Frobnicate'
    assert rest[0].startswith("TVM's ONNX importer knows ")
    assert rest[1:] == ["export the model without it or cut the model before it"]


def test_operator_of_an_unknown_domain(tmp_path):
    net = Net(x=[1, 3])
    x = net.node("Relu", "x", domain="com.acme")
    with pytest.raises(VTAError, match='^node "t0_0" has the operator com.acme.Relu; '):
        load_model(net.save(tmp_path / "net.onnx", x))


@pytest.mark.parametrize("op", ["Loop", "Scan"])
def test_control_flow(tmp_path, op):
    net = Net(x=[1])
    model = net.model(net.node("Relu", "x", name="rounds"))
    model.graph.node[0].op_type = op
    onnx.save(model, str(tmp_path / "net.onnx"))
    refused(
        f'node "rounds" has the operator {op}; control flow is not compiled; '
        "export the model without it or cut the model before it",
        tmp_path / "net.onnx",
    )


@pytest.mark.parametrize("name", ["uint16", "complex64", "string", "uint32"])
def test_input_dtype(tmp_path, name):
    dtype = getattr(TensorProto, name.upper())
    net = Net()
    net.inputs.append(helper.make_tensor_value_info("x", dtype, [1, 3]))
    x = net.node("Identity", "x")
    model = net.model(x)
    model.graph.output[0].type.tensor_type.elem_type = dtype
    onnx.save(model, str(tmp_path / "net.onnx"))
    refused(
        f'input "x" has dtype {name}; inputs must be tensors of float, int8, uint8, int32, int64, '
        "bool; export the model with one of these",
        tmp_path / "net.onnx",
    )


def test_an_operator_form_that_cannot_be_imported(tmp_path, capsys):
    net = Net(x=[1, 3, 8, 8], pads=[8])
    pads = net.node("Cast", "pads", to=TensorProto.INT64)
    path = net.save(tmp_path / "net.onnx", net.node("Pad", "x", pads, name="pad"))
    refused(
        'node "pad" (Pad) cannot be imported: Dynamic pads are not supported yet.; '
        "TVM's ONNX importer does not take this form; "
        "simplify the model or export it with another opset",
        path,
    )
    assert capsys.readouterr().out == ""


def test_missing_external_weights(tmp_path):
    net = Net(x=[1, 3, 8, 8])
    model = net.model(net.conv("x", 3, 8))
    path = tmp_path / "net.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert_equals_onnxruntime(path, load_model(path))
    (tmp_path / "w.bin").unlink()
    with pytest.raises(VTAError, match=f'^model file "{path}" cannot be read: '):
        load_model(path)


def test_weights_that_cannot_be_imported(tmp_path):
    net = Net(x=[1, 3])
    net.weights.append(helper.make_tensor("w", TensorProto.STRING, [1], [b"text"]))
    path = net.save(tmp_path / "net.onnx", net.node("Relu", "x"))
    with pytest.raises(VTAError) as caught:
        load_model(path)
    text = str(caught.value)
    assert text.startswith("the weights cannot be imported: ")
    assert text.endswith(
        "; TVM's ONNX importer does not take this form; "
        "simplify the model or export it with another opset"
    )
