"""Inputs of ONNX models that get their value when the model is loaded (`fixed`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from quantized_runs import operators
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.fixed_inputs import FIXED_INPUTS, fixed_inputs
from vta_byoc.importers.load import load_model
from vta_byoc.importers.onnx.fixed import Value
from vta_byoc.ir.bindings import static_shape
from vta_byoc.quantize import quantize

HEAD = '<ir_version: {}, opset_import: ["": 16]>'
DTYPES = {"int64": "int64", "int32": "int32", "bool": "bool", "float": "float32"}


def saved(folder: Path, text: str, ir_version: int = 8) -> Path:
    """A graph in ONNX's own text as a file."""
    path = folder / "net.onnx"
    onnx.save(onnx.parser.parse_model(f"{HEAD.format(ir_version)} net {text}"), str(path))
    return path


def imported(path: Path, fixed: Mapping[str, Value], want: Mapping[str, object]) -> tvm.IRModule:
    """The model, which computes what ONNX Runtime does with the values that are wanted."""
    mod = load_model(path, fixed=fixed)
    params = {str(param.name): static_shape(param) for param in mod["main"].params}
    rng = np.random.default_rng(3)
    feed = {name: rng.standard_normal(shape).astype("float32") for name, shape in params.items()}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kinds = {each.name: each for each in session.get_inputs()}
    assert kinds.keys() == {*params, *fixed}
    values = {
        name: np.full(kinds[name].shape, value, DTYPES[kinds[name].type[7:-1]])
        for name, value in want.items()
    }
    got, expected = call(mod, *feed.values()), session.run(None, {**feed, **values})
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    kept = fixed_inputs(tvm.script.from_source(mod.script(show_meta=True)))
    assert {name: (array.dtype, array.shape) for name, array in kept.items()} == {
        name: (array.dtype, array.shape) for name, array in values.items()
    }
    for name, array in values.items():
        np.testing.assert_array_equal(kept[name], array)
    return mod


# ---------------------------------------------------------------- what is fixed
RATE = """(float[1, 4] x, KIND rate, float[1, 4] z) => (float[?] y) {
    high = Constant<value_ints: ints = [16000]>()
    long = Cast<to: int = 7>(rate)
    fast = Equal(long, high)
    y = If(fast)<then_branch = g () => (float[?] a) { a = Add(x, z) },
                 else_branch = h () => (float[?] b) { some = Cast<to: int = 1>(rate)
                                                      b = Mul(x, some) }>
}"""


@pytest.mark.parametrize("kind", ["int64", "int32[1]", "float[1, 1]"])
@pytest.mark.parametrize(
    "value", [16000, "16000", "1.6e4", 16000.0, np.int64(16000), np.full((1, 1), 16000)]
)
def test_a_value_chooses_the_branch(tmp_path: Path, kind: str, value: Value) -> None:
    mod = imported(saved(tmp_path, RATE.replace("KIND", kind)), {"rate": value}, {"rate": 16000})
    assert operators(mod) == ["add"]
    assert [param.name for param in mod["main"].params] == ["x", "z"]


@pytest.mark.parametrize("ir_version", [3, 4, 8])
def test_a_branch_reads_it(tmp_path: Path, ir_version: int) -> None:
    """Old files list weights among their inputs."""
    path = saved(tmp_path, RATE.replace("KIND", "int64"), ir_version)
    assert operators(imported(path, {"rate": "-2"}, {"rate": -2})) == ["multiply"]


@pytest.mark.parametrize("value", [True, "true", "True", 1, "1", 1.0, np.True_, False, "false", 0])
def test_a_truth_value(tmp_path: Path, value: Value) -> None:
    path = saved(
        tmp_path,
        """(float[2] x, bool on) => (float[2] y) {
            y = If(on)<then_branch = g () => (float[2] a) { a = Relu(x) },
                       else_branch = h () => (float[2] b) { b = Tanh(x) }>
        }""",
    )
    want = value not in (False, "false", 0)
    assert operators(imported(path, {"on": value}, {"on": want})) == ["nn.relu" if want else "tanh"]


def test_shapes_are_asked_for_what_is_left(tmp_path: Path) -> None:
    """A number says the shape of a result; every other input is as it was."""
    path = saved(
        tmp_path,
        """(float[1, 6] x, int64[1] rows, float scale) => (float[?, ?] y) {
            rest = Constant<value_ints: ints = [-1]>()
            shape = Concat<axis: int = 0>(rows, rest)
            z = Reshape(x, shape)
            y = Mul(z, scale)
        }""",
    )
    mod = imported(path, {"rows": 3, "scale": "0.5"}, {"rows": 3, "scale": 0.5})
    assert operators(mod) == ["reshape", "multiply"] and static_shape(mod["main"].params[0])
    qmod = quantize(mod, calibration=[np.ones((1, 6), "float32")])
    assert fixed_inputs(qmod) == {"rows": np.array([3]), "scale": np.array(0.5, "float32")}


def test_a_dimension_that_is_left_open(tmp_path: Path) -> None:
    """It takes a value beside a shape of one element, which ONNX Runtime gets too."""
    path = saved(tmp_path, RATE.replace("KIND", "int64[N, 1]"))
    mod = load_model(path, fixed={"rate": -2}, shapes={"rate": (1, 1), "x": (1, 4)})
    assert [param.name for param in mod["main"].params] == ["x", "z"]
    assert operators(mod) == ["multiply"]
    assert {name: array.tolist() for name, array in fixed_inputs(mod).items()} == {"rate": [[-2]]}
    feed = {name: np.full((1, 4), 3, "float32") for name in ("x", "z")}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {**feed, **fixed_inputs(mod)})
    np.testing.assert_array_equal(call(mod, *feed.values())[0], want)


def test_an_input_without_a_shape(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f"{HEAD.format(8)} net (float[2] x) => (float[2] y) "
                                    "{ y = Mul(x, r) }")  # fmt: skip
    model.graph.input.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))
    onnx.save(model, str(tmp_path / "net.onnx"))
    mod = load_model(tmp_path / "net.onnx", fixed={"r": 0.5}, shapes={"r": (1,)})
    assert call(mod, np.array([2, 4], "float32"))[0].tolist() == [1, 2]


def test_nothing_is_fixed(tmp_path: Path) -> None:
    path = saved(tmp_path, "(float[2] x) => (float[2] y) { y = Relu(x) }")
    for fixed in (None, {}):
        mod = load_model(path, fixed=fixed)
        assert fixed_inputs(mod) == {} and mod.get_attr(FIXED_INPUTS) is None


# ---------------------------------------------------------------- what is refused
MANY = """(float[1, 4] x, int64 i, int32[1] j, bool on, float f, int64[2] two, float[N] open,
           string name) => (float[1, 4] y) { y = Relu(x) }"""
RANGE = "it takes an integer from -2147483648 to 2147483647; correct the value"
LARGEST = "it takes a number of at most 3.40282e+38 in size; correct the value"
ALONE = (
    "only an input of one number or truth value takes one; leave it out, or give the input a value "
    "in the file (docs/importing.md)"
)


def stated(shape: str) -> str:
    return ALONE.replace("; leave it", f"; state its shape with --shape {shape}, leave it")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("rate", 1, 'value given for "rate"; the inputs of the model are x, i, j, on, f, two, '
         "open, name; use one of these names"),
        ("j", "8k", f'value "8k" given for "j" of dtype int32; {RANGE}'),
        ("j", "2147483648", f'value "2147483648" given for "j" of dtype int32; {RANGE}'),
        ("j", "1" * 500, f'value "{"1" * 500}" given for "j" of dtype int32; {RANGE}'),
        ("j", 1.5, f'value 1.5 given for "j" of dtype int32; {RANGE}'),
        ("j", "nan", f'value "nan" given for "j" of dtype int32; {RANGE}'),
        ("j", "-inf", f'value "-inf" given for "j" of dtype int32; {RANGE}'),
        ("j", True, f'value True given for "j" of dtype int32; {RANGE}'),
        ("j", None, f'value None given for "j" of dtype int32; {RANGE}'),
        ("j", np.ones(2), f'value of shape (2,) given for "j" of dtype int32; {RANGE}'),
        ("i", 2**63, 'value 9223372036854775808 given for "i" of dtype int64; it takes an integer '
         "from -9223372036854775808 to 9223372036854775807; correct the value"),
        ("on", "yes", 'value "yes" given for "on" of dtype bool; it takes true, false, 1 or 0; '
         "correct the value"),
        ("on", 2, 'value 2 given for "on" of dtype bool; it takes true, false, 1 or 0; correct the '
         "value"),
        ("f", "1e39", f'value "1e39" given for "f" of dtype float32; {LARGEST}'),
        ("f", "nan", f'value "nan" given for "f" of dtype float32; {LARGEST}'),
        ("f", "true", f'value "true" given for "f" of dtype float32; {LARGEST}'),
        ("two", 1, 'value given for "two", which is a tensor of int64 with the shape (2); '
         f"{ALONE}"),
        ("open", 1, f'value given for "open", which is a tensor of float with the shape (N); '
         f"{stated('open=1')}"),
        ("name", 1, f'value given for "name", which is a tensor of string with the shape (); '
         f"{ALONE}"),
    ],
)  # fmt: skip
def test_values_that_an_input_does_not_take(
    tmp_path: Path, name: str, value: Value, text: str
) -> None:
    path = saved(tmp_path, MANY)
    with pytest.raises(VTAError) as caught:
        load_model(path, fixed={name: value})
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("open", (2,), 'value given for "open", which is a tensor of float with the shape (2); '
         f"{ALONE}"),
        ("open", (1, 1), 'shape (1, 1) given for "open"; the model declares (N); keep its rank and '
         "its fixed dimensions"),
        ("j", (2,), 'shape (2) given for "j"; the model declares (1); keep its rank and its fixed '
         "dimensions"),
    ],
)  # fmt: skip
def test_shapes_that_an_input_does_not_have(
    tmp_path: Path, name: str, shape: tuple[int, ...], text: str
) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(saved(tmp_path, MANY), fixed={name: 1}, shapes={name: shape})
    assert str(caught.value) == text


def test_inputs_of_other_kinds(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        f"{HEAD.format(8)} net (float[2] x) => (float[2] y) <int64 w = {{1}}> {{ y = Relu(x) }}"
    )
    rankless = helper.make_tensor_value_info("r", TensorProto.INT64, None)
    pair = helper.make_tensor_value_info("c", TensorProto.COMPLEX64, [])
    element = helper.make_tensor_type_proto(TensorProto.INT64, [])
    listed = helper.make_value_info("s", helper.make_sequence_type_proto(element))
    weight = helper.make_tensor_value_info("w", TensorProto.INT64, [])
    model.graph.input.extend([rankless, pair, listed, weight])
    path = tmp_path / "net.onnx"
    onnx.save(model, str(path))
    for name, what, next_step in (
        ("r", "which is a tensor of int64 with no known shape", stated("r=1")),
        ("c", "which is a tensor of complex64 with the shape ()", ALONE),
        ("s", "which is a sequence", ALONE),
    ):
        with pytest.raises(VTAError) as caught:
            load_model(path, fixed={name: 1})
        assert str(caught.value) == f'value given for "{name}", {what}; {next_step}'
    with pytest.raises(VTAError, match='^value given for "w"; the inputs of the model are x, r, c'):
        load_model(path, fixed={"w": 1})


def test_no_input_that_is_left(tmp_path: Path) -> None:
    path = saved(tmp_path, "(float x, float z) => (float y) { y = Add(x, z) }")
    with pytest.raises(VTAError) as caught:
        load_model(path, fixed={"x": 1, "z": 2})
    assert str(caught.value) == (
        "values given for all inputs of the model, x, z; a model needs at least one input; leave "
        "one of them open"
    )


@pytest.mark.parametrize("name", ["net.tflite", "net.pt2", "net.relay"])
def test_other_formats(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(VTAError) as caught:
        load_model(path, fixed={"x": 1})
    assert str(caught.value) == (
        f'fixed (--fix) given for model file "{path}"; only ONNX models (.onnx) take values of '
        "inputs; leave it out, or export the model to ONNX"
    )
