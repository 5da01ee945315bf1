"""ONNX's pools: explicit padding, and the places of maxima."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.maxima import Windows, places
from vta_byoc.importers.onnx.node import NodeAttributes
from vta_byoc.ir.bindings import constant_of, static_shape

POOLS = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
"""Spatial axes -> the pool of TVM."""
LEAST_NEEDED = -1
"""Elements behind the last window of `auto_pad`, negative: one is left out at the end by all."""
COLUMNS_FIRST_AXES = (1, 2)
"""Spatial axes for which places may be counted down the columns (`storage_order` 1)."""


def pool(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """TVM rounds the size of SAME_LOWER down, and forgets the dilation of averages."""
    mode = attrs.get("auto_pad", b"NOTSET").decode()
    if mode.startswith("SAME") and max(attrs.get("dilations", (1,))) > 1:
        raise ValueError(f"auto_pad {mode} of a dilated window is not the same in every runtime")
    if mode.startswith("SAME"):
        attrs["ceil_mode"] = 0  # the sizes that it gives are not rounded again
    explicit_pads(inputs[0], attrs["kernel_shape"], attrs, LEAST_NEEDED)


def max_pool(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """With the place of each maximum where the node has a second result; else TVM's converter."""
    pool(inputs, attrs)
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return None
    kernel = [int(size) for size in attrs["kernel_shape"]]
    rank = len(kernel)
    if rank not in POOLS:
        raise ValueError(f"its places are results of {rank} spatial axes; 1 to 3 are taken")
    strides = [int(n) for n in attrs.get("strides", [1] * rank)]
    dilation = [int(n) for n in attrs.get("dilations", [1] * rank)]
    padding = [int(n) for n in attrs.get("pads", [0] * (2 * rank))]
    is_ceil = bool(attrs.get("ceil_mode", 0))
    maxima = POOLS[rank](inputs[0], kernel, strides, padding, dilation, is_ceil)
    batch, channels, *sizes = static_shape(inputs[0])
    pads = list(zip(padding[:rank], padding[rank:], strict=True))
    windows = Windows.of(sizes, kernel, strides, dilation, pads, is_ceil)
    of_plane = places(inputs[0], windows, _numbers(sizes, attrs))
    planes = np.arange(batch * channels) * math.prod(sizes)
    first = constant_of(planes.reshape(batch, channels, *[1] * rank))
    return relax.Tuple([maxima, relax.op.add(of_plane, first)])


def _numbers(sizes: Sequence[int], attrs: NodeAttributes) -> np.ndarray:
    """Of the elements of a plane: row by row, or with `storage_order` 1 column by column."""
    numbers = np.arange(math.prod(sizes))
    if not attrs.get("storage_order", 0) or len(sizes) == 1:
        return numbers
    if len(sizes) not in COLUMNS_FIRST_AXES:
        raise ValueError(f"storage_order is 1 with {len(sizes)} spatial axes; 1 or 2 are taken")
    return np.ascontiguousarray(numbers.reshape(sizes[::-1]).T).reshape(-1)


def explicit_pads(
    data: relax.Expr, kernel: Sequence[int], attrs: NodeAttributes, least: int
) -> None:
    """Turn auto_pad into pads.

    Raises:
        ValueError: windows shorter than their strides reach less than `least` beyond an axis.
    """
    mode = attrs.get("auto_pad", b"NOTSET").decode()
    if not mode.startswith("SAME"):
        return
    needs = _needed(data, kernel, attrs)
    if min(needs) < least:
        raise ValueError(
            f"auto_pad {mode} of windows shorter than their strides leaves {-min(needs)} elements "
            "out, other ones in every runtime"
        )
    before, after = [], []
    for needed in needs:
        total = max(needed, 0)
        small, large = total // 2, total - total // 2
        before.append(large if mode == "SAME_LOWER" else small)
        after.append(small if mode == "SAME_LOWER" else large)
    attrs["pads"] = tuple(before + after)
    del attrs["auto_pad"]


def _needed(data: relax.Expr, kernel: Sequence[int], attrs: NodeAttributes) -> list[int]:
    """What a stride's number of windows reaches beyond each axis; below 0 where it ends inside."""
    spatial = static_shape(data)[2:]
    strides, dilations = (attrs.get("strides"), attrs.get("dilations"))
    found = []
    for axis, size in enumerate(spatial):
        stride = 1 if strides is None else strides[axis]
        extent = (kernel[axis] - 1) * (1 if dilations is None else dilations[axis]) + 1
        found.append((-(-size // stride) - 1) * stride + extent - size)
    return found
