"""Generators of ONNX cases: resized, sampled and pooled images."""

from __future__ import annotations

import numpy as np
from importer_onnx_graph import Onnx


def resize(n: Onnx) -> None:
    rank = n.pick(1, 2, 2, 3)
    shape = (1, n.size(1, 2), *(n.size(2, 5) for _ in range(rank)))
    mode = n.pick("nearest", "linear", "cubic")
    coordinates = n.pick(
        None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
        "half_pixel_symmetric",
    )  # fmt: skip
    rounding = n.pick(None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    attrs = {
        "mode": mode, "coordinate_transformation_mode": coordinates,
        "nearest_mode": rounding if mode == "nearest" else None,
        "cubic_coeff_a": n.pick(None, -0.5) if mode == "cubic" else None,
        "exclude_outside": n.pick(None, 1) if mode == "cubic" else None,
    }  # fmt: skip
    if n.flag():
        sizes = [*shape[:2], *(n.size(2, 9) for _ in range(rank))]
        n.test(n.tensor(shape), "", "", n.const(sizes, "int64"), **attrs)
    else:
        scales = [1, 1, *(n.pick(2.0, 3.0, 1.5, 0.5) for _ in range(rank))]
        n.test(n.tensor(shape), "", n.const(scales), **attrs)


def upsample(n: Onnx) -> None:
    n.opset = 9
    scales = n.const([1, 1, n.pick(1, 2, 3), n.pick(1, 2, 1.5)])
    n.test(n.tensor((1, 2, 4, 4)), scales, mode=n.pick(None, "nearest", "linear"))


def grid_sample(n: Onnx) -> None:
    n.opset = n.pick(16, 20)
    modes = ("bilinear", "nearest", "bicubic") if n.opset < 20 else ("linear", "nearest", "cubic")
    attrs = {
        "mode": n.pick(None, *modes), "padding_mode": n.pick(None, "zeros", "border", "reflection"),
        "align_corners": n.pick(None, 0, 1),
    }  # fmt: skip
    n.test(n.tensor((1, 2, n.size(2, 5), n.size(2, 5))), n.tensor((1, 3, 4, 2), -1.5, 1.5), **attrs)


def affine_grid(n: Onnx) -> None:
    n.opset = 20
    size = n.const([1, 2, n.size(1, 4), n.size(1, 4)], "int64")
    n.test(n.tensor((1, 2, 3)), size, align_corners=n.pick(None, 0, 1))


def _boxes(n: Onnx, count: int, size: float) -> np.ndarray:
    corners = np.sort(n.rng.uniform(0, size, (2, count, 2)), 0)
    return np.concatenate([corners[0], corners[1]], 1).astype("float32")


def roi_align(n: Onnx) -> None:
    n.opset, count = n.pick(13, 16), n.size(1, 3)
    modes = ("half_pixel", "output_half_pixel")
    attrs = {
        "mode": n.pick(None, "avg"), "sampling_ratio": n.pick(None, 1, 2),
        "output_height": n.size(1, 3), "output_width": n.size(1, 3),
        "spatial_scale": n.pick(None, 0.5),
        "coordinate_transformation_mode": n.pick(None, *modes) if n.opset == 16 else None,
    }  # fmt: skip
    batch = n.const(n.integers((count,), 0, 0), "int64")
    n.test(n.tensor((1, 2, 6, 6)), n.const(_boxes(n, count, 6)), batch, **attrs)


def max_roi_pool(n: Onnx) -> None:
    boxes = np.round(_boxes(n, n.size(1, 3), 5))
    rois = np.concatenate([np.zeros((len(boxes), 1), "float32"), boxes], 1)
    n.test(
        n.tensor((1, 2, 6, 6)),
        n.const(rois),
        pooled_shape=[n.size(1, 3), n.size(1, 3)],
        spatial_scale=n.pick(None, 0.5),
    )


def max_unpool(n: Onnx) -> None:
    height, width = n.size(1, 3), n.size(1, 3)
    kernel = [2, n.size(1, 2)]
    places = np.arange(2 * height * kernel[0] * width * kernel[1])
    windows = places.reshape(2, height, kernel[0], width, kernel[1])
    chosen = windows[:, :, n.size(0, 1), :, n.size(0, kernel[1] - 1)]
    x = n.tensor((1, 2, height, width))
    n.test(x, n.const(chosen[None], "int64"), kernel_shape=kernel, strides=kernel)
