"""TFLite files: NCHW inside, the interpreter's results outside; bad files are refused.

The fixtures were made by `fixtures/make_tflite.py`; neither TensorFlow nor the interpreter is
needed here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from quantized_runs import assert_qdq, differences, operators
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model, output_names
from vta_byoc.importers.tflite.operators import CONVERTERS
from vta_byoc.ir.bindings import is_constant, op_name, source_name, static_shape, straight_bindings

FOLDER = Path(__file__).parents[1] / "fixtures" / "tflite"
REFUSED = ("net_int16", "unsupported")
FLOAT = ("net_float", "net_float_io")
DYNAMIC = "net_dynamic"
INTEGER = [
    path.stem
    for path in sorted(FOLDER.glob("*.tflite"))
    if path.stem not in (*REFUSED, *FLOAT, DYNAMIC) and not path.stem.startswith("network_")
]
"""Operators and small nets."""
NETWORKS = ("network_resnet18_like", "network_mobilenet_v2_like", "network_unet_like")
"""`benchmarks/prequantized.py` compiles these."""
TIES = ("average_pool", "leaky_relu", "resize_bilinear")
"""Means of 4 or 6 integers and tenths are often exact halves: the interpreter rounds them away from
zero, quantize to even."""


def fixture(name: str) -> tuple[Path, dict[str, np.ndarray], list[np.ndarray]]:
    """File, inputs and the interpreter's outputs."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        feed = {key: arrays[key] for key in arrays if key.startswith("x")}
        expected = [arrays[f"y{i}"] for i in range(len(arrays) - len(feed))]
    return FOLDER / f"{name}.tflite", feed, expected


@pytest.mark.parametrize("name", INTEGER)
def test_integers_equal_the_interpreters(name: str) -> None:
    path, feed, expected = fixture(name)
    mod = load_model(path)
    assert_qdq(mod)
    largest, equal = differences(mod, feed, expected)
    assert largest <= 1 and (equal >= 0.998 or name in TIES), (largest, equal)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_stays_near_the_interpreter(name: str) -> None:
    path, feed, expected = fixture(name)
    mod = load_model(path)
    assert_qdq(mod)
    largest, _equal = differences(mod, {"x0": feed["x0"][:1]}, [expected[0][:1]])
    assert largest <= 6


@pytest.mark.parametrize("name", FLOAT)
def test_floats_equal_the_interpreters(name: str) -> None:
    path, feed, expected = fixture(name)
    (got,) = call(load_model(path), *feed.values())
    assert got.dtype == "float32"
    np.testing.assert_allclose(got, expected[0], atol=1e-6)


def test_integer_weights_for_float_data() -> None:
    """The interpreter rounds the data of each call to 8 bits; here they stay floats."""
    path, feed, expected = fixture(DYNAMIC)
    (got,) = call(load_model(path), *feed.values())
    assert got.dtype == "float32"
    assert np.abs(got - expected[0]).max() <= 0.02 * np.abs(expected[0]).max()


# ---------------------------------------------------------------- forms
def layers(name: str, layer: str) -> list:
    mod = load_model(FOLDER / f"{name}.tflite")
    made = {b.var: b.value for b in straight_bindings(mod["main"])}
    return [(call, made[call.args[1]]) for call in made.values() if op_name(call) == layer]


def test_transposes_stand_at_the_borders_only() -> None:
    names = operators(load_model(FOLDER / "net.tflite"))
    assert [op for op in names if op == "permute_dims"] == ["permute_dims"]
    assert next(op for op in names if "quantize" not in op) == "permute_dims"
    for conv, _weight in layers("net", "relax.nn.conv2d"):
        assert (conv.attrs.data_layout, conv.attrs.kernel_layout) == ("NCHW", "OIHW")


def test_weights_per_channel() -> None:
    ((conv, weight),) = layers("conv_relu6", "relax.nn.conv2d")
    assert static_shape(weight) == (12, 8, 3, 3) and int(conv.attrs.groups) == 1
    assert is_constant(weight.args[0]) and str(weight.args[0].ty.dtype) == "int8"
    assert weight.args[1].value.shape == (12,) and weight.attrs.axis == 0


@pytest.mark.parametrize(
    "name, channels, outputs",
    [("depthwise", 6, 6), ("depthwise_multiplier", 4, 8), ("depthwise_one_channel", 1, 4)],
)
def test_depthwise_weights_per_channel(name: str, channels: int, outputs: int) -> None:
    ((conv, weight),) = layers(name, "relax.nn.conv2d")
    assert static_shape(weight) == (outputs, 1, 3, 3) and int(conv.attrs.groups) == channels
    assert weight.args[1].value.shape == (outputs,) and weight.attrs.axis == 0


def test_weights_of_a_transposed_convolution() -> None:
    ((_conv, weight),) = layers("transpose_conv_same", "relax.nn.conv2d_transpose")
    assert static_shape(weight) == (8, 6, 3, 3) and weight.attrs.axis == 1
    assert weight.args[1].value.shape == (6,)


def test_a_padding_becomes_that_of_the_convolution() -> None:
    ((conv, _weight),) = layers("pad_conv", "relax.nn.conv2d")
    assert [int(width) for width in conv.attrs.padding] == [1, 1, 1, 1]


def test_names_and_signature() -> None:
    mod = load_model(FOLDER / "net_uint8_io.tflite")
    (param,) = mod["main"].params
    assert (static_shape(param), str(param.ty.dtype)) == ((1, 16, 16, 3), "uint8")
    assert str(mod["main"].ret_ty.dtype) == "uint8"
    assert len(output_names(mod)) == 1
    assert "Relu6" in {source_name(b.var) for b in straight_bindings(mod["main"])}


def test_every_operator_of_the_fixtures_is_in_the_table() -> None:
    from vta_byoc.importers.tflite.model import read

    used = {op.code for path in FOLDER.glob("*.tflite") for op in read(path).operators}
    assert len(used & set(CONVERTERS)) >= 25 and used - set(CONVERTERS) == {"CUMSUM"}


# ---------------------------------------------------------------- refusals
def refused(path: Path, text: str, **options: object) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(path, **options)
    assert str(caught.value) == text


def test_unknown_operator() -> None:
    refused(
        FOLDER / "unsupported.tflite",
        f'operator "Identity" (CUMSUM) is not supported; {len(CONVERTERS)} TFLite operators are; '
        "export the model without it or cut the model before it",
    )


def test_sixteen_bits() -> None:
    refused(
        FOLDER / "net_int16.tflite",
        'tensor "x_int16" is quantized to int16; only int8 and uint8 are compiled, and int32 for '
        "biases; quantize the model to 8 bits",
    )


def test_other_shape() -> None:
    (name,) = (p.name for p in load_model(FOLDER / "dense.tflite")["main"].params)
    refused(
        FOLDER / "dense.tflite",
        f'shape (5, 32) given for "{name}"; a TFLite file has fixed shapes, here (3, 32); convert '
        "the model again with the shape",
        shapes={name: (5, 32)},
    )
    refused(
        FOLDER / "dense.tflite",
        f'shape given for "y"; the inputs of the model are {name}; use one of these names',
        shapes={"y": (5, 32)},
    )


def test_no_tflite_file(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"PK\x03\x04 not a model")
    refused(
        path,
        f"model file \"{path}\" is no TFLite model: bytes 4 to 8 are b' not', not b'TFL3'; "
        "convert the model again",
    )


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_damaged_file(share: float, tmp_path: Path) -> None:
    data = (FOLDER / "net.tflite").read_bytes()
    path = tmp_path / "model.tflite"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(VTAError) as caught:
        load_model(path)
    assert str(caught.value).startswith(f'model file "{path}" cannot be read: ')
    assert str(caught.value).endswith("; the file is damaged; convert or download the model again")


def damaged(name: str, old: bytes, new: bytes, folder: Path) -> Path:
    """A fixture with some of its bytes replaced, once."""
    data = (FOLDER / f"{name}.tflite").read_bytes()
    assert data.count(old) >= 1
    path = folder / "model.tflite"
    path.write_bytes(data.replace(old, new, 1))
    return path


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan])
def test_impossible_scale(scale: float, tmp_path: Path) -> None:
    from vta_byoc.importers.tflite.model import read

    tensor = read(FOLDER / "add_relu.tflite").inputs[0]
    path = damaged("add_relu", tensor.scales.tobytes(), np.float32(scale).tobytes(), tmp_path)
    with pytest.raises(VTAError) as caught:
        load_model(path)
    assert f"has the quantization scale {scale}; scales must be positive" in str(caught.value)
    assert str(caught.value).startswith('tensor "')
