"""Whether an ONNX file is a model that can be loaded; every refusal says why."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx.inliner
from onnx import TensorProto

from vta_byoc.base.boundary import reason_of
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.onnx.attributes import REFUSED
from vta_byoc.importers.onnx.fused import FUSED, domain_of
from vta_byoc.importers.onnx.qdq import DYNAMIC, DYNAMIC_LAYERS, dynamic
from vta_byoc.importers.onnx.qoperator import EXPANSIONS
from vta_byoc.importers.onnx.recurrent import KINDS

DOMAINS = ("", "ai.onnx", "com.microsoft")
BRANCH = "If"
"""The operator that `branches.take_branches` replaces."""
INPUT_TYPES = ("FLOAT", "INT8", "UINT8", "INT32", "INT64", "BOOL")
"""Element types of inputs, as ONNX spells them; `quantize` makes integers of float32 alone."""


def read(path: Path) -> onnx.ModelProto:
    """Parse the file, with external weights next to it.

    Raises:
        VTAError: not an ONNX protobuf, weights missing, or an empty graph.
    """
    try:
        model = onnx.load(str(path))
    except Exception as error:
        raise VTAError(
            f'model file "{path}" cannot be read: {reason_of(error)}; it must be an ONNX '
            "protobuf with its external data beside it; export or download the model again"
        ) from error
    if model.functions:  # PyTorch writes operators that it has no ONNX node for as functions
        model = onnx.inliner.inline_local_functions(model)
    graph = model.graph
    if not graph.node or not graph.input or not graph.output:
        raise VTAError(
            f'model file "{path}" has {len(graph.node)} nodes, {len(graph.input)} inputs and '
            f"{len(graph.output)} outputs; a model needs at least one of each; "
            "export the model again"
        )
    return model


@functools.cache
def float_operators() -> frozenset[str]:
    """The operators that are imported as they are; those of integers are in `onnx.qoperator`."""
    from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

    return frozenset({*_get_convert_map(), "Constant"} - {*REFUSED, *EXPANSIONS, DYNAMIC})


@functools.cache
def _known() -> frozenset[str]:
    return float_operators() | {*EXPANSIONS, *KINDS, DYNAMIC, BRANCH}


def is_known(node: onnx.NodeProto) -> bool:
    """Whether a node's operator can be imported."""
    if (domain_of(node), node.op_type) in FUSED:
        return True
    return node.op_type in _known() and node.domain in DOMAINS


def check_operators(model: onnx.ModelProto) -> None:
    """Check that every operator can be imported.

    Raises:
        VTAError: the first one that cannot.
    """
    for node in model.graph.node:
        if is_known(node):
            continue
        if node.op_type in DYNAMIC_LAYERS:
            raise dynamic(node, node.input[0])
        op_type = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        count = len(_known())
        unknown = f"TVM's ONNX importer knows {count} operators and this is not one of them"
        reason = REFUSED.get(node.op_type, unknown)
        raise VTAError(
            f'node "{node.name or node.output[0]}" has the operator {op_type}; {reason}; '
            "export the model without it or cut the model before it"
        )


def check_model(model: onnx.ModelProto, path: Path) -> None:
    """Run ONNX's own checker.

    Raises:
        VTAError: the checker's first line.
    """
    try:
        onnx.checker.check_model(model)
    except Exception as error:
        raise VTAError(
            f'model file "{path}" fails the ONNX checker: {reason_of(error)}; only valid '
            "models can be loaded; export the model again"
        ) from error


def input_shapes(graph: onnx.GraphProto, given: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    """The static shape of every input, from the model and from what the user gave.

    Raises:
        VTAError: an unknown name, a dtype that is not among `INPUT_TYPES`, a dimension that is
            neither in the model nor given, or a given shape that contradicts the model.
    """
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in weights}
    for name in given:
        if name not in inputs:
            raise VTAError(
                f'shape given for "{name}"; the inputs of the model are {", ".join(inputs)}; '
                "use one of these names"
            )
    named = {
        dim: int(size)
        for name, sizes in given.items()
        for dim, size in zip(_dims(inputs[name].type.tensor_type), sizes, strict=False)
    }
    found: dict[str, list[int]] = {}
    open_ones: dict[str, list[int | str] | None] = {}
    for name, value in inputs.items():
        dims = _checked_dims(value, given.get(name))
        shape = given.get(name, dims or ())
        if (dims is None and name not in given) or any(isinstance(dim, str) for dim in shape):
            open_ones[name] = dims
        found[name] = [int(dim) for dim in shape if not isinstance(dim, str)]
    if open_ones:
        raise _without_shapes(open_ones, named)
    return found


def _checked_dims(
    value: onnx.ValueInfoProto, given: tuple[int, ...] | None
) -> list[int | str] | None:
    """What the model says of an input's shape, None if nothing; `given` agrees with it."""
    _check_dtype(value)
    tensor = value.type.tensor_type
    dims = _dims(tensor) if tensor.HasField("shape") else None
    if given is not None:
        check_given(value.name, given, dims)
    return dims


def _without_shapes(
    inputs: Mapping[str, list[int | str] | None], named: Mapping[int | str, int]
) -> VTAError:
    """The error about all inputs whose shapes are not known.

    Args:
        inputs: name -> what the model says of its dimensions.
        named: the sizes of dynamic dimensions that were given with other inputs.
    """
    told = [
        f'input "{name}" has '
        + ("no shape" if dims is None else f"the dynamic shape ({_listed(dims)})")
        for name, dims in inputs.items()
    ]
    options = [
        f"--shape {name}={'1,3,224,224' if dims is None else _suggestion(dims, named)}"
        for name, dims in inputs.items()
    ]
    them = "it" if len(inputs) == 1 else "them"
    return VTAError(
        f"{' and '.join(told)}; every dimension must be known; give {them}, for example "
        f"{' '.join(options)}"
    )


def _check_dtype(value: onnx.ValueInfoProto) -> None:
    kind = value.type.WhichOneof("value")
    dtype = value.type.tensor_type.elem_type
    if kind == "tensor_type" and dtype in (getattr(TensorProto, name) for name in INPUT_TYPES):
        return
    found = "no type"
    if kind == "tensor_type" and dtype:
        found = f"dtype {TensorProto.DataType.Name(dtype).lower()}"
    elif kind is not None and kind != "tensor_type":
        found = f"the type {kind.removesuffix('_type')}"
    raise VTAError(
        f'input "{value.name}" has {found}; inputs must be tensors of '
        f"{', '.join(INPUT_TYPES).lower()}; export the model with one of these"
    )


def _dims(tensor: onnx.TypeProto.Tensor) -> list[int | str]:
    """Dimensions in order: a number, or the name of a dynamic one (`UNNAMED` if it has none)."""
    return [
        dim.dim_value if dim.dim_value > 0 else (dim.dim_param or UNNAMED)
        for dim in tensor.shape.dim
    ]


UNNAMED = "?"


def check_given(name: str, given: tuple[int, ...], dims: list[int | str] | None) -> None:
    """Refuse a shape that an input with these dimensions cannot have; None: it has no shape.

    Raises:
        VTAError: a dimension below 1, another rank, or another size where the model has one.
    """
    if any(int(dim) < 1 for dim in given):
        raise VTAError(
            f'shape ({_listed(list(given))}) given for "{name}"; every dimension must be at least '
            "1; correct the shape"
        )
    if dims is None:
        return
    fits = len(given) == len(dims) and all(
        not isinstance(dim, int) or dim == int(size) for dim, size in zip(dims, given, strict=True)
    )
    if not fits:
        raise VTAError(
            f'shape ({_listed(list(given))}) given for "{name}"; the model declares '
            f"({_listed(dims)}); keep its rank and its fixed dimensions"
        )


def _suggestion(dims: list[int | str], named: Mapping[int | str, int]) -> str:
    """The shape with what is `named`, 1 for a batch and 224 for other dynamic dimensions."""
    return ",".join(str(_guess(dim, axis, named)) for axis, dim in enumerate(dims))


def _guess(dim: int | str, axis: int, named: Mapping[int | str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if dim in named and dim != UNNAMED:
        return named[dim]
    return 1 if axis == 0 or "batch" in dim.lower() else 224


def _listed(dims: list[int | str] | list[int]) -> str:
    return ", ".join(str(dim) for dim in dims)
