"""ONNX's Resize and Upsample: by TVM's operator where it computes the same, else by products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers import resizing
from vta_byoc.importers.onnx.node import NodeAttributes, values_of
from vta_byoc.importers.resizing import Axis
from vta_byoc.ir.bindings import static_shape

MODES = ("nearest", "linear", "cubic")
OLD_RESIZE = 2
"""Operands of Resize in opset 10: data and scales."""
OF_WHOLE = frozenset(
    {("half_pixel_symmetric", "nearest")}
    | {(places, mode) for places in ("align_corners", "tf_crop_and_resize") for mode in MODES}
)
"""Places and modes that runtimes compute differently where a scale gives no whole size."""
WHOLE = 1e-4
"""How far from a whole number a size may be, relatively."""


def resize(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Resize of any opset; None where TVM's converter does the work.

    That is where scales give whole sizes, as TVM computes the scales again from the sizes; where
    the axes are not chosen; and without a filter in front (antialias).
    """
    if len(inputs) == OLD_RESIZE:
        _renewed(inputs, attrs)
    scales, sizes = (_given(expr) for expr in inputs[2:4])
    shape, chosen = static_shape(inputs[0]), attrs.get("axes")
    if scales is None and sizes is None:
        return None
    places = attrs.get("coordinate_transformation_mode", b"half_pixel").decode()
    axes = _axes(shape, chosen, scales, sizes, places)
    is_whole = all(
        abs(each.size * each.scale - each.result) <= WHOLE * each.size for each in axes.values()
    )
    if is_whole and chosen is None and not attrs.get("antialias"):
        if places == "half_pixel_symmetric":  # symmetric is what half pixels are in whole sizes
            attrs["coordinate_transformation_mode"] = b"half_pixel"
        return None
    mode = attrs.get("mode", b"nearest").decode()
    if (places, mode) in OF_WHOLE and not is_whole:
        listed = ", ".join(f"{each.scale:g}" for each in axes.values())
        raise ValueError(f"scales ({listed}) of a tensor {shape} give no whole size for {places}")
    if places == "tf_crop_and_resize":
        raise ValueError("places are tf_crop_and_resize; all axes and no antialias are taken then")
    return _written(inputs[0], axes, mode, attrs)


def _given(expr: relax.Expr | None) -> np.ndarray | None:
    """A constant without elements is an operand that is left out."""
    found = values_of(expr)
    return found if found is not None and found.size else None


def _axes(
    shape: Sequence[int],
    chosen: Sequence[int] | None,
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    places: str,
) -> dict[int, Axis]:
    """The axes that are resized, by number."""
    numbers = [axis % len(shape) for axis in (range(len(shape)) if chosen is None else chosen)]
    found = {}
    for place, axis in enumerate(numbers):
        size = shape[axis]
        if scales is not None:
            scale = float(scales[place])
            result = int(np.float32(scales[place]) * np.float32(size))
        else:
            assert sizes is not None
            result = int(sizes[place])
            scale = result / size
        if scale != 1:
            found[axis] = Axis(size, result, scale, places)
    return found


def _written(
    x: relax.Expr, axes: Mapping[int, Axis], mode: str, attrs: NodeAttributes
) -> relax.Expr:
    if mode == "nearest":
        rounding = attrs.get("nearest_mode", b"round_prefer_floor").decode()
        for number, axis in axes.items():
            x = relax.op.take(x, relax.const(axis.nearest(rounding)), number)
        return x
    if x.ty.dtype != "float32":
        raise ValueError(f"it interpolates {x.ty.dtype}; only float32 is")
    antialias = bool(attrs.get("antialias"))
    a = attrs.get("cubic_coeff_a", resizing.CUBIC)
    filtered = resizing.LINEAR if mode == "linear" else resizing.cubic(a)
    outside = bool(attrs.get("exclude_outside"))
    matrices = {n: axis.weights(filtered, antialias, outside) for n, axis in axes.items()}
    return resizing.multiplied(lambda call: call, x, matrices)


def _renewed(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """Resize of opset 10 in its later form.

    It has no coordinate modes: a place is that of the result over the scale, and the nearest is
    the one before where a tensor grows, the one behind where it shrinks, as in ONNX Runtime.
    """
    scales = values_of(inputs[1])
    if scales is None:
        raise ValueError("scales that depend on data")
    if min(scales) < 1 < max(scales):
        listed = ", ".join(f"{scale:g}" for scale in scales)
        raise ValueError(f"scales ({listed}) that grow one axis and shrink another")
    attrs["coordinate_transformation_mode"] = b"asymmetric"
    attrs["nearest_mode"] = b"ceil" if min(scales) < 1 else b"floor"
    inputs[1:] = [None, inputs[1]]


def upsample(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Scales as an attribute or an input, which TVM does not read; Upsample rounds down."""
    given = attrs.get("scales")
    scales = values_of(inputs[1]) if given is None else np.asarray(given, "float32")
    shape = static_shape(inputs[0])
    if scales is None or len(shape) != 4 or tuple(scales[:2]) != (1, 1):
        return None
    mode = attrs.get("mode", b"nearest").decode()
    attrs["nearest_mode"], places = b"floor", "asymmetric"
    axes = _axes(shape, None, scales, None, places)
    if any(each.size * each.scale != each.result for each in axes.values()):
        return _written(inputs[0], axes, mode, attrs)
    return relax.op.image.resize2d(
        inputs[0],
        relax.ShapeExpr([axes[axis].result if axis in axes else shape[axis] for axis in (2, 3)]),
        layout="NCHW",
        method={"nearest": "nearest_neighbor"}.get(mode, mode),
        coordinate_transformation_mode=places,
        rounding_method="floor",
    )
