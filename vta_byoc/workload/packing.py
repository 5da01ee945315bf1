"""Packed layouts (b = BATCH, k = BLOCK) and the numpy functions that fill them.

* activations ``(N/b, C/k, H, W, b, k)``; int8, or int32 as four byte planes in front of that,
* weights ``(O/k, I/k, KH, KW, k, k)`` int8,
* operands of the epilogue, int32, equal for all batch lanes: one value per channel
  ``(C/k, b, k)``, per position ``(H, W, b, k)`` or per channel and position
  ``(C/k, H, W, b, k)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.workloads import CHANNEL, MAP

PLANES = 4
"""Byte planes of a packed int32 tensor, least significant first."""


def blocks(size: int, block: int) -> int:
    """Blocks that hold ``size`` items."""
    return -(-size // block)


def packed_shape(shape: Sequence[int], config: VTAConfig, dtype: str = "int8") -> tuple[int, ...]:
    """Packed shape of an (N, C, H, W) tensor."""
    n, c, h, w = shape
    b, k = config.batch, config.block
    packed = (blocks(n, b), blocks(c, k), h, w, b, k)
    return packed if dtype == "int8" else (PLANES, *packed)


def pack_activation(x: np.ndarray, config: VTAConfig) -> np.ndarray:
    """(n, c, h, w) to (n/b, c/k, h, w, b, k), zeros in the lanes that do not exist."""
    n, c, h, w = x.shape
    b, k = config.batch, config.block
    full = np.zeros((blocks(n, b) * b, blocks(c, k) * k, h, w), x.dtype)
    full[:n, :c] = x
    split = full.reshape(blocks(n, b), b, blocks(c, k), k, h, w)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 1, 3))


def unpack_activation(x: np.ndarray, batch: int, channels: int) -> np.ndarray:
    """The inverse of :func:`pack_activation` for ``batch`` rows and ``channels`` channels."""
    nb, cb, h, w, b, k = x.shape
    full = x.transpose(0, 4, 1, 5, 2, 3).reshape(nb * b, cb * k, h, w)
    return np.ascontiguousarray(full[:batch, :channels])


def unpacked(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A packed tensor as (N, C, H, W) ``shape``; int32 from its byte planes."""
    n, c = shape[0], shape[1]
    if x.ndim == 6:
        return unpack_activation(x, n, c)
    planes = [unpack_activation(plane, n, c).view(np.uint8).astype(np.uint32) for plane in x]
    word = sum((p << np.uint32(8 * i) for i, p in enumerate(planes)), np.uint32(0))
    return np.asarray(word, np.uint32).view(np.int32)


def pack_weight(weight: np.ndarray, config: VTAConfig) -> np.ndarray:
    """(o, i, kh, kw) to (o/k, i/k, kh, kw, k, k), zeros in the lanes that do not exist."""
    o, i, kh, kw = weight.shape
    k = config.block
    full = np.zeros((blocks(o, k) * k, blocks(i, k) * k, kh, kw), weight.dtype)
    full[:o, :i] = weight
    split = full.reshape(blocks(o, k), k, blocks(i, k), k, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 1, 3))


def diagonal_weights(scales: Sequence[int], config: VTAConfig) -> np.ndarray:
    """Weights that multiply every lane by each of ``scales``: (scales, 1, 1, 1, k, k) int8."""
    k = config.block
    unit = np.eye(k, dtype=np.int64) * np.reshape(scales, (-1, 1, 1))
    return np.ascontiguousarray(unit.reshape(-1, 1, 1, 1, k, k), np.int8)


def spread_weights(scales: Sequence[int], config: VTAConfig) -> np.ndarray:
    """Weights that write the first lane times each of ``scales`` to every lane.

    Their shape is that of :func:`diagonal_weights`.
    """
    weights = np.zeros((len(scales), 1, 1, 1, config.block, config.block), np.int8)
    weights[..., 0] = np.reshape(scales, (-1, 1, 1, 1, 1))
    return weights


def operand_shape(kind: str, shape: Sequence[int], config: VTAConfig) -> tuple[int, ...]:
    """Packed shape of a step's tensor operand of ``kind`` for a result (N, C, H, W)."""
    _, c, h, w = shape
    lanes = (config.batch, config.block)
    if kind == CHANNEL:
        return blocks(c, config.block), *lanes
    return (h, w, *lanes) if kind == MAP else (blocks(c, config.block), h, w, *lanes)


def pack_operand(value: np.ndarray, kind: str, config: VTAConfig) -> np.ndarray:
    """A step's operand (C,), (H, W) or (C, H, W) to its packed int32 shape, zeros in tail lanes."""
    b, k = config.batch, config.block
    if kind == MAP:
        full = np.broadcast_to(value[:, :, None, None], (*value.shape, b, k))
        return np.ascontiguousarray(full, np.int32)
    channels, *space = value.shape
    padded = np.zeros((blocks(channels, k) * k, *space), np.int32)
    padded[:channels] = value
    split = np.moveaxis(padded.reshape(-1, k, *space), 1, -1)
    return np.ascontiguousarray(np.repeat(split[..., None, :], b, axis=-2))
