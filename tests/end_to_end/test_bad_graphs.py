"""Graphs that no network should be, and that files hold all the same: the right result, or one line
that says what is wrong and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from cli_runs import cli, refused
from onnx import TensorProto, helper, numpy_helper
from small_models import call

from vta_byoc.importers.load import load_model, output_names
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import default_calibration, quantize
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

SHAPE = (1, 16, 8, 8)
OPSET = 19
Node = onnx.NodeProto
RNG = np.random.default_rng(0)


def tensor(name: str, value: Any, dtype: str = "float32") -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


WEIGHT = tensor("w", RNG.standard_normal((16, 16, 3, 3)) / 12)
ONES = tensor("ones", np.ones(16))
CUBE = tensor("cube", RNG.standard_normal((8, 4, 3, 3, 3)) / 10)
CONSTANTS = (
    WEIGHT,
    CUBE,
    ONES,
    tensor("four", SHAPE, "int64"),
    tensor("five", (1, 2, 8, 8, 8), "int64"),
    tensor("double", (1, 1, 2, 2)),
    tensor("odd", (1, 1, 1.7, 2)),
    tensor("half", 0.5),
    tensor("true", True, "bool"),
    tensor("pads", (0, 0, 1, 1, 0, 0, 1, 1), "int64"),
)


def node(op: str, inputs: str, output: str, **attrs: Any) -> Node:
    return helper.make_node(op, inputs.split(), output.split(), name=output.split()[0], **attrs)


def conv(x: str, y: str, **attrs: Any) -> Node:
    return node("Conv", f"{x} w", y, pads=[1, 1, 1, 1], **attrs)


def model(
    nodes: Sequence[Node],
    outputs: str = "y",
    *,
    inputs: dict[str, Any] | None = None,
    results: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """``results``: element types other than float of some outputs."""
    given = {"x": SHAPE} if inputs is None else inputs
    read = {name for n in nodes for name in n.input} | set(outputs.split())
    kinds = results or {}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in given.items()],
        [
            helper.make_tensor_value_info(o, kinds.get(o, TensorProto.FLOAT), None)
            for o in outputs.split()
        ],
        [tensor for tensor in CONSTANTS if tensor.name in read],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    inferred = onnx.shape_inference.infer_shapes(made)
    for value in inferred.graph.output:
        value.type.tensor_type.shape.SetInParent()  # the checker wants one, known or not
    return inferred


def saved(made: onnx.ModelProto, tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(made, str(path))
    return path


# ---------------------------------------------------------------- graphs that run
GRAPHS: dict[str, tuple[Callable[[], onnx.ModelProto], set[str]]] = {
    "the input is the output": (lambda: model([node("Relu", "x", "dead")], "x"), set()),
    "one output is the input": (lambda: model([conv("x", "y")], "x y"), {"y"}),
    "nothing but an identity": (lambda: model([node("Identity", "x", "y")]), set()),
    "an output listed twice": (lambda: model([conv("x", "y")], "y x y"), {"y"}),
    "an unused input": (
        lambda: model([conv("x", "y")], inputs={"a": (3, 1), "x": SHAPE, "b": (2,)}),
        {"y"},
    ),
    "an initializer is an output": (lambda: model([conv("x", "y")], "y w"), {"y"}),
    "nothing but an initializer": (lambda: model([conv("x", "dead")], "w"), set()),
    "constants are outputs": (
        lambda: model(
            [conv("x", "y"), node("Constant", "", "k", value=ONES), node("Relu", "w", "r")],
            "k y r",
        ),
        {"y"},
    ),
    "a shape is an output": (
        lambda: model(
            [conv("x", "y"), node("Shape", "x", "k")], "y k", results={"k": TensorProto.INT64}
        ),
        {"y"},
    ),
    "an output of integers": (
        lambda: model(
            [conv("x", "a"), node("ArgMax", "a", "y", axis=1)], results={"y": TensorProto.INT64}
        ),
        {"a"},
    ),
    "a scalar input": (
        lambda: model([conv("x", "a"), node("Mul", "a s", "y")], inputs={"x": SHAPE, "s": ()}),
        {"a", "y"},
    ),
    "nothing for VTA": (
        lambda: model([node("Sigmoid", "x", "a"), node("Tanh", "a", "b"), node("Exp", "b", "y")]),
        set(),
    ),
    "islands of floats": (
        lambda: model(
            [
                conv("x", "a"),
                node("Sigmoid", "a", "b"),
                conv("b", "c"),
                node("Softmax", "c", "d", axis=1),
                node("Exp", "d", "e"),
                conv("e", "y"),
            ]
        ),
        {"a", "b", "c", "e", "y"},
    ),
    "a convolution of volumes": (
        lambda: model(
            [node("Conv", "x cube", "a", pads=[1] * 6), node("Relu", "a", "y")],
            inputs={"x": (1, 4, 4, 6, 6)},
        ),
        {"a"},
    ),
    "five dimensions in between": (
        lambda: model(
            [
                conv("x", "a"),
                node("Reshape", "a five", "b"),
                node("MaxPool", "b", "c", kernel_shape=[3, 3, 3], pads=[1] * 6),
                node("Reshape", "c four", "d"),
                conv("d", "y"),
            ]
        ),
        {"a", "c", "d", "y"},
    ),
    "a sum of five dimensions": (
        lambda: model([node("Add", "x z", "y")], inputs={n: (1, 2, 3, 4, 5) for n in "xz"}),
        set(),
    ),
    "padding by reflection": (
        lambda: model([conv("x", "a"), node("Pad", "a pads", "b", mode="reflect"), conv("b", "y")]),
        {"a", "b", "y"},
    ),
    "resizing by cubic": (
        lambda: model(
            [
                conv("x", "a"),
                helper.make_node("Resize", ["a", "", "double"], ["y"], mode="cubic", name="y"),
            ]
        ),
        {"a"},
    ),
}
"""Name -> the model, and the operators of it that run on VTA."""


@pytest.mark.parametrize("name", GRAPHS)
def test_the_result_is_right(name: str, tmp_path: Path) -> None:
    """The float model equals ONNX Runtime; what is compiled equals the integer reference."""
    build, on_vta = GRAPHS[name]
    path = saved(build(), tmp_path)
    mod = load_model(path)
    samples = default_calibration(mod, 2)
    feed = samples[0]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})
    for got, want in zip(call(mod, *feed.values()), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    qmod = quantize(mod, calibration=samples)
    compiled = compile_module(qmod)
    assert len(set(output_names(qmod))) == len(wanted)
    assert {p.name for p in compiled.placement if p.device == "vta"} == on_vta
    assert all(p.reason for p in compiled.placement)
    reference = reference_runner(qmod, compiled.programs)(feed)
    done = profile(compiled.exe, feed, arenas=True)
    checks = compare_outputs(output_names(qmod), done.outputs, reference)
    checks += compare_stored(done, compiled.programs, reference)
    assert all(check.equal for check in checks), [str(c) for c in checks if not c.equal]


# ---------------------------------------------------------------- graphs that are refused
DYNAMIC = (
    'input "x" has the dynamic shape {}; every dimension must be known; give it, for example '
    "--shape x={}"
)
IMPORT = (
    'node "y" ({}) cannot be imported: {}; TVM\'s ONNX importer does not take this form; simplify '
    "the model or export it with another opset"
)
ATTRIBUTE = (
    'node "y" ({}) has {} = {}; only {} is imported as ONNX defines it; export the model for '
    "inference, with that"
)
EMPTY = (
    "has {} nodes, {} inputs and {} outputs; a model needs at least one of each; export the model "
    "again"
)
REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "symbolic batch": (
        lambda: model([conv("x", "y")], inputs={"x": ("N", 16, 8, 8)}),
        DYNAMIC.format("(N, 16, 8, 8)", "1,16,8,8"),
    ),
    "unknown size": (
        lambda: model([conv("x", "y")], inputs={"x": (1, 16, None, "W")}),
        DYNAMIC.format("(1, 16, ?, W)", "1,16,224,224"),
    ),
    "no shape": (
        lambda: model([conv("x", "y")], inputs={"x": None}),
        'input "x" has no shape; every dimension must be known; give it, for example '
        "--shape x=1,3,224,224",
    ),
    "empty": (lambda: model([], "x"), EMPTY.format(0, 1, 1)),
    "no input": (lambda: model([node("Relu", "w", "y")], inputs={}), EMPTY.format(1, 0, 1)),
    "no output": (lambda: model([conv("x", "y")], ""), EMPTY.format(1, 1, 0)),
    "result of unknown size": (
        lambda: model([node("NonZero", "x", "y")], results={"y": TensorProto.INT64}),
        "the shape of its result depends on the data, and every shape must be known; export the "
        "model without it or cut the model before it",
    ),
    "kernel shape": (
        lambda: model([conv("x", "y", kernel_shape=[5, 5])]),
        IMPORT.format("Conv", "kernel_shape is (5, 5) and the weights are (3, 3)"),
    ),
    "windows that leave elements out": (
        lambda: model(
            [node("MaxPool", "x", "y", kernel_shape=[1, 1], strides=[4, 4], auto_pad="SAME_UPPER")],
            "y",
        ),
        IMPORT.format(
            "MaxPool",
            "auto_pad SAME_UPPER of windows shorter than their strides leaves 3 elements out, "
            "other ones in every runtime",
        ),
    ),
    "training": (
        lambda: model(
            [node("BatchNormalization", "x ones ones ones ones", "y m v", training_mode=1)], "y"
        ),
        ATTRIBUTE.format("BatchNormalization", "training_mode", 1, 0),
    ),
    "dropout in training": (
        lambda: model([node("Dropout", "x half true", "y")]),
        ATTRIBUTE.format("Dropout", "training_mode", 1, 0),
    ),
    "aspect ratio": (
        lambda: model(
            [node("Resize", "x ones double", "y", keep_aspect_ratio_policy="not_larger")]
        ),
        ATTRIBUTE.format("Resize", "keep_aspect_ratio_policy", "not_larger", "stretch"),
    ),
    "norm in ceil mode": (
        lambda: model([node("LpPool", "x", "y", kernel_shape=[3, 3], ceil_mode=1)]),
        ATTRIBUTE.format("LpPool", "ceil_mode", 1, 0),
    ),
    "a scale that gives no whole size": (
        lambda: model(
            [node("Resize", "x ones odd", "y", coordinate_transformation_mode="align_corners")]
        ),
        IMPORT.format(
            "Resize",
            "scales (1.7, 2) of a tensor (1, 16, 8, 8) give no whole size for align_corners",
        ),
    ),
}
"""Name -> the model, and how the message ends."""


@pytest.mark.parametrize("name", REFUSED)
def test_the_reason_is_one_line(name: str, tmp_path: Path) -> None:
    build, message = REFUSED[name]
    path = saved(build(), tmp_path)
    assert refused("place", path).endswith(message)


def test_a_dynamic_shape_that_is_given(tmp_path: Path) -> None:
    path = saved(model([conv("x", "y")], inputs={"x": ("N", 16, None, 8)}), tmp_path)
    placed = json.loads(cli("place", path, "--shape", "x=2,16,4,8", "--json").stdout)
    (op,) = (op for op in placed["placement"]["ops"] if op["name"] == "y")
    assert (op["device"], op["macs"]) == ("vta", 2 * 16 * 4 * 8 * 16 * 9)


# ---------------------------------------------------------------- the command line
@pytest.mark.usefixtures("quantized_once")
def test_commands_take_odd_graphs(tmp_path: Path) -> None:
    """All that is odd about results and inputs in one model, through every command."""
    nodes = [
        conv("x", "y"),
        node("Reshape", "y five", "b"),
        node("Shape", "x", "k"),
        node("Sigmoid", "s", "z"),
    ]
    made = model(
        nodes,
        "x y w k y b z",
        inputs={"x": SHAPE, "unused": (2, 3), "s": ()},
        results={"k": TensorProto.INT64},
    )
    path = saved(made, tmp_path)
    run = cli("run", path, "--check", "--json", "--output", tmp_path / "out.npz")
    assert run.exit_code == 0, run.stderr
    assert json.loads(run.stdout)["bit_exact"] is True
    found = np.load(tmp_path / "out.npz")
    assert list(found) == ["x", "y", "w", "k", "y_2", "b", "z"]
    np.testing.assert_array_equal(found["y"], found["y_2"])
    assert found["k"].tolist() == list(SHAPE) and found["z"].shape == ()
    for command in (
        ("place", path),
        ("compile", path, "-o", tmp_path / "net.so"),
        ("report", path, "-o", tmp_path / "net.html"),
        ("verify", path),
    ):
        result = cli(*command)
        assert result.exit_code == 0, (command, result.stderr)
        assert "Traceback" not in result.output


@pytest.mark.usefixtures("quantized_once")
def test_commands_take_a_model_without_work_for_vta(tmp_path: Path) -> None:
    path = saved(GRAPHS["nothing for VTA"][0](), tmp_path)
    run = cli("run", path, "--check")
    assert run.exit_code == 0, run.stderr
    assert "operators       3, on VTA 0 in 0 regions" in run.stdout
    for command in (
        ("compile", path, "-o", tmp_path / "net.so"),
        ("report", path, "-o", tmp_path / "net.html"),
    ):
        result = cli(*command)
        assert result.exit_code == 0, (command, result.stderr)
    placed = cli("place", path)
    assert placed.exit_code == 0
    assert "no pattern of the partition table takes this kind" in " ".join(placed.stdout.split())
    failed = cli("place", path, "--fail-under", "1")
    assert failed.exit_code == 1
    assert "no operator runs on VTA" in failed.output
