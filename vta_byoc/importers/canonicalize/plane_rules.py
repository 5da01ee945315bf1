"""Rules for operators of planes: padding of convolutions, pooling and resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.importers.canonicalize.calls import attributes, shape_of
from vta_byoc.ir.bindings import SEPARATOR, known_shape, op_name
from vta_byoc.ir.rewriter import Rewriter, Rule

CONVOLUTIONS = {"relax.nn.conv1d": ("NCW", "OIW"), "relax.nn.conv2d": ("NCHW", "OIHW")}
"""Convolution -> the layouts of data and weights that TVM's importers give it."""


def pad_into_convolution(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """conv(pad(x, 0)) is a convolution with that padding."""
    pad = rewriter.producer_of(call.args[0], "relax.nn.pad")
    layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    if pad is None or layouts != CONVOLUTIONS[op_name(call)] or not _pads_zero_space(pad):
        return None
    widths = [int(width) for width in pad.attrs.pad_width][4:]
    extra = widths[0::2] + widths[1::2]
    padding = [int(a) + b for a, b in zip(call.attrs.padding, extra, strict=True)]
    function = relax.op.nn.conv1d if op_name(call) == "relax.nn.conv1d" else relax.op.nn.conv2d
    kept = ("strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
    attrs = attributes(call, *kept, "out_dtype")
    return function(pad.args[0], call.args[1], padding=padding, **attrs)


def _pads_zero_space(pad: relax.Call) -> bool:
    attrs = pad.attrs
    widths = [int(width) for width in attrs.pad_width]
    is_zero = str(attrs.pad_mode) == "constant" and float(attrs.pad_value) == 0
    return is_zero and not any(widths[:4]) and min(widths) >= 0


def mean_of_whole_plane(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Average pooling whose one window is the whole plane, and adaptive pooling to 1 x 1."""
    if str(call.attrs.layout) != "NCHW" or (shape_of(call) or ())[2:] != (1, 1):
        return None
    if op_name(call) == "relax.nn.avg_pool2d" and not _covers(call):
        return None
    return relax.op.mean(call.args[0], [2, 3], keepdims=True)


def _covers(call: relax.Call) -> bool:
    attrs = call.attrs
    window = tuple(int(size) for size in attrs.pool_size)
    return window == (shape_of(call.args[0]) or ())[2:] and not any(int(p) for p in attrs.padding)


def nearest_as_repeat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Nearest resizing by whole factors repeats rows and columns."""
    attrs = call.attrs
    if str(attrs.method) != "nearest_neighbor" or str(attrs.layout) != "NCHW":
        return None
    old, new = ((shape_of(expr) or ())[2:] for expr in (call.args[0], call))
    if len(old) != 2 or len(new) != 2:
        return None
    factors = [b // a for a, b in zip(old, new, strict=True)]
    if not all(_repeats(attrs, a, b) for a, b in zip(old, new, strict=True)):
        return None
    rows = call.args[0]
    if factors[0] > 1:
        rows = relax.op.repeat(rows, factors[0], 2)
    if factors[1] == 1:
        return rows
    if factors[0] > 1:
        rows = rewriter.emit(rows, f"{rewriter.name}__rows")
    return relax.op.repeat(rows, factors[1], 3)


def _repeats(attrs: Attrs, old: int, new: int) -> bool:
    """Whether a resizing from `old` to `new` elements reads each `new // old` times in a row."""
    rounding = _ROUNDING.get(str(attrs.rounding_method))
    if new % old or rounding is None:
        return False
    out, factor = np.arange(new), new // old
    source = {
        "asymmetric": out / factor,
        "half_pixel": (out + 0.5) / factor - 0.5,
        "pytorch_half_pixel": (out + 0.5) / factor - 0.5,
        "tf_half_pixel_for_nn": (out + 0.5) / factor,
    }.get(str(attrs.coordinate_transformation_mode))
    return source is not None and bool((rounding(source) == out // factor).all())


_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round": lambda x: np.rint(x),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x),
}


RESIZING = (
    *("layout", "method", "coordinate_transformation_mode", "rounding_method"),
    *("cubic_alpha", "cubic_exclude", "extrapolation_value", "out_dtype"),
)
"""Attributes of resize2d that do not depend on the sizes."""


def resize_to_one(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """With aligned corners TVM divides by a size less one; one row is the first of two."""
    layout, shape = str(call.attrs.layout), known_shape(call.ty)
    if str(call.attrs.coordinate_transformation_mode) != "align_corners" or shape is None:
        return None
    axes = [layout.index(axis) for axis in "HW"] if len(layout) == len(shape) else []
    ones = [axis for axis in axes if shape[axis] == 1]
    if not ones:
        return None
    wider = relax.op.image.resize2d(
        call.args[0],
        relax.ShapeExpr([max(shape[axis], 2) for axis in axes]),
        roi=[float(edge) for edge in call.attrs.roi],
        **attributes(call, *RESIZING),
    )
    data = rewriter.as_variable(wider, f"{rewriter.name}{SEPARATOR}resize2d")
    return relax.op.strided_slice(data, ones, [0] * len(ones), [1] * len(ones))


PLANE_RULES: dict[str, Sequence[Rule]] = {
    **{name: (pad_into_convolution,) for name in CONVOLUTIONS},
    "relax.nn.avg_pool2d": (mean_of_whole_plane,),
    "relax.nn.adaptive_avg_pool2d": (mean_of_whole_plane,),
    "relax.image.resize2d": (nearest_as_repeat, resize_to_one),
}
"""Operator -> its rules, in the order in which they are tried."""
