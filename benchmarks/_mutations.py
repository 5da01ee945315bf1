"""Small valid ONNX and TFLite files, and what may have happened to them: one damaged file a seed.

An ONNX file is changed in its structure (attributes, dimensions, types, names, missing and
repeated fields) or in its bytes; a TFLite file in its fields, which are numbers of 4, 2 or 1 bytes
at aligned places of the flatbuffer, or in its bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "tflite"
LARGEST = 8_000
"""Bytes of a TFLite fixture that is damaged; larger ones are mostly weights."""
NUMBERS = (0, 1, -1, 2, 3, 7, 255, 65_536, 2**31 - 1, 2**31, 2**40, -(2**31), 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e-30, 1e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "\x1b[31m", "[red]", "../x", "file", "Conv", "Slice", "nearest", "\u202e")

Rng = np.random.Generator


def mutated(kind: str, seed: int) -> bytes:
    """The damaged file of `kind` ("onnx" or "tflite") and `seed`; equal arguments, equal bytes."""
    rng = np.random.default_rng([seed, len(kind)])
    sources = SOURCES[kind]()
    source = sources[int(rng.integers(len(sources)))]
    if kind == "onnx" and rng.random() < 0.75:
        return _changed_structure(source, rng)
    change = _changed_fields if kind == "tflite" and rng.random() < 0.75 else _changed_bytes
    return change(bytearray(source), rng)


# ---------------------------------------------------------------- bytes
def _changed_bytes(data: bytearray, rng: Rng) -> bytes:
    for _ in range(int(rng.integers(1, 5)) if data else 0):
        data = data or bytearray(1)
        at, length = int(rng.integers(len(data))), int(rng.integers(1, 9))
        what = int(rng.integers(5))
        if what == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif what == 1:
            data[at : at + length] = rng.bytes(length)
        elif what == 2:
            del data[at : at + length]
        elif what == 3:
            data[at:at] = rng.bytes(length)
        elif len(data) > 64:
            del data[int(rng.integers(32, len(data))) :]
    return bytes(data)


def _changed_fields(data: bytearray, rng: Rng) -> bytes:
    """Some aligned numbers of a flatbuffer replaced, most of them small: no text, no weight."""
    for _ in range(int(rng.integers(1, 4))):
        size = int(rng.choice([4, 4, 2, 1]))
        places = np.arange(8, len(data) - size, size)
        at = int(rng.choice(places))
        old = int.from_bytes(data[at : at + size], "little", signed=True)
        near = old + int(rng.integers(-2, 3))
        new = near if rng.random() < 0.5 else NUMBERS[int(rng.integers(len(NUMBERS)))]
        data[at : at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


# ---------------------------------------------------------------- protobuf
def _changed_structure(source: bytes, rng: Rng) -> bytes:
    model = onnx.ModelProto.FromString(source)
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(model.graph))
        message, field = places[int(rng.integers(len(places)))]
        _change(message, field, rng)
    return bytes(model.SerializeToString())


def _places(message: Any) -> Iterator[tuple[Any, Any]]:
    """(message, field) of all that is set below `message`."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for part in value if _repeats(field) else [value]:
                yield from _places(part)


def _repeats(field: Any) -> bool:
    return bool(field.is_repeated)


def _change(message: Any, field: Any, rng: Rng) -> None:
    value = getattr(message, field.name, None)
    if not message.HasField(field.name) if not _repeats(field) else not value:
        return
    if rng.random() < 0.08:
        message.ClearField(field.name)
    elif _repeats(field):
        _change_list(value, field, rng)
    elif field.type != field.TYPE_MESSAGE:
        setattr(message, field.name, _other(value, field, rng))


def _change_list(values: Any, field: Any, rng: Rng) -> None:
    at = int(rng.integers(len(values)))
    what = rng.random()
    if what < 0.2:
        del values[at]
    elif what < 0.3:
        values.append(values[at])
    elif field.type != field.TYPE_MESSAGE:
        values[at] = _other(values[at], field, rng)


def _other(value: Any, field: Any, rng: Rng) -> Any:
    """Another value that protobuf takes for the field."""
    if field.enum_type is not None:
        numbers = [number.number for number in field.enum_type.values]
        return numbers[int(rng.integers(len(numbers)))]
    if isinstance(value, int):
        near = value + int(rng.integers(-2, 3))
        new = near if rng.random() < 0.6 else NUMBERS[int(rng.integers(len(NUMBERS)))]
        bits = 32 if field.type == field.TYPE_INT32 else 64
        return (new + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    if isinstance(value, float):
        return FLOATS[int(rng.integers(len(FLOATS)))]
    if isinstance(value, str):
        return TEXTS[int(rng.integers(len(TEXTS)))]
    data = bytearray(value)
    if len(data) % 8 == 0 and data and rng.random() < 0.5:  # perhaps int64: a shape, an axis
        at = 8 * int(rng.integers(len(data) // 8))
        new = NUMBERS[int(rng.integers(len(NUMBERS)))]
        data[at : at + 8] = (new % 2**64).to_bytes(8, "little")
        return bytes(data)
    return _changed_bytes(data, rng) if data else b"\0"


# ---------------------------------------------------------------- what is damaged
def _model(
    nodes: list[onnx.NodeProto], outputs: str, shape: tuple[int, ...], **weights: Any
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs.split()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(made)
    for value in inferred.graph.output:
        value.type.tensor_type.shape.SetInParent()  # the checker wants one, known or not
    return bytes(inferred.SerializeToString())


def _node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    names = [name if name != "-" else "" for name in inputs.split()]
    return helper.make_node(op, names, output.split(), name=output.split()[0], **attributes)


def _weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32") / 4


def _ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


@functools.cache
def _onnx_files() -> tuple[bytes, ...]:
    layers = [
        _node("Conv", "x w b", "a", pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1]),
        _node("Relu", "a", "r"),
        _node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]),
        _node("Conv", "m d", "e", group=4, kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
        _node("BatchNormalization", "e s h h s", "n", epsilon=1e-5),
        _node("Add", "n m", "p"),
        _node("GlobalAveragePool", "p", "q"),
        _node("Flatten", "q", "f", axis=1),
        _node("Gemm", "f g c", "y", alpha=0.5, transB=1),
    ]
    moves = [
        _node("Conv", "x w", "a", pads=[1, 0, 1, 0], strides=[1, 2]),
        _node("AveragePool", "a", "b", kernel_shape=[2, 2], ceil_mode=1),
        _node("Slice", "b i0 i1 i2", "e"),
        _node("Concat", "e e", "f", axis=1),
        _node("Pad", "f pd", "h"),
        _node("Clip", "h lo hi", "k"),
        _node("Split", "k sp", "l m", axis=1),
        _node("Transpose", "l", "n", perm=[0, 1, 3, 2]),
        _node("ReduceMean", "m", "o", axes=[1], keepdims=1),
        _node("Resize", "a - sc", "q", mode="nearest"),
    ]
    chain = [
        _node("Shape", "x", "s"),
        _node("Gather", "s i", "b", axis=0),
        _node("Concat", "b t", "u", axis=0),
        _node("Reshape", "x u", "v"),
        _node("Relu", "v", "y"),
    ]
    shapes = [
        _node("Reshape", "x u", "v"),
        _node("Unsqueeze", "v ax", "v2"),
        _node("Squeeze", "v2 ax", "v3"),
        _node("MatMul", "v3 k", "z"),
        _node("ConstantOfShape", "t2", "c0", value=numpy_helper.from_array(np.ones(1, "float32"))),
        _node("Expand", "c0 t3", "c1"),
        _node("Tile", "c1 t4", "c2"),
        _node("Mul", "z c2", "z2"),
        _node("Softmax", "z2", "y", axis=-1),
    ]
    quantized = [
        _node("QuantizeLinear", "x sx zx", "xq"),
        _node("DequantizeLinear", "xq sx zx", "xd"),
        _node("DequantizeLinear", "wq sw zw", "wd", axis=0),
        _node("Conv", "xd wd", "c", pads=[1, 1, 1, 1]),
        _node("QuantizeLinear", "c sy zy", "cq"),
        _node("DequantizeLinear", "cq sy zy", "cd"),
        _node("LeakyRelu", "cd", "l", alpha=0.1),
        _node("ConvTranspose", "l wt", "y", strides=[2, 2], output_padding=[1, 1]),
    ]
    scale, zero = np.float32(0.05), np.uint8(128)
    return (
        _model(
            *(layers, "y", (1, 4, 8, 8)),
            **{"w": _weight(4, 4, 3, 3), "b": _weight(4), "d": _weight(4, 1, 3, 3)},
            **{"s": np.ones(4, "float32"), "h": np.ones(4, "float32")},
            **{"g": _weight(6, 4), "c": _weight(6)},
        ),
        _model(
            *(moves, "n o q", (1, 2, 4, 4)),
            **{"w": _weight(2, 2, 3, 1), "i0": _ints(0, 0), "i1": _ints(1, 2), "i2": _ints(0, 1)},
            **{"pd": _ints(0, 1, 0, 0, 0, 1, 0, 0), "lo": np.float32(0), "hi": np.float32(6)},
            **{"sp": _ints(2, 4), "sc": np.array([1, 1, 2, 2], "float32")},
        ),
        _model(
            *(shapes, "y", (2, 3, 4)),
            **{"u": _ints(2, -1), "ax": _ints(0), "k": _weight(12, 6)},
            **{"t2": _ints(1, 1), "t3": _ints(2, 1), "t4": _ints(1, 6)},
        ),
        _model(chain, "y", (2, 3, 4), i=_ints(0), t=_ints(-1)),
        _model(
            *(quantized, "y", (1, 4, 6, 6)),
            **{"sx": scale, "zx": zero, "sy": scale, "zy": zero, "wt": _weight(4, 3, 3, 3)},
            **{"wq": np.arange(-72, 72, dtype="int8").reshape(4, 4, 3, 3)},
            **{"sw": np.full(4, 0.02, "float32"), "zw": np.zeros(4, "int8")},
        ),
    )


@functools.cache
def _tflite_files() -> tuple[bytes, ...]:
    files = sorted(FIXTURES.glob("*.tflite"))
    return tuple(file.read_bytes() for file in files if file.stat().st_size <= LARGEST)


SOURCES: dict[str, Callable[[], tuple[bytes, ...]]] = {
    "onnx": _onnx_files,
    "tflite": _tflite_files,
}
"""Kind of file -> the valid ones."""
