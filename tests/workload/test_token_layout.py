"""Tensors whose tokens are columns: where elements lie, and the host's functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from small_models import PLAIN

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.layout import (
    by_channel,
    canonical,
    fits_tokens,
    groups_of,
    is_tokens,
    pack_tokens_compute,
    read_packed,
    token_places,
    tokens,
    turned,
    unpack_tokens_compute,
)
from vta_byoc.workload.packing import PLANES, pack_activation, packed_shape

CONFIG = VTAConfig()
K = CONFIG.block
SHAPES = [(3, 20), (2, 17, 5), (1, 2, 16, 33), (2, 3, 1, 32)]
LAYOUTS = {"tokens": tokens(K), "turned": turned(K)}


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_where_elements_lie(name: str, shape: tuple[int, ...]) -> None:
    """Token t and channel c of group g lie in block c // K of the group, column t, lane c % K; all
    other lanes are of nothing."""
    layout, elements = LAYOUTS[name], numbered(shape)
    assert is_tokens(layout) and not is_tokens("nchw") and not is_tokens("rows")
    matrices = elements.reshape(-1, *shape[-2:])
    if name == "turned":
        matrices = matrices.transpose(0, 2, 1)
    assert groups_of(shape, layout) == matrices.shape
    found = token_places(elements, layout)
    view, whole = canonical(shape, layout), found.shape[2]
    assert view == (1, len(matrices) * found.shape[1] * K, 1, whole)
    assert 0 <= whole - matrices.shape[1] < K and whole % K == 0
    assert 0 <= found.shape[1] * K - matrices.shape[2] < K
    for at in np.ndindex(matrices.shape):
        group, token, channel = at
        assert found[group, channel // K, token, channel % K] == matrices[at]
    assert sorted(found[found >= 0]) == list(range(elements.size))
    flat = by_channel(found).reshape(view)
    packed = pack_activation(flat, CONFIG)
    np.testing.assert_array_equal(packed.reshape(found.shape), found)


def test_one_axis_has_no_tokens() -> None:
    for layout in LAYOUTS.values():
        assert canonical((5,), layout) is None


def with_places(shape: tuple[int, ...], name: str) -> tuple[np.ndarray, np.ndarray]:
    """A random tensor, and its elements where the layout has them; elsewhere are zeros."""
    x = np.random.default_rng(0).integers(-128, 128, shape).astype("int8")
    places = token_places(numbered(shape), LAYOUTS[name])
    return x, np.where(places < 0, 0, x.reshape(-1)[places]).astype("int8")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_packed_tensor_is_read_in_layouts_of_tokens(name: str) -> None:
    """Tensors of other sizes are not read from it, nor does a batch of lanes hold tokens."""
    shape = (2, 17, 21)
    x, packed = with_places(shape, name)
    packed = packed.reshape(1, -1, 1, packed.shape[2], 1, K)
    found = list(read_packed(packed, shape))
    assert len(found) == 2, "17 and 21 take as many blocks"
    assert any(np.array_equal(each, x) for each in found)
    for other in ((2, 17, 33), (2, 33, 21), (3, 17, 21), (17,)):
        assert list(read_packed(packed, other)) == []
    several = np.zeros((1, 4, 1, 32, 2, K), "int8")
    assert list(read_packed(several, shape)) == list(read_packed(several[None], shape)) == []
    assert list(read_packed(np.zeros((2, 4, 1, 32, 1, K), "int8"), shape)) == []


def run(func: tvm.tirx.PrimFunc, source: np.ndarray, out: np.ndarray) -> np.ndarray:
    built = tvm.compile(func.with_attr("global_symbol", "main"), target=PLAIN)
    result = tvm.runtime.tensor(np.full_like(out, 7))
    built["main"](tvm.runtime.tensor(source), result)
    return np.asarray(result.numpy())


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_host_packs_tokens(name: str) -> None:
    shape = (2, 5, 19)
    x, want = with_places(shape, name)
    view = canonical(shape, LAYOUTS[name])
    assert view is not None
    packed = want.reshape(packed_shape(view, CONFIG))
    func = pack_tokens_compute(shape, LAYOUTS[name], CONFIG)
    np.testing.assert_array_equal(run(func, x, packed), packed)


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_the_host_unpacks_tokens(dtype: str) -> None:
    """int32 is put together from its byte planes."""
    shape, layout = (2, 5, 19), tokens(K)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.random.default_rng(2).integers(least, most, shape, dtype, endpoint=True)
    x.reshape(-1)[:3] = (least, most, -1)
    places, view = token_places(numbered(shape), layout), canonical(shape, layout)
    assert view is not None
    lanes = np.where(places < 0, 0, x.reshape(-1)[places])
    planes = [(lanes >> 8 * i).astype("int8") for i in range(PLANES if dtype == "int32" else 1)]
    packed = np.stack(planes).reshape(packed_shape(view, CONFIG, dtype))
    func = unpack_tokens_compute(shape, layout, CONFIG, dtype)
    np.testing.assert_array_equal(run(func, packed, x), x)


def test_which_tensors_have_tokens_as_columns() -> None:
    """At least a block of tokens, in one group, on a machine without a batch of lanes."""
    assert fits_tokens((1, K, 3), CONFIG) and fits_tokens((1, 1, K + 1, 3), CONFIG)
    assert not fits_tokens((1, K - 1, 99), CONFIG)
    assert not fits_tokens((K, 3), CONFIG), "these are rows"
    assert not fits_tokens((2, K, 3), CONFIG) and not fits_tokens((1, 2, K, 3), CONFIG)
    assert not fits_tokens((1, 99, 3), VTAConfig.preset("2x16"))
