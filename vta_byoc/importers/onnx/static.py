"""Nodes of an ONNX graph whose results are known before the model runs.

Exporters write the arithmetic of shapes as nodes: Shape, Gather, Concat, Cast, Range and many
more.  The shapes of inputs are static, so each of these nodes has one value: the importer computes
it when it comes to the node, with ONNX's own reference implementation, and what reads it sees a
constant.  Dequantized weights are not computed: they have to stay integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from vta_byoc.importers.onnx.node import Attributes, attributes_of
from vta_byoc.ir.bindings import constant_of, is_constant, known_shape

MAX_BYTES = 64 << 20
"""A constant is not computed where it would be larger; the node stays an operator."""
MAX_ITEM = 8
"""Bytes of the widest element."""
OF_SHAPE = ("Shape", "Size")
"""Operators that read no element of their input."""
Arrays = Sequence["np.ndarray | None"]


def evaluate(
    node: onnx.NodeProto, inputs: Sequence[relax.Expr | None], opset: int
) -> list[relax.Expr] | None:
    """The results of `node` as constants.

    Args:
        node: the node.
        inputs: its inputs as Relax; None for one that is left out.
        opset: of the default operator domain.

    Returns:
        One constant per output; None if a value is not known or would exceed `MAX_BYTES`.
    """
    if not can_be_computed(node):
        return None
    if node.op_type in OF_SHAPE and inputs[0] is not None:
        shape = known_shape(inputs[0].ty)
        if shape is not None:
            return [constant_of(of_shape(node, shape))]
    if not all(item is None or is_constant(item) for item in inputs):
        return None
    results = computed(node, [None if x is None else x.value.numpy() for x in inputs], opset)
    return None if results is None else [constant_of(each) for each in results]


def computed(
    node: onnx.NodeProto, arrays: Arrays, opset: int, most: int = MAX_BYTES // MAX_ITEM
) -> list[np.ndarray] | None:
    """The results of `node`, of which every input is known.

    Args:
        node: the node.
        arrays: its inputs; None for one that is left out.
        opset: of the default operator domain.
        most: elements of all results.

    Returns:
        One array per output; None if `can_be_computed` denies it or there would be more.
    """
    if not can_be_computed(node):
        return None
    if node.op_type != "Constant" and not _is_small(node, arrays, most):
        return None
    return _run(node, arrays, opset)


def can_be_computed(node: onnx.NodeProto) -> bool:
    """Whether the operator is one that is computed where its inputs are known."""
    return node.domain in ("", "ai.onnx") and node.op_type in ("Constant", *SIZES)


def of_shape(node: onnx.NodeProto, shape: Sequence[int]) -> np.ndarray:
    """The value of a node among `OF_SHAPE` for a tensor of `shape`."""
    if node.op_type == "Size":
        return np.array(math.prod(shape), "int64")
    attrs = attributes_of(node)
    return np.array(shape[attrs.get("start", 0) : attrs.get("end")], "int64")


def _is_small(node: onnx.NodeProto, arrays: Arrays, most: int) -> bool:
    if not any(array is not None for array in arrays):
        return False
    return SIZES[node.op_type](arrays, attributes_of(node)) <= most


def _run(node: onnx.NodeProto, arrays: Arrays, opset: int) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    names = [name for name in node.input if name]
    values = dict(zip(node.input, arrays, strict=False))
    graph = helper.make_graph(
        [node],
        "constant",
        [helper.make_value_info(name, onnx.TypeProto()) for name in dict.fromkeys(names)],
        [helper.make_value_info(name, onnx.TypeProto()) for name in node.output],
    )
    runner = ReferenceEvaluator(graph, opsets={"": opset})
    with np.errstate(all="ignore"):
        return [np.asarray(each) for each in runner.run(None, {n: values[n] for n in names})]


# ---------------------------------------------------------------- how large results are
def _given(arrays: Arrays, attrs: Attributes) -> int:
    """No more elements than all inputs have."""
    return sum(array.size for array in arrays if array is not None)


def _broadcast(arrays: Arrays, attrs: Attributes) -> int:
    """Every axis as long as the longest; what does not fit together fails when it is computed."""
    return _size([array.shape for array in arrays if array is not None])


def _size(shapes: Sequence[tuple[int, ...]]) -> int:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return math.prod(max(sizes) for sizes in zip(*padded, strict=True))


def _expanded(arrays: Arrays, attrs: Attributes) -> int:
    data, wanted = arrays[:2]
    assert data is not None
    return _size([data.shape, _integers(wanted)])


def _tiled(arrays: Arrays, attrs: Attributes) -> int:
    return _given(arrays[:1], attrs) * _product(arrays[1])


def _product(values: np.ndarray | None) -> int:
    return math.prod(max(value, 0) for value in _integers(values))


def _integers(values: np.ndarray | None) -> tuple[int, ...]:
    """Elements as Python integers, which do not overflow."""
    return () if values is None else tuple(int(value) for value in np.reshape(values, -1))


def _filled(arrays: Arrays, attrs: Attributes) -> int:
    return _product(arrays[0])


def _counted(arrays: Arrays, attrs: Attributes) -> int:
    """Elements of a Range; without a step it fails when it is computed."""
    start, limit, step = (float(np.reshape(array, -1)[0]) for array in arrays)  # type: ignore[arg-type]
    return max(math.ceil((limit - start) / step), 0) if step else 0


def _gathered(arrays: Arrays, attrs: Attributes) -> int:
    data, indices = arrays[:2]
    assert data is not None and indices is not None
    rows = data.shape[attrs.get("axis", 0)] if data.ndim else 1
    return indices.size * data.size // max(rows, 1)


def _gathered_nd(arrays: Arrays, attrs: Attributes) -> int:
    data, indices = arrays[:2]
    assert data is not None and indices is not None
    depth = indices.shape[-1] + int(attrs.get("batch_dims", 0))
    return indices.size * math.prod(data.shape[depth:])


def _one_hot(arrays: Arrays, attrs: Attributes) -> int:
    return _given(arrays[:1], attrs) * _product(arrays[1])


def _padded(arrays: Arrays, attrs: Attributes) -> int:
    """Every pad is given to every axis: more than needed, and never less."""
    data = arrays[0]
    assert data is not None
    pads = attrs.get("pads", ()) if len(arrays) < 2 else _integers(arrays[1])
    most = max(pads, default=0)
    return math.prod(size + 2 * max(most, 0) for size in data.shape)


def _multiplied(arrays: Arrays, attrs: Attributes) -> int:
    left, right = arrays[:2]
    assert left is not None and right is not None
    inner = max(left.shape[-1] if left.ndim else 1, 1)
    return left.size * right.size // inner**2


SIZES: dict[str, Callable[[Arrays, Attributes], int]] = {
    **dict.fromkeys(
        (
            *("Identity", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Flatten"),
            *("Transpose", "Slice", "Concat", "Split", "Trilu", "CumSum", "Shape", "Size"),
            *("Neg", "Abs", "Sign", "Not", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal"),
            *("Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Relu", "IsNaN", "IsInf"),
            *("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"),
            *("ArgMax", "ArgMin", "ScatterND", "ScatterElements", "GatherElements"),
        ),
        _given,
    ),
    **dict.fromkeys(
        (
            *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "And", "Or", "Xor"),
            *("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Where", "Clip"),
        ),
        _broadcast,
    ),
    "ConstantOfShape": _filled,
    "Expand": _expanded,
    "EyeLike": _given,
    "Gather": _gathered,
    "GatherND": _gathered_nd,
    "MatMul": _multiplied,
    "OneHot": _one_hot,
    "Pad": _padded,
    "Range": _counted,
    "Tile": _tiled,
}
"""Operator -> at most how many elements its results have; others are not computed."""
