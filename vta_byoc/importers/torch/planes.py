"""Operators of PyTorch on planes: resizing, pooling, normalization of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers import resizing
from vta_byoc.importers.maxima import Windows, places
from vta_byoc.importers.resizing import Axis
from vta_byoc.importers.torch.arguments import (
    Converter,
    argument,
    emit,
)
from vta_byoc.ir.bindings import static_shape

if TYPE_CHECKING:
    from torch.fx import Node
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter


# ---------------------------------------------------------------- resizing
def _resized(method: str) -> Converter:
    """upsample(x, sizes, [corners,] scales).

    PyTorch steps through the input by 1 / scale, TVM by the ratio of the sizes: where they differ,
    axes are multiplied, or elements taken.
    """

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        has_corners = method == "linear"
        corners = has_corners and bool(argument(node, 2, "align_corners", False))
        scales = argument(node, 3 if has_corners else 2, "scale_factors")
        old, new = node.args[0].meta["val"].shape[2:], node.meta["val"].shape[2:]
        exact = [size * scale for size, scale in zip(old, scales or (), strict=False)]
        if not corners and any(a != b for a, b in zip(exact, new, strict=False)):
            axes = _axes(old, new, scales, "half_pixel" if has_corners else "asymmetric")
            if has_corners:
                return _interpolated(node, importer, axes, resizing.LINEAR)
            x = importer.env[node.args[0]]
            for number, axis in axes.items():
                x = emit(importer, relax.op.take(x, relax.const(axis.nearest("floor")), number))
            return x
        mode = "half_pixel" if has_corners else "asymmetric"
        resized = relax.op.image.resize2d(
            importer.env[node.args[0]],
            relax.ShapeExpr(list(new)),
            layout="NCHW",
            method=method,
            coordinate_transformation_mode="align_corners" if corners else mode,
            rounding_method="" if has_corners else "floor",
        )
        return emit(importer, resized)

    return convert


def _axes(
    old: Sequence[int], new: Sequence[int], scales: Sequence[float | None], places: str
) -> dict[int, Axis]:
    """The two axes of a plane; a scale that is not given is the ratio of the sizes."""
    sides = zip(old, new, scales, strict=True)
    return {
        number: Axis(int(size), int(result), scale or result / size, places)
        for number, (size, result, scale) in enumerate(sides, 2)
        if (scale or result / size) != 1
    }


def _interpolated(
    node: Node,
    importer: ExportedProgramImporter,
    axes: Mapping[int, Axis],
    filtered: resizing.Filter,
    antialias: bool = False,
) -> relax.Var:
    matrices = {n: axis.weights(filtered, antialias, antialias) for n, axis in axes.items()}
    x = importer.env[node.args[0]]
    return resizing.multiplied(lambda call: emit(importer, call), x, matrices)


def _filtered(filtered: resizing.Filter) -> Converter:
    """upsample(x, sizes, corners, scale of rows, scale of columns) with antialias."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        if argument(node, 2, "align_corners", False):
            raise VTAError(
                f'node "{node.name}" ({node.target.__name__}) has align_corners and a filter; only '
                "half pixels are filtered; resize with align_corners=False"
            )
        scales = [argument(node, 3 + axis, f"scales_{'hw'[axis]}") for axis in (0, 1)]
        old, new = node.args[0].meta["val"].shape[2:], node.meta["val"].shape[2:]
        axes = _axes(old, new, scales, "half_pixel")
        return _interpolated(node, importer, axes, filtered, antialias=True)

    return convert


def _grid_sample(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """grid_sampler_2d(x, grid, mode, padding, corners) with the grid as (N, H, W, 2)."""
    x, grid, mode, padding, corners = node.args
    sampled = relax.op.image.grid_sample(
        importer.env[x],
        emit(importer, relax.op.permute_dims(importer.env[grid], [0, 3, 1, 2])),
        method=("bilinear", "nearest", "bicubic")[mode],
        layout="NCHW",
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=corners,
    )
    return emit(importer, sampled)


# ---------------------------------------------------------------- pooling and normalization
def _average(rank: int) -> Converter:
    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        if argument(node, 6, "divisor_override") is not None:
            raise VTAError(
                f'node "{node.name}" ({node.target.__name__}) has a divisor_override; averages are '
                "divided by their number of elements; leave it out and multiply the result"
            )
        return getattr(importer, f"_avg_pool{rank}d")(node)

    return convert


def _maximal(rank: int) -> Converter:
    """max_pool with the places of the maxima, where these are read; no stride is the window's."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        pool = getattr(importer, f"_max_pool{rank}d_impl")
        x, kernel = importer.env[node.args[0]], node.args[1]
        padding, dilation = argument(node, 3, "padding", 0), argument(node, 4, "dilation", 1)
        stride = argument(node, 2, "stride") or kernel
        ceil = argument(node, 5, "ceil_mode", False)
        results = [emit(importer, pool(x, kernel, stride, padding, dilation, ceil))]
        if _are_places_read(node):
            sizes = static_shape(x)[-rank:]
            steps, apart, pads = (_per_axis(given, rank) for given in (stride, dilation, padding))
            both = [(width, width) for width in pads]
            windows = Windows.of(sizes, _per_axis(kernel, rank), steps, apart, both, ceil)
            results.append(emit(importer, places(x, windows)))
        return relax.Tuple(results)

    return convert


def _per_axis(given: int | Sequence[int], rank: int) -> list[int]:
    """A value of each axis; one value is that of all."""
    values = [given] if isinstance(given, int) else list(given)
    return values * rank if len(values) == 1 else values


def _adaptive_maximal(rank: int) -> Converter:
    """adaptive_max_pool(x, counts): maxima of so many windows of an axis, which may overlap."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        _check_places_unread(node)
        x, shape, counts = importer.env[node.args[0]], node.args[0].meta["val"].shape, node.args[1]
        sides = list(zip(shape[-rank:], counts, strict=True))
        if all(size % count == 0 for size, count in sides):
            window = [size // count for size, count in sides]
            pool = getattr(importer, f"_max_pool{rank}d_impl")
            return relax.Tuple([emit(importer, pool(x, window, window))])
        for axis, (size, count) in enumerate(sides, len(shape) - rank):
            ends = [(n * size // count, -(-(n + 1) * size // count)) for n in range(count)]
            parts = [relax.op.strided_slice(x, [axis], [low], [high]) for low, high in ends]
            maxima = [emit(importer, relax.op.max(emit(importer, p), axis, True)) for p in parts]
            x = emit(importer, relax.op.concat(maxima, axis))
        return relax.Tuple([x])

    return convert


def _are_places_read(node: Node) -> bool:
    return any(user.args[1] == 1 and user.users for user in node.users)


def _check_places_unread(node: Node) -> None:
    if _are_places_read(node):
        raise VTAError(
            f'node "{node.name}" ({node.target.__name__}) has its second result read, the '
            "places of the maxima; only the maxima of adaptive pools are imported; pool without "
            "return_indices"
        )


def _affine(
    importer: ExportedProgramImporter, value: Node | None, count: int, default: float
) -> relax.Expr:
    """A scale or a shift; none is a constant."""
    if value is not None:
        return importer.env[value]
    return relax.const(np.full(count, default, "float32"))


def _group_norm(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """native_group_norm(x, scale, shift, N, C, HxW, groups, eps), scale and shift may be None."""
    x, scale, shift, _batch, channels, _pixels, groups, eps = node.args
    data = importer.env[x]
    normal = relax.op.nn.group_norm(
        data,
        _affine(importer, scale, channels, 1),
        _affine(importer, shift, channels, 0),
        num_groups=groups,
        channel_axis=1,
        axes=list(range(2, data.ty.ndim)),
        epsilon=eps,
    )
    return relax.Tuple([emit(importer, normal)])


PLANES: dict[str, Converter] = {
    "_upsample_bicubic2d_aa.default": _filtered(resizing.cubic(resizing.FILTERED_CUBIC)),
    "_upsample_bilinear2d_aa.default": _filtered(resizing.LINEAR),
    "adaptive_max_pool2d.default": _adaptive_maximal(2),
    "adaptive_max_pool3d.default": _adaptive_maximal(3),
    "avg_pool2d.default": _average(2),
    "avg_pool3d.default": _average(3),
    "grid_sampler_2d.default": _grid_sample,
    "max_pool2d_with_indices.default": _maximal(2),
    "max_pool3d_with_indices.default": _maximal(3),
    "native_group_norm.default": _group_norm,
    "upsample_bilinear2d.vec": _resized("linear"),
    "upsample_nearest2d.vec": _resized("nearest_neighbor"),
}
"""Operator -> its converter."""
