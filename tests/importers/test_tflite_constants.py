"""What TFLite files compute of constants is computed when they are read, like the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="the TFLite interpreter is not installed")

from ai_edge_litert import schema_py_generated as schema
from importer_tflite_graph import Lite
from small_models import call
from sparse_tensors import encoded

from vta_byoc.base.limits import memory_limit
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.importers.tflite.constants import FOLDS, folded
from vta_byoc.importers.tflite.model import read
from vta_byoc.ir.bindings import op_name, straight_bindings

ROWS, COLUMNS = 5, 8


def written(g: Lite, folder: Path, shapes: dict[int, Any] | None = None) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(g.file(shapes))
    return path


# ---------------------------------------------------------------- weights
def half(g: Lite) -> int:
    """16-bit floats, which DEQUANTIZE makes 32-bit ones."""
    weight = g.made_tensor((ROWS, COLUMNS))
    g.node("DEQUANTIZE", [g.const(WEIGHT, "float16")], [weight], "DequantizeOptions")
    return weight


def sparse(g: Lite) -> int:
    weight = g.made_tensor((ROWS, COLUMNS))
    g.node("DENSIFY", [g.sparse(SPARSE, (0, 1), ())], [weight], "DensifyOptions")
    return weight


def sparse_half(g: Lite) -> int:
    """Both, as MediaPipe's models have them."""
    dense, weight = g.made_tensor((ROWS, COLUMNS), "float16"), g.made_tensor((ROWS, COLUMNS))
    stored = g.sparse(SPARSE.astype("float16"), (0, 1), ())
    g.node("DENSIFY", [stored], [dense], "DensifyOptions")
    g.node("DEQUANTIZE", [dense], [weight], "DequantizeOptions")
    return weight


def octets(g: Lite) -> int:
    """Integers with a scale a row, which DEQUANTIZE makes floats."""
    weight = g.made_tensor((ROWS, COLUMNS))
    stored = g.scaled(INTEGERS, "int8", SCALES)
    g.node("DEQUANTIZE", [stored], [weight], "DequantizeOptions")
    return weight


RNG = np.random.default_rng(0)
WEIGHT = RNG.uniform(-1, 1, (ROWS, COLUMNS))
SPARSE = np.where(RNG.random((ROWS, COLUMNS)) < 0.3, WEIGHT, 0).astype("float32")
INTEGERS = RNG.integers(-8, 8, (ROWS, COLUMNS))
SCALES = RNG.uniform(0.01, 0.1, ROWS).astype("float32")


def layer(weight: Callable[[Lite], int]) -> Lite:
    g = Lite("FULLY_CONNECTED", 1)
    x = g.tensor((3, COLUMNS))
    options = {"keepNumDims": False, "fusedActivationFunction": 0}
    g.test(x, weight(g), g.weights(ROWS), kind="FullyConnectedOptions", **options)
    return g


@pytest.mark.parametrize("weight", [half, sparse, sparse_half])
def test_stored_weights_are_those_of_the_interpreter(
    weight: Callable[[Lite], int], tmp_path: Path
) -> None:
    g = layer(weight)
    (wanted,) = [g.interpreter.get_tensor(number) for number in g.outputs]
    mod = load_model(written(g, tmp_path, {g.outputs[0]: wanted.shape}))
    np.testing.assert_allclose(call(mod, *g.feed)[0], wanted, rtol=1e-5, atol=1e-5)
    names = [op_name(binding.value) for binding in straight_bindings(mod["main"])]
    assert "relax.matmul" in names and "relax.dequantize" not in names


@pytest.mark.parametrize(
    "weight", [octets, lambda g: g.scaled(INTEGERS, "int8", SCALES)], ids=["operator", "layer"]
)
def test_integers_stand_for_floats(weight: Callable[[Lite], int], tmp_path: Path) -> None:
    """Where the data is floats; the interpreter rounds it to 8 bits before it multiplies."""
    g = layer(weight)
    mod = load_model(written(g, tmp_path, {g.outputs[0]: (3, ROWS)}))
    bias = read(tmp_path / "model.tflite").operators[-1].inputs[2].value
    wanted = g.feed[0] @ (INTEGERS * SCALES[:, None]).T + bias
    np.testing.assert_allclose(call(mod, *g.feed)[0], wanted, rtol=1e-5, atol=1e-5)


def test_four_bits_are_two_in_an_octet(tmp_path: Path) -> None:
    g = layer(lambda g: g.scaled(INTEGERS, "int4", SCALES))
    path = written(g, tmp_path, {g.outputs[0]: (3, ROWS)})
    weight = read(path).operators[0].inputs[1]
    assert weight is not None and weight.dtype == "int8"
    np.testing.assert_array_equal(weight.value, INTEGERS)
    assert call(load_model(path), *g.feed)[0].shape == (3, ROWS)


# ---------------------------------------------------------------- sparse tensors
@pytest.mark.parametrize("seed", range(40))
def test_any_sparse_tensor_is_written_out(seed: int, tmp_path: Path) -> None:
    """Any order of axes, dense or in compressed rows, blocks on any of them."""
    g = Lite("RELU", seed)
    sizes = [g.size(1, 3) for _ in range(g.size(1, 3))]
    blocks = sorted(axis for axis in range(len(sizes)) if g.flag())
    inner = {axis: g.size(1, 3) for axis in blocks}
    shape = [size * inner.get(axis, 1) for axis, size in enumerate(sizes)]
    values = g.floats(shape) * g.integers(shape, 0, 1).astype("float32")
    order = [*g.rng.permutation(len(shape)).tolist(), *range(len(shape), len(shape) + len(blocks))]
    tensor = encoded(values, order, [(axis, inner[axis]) for axis in blocks], g.flag)
    g.outputs = [g.made_tensor(shape)]
    g.node("DENSIFY", [g.stored(*tensor, shape)], g.outputs, "DensifyOptions")
    g.tensor((1,))
    model = folded(read(written(g, tmp_path)))
    np.testing.assert_array_equal(model.outputs[0].value, values)


def test_damaged_sparse_tensors(tmp_path: Path) -> None:
    g = Lite("RELU", 0)
    values, sparsity = encoded(SPARSE, [0, 1], [], lambda: True)
    stored = g.stored(values[:-1], sparsity, SPARSE.shape)
    g.outputs = [g.made_tensor(SPARSE.shape)]
    g.node("DENSIFY", [stored], g.outputs, "DensifyOptions")
    g.tensor((1,))
    with pytest.raises(VTAError) as caught:
        read(written(g, tmp_path))
    count = np.count_nonzero(SPARSE)
    assert str(caught.value) == (
        f'sparse tensor "t0" has {count - 1} values for {count} places of {SPARSE.shape}; the file '
        "is damaged; convert or download the model again"
    )


def test_a_level_that_is_too_wide(tmp_path: Path) -> None:
    g = Lite("RELU", 0)
    values, sparsity = encoded(SPARSE, [0, 1], [], lambda: False)
    sparsity.dimMetadata[1].denseSize = 2**30
    g.outputs = [g.made_tensor(SPARSE.shape)]
    stored = g.stored(values, sparsity, SPARSE.shape)
    g.node("DENSIFY", [stored], g.outputs, "DensifyOptions")
    g.tensor((1,))
    with pytest.raises(VTAError) as caught:
        read(written(g, tmp_path))
    assert str(caught.value) == (
        f'sparse tensor "t1" has 1073741824 indices on level 1 for {SPARSE.shape}; the file is '
        "damaged; convert or download the model again"
    )


# ---------------------------------------------------------------- shapes
def unchanged(kind: str, **options: Any) -> Callable[[Lite], None]:
    def make(g: Lite) -> None:
        result(g, [g.const([[3, 4, 5]])], kind, **options)

    return make


def result(
    g: Lite, inputs: list[int], kind: str = "", dtype: str = "int32", **options: Any
) -> None:
    g.outputs = [g.made_tensor((), dtype)]
    g.node(g.operator, inputs, g.outputs, kind, **options)


def binary(kind: str = "") -> Callable[[Lite], None]:
    options = {"fusedActivationFunction": 0} if kind else {}
    return lambda g: result(g, [g.const([7, -7, 9]), g.const([2, 2, -4])], kind, **options)


def of_shape(kind: str, dtype: str = "int32", **options: Any) -> Callable[[Lite], None]:
    return lambda g: result(g, [g.tensor((2, 3))], kind, dtype, **options)


def reshaped(g: Lite) -> None:
    result(g, [g.const([[3, 4], [5, 6]]), g.const([4])], "ReshapeOptions", newShape=[4])


def strided(g: Lite) -> None:
    limits = [g.const(x) for x in ([0, 1], [2, 3], [1, 1])]
    options = {"beginMask": 1, "endMask": 2, "shrinkAxisMask": 0}
    result(g, [g.const([[1, 2, 3], [4, 5, 6]]), *limits], "StridedSliceOptions", **options)


CASES: dict[str, Callable[[Lite], None]] = {
    "ADD": binary("AddOptions"),
    "CAST": lambda g: result(g, [g.const([1.5, -2.5], "float32")], "CastOptions"),
    "CONCATENATION": lambda g: result(
        g, [g.const([1]), g.const([2, 3])], "ConcatenationOptions", axis=0
    ),
    "EXPAND_DIMS": lambda g: result(g, [g.const([1, 2]), g.const(0)], "ExpandDimsOptions"),
    "FILL": lambda g: result(g, [g.const([2, 3]), g.const(7)], "FillOptions"),
    "FLOOR_DIV": binary(),
    "GATHER": lambda g: result(g, [g.const([5, 6, 7]), g.const([2, 0])], "GatherOptions"),
    "MAXIMUM": binary(),
    "MINIMUM": binary(),
    "MUL": binary("MulOptions"),
    "PACK": lambda g: result(
        g, [g.const(3), g.const(4)], "PackOptions", axis=0, valuesCount=2
    ),
    "RANGE": lambda g: result(g, [g.const(2), g.const(9), g.const(3)], "RangeOptions"),
    "RANK": of_shape("RankOptions"),
    "REDUCE_PROD": lambda g: result(
        g, [g.const([[2, 3], [4, 5]]), g.const([1])], "ReducerOptions", keepDims=False
    ),
    "RESHAPE": reshaped,
    "SHAPE": of_shape("ShapeOptions", outType=schema.TensorType.INT32),
    "SQUEEZE": unchanged("SqueezeOptions", squeezeDims=[0]),
    "STRIDED_SLICE": strided,
    "SUB": binary("SubOptions"),
    "ZEROS_LIKE": of_shape("ZerosLikeOptions", "float32"),
}  # fmt: skip


def test_every_fold_has_a_case() -> None:
    assert {*CASES, "DENSIFY", "DEQUANTIZE"} == set(FOLDS)


@pytest.mark.parametrize("operator", sorted(CASES))
def test_folded_numbers_are_those_of_the_interpreter(operator: str, tmp_path: Path) -> None:
    g = Lite(operator, 0)
    CASES[operator](g)
    if not g.inputs:
        g.tensor((1,))
    (number,) = g.outputs
    wanted = g.interpreter.get_tensor(number)
    model = folded(read(written(g, tmp_path, {number: wanted.shape})))
    assert model.operators == ()
    np.testing.assert_array_equal(model.outputs[0].value, wanted, strict=True)


def masked(mask: str) -> Callable[[Lite], None]:
    """A slice of constants with one bit or switch set."""

    def make(g: Lite) -> None:
        limits = [g.const([value]) for value in (0, 2, 1)]
        masks = dict.fromkeys(("beginMask", "endMask", "shrinkAxisMask"), 0)
        result(g, [g.const([1, 2, 3]), *limits], "StridedSliceOptions", **masks, **{mask: 1})

    return make


UNFOLDED: dict[str, tuple[str, Callable[[Lite], None]]] = {
    "activation": (
        "ADD",
        lambda g: result(g, [g.const([1]), g.const([-2])], "AddOptions", fusedActivationFunction=1),
    ),
    "batches": (
        "GATHER",
        lambda g: result(
            g, [g.const([[1, 2]]), g.const([[1]])], "GatherOptions", axis=1, batchDims=1
        ),
    ),
    "offset": ("STRIDED_SLICE", masked("offset")),
}


@pytest.mark.parametrize("what", UNFOLDED)
def test_what_says_more_is_left_to_the_converters(what: str, tmp_path: Path) -> None:
    operator, make = UNFOLDED[what]
    g = Lite(operator, 0)
    make(g)
    g.tensor((1,))
    model = folded(read(written(g, tmp_path, {g.outputs[0]: (1,)})))
    assert [op.code for op in model.operators] == [operator]


def test_a_shape_that_is_computed_is_not_in_the_way(tmp_path: Path) -> None:
    """As exporters write a reshape of an open batch: its sizes from the shape of its operand."""
    g = Lite("RESHAPE", 0)
    x = g.tensor((2, 3, 4))
    shape, batch, wanted = (g.made_tensor(size, "int32") for size in ((3,), (), (2,)))
    g.node("SHAPE", [x], [shape], "ShapeOptions", outType=schema.TensorType.INT32)
    limits = [g.const([value]) for value in (0, 1, 1)]
    options = {"beginMask": 0, "endMask": 0, "shrinkAxisMask": 1}
    g.node("STRIDED_SLICE", [shape, *limits], [batch], "StridedSliceOptions", **options)
    g.node("PACK", [batch, g.const(12)], [wanted], "PackOptions", axis=0, valuesCount=2)
    g.test(x, wanted, kind="ReshapeOptions", newShape=[])
    path = written(g, tmp_path, {g.outputs[0]: (2, 12)})
    assert [op.code for op in folded(read(path)).operators] == ["RESHAPE"]
    np.testing.assert_array_equal(call(load_model(path), *g.feed)[0], g.feed[0].reshape(2, 12))


@pytest.mark.parametrize("operator", ["RANGE", "FILL"])
def test_more_numbers_than_the_limit(operator: str, tmp_path: Path) -> None:
    g = Lite(operator, 0)
    count = [g.const([2**30]), g.const(7)]
    limits = [g.const(0), g.const(2**30), g.const(1)]
    result(g, count if operator == "FILL" else limits, f"{operator.title()}Options")
    g.tensor((1,))
    path = written(g, tmp_path, {g.outputs[0]: (1,)})
    with memory_limit(2**20), pytest.raises(VTAError) as caught:
        load_model(path)
    (name,) = [f"t{number}" for number in g.outputs]
    assert f'tensor "{name}"' in str(caught.value) and "1073741824" in str(caught.value)


# ---------------------------------------------------------------- what files leave open
def test_an_open_dimension(tmp_path: Path) -> None:
    """A converter that does not know a size writes one."""
    g = Lite("SLICE", 0)
    g.test(g.tensor((2, 6)), g.const([0, 1]), g.const([2, 4]), kind="SliceOptions")
    (name,) = [f"t{number}" for number in g.outputs]
    with pytest.raises(VTAError) as caught:
        load_model(written(g, tmp_path, {g.outputs[0]: (2, 1)}))
    assert str(caught.value) == (
        f'operator "{name}" (SLICE) makes "{name}" of 8 elements, which the file gives the shape '
        "(2, 1); dimensions that are left open cannot be imported; convert the model with fixed "
        "shapes"
    )


def test_quotients_of_integers(tmp_path: Path) -> None:
    g = Lite("DIV", 0)
    x = g.input(np.ones((2, 3), "int32"))
    g.test(x, x, kind="DivOptions", dtype="int32", fusedActivationFunction=0)
    (name,) = [f"t{number}" for number in g.outputs]
    with pytest.raises(VTAError) as caught:
        load_model(written(g, tmp_path, {g.outputs[0]: (2, 3)}))
    assert str(caught.value) == (
        f'operator "{name}" (DIV) divides integers, "{name}" of int32; only floats are divided; '
        "cast them before"
    )


def test_indices_of_their_own_for_each_batch(tmp_path: Path) -> None:
    g = Lite("GATHER", 0)
    x, at = g.tensor((2, 3)), g.const([[0], [1]])
    g.test(x, at, kind="GatherOptions", axis=1, batchDims=1)
    with pytest.raises(VTAError, match=r"has 1 batch axes; the indices of all batches must be the"):
        load_model(written(g, tmp_path, {g.outputs[0]: (2, 1)}))


# ---------------------------------------------------------------- complex numbers
def spectrum(operator: str, *more: str) -> Lite:
    g = Lite(operator, 0)
    made = g.made_tensor((1, 5), "complex64")
    g.node("RFFT2D", [g.tensor((1, 8)), g.const([1, 8])], [made], "Rfft2dOptions")
    g.outputs = [made]
    for code in more:
        g.outputs = [g.made_tensor((1, 5), "complex64")]
        g.node(code, [made, made], g.outputs, "MulOptions", fusedActivationFunction=0)
    return g


def test_a_spectrum_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(written(spectrum("RFFT2D"), tmp_path))
    assert str(caught.value) == (
        'output "t0" is complex; outputs must be real; export the model with its magnitude, or its '
        "real and its imaginary part"
    )


def test_products_of_complex_numbers(tmp_path: Path) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(written(spectrum("RFFT2D", "MUL"), tmp_path))
    assert str(caught.value) == (
        'operator "t3" (MUL) computes with complex numbers; they can be moved, and their parts and '
        "magnitudes taken; use their parts"
    )


def test_a_spectrum_is_two_layers_of_vta(tmp_path: Path) -> None:
    """The magnitude reads both products; of a real part alone the sines are gone."""
    for operator, layers in (("COMPLEX_ABS", 2), ("REAL", 1)):
        g = spectrum(operator)
        (made,) = g.outputs
        g.outputs = [g.made_tensor((1, 5))]
        g.node(operator, [made], g.outputs)
        mod = load_model(written(g, tmp_path))
        names = [op_name(binding.value) for binding in straight_bindings(mod["main"])]
        assert names.count("relax.matmul") == layers


ENTRIES = [
    # entries (begin, end, step), masks of ellipses, new axes and dropped ones; as NumPy writes it
    ([(0, 2, 2), (0, 0, 1), (1, 2, 1)], 0b10, 0, 0, np.s_[0:2:2, ..., 1:2]),
    ([(0, 0, 1), (1, 2, 1)], 0b01, 0, 0b10, np.s_[..., 1]),
    ([(9, 9, 9), (0, 1, 1), (9, 9, 9)], 0, 0b101, 0b101, np.s_[None, 0:1, None]),
    ([(0, 0, 1), (0, 0, 1)], 0b01, 0b11, 0b10, np.s_[..., None]),
    ([(1, 2, 1), (0, 0, 1), (0, 0, 1), (-1, 0, -1)], 0b0010, 0b0100, 1, np.s_[1, ..., None, ::-1]),
    # one entry more than there are axes: LiteRT's ellipsis takes the axis of the entry behind it
    ([(0, 0, 1), (1, 2, 1), (0, 1, 1), (0, 1, 1)], 0b0001, 0, 0, np.s_[:, 1:2, 0:1]),
]


def entries(g: Lite, case: tuple[Any, ...], data: int) -> np.ndarray:
    """The slice under test of a tensor, and what NumPy makes of one of ones and so on."""
    limits, dots, new, shrink, wanted = case
    masks = {"ellipsisMask": dots, "newAxisMask": new, "shrinkAxisMask": shrink}
    masks |= {"beginMask": 0, "endMask": 0b1000 if limits[-1] == (-1, 0, -1) else 0}
    numbers = [g.const(list(values)) for values in zip(*limits, strict=True)]
    array = np.arange(24, dtype="int32").reshape(2, 3, 4)[wanted]
    g.test(data, *numbers, kind="StridedSliceOptions", dtype="int32", **masks)
    return array


@pytest.mark.parametrize("case", ENTRIES)
def test_ellipses_and_new_axes_of_constants(case: tuple[Any, ...], tmp_path: Path) -> None:
    g = Lite("STRIDED_SLICE", 0)
    wanted = entries(g, case, g.const(np.arange(24).reshape(2, 3, 4)))
    g.tensor((1,))
    np.testing.assert_array_equal(g.interpreter.get_tensor(g.outputs[0]), wanted, strict=True)
    model = folded(read(written(g, tmp_path, {g.outputs[0]: wanted.shape})))
    assert model.operators == ()
    np.testing.assert_array_equal(model.outputs[0].value, wanted, strict=True)


@pytest.mark.parametrize("case", ENTRIES)
def test_ellipses_and_new_axes_of_data(case: tuple[Any, ...], tmp_path: Path) -> None:
    g = Lite("STRIDED_SLICE", 0)
    wanted = entries(g, case, g.input(np.arange(24, dtype="int32").reshape(2, 3, 4)))
    mod = load_model(written(g, tmp_path, {g.outputs[0]: wanted.shape}))
    (found,) = call(mod, *g.feed)
    np.testing.assert_array_equal(found, wanted, strict=True)


def refused_slice(
    folder: Path, limits: list[list[int]], masks: dict[str, int], shape: tuple[int, ...]
) -> tuple[str, str]:
    """The name of a slice of (3, 4) values to `shape`, and why it is not imported."""
    g = Lite("STRIDED_SLICE", 0)
    given = [g.const(values) for values in limits]
    g.test(g.tensor((3, 4)), *given, kind="StridedSliceOptions", **masks)
    (name,) = [f"t{number}" for number in g.outputs]
    with pytest.raises(VTAError) as caught:
        load_model(written(g, folder, {g.outputs[0]: shape}))
    return name, str(caught.value)


@pytest.mark.parametrize(("dots", "new"), [(0b101, 0), (0b001, 0b1000)])
def test_entries_that_no_axis_is_for(dots: int, new: int, tmp_path: Path) -> None:
    """Two ellipses, and a new axis behind more entries than there are axes."""
    masks = {"ellipsisMask": dots, "newAxisMask": new}
    name, said = refused_slice(tmp_path, [[value] * 4 for value in (0, 1, 1)], masks, (1, 1))
    assert said == (
        f'operator "{name}" (STRIDED_SLICE) has 4 entries for 2 axes, with the masks {dots:b} of '
        f"ellipses and {new:b} of new axes; one ellipsis at most, and an entry for each axis at "
        "most, can be imported; slice every axis explicitly"
    )


@pytest.mark.parametrize(("step", "shrink"), [(0, 0), (-1, 1)])
def test_a_slice_that_does_not_move(step: int, shrink: int, tmp_path: Path) -> None:
    masks = {"beginMask": 0, "endMask": 0, "shrinkAxisMask": shrink}
    name, said = refused_slice(tmp_path, [[value] for value in (1, 2, step)], masks, (1, 4))
    assert said == (
        f'operator "{name}" (STRIDED_SLICE) has a step of {step} on axis 0; a slice goes on or '
        "back, one element only on; correct the step"
    )
