"""Inputs of an ONNX model whose value is known when it is loaded, such as a sample rate."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.onnx.checks import check_given

Value = str | bool | int | float | np.generic | np.ndarray
"""Of an input: a number, a truth value, an array of one element, or the text of one of these."""
TRUTH = {"true": True, "false": False}
WITHOUT_INPUTS = 4
"""The version of the file format from which a weight need not be listed among the inputs."""


def fix_inputs(
    model: onnx.ModelProto,
    given: Mapping[str, Value],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, np.ndarray]:
    """Make weights of the inputs that are `given` a value.

    Args:
        model: changed in place.
        given: input name -> its value.
        shapes: input name -> shape, of inputs whose dimensions the model leaves open.

    Returns:
        Input name -> its value, in the shape and dtype of the input.

    Raises:
        VTAError: a name that no input has, an input that is not one number or truth value, a value
            that its dtype does not hold, a shape that contradicts the model, or no input that
            is left.
    """
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in weights}
    known = shapes or {}
    fixed = {name: _array(name, value, inputs, known.get(name)) for name, value in given.items()}
    if fixed and len(fixed) == len(inputs):
        raise VTAError(
            f"values given for all inputs of the model, {', '.join(inputs)}; a model needs at "
            "least one input; leave one of them open"
        )
    graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in fixed.items())
    if model.ir_version >= WITHOUT_INPUTS:
        kept = [value for value in graph.input if value.name not in fixed]
        del graph.input[:]
        graph.input.extend(kept)
    return fixed


def _array(
    name: str,
    value: Value,
    inputs: Mapping[str, onnx.ValueInfoProto],
    shape: tuple[int, ...] | None,
) -> np.ndarray:
    if name not in inputs:
        raise VTAError(
            f'value given for "{name}"; the inputs of the model are {", ".join(inputs)}; '
            "use one of these names"
        )
    dtype, dims = _dtype(inputs[name]), _dims(inputs[name])
    if shape is not None:
        check_given(name, shape, dims)
        dims = list(shape)
    if dtype is None or dims is None or any(dim != 1 for dim in dims):
        may = dtype is not None and all(dim == 1 or isinstance(dim, str) for dim in dims or ())
        state = f"state its shape with --shape {name}={_ones(dims)}, " if may else ""
        raise VTAError(
            f'value given for "{name}", which is {_described(inputs[name], dims)}; only an input '
            f"of one number or truth value takes one; {state}leave it out, or give the input a "
            "value in the file (docs/importing.md)"
        )
    number = _fitting(_number(value), dtype)
    if number is None:
        raise VTAError(
            f'value {_shown(value)} given for "{name}" of dtype {dtype}; it takes '
            f"{_taken(dtype)}; correct the value"
        )
    return np.full([1] * len(dims), number, dtype)


# ---------------------------------------------------------------- the input
def _dtype(value: onnx.ValueInfoProto) -> np.dtype | None:
    """Of an input of numbers or truth values as NumPy has them; None for others."""
    if value.type.WhichOneof("value") != "tensor_type":
        return None
    with contextlib.suppress(KeyError, ValueError, TypeError):
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        return dtype if dtype.kind in "biuf" and dtype.isbuiltin == 1 else None
    return None


def _dims(value: onnx.ValueInfoProto) -> list[int | str] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim
    ]


def _ones(dims: list[int | str] | None) -> str:
    return ",".join("1" for _ in dims or (1,))


def _described(value: onnx.ValueInfoProto, dims: list[int | str] | None) -> str:
    kind = value.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        return f"a {kind.removesuffix('_type').replace('_', ' ')}"
    dtype = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    shape = "no known shape" if dims is None else f"the shape ({', '.join(map(str, dims))})"
    return f"a tensor of {dtype} with {shape}"


# ---------------------------------------------------------------- the value
def _number(value: Value) -> bool | int | float | None:
    """What a text or an array says; None if that is not one number or truth value."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if value.size == 1 else ""
    if not isinstance(value, str):
        return value if isinstance(value, bool | int | float) else None
    text = value.strip().lower()
    if text in TRUTH:
        return TRUTH[text]
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return None


def _fitting(number: bool | int | float | None, dtype: np.dtype) -> bool | int | float | None:
    """The number as one of `dtype`; None if the dtype does not hold it."""
    if number is None or (dtype.kind != "b" and isinstance(number, bool)):
        return None
    if dtype.kind == "b":
        return bool(number) if number in (0, 1) else None
    if dtype.kind == "f":
        return number if abs(number) <= float(np.finfo(dtype).max) else None
    if isinstance(number, float) and not number.is_integer():
        return None
    return int(number) if np.iinfo(dtype).min <= number <= np.iinfo(dtype).max else None


def _taken(dtype: np.dtype) -> str:
    if dtype.kind == "b":
        return "true, false, 1 or 0"
    if dtype.kind == "f":
        return f"a number of at most {float(np.finfo(dtype).max):.6g} in size"
    return f"an integer from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"


def _shown(value: Value) -> str:
    if isinstance(value, np.ndarray) and value.size != 1:
        return f"of shape {value.shape}"
    return f'"{value}"' if isinstance(value, str) else str(value)
