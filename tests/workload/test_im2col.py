"""Folding an image into channels: what the host writes, and that the convolution stays the same."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from dialect_numpy import OPS
from layer_runs import folded_image
from small_models import PLAIN

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.im2col import Im2col, folded, folds
from vta_byoc.workload.packing import pack_activation, packed_shape
from vta_byoc.workload.workloads import Conv2dWorkload

CONFIG = VTAConfig()
STEM = Conv2dWorkload(1, 3, 64, 224, 224, (7, 7), (2, 2), (3, 3, 3, 3))
SMALL_STEMS = [
    Conv2dWorkload(1, 3, 16, 20, 18, (7, 7), (2, 2), (3, 3, 3, 3)),
    Conv2dWorkload(2, 3, 8, 9, 11, (3, 3), (2, 2), (1, 0, 0, 1)),
    Conv2dWorkload(1, 1, 8, 12, 12, (5, 5), (1, 1), (2, 2, 2, 2)),
    Conv2dWorkload(3, 5, 20, 16, 7, (3, 1), (3, 1), (0, 0, 0, 0)),
    Conv2dWorkload(1, 4, 8, 17, 17, (4, 4), (4, 4), (0, 0, 0, 0)),
    Conv2dWorkload(1, 3, 8, 19, 23, (3, 5), (2, 3), (2, 4, 1, 3), (2, 1)),
    Conv2dWorkload(1, 2, 8, 30, 30, (11, 11), (4, 4), (2, 2, 2, 2)),
    Conv2dWorkload(1, 3, 4, 1, 40, (1, 9), (1, 2), (0, 4, 0, 4), (1, 2)),
    Conv2dWorkload(1, 20, 4, 9, 9, (3, 3), (1, 1), (1, 1, 1, 1)),
]


def convolution(work: Conv2dWorkload, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """int64 result of ``work``."""
    attrs = SimpleNamespace(
        padding=work.padding, strides=work.strides, dilation=work.dilation, groups=work.groups
    )
    return np.asarray(OPS["nn.conv2d"](attrs, x.astype("int64"), weight.astype("int64")))


def random_data(work: Conv2dWorkload) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (work.out_channels, work.in_channels, *work.kernel)
    return (
        rng.integers(-128, 128, work.in_shapes[0], dtype="int8"),
        rng.integers(-128, 128, shape, dtype="int8"),
    )


@pytest.mark.parametrize("work", SMALL_STEMS, ids=lambda w: f"{w.kernel}s{w.strides}")
@pytest.mark.parametrize("preset", ["sim", "tophub_4x8", "1x32"])
def test_every_fold_gives_the_same_convolution(work: Conv2dWorkload, preset: str) -> None:
    found = folds(work, VTAConfig.preset(preset))
    assert len(found) == len(set(found))
    x, weight = random_data(work)
    want = convolution(work, x, weight)
    for fold in found:
        inner = folded(work, fold)
        assert inner.out_shape == work.out_shape and inner.in_shapes == (fold.shape,)
        got = convolution(inner, folded_image(x, fold), fold.weight(weight))
        np.testing.assert_array_equal(got, want, err_msg=fold.text)


def test_the_small_stems_have_folds_of_many_forms() -> None:
    found = [(w, f) for work in SMALL_STEMS for w in [work] for f in folds(work, CONFIG)]
    assert len(found) >= 40
    assert any(f.window == w.kernel for w, f in found), "the whole kernel"
    assert any(f.window == f.grid != (1, 1) for _, f in found), "space to depth"
    assert any(max(folded(w, f).dilation) > 1 for w, f in found), "taps apart on the grid"
    assert any(folded(w, f).strides != (1, 1) for w, f in found)


@pytest.mark.parametrize("work", SMALL_STEMS[1:6:2], ids=lambda w: f"{w.kernel}s{w.strides}")
@pytest.mark.parametrize("preset", ["sim", "tophub_4x8"])
def test_the_host_writes_what_the_definition_says(work: Conv2dWorkload, preset: str) -> None:
    config = VTAConfig.preset(preset)
    x, _ = random_data(work)
    for fold in folds(work, config)[:3]:
        func = fold.compute(x.shape, config).with_attr("global_symbol", "main")
        out = tvm.runtime.tensor(np.zeros(packed_shape(fold.shape, config), "int8"))
        tvm.compile(func, target=PLAIN)["main"](tvm.runtime.tensor(x), out)
        want = pack_activation(folded_image(x, fold), config)
        np.testing.assert_array_equal(out.numpy(), want, err_msg=fold.text)
        assert fold.nbytes(config) == want.nbytes
        assert Im2col.of(func) == fold and type(Im2col.of(func).constants) is int


@pytest.mark.parametrize(
    "change",
    [
        {"groups": 3, "out_channels": 66},
        {"in_channels": 32},
        {"kernel": (1, 1), "padding": (0, 0, 0, 0)},
    ],
    ids=["groups", "whole blocks", "one tap"],
)
def test_nothing_is_folded_where_no_lane_is_idle(change: dict[str, object]) -> None:
    assert folds(dataclasses.replace(STEM, **change), CONFIG) == []  # type: ignore[arg-type]


def test_folds_of_the_7x7_stem() -> None:
    """Candidates need a third of the 49 steps at most, and more bytes where they need fewer."""
    found = folds(STEM, CONFIG)
    steps = {f: math.prod(folded(STEM, f).kernel) * -(-f.shape[1] // 16) for f in found}
    assert max(steps.values()) <= 16, "as many as space to depth needs"
    cheapest = min(found, key=lambda f: f.nbytes(CONFIG))
    assert steps[cheapest] > min(steps.values())


def test_text_names_window_grid_and_channels() -> None:
    fold = Im2col((2, 2), (2, 2), (1, 1), (3, 3), (1, 12, 115, 115))
    assert fold.text == "windows of 2x2 every 2x2 folded into 12 channels"
