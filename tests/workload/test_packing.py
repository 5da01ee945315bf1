"""Packed layouts: numpy and the host's functions agree, and unpacking inverts packing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from layer_runs import unpacked
from small_models import PLAIN

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.layout import NCHW, ROWS, canonical, pack_compute, unpack_compute
from vta_byoc.workload.packing import (
    PLANES,
    operand_shape,
    pack_activation,
    pack_operand,
    pack_weight,
    packed_shape,
    unpack_activation,
)
from vta_byoc.workload.packing import unpacked as from_planes
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP

PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("shape", [(1, 16, 5, 7), (3, 20, 4, 4), (4, 40, 1, 3), (5, 1, 1, 1)])
def test_pack_and_unpack_are_inverse(preset: str, shape: tuple[int, ...]) -> None:
    config = VTAConfig.preset(preset)
    x = np.random.default_rng(0).integers(-128, 128, shape).astype("int8")
    packed = pack_activation(x, config)
    assert packed.shape == packed_shape(shape, config)
    assert packed.shape[4:] == (config.batch, config.block)
    np.testing.assert_array_equal(unpack_activation(packed, *shape[:2]), x)
    lanes = math.prod(packed.shape) - x.size
    assert np.count_nonzero(packed == 0) >= lanes
    b, k = config.batch, config.block
    n, c, h, w = (int(s) - 1 for s in shape)
    assert packed[n // b, c // k, h, w, n % b, c % k] == x[n, c, h, w]


def run(func: tvm.tirx.PrimFunc, source: np.ndarray, out: np.ndarray) -> np.ndarray:
    built = tvm.compile(func.with_attr("global_symbol", "main"), target=PLAIN)
    result = tvm.runtime.tensor(np.zeros_like(out))
    built["main"](tvm.runtime.tensor(source), result)
    return result.numpy()


@pytest.mark.parametrize("preset", PRESETS)
def test_host_functions_equal_the_numpy_packing(preset: str) -> None:
    config = VTAConfig.preset(preset)
    shape = (3, 20, 4, 5)
    x = np.random.default_rng(1).integers(-128, 128, shape).astype("int8")
    packed = pack_activation(x, config)
    np.testing.assert_array_equal(run(pack_compute(shape, config), x, packed), packed)
    np.testing.assert_array_equal(run(unpack_compute(shape, config), packed, x), x)


@pytest.mark.parametrize("preset", PRESETS)
def test_int32_is_put_together_from_byte_planes(preset: str) -> None:
    config = VTAConfig.preset(preset)
    shape = (3, 9, 2, 2)
    rng = np.random.default_rng(2)
    x = rng.integers(-(2**31), 2**31, shape).astype("int32")
    x.reshape(-1)[:4] = (-(2**31), 2**31 - 1, -1, 255)
    planes = [pack_activation((x >> 8 * i).astype("int8"), config) for i in range(PLANES)]
    packed = np.stack(planes)
    assert packed.shape == packed_shape(shape, config, "int32")
    np.testing.assert_array_equal(unpacked(packed, shape, "int32"), x)
    np.testing.assert_array_equal(from_planes(packed, shape), x)
    np.testing.assert_array_equal(run(unpack_compute(shape, config, "int32"), packed, x), x)


def test_weight_layout() -> None:
    config = VTAConfig.preset("tophub_4x8")
    weight = np.arange(10 * 9 * 2 * 3, dtype="int32").reshape(10, 9, 2, 3).astype("int8")
    got = pack_weight(weight, config)
    assert got.shape == (2, 2, 2, 3, 8, 8)
    assert got[1, 1, 1, 2, 1, 0] == weight[9, 8, 1, 2]
    assert got[1, 1, 1, 2, 2, 0] == 0


@pytest.mark.parametrize("kind", [CHANNEL, MAP, FULL])
@pytest.mark.parametrize("preset", PRESETS)
def test_operand_layout(kind: str, preset: str) -> None:
    """The value of channel c at (h, w) stands in lane c of its block, in every batch lane."""
    config = VTAConfig.preset(preset)
    b, k = config.batch, config.block
    c, h, w = 20, 3, 5
    shape = {CHANNEL: (c,), MAP: (h, w), FULL: (c, h, w)}[kind]
    value = np.random.default_rng(3).integers(-(2**31), 2**31, shape)
    got = pack_operand(value, kind, config)
    assert got.dtype == np.int32 and got.shape == operand_shape(kind, (7, c, h, w), config)
    for channel, row, col, lane in ((0, 0, 0, 0), (19, 2, 4, b - 1), (17, 1, 3, 0)):
        index = {
            CHANNEL: ((channel // k, lane, channel % k), (channel,)),
            MAP: ((row, col, lane, channel % k), (row, col)),
            FULL: ((channel // k, row, col, lane, channel % k), (channel, row, col)),
        }[kind]
        assert got[index[0]] == value[index[1]]
    if kind != MAP:
        tail = got[-1, ..., c % k :] if c % k else got[-1, ..., k:]
        assert not tail.any()


@pytest.mark.parametrize(
    ("shape", "layout", "seen"),
    [
        ((2, 3, 4, 5), NCHW, (2, 3, 4, 5)),
        ((2, 3, 5), NCHW, (2, 3, 1, 5)),
        ((2, 3), NCHW, (2, 3, 1, 1)),
        ((2, 3, 4, 5, 6), NCHW, None),
        ((2,), NCHW, None),
        ((2, 3), ROWS, (2, 3, 1, 1)),
        ((2, 3, 4), ROWS, (6, 4, 1, 1)),
        ((2, 3, 4, 5), ROWS, (24, 5, 1, 1)),
        ((3,), ROWS, None),
    ],
)
def test_how_tensors_of_any_rank_are_seen(
    shape: tuple[int, ...], layout: str, seen: tuple[int, ...] | None
) -> None:
    assert canonical(shape, layout) == seen
