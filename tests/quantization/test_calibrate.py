"""Calibration data: what is accepted, what is refused, and what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from small_models import Graph
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.quantization.calibration import statistics
from vta_byoc.quantization.calibration.samples import default_calibration, load_calibration
from vta_byoc.quantization.calibration.statistics import (
    Statistics,
    tensor_statistics,
)
from vta_byoc.quantize import quantize


def one_input() -> tvm.IRModule:
    g = Graph((1, 3))
    return g.module(g.op("nn.relu", g.params[0], name="relu"))


def two_inputs() -> tvm.IRModule:
    g = Graph((2, 3), (2, 3))
    return g.module(g.op("subtract", *g.params, name="difference"))


def tensor_ranges(mod: tvm.IRModule, *given: Any, **options: Any) -> dict[relax.Var, float]:
    """The threshold of every tensor."""
    found = tensor_statistics(mod, *given, **options)
    return {var: seen.amax for var, seen in found.items()}


def named(mod: tvm.IRModule, calibration: Any) -> dict[str, float]:
    return {var.name: value for var, value in tensor_ranges(mod, calibration).items()}


def refused(text: str, mod: tvm.IRModule, calibration: Any) -> None:
    with pytest.raises(VTAError) as caught:
        quantize(mod, calibration=calibration)
    assert str(caught.value) == text


X = np.float32([[1, -5, 3]])


# ---------------------------------------------------------------- what is measured
def test_ranges_are_the_largest_magnitudes_over_all_samples():
    assert named(one_input(), [X, -X, X / 2]) == {"x0": 5, "relu": 5}
    assert named(one_input(), [X]) == {"x0": 5, "relu": 3}


@pytest.mark.parametrize(
    "sample", [(X, X), [X, X], {"x1": X, "x0": X}], ids=["tuple", "list", "dict"]
)
def test_forms_of_a_sample(sample):
    g = Graph((1, 3), (1, 3))
    mod = g.module(g.op("subtract", *g.params, name="difference"))
    assert named(mod, [sample]) == {"x0": 5, "x1": 5, "difference": 0}


def test_dicts_are_matched_by_name():
    g = Graph((1, 3), (1, 3))
    mod = g.module(g.op("divide", *g.params, name="ratio"))
    assert named(mod, [{"x1": X, "x0": 2 * X}])["ratio"] == 2


def test_samples_are_streamed():
    alive: list[int] = []

    def stream() -> Any:
        for i in range(3):
            alive.append(i)
            yield X * i

    steps: list[Any] = []
    ranges = tensor_ranges(one_input(), stream(), lambda *step: steps.append((*step, len(alive))))
    assert max(ranges.values()) == 10
    assert steps == [(1, None, 1), (2, None, 2), (3, None, 3)]
    tensor_ranges(one_input(), [X, X], lambda *step: steps.append(step))
    assert steps[3:] == [(1, 2), (2, 2)]


def test_default_calibration_is_seeded():
    first, again, other = (default_calibration(two_inputs(), 2, seed) for seed in (1, 1, 2))
    assert [list(sample) for sample in first] == [["x0", "x1"]] * 2
    np.testing.assert_array_equal(first[1]["x1"], again[1]["x1"])
    assert not np.array_equal(first[1]["x1"], other[1]["x1"])


def test_statistics_of_a_tensor():
    mod = one_input()
    x, relu = tensor_statistics(mod, [X, X / 2]).values()
    assert (x.amax, x.low, x.high, x.count, x.saturated) == (5, -5, 3, 6, 0)
    assert (x.interval, x.saturation, x.histogram) == ((-5, 3), 0, None)
    assert (relu.amax, relu.low, relu.high, relu.interval) == (3, 0, 3, (0, 3))


@pytest.mark.parametrize("method", ["minmax", "kl"])
def test_workers_count_the_same(method, monkeypatch):
    """Processes start for what has a histogram too; the other parts are tallied one by one here."""
    if method == "minmax":
        monkeypatch.setattr(statistics, "run_in_order", lambda work, parts, *_: map(work, parts))
    rng = np.random.default_rng(3)
    samples = [rng.standard_normal((1, 3), "float32") * 4.0**i for i in range(18)]
    samples = [sample.astype("float32") for sample in samples[::-1]]
    alone = tensor_statistics(one_input(), samples, method=method).values()
    steps = []
    shared = tensor_statistics(
        one_input(), samples, lambda *step: steps.append(step), method=method, workers=2
    ).values()
    assert steps[-1] == (18, 18)
    for one, other in zip(alone, shared, strict=True):
        assert (one.amax, one.low, one.high, one.count) == (
            other.amax,
            other.low,
            other.high,
            other.count,
        )
        if one.histogram is not None:
            assert other.histogram is not None
            assert one.histogram.width == other.histogram.width
            np.testing.assert_array_equal(one.histogram.counts, other.histogram.counts)


def test_a_dask_scheduler_that_is_not_there():
    pytest.importorskip("distributed")
    with pytest.raises(VTAError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"):
        tensor_statistics(one_input(), [X], scheduler="tcp://127.0.0.1:9")


def test_thresholds_and_saturation():
    mod, rng = one_input(), np.random.default_rng(0)
    samples = [rng.standard_normal((1, 3), "float32") for _ in range(2000)]
    values = np.abs(np.concatenate(samples))
    x, relu = tensor_statistics(mod, samples, method="percentile", percentile=99).values()
    assert x.amax == pytest.approx(np.quantile(values, 0.99), abs=0.01)
    assert x.saturated == pytest.approx(60, abs=5)
    assert x.saturation == x.saturated / 6000
    assert x.interval == (-x.amax, x.amax)
    assert relu.interval == (0, relu.amax)
    assert x.histogram is not None and x.histogram.total == 6000
    assert relu.histogram is not None and relu.histogram.zeros == np.sum(np.array(samples) <= 0)


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "kl"])
def test_thresholds_do_not_depend_on_the_order_or_the_kind_of_iterable(method):
    mod, rng = two_inputs(), np.random.default_rng(1)
    samples = [tuple(rng.standard_normal((2, 2, 3), "float32") * 2.0**i) for i in range(5)]
    first = tensor_ranges(mod, samples, method=method)
    assert tensor_ranges(mod, (s for s in reversed(samples)), method=method) == first
    assert tensor_ranges(mod, samples * 2, method="minmax") == tensor_ranges(mod, samples)


def test_a_silent_tensor_is_named():
    g = Graph((1, 3), (1, 3))
    off = g.op("nn.relu", g.op("negative", g.params[0], name="off__sign"), name="off")
    mod = g.module(g.op("add", off, g.params[1], name="sum"))
    ones, zeros = np.ones((1, 3), "float32"), np.zeros((1, 3), "float32")
    for method in ("minmax", "mse"):
        statistics = tensor_statistics(mod, [(ones, zeros)], method=method)
        assert statistics.silent == ["x1", "off", "sum"]
        assert [var.name for var in statistics] == ["x0", "x1", "off__sign", "off", "sum"]
    assert tensor_statistics(mod, [(-ones, ones)]).silent == []


def test_unknown_method():
    with pytest.raises(VTAError, match='^calibration method "max" is not known; "minmax", '):
        tensor_ranges(one_input(), [X], method="max")


# ---------------------------------------------------------------- what is refused
def test_no_samples():
    text = "calibration has 0 samples; at least 1 is needed; give it representative inputs"
    refused(text, one_input(), [])


def test_a_sample_instead_of_a_list():
    refused(
        "calibration is one ndarray; it must be a list (or another iterable) of samples; "
        "put the sample in a list",
        one_input(),
        X,
    )
    refused(
        "calibration is one dict; it must be a list (or another iterable) of samples; "
        "put the sample in a list",
        one_input(),
        {"x0": X},
    )


def test_wrong_shape():
    refused(
        'calibration sample 1, input "x0" has shape (3,); the input takes (1, 3); '
        "reshape or crop the sample",
        one_input(),
        [X, X[0]],
    )


def test_wrong_dtype():
    refused(
        'calibration sample 0, input "x0" has dtype float64; the input takes float32; '
        'convert it with .astype("float32")',
        one_input(),
        [X.astype("float64")],
    )
    refused(
        'calibration sample 0, input "x0" is a str; samples are NumPy arrays; '
        "convert it with numpy.asarray",
        one_input(),
        ["cat.jpg"],
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite(bad):
    refused(
        'calibration sample 0, input "x0" has 2 values that are NaN or infinite; every value '
        "must be finite; remove or repair the sample",
        one_input(),
        [np.float32([[1, bad, bad]])],
    )


@pytest.mark.parametrize("op", ["log", "sqrt"])
def test_a_tensor_that_is_not_finite(op):
    g = Graph((1, 3))
    mod = g.module(g.op(op, g.params[0], name="broken"))
    refused(
        'tensor "broken" is NaN on calibration sample 0, and so is a result of the model; results '
        "must be numbers; check the sample and the model in float",
        mod,
        [np.float32([[1, -5, 0]])],
    )


def test_wrong_inputs():
    refused(
        'calibration sample 0 has the inputs "x0", "image"; the inputs of the model are '
        '"x0", "x1"; give an array for each of them',
        two_inputs(),
        [{"x0": X, "image": X}],
    )
    refused(
        'calibration sample 0 has 3 arrays; the model has 2 inputs: "x0", "x1"; '
        "give an array for each of them",
        two_inputs(),
        [(X, X, X)],
    )


def integer_inputs(dtype: str) -> tvm.IRModule:
    """A table of 5 rows, looked up, and a mask."""
    g = Graph()
    g.params = [
        relax.Var("tokens", relax.TensorType((1, 3), dtype)),
        relax.Var("mask", relax.TensorType((1, 3), "bool")),
    ]
    flat = g.op("reshape", g.params[0], (3,))
    rows = g.op("take", g.normal(5, 2), flat, axis=0, mode="clip")
    kept = g.op("reshape", g.params[1], (3, 1))
    return g.module(g.op("where", kept, rows, g.const(-np.inf), name="masked"))


def test_integer_inputs():
    mod = integer_inputs("int64")
    for sample in default_calibration(mod, 8):
        assert sample["tokens"].dtype == np.int64 and sample["mask"].dtype == np.bool_
        assert sample["tokens"].min() >= 0 and sample["tokens"].max() < 5
        assert sample["mask"].all()
    tokens, mask = np.array([[0, 4, 2]]), np.array([[True, True, False]])
    (seen,) = [s for t, s in statistics_of(mod, (tokens, mask)).items() if t.name == "masked"]
    assert (seen.amax, seen.low) == (np.inf, -np.inf)
    refused(
        'calibration sample 0, input "tokens" has dtype float32; the input takes int64; convert it '
        'with .astype("int64")',
        mod,
        [(tokens.astype("float32"), mask)],
    )
    refused(
        'input "tokens" has the type R.Tensor((1, 3), dtype="int16"); inputs are tensors of '
        "float32, int8, uint8, int32, int64, bool; load a model with one of these",
        integer_inputs("int16"),
        [],
    )


def statistics_of(mod: tvm.IRModule, sample: tuple[np.ndarray, ...]) -> Statistics:
    return tensor_statistics(mod, [sample])


# ---------------------------------------------------------------- npz files
def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def unreadable(text: str, path: Path, mod: tvm.IRModule | None = None) -> None:
    with pytest.raises(VTAError) as caught:
        load_calibration(path, mod or two_inputs())
    assert str(caught.value) == text


def test_npz_is_split_into_samples(tmp_path):
    stack = np.arange(18, dtype="float32").reshape(6, 3)
    path = save(tmp_path / "data.npz", x0=stack, x1=-stack)
    loaded = load_calibration(path, two_inputs())
    assert len(loaded) == 3
    for i, sample in enumerate(loaded):
        np.testing.assert_array_equal(sample["x0"], stack[2 * i : 2 * i + 2])
        np.testing.assert_array_equal(sample["x1"], -stack[2 * i : 2 * i + 2])
    assert len(load_calibration(save(tmp_path / "x.npz", x0=stack), one_input())) == 6


def test_npz_names(tmp_path):
    path = save(tmp_path / "data.npz", x0=X, y=X)
    unreadable(
        f'calibration file "{path}" holds the arrays "x0", "y"; the inputs of the model are '
        '"x0", "x1"; save one array per input under its name',
        path,
    )


def test_npz_shapes(tmp_path):
    path = save(tmp_path / "data.npz", x0=np.zeros((4, 3), "float32"), x1=np.zeros((3, 3)))
    unreadable(
        'calibration array "x1" has shape (3, 3); n samples of the input take (2*n, 3); '
        "stack the samples along the first axis",
        path,
    )
    path = save(tmp_path / "data.npz", x0=np.zeros((4, 5, 3), "float32"))
    unreadable(
        'calibration array "x0" has shape (4, 5, 3); n samples of the input take (n, 3); '
        "stack the samples along the first axis",
        path,
        one_input(),
    )


def test_npz_counts(tmp_path):
    path = save(tmp_path / "data.npz", x0=np.zeros((4, 3)), x1=np.zeros((6, 3)))
    unreadable(
        f'calibration file "{path}" has different numbers of samples: "x0" 2, "x1" 3; '
        "every input needs the same number; save the arrays together",
        path,
    )


def test_npz_values(tmp_path):
    path = save(tmp_path / "data.npz", x0=np.float32([[0, 0, 0], [0, np.nan, 0]]))
    unreadable(
        'calibration sample 1, input "x0" has 1 values that are NaN or infinite; every value '
        "must be finite; remove or repair the sample",
        path,
        one_input(),
    )


def test_npz_without_samples(tmp_path):
    path = save(tmp_path / "data.npz", x0=np.zeros((0, 3), "float32"))
    with pytest.raises(VTAError, match="^calibration has 0 samples; "):
        quantize(one_input(), calibration=load_calibration(path, one_input()))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"x0,x1\n1,2\n"])
def test_not_an_npz(tmp_path, content):
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    text = (
        f'calibration file "{path}" is not an .npz archive of numeric arrays; save it with '
        "numpy.savez(path, **{input name: samples})"
    )
    unreadable(text, path)


def test_npy_and_objects_are_no_npz(tmp_path):
    text = (
        'calibration file "{}" is not an .npz archive of numeric arrays; save it with '
        "numpy.savez(path, **{{input name: samples}})"
    )
    np.save(tmp_path / "data.npy", X)
    unreadable(text.format(tmp_path / "data.npy"), tmp_path / "data.npy")
    path = save(tmp_path / "data.npz", x0=np.array([object()]))
    unreadable(text.format(path), path)


def test_missing_npz(tmp_path):
    path = tmp_path / "none.npz"
    text = f'calibration file "{path}" does not exist; an .npz file is needed; check the path'
    unreadable(text, path)


def test_a_tensor_without_elements():
    g = Graph((1, 2, 4, 4))
    empty = g.op("strided_slice", g.params[0], [2], [0], [0], name="empty")
    mod = g.module(g.op("nn.conv2d", empty, g.normal(3, 2, 1, 1)))
    with pytest.raises(VTAError) as caught:
        quantize(mod, calibration=[np.zeros((1, 2, 4, 4), "float32")])
    assert str(caught.value) == (
        'tensor "empty" has the shape (1, 2, 0, 4); every dimension must be at least 1; '
        "correct the shapes or slices of the model"
    )
