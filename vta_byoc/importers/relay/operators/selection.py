"""Operators that choose values by indices, make tensors from nothing, and resize images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.relay.operators.entry import Attributes, Operator, Ref, Result, Site, scalar
from vta_byoc.importers.relay.operators.movement import asked_shape


# ---------------------------------------------------------------- indices
def _take(s: Site) -> Result:
    axes, value, indices = s.optional_integers("axis"), s.tensor(0), s.tensor(1)
    if s.integer("batch_dims"):
        raise s.error("has batch_dims; 0 of them are taken; use gather")
    if axes is None:
        value, axis = s.emit(relax.op.reshape(value, [math.prod(s.shape())]), "flat"), 0
    else:
        axis = s.axis(axes[0], len(s.shape()))
    size = int(value.ty.shape[axis].value)
    mode, dtype = s.text("mode"), s.dtype(1)
    if mode == "clip":
        least = s.emit(relax.op.maximum(indices, scalar(0, dtype)), "least")
        indices = s.emit(relax.op.minimum(least, scalar(size - 1, dtype)), "inside")
    elif mode == "wrap":
        indices = s.emit(relax.op.floor_mod(indices, scalar(size, dtype)), "inside")
    return relax.op.take(value, indices, axis)


def _gather(s: Site) -> Result:
    return relax.op.gather_elements(s.tensor(0), s.tensor(1), s.integer("axis"))


def _gather_nd(s: Site) -> Result:
    """Relay has the coordinates of an index along the first axis, Relax along the last."""
    rank = len(s.shape(1))
    batch = s.integer("batch_dims")
    order = [*range(1, rank), 0]
    moved = s.emit(relax.op.permute_dims(s.tensor(1), order), "indices")
    return relax.op.gather_nd(s.tensor(0), moved, batch)


def _one_hot(s: Site) -> Result:
    """One axis more, in which one value of `depth` is on."""
    dtype, rank = s.text("dtype"), len(s.shape())
    axis = s.integer("axis")
    axis = rank if axis == -1 else axis
    depth = s.integer("depth")
    wide = s.emit(relax.op.expand_dims(s.tensor(0), axis), "wide")
    shape = [depth if i == axis else 1 for i in range(rank + 1)]
    classes = relax.const(np.arange(depth).astype(s.dtype()).reshape(shape))
    hit = s.emit(relax.op.equal(wide, classes), "hit")
    on, off = (relax.const(np.array(s.array(i)).astype(dtype).reshape(())) for i in (1, 2))
    return relax.op.where(hit, on, off)


def _topk(s: Site) -> Result:
    kind = s.text("ret_type")
    result = relax.op.topk(
        s.tensor(0),
        s.integer("k"),
        s.integer("axis"),
        kind,
        not s.flag("is_ascend"),
        s.text("dtype"),
    )
    if kind != "both":
        return result
    whole = s.emit(result, "outputs")
    return relax.TupleGetItem(whole, 0), relax.TupleGetItem(whole, 1)


def _argsort(s: Site) -> Result:
    ascending, dtype = s.flag("is_ascend"), s.text("dtype") or "int32"
    return relax.op.argsort(s.tensor(0), s.integer("axis"), not ascending, dtype)


def _sort(s: Site) -> Result:
    return relax.op.sort(s.tensor(0), s.integer("axis"), not s.flag("is_ascend"))


def _cumsum(s: Site) -> Result:
    exclusive = s.flag("exclusive")
    axes = s.optional_integers("axis")
    dtype = s.text("dtype") or s.dtype()
    return relax.op.cumsum(s.tensor(0), axes[0] if axes else None, dtype, exclusive)


# ---------------------------------------------------------------- tensors from nothing
def _filled(value: float | None) -> Callable[[Site], Result]:
    def convert(s: Site) -> Result:
        operand = 1 if value is None else 0
        content = s.array(0) if value is None else np.array(value)
        dtype = s.text("dtype") or (s.dtype() if value is None else "float32")
        shape = asked_shape(s, "shape", operand)
        return relax.const(np.broadcast_to(content, shape).astype(dtype), dtype)

    return convert


def _filled_like(value: float | None) -> Callable[[Site], Result]:
    def convert(s: Site) -> Result:
        content = s.array(1) if value is None else np.array(value)
        made = np.broadcast_to(content, s.shape()).astype(s.dtype())
        return relax.const(np.ascontiguousarray(made), s.dtype())

    return convert


def _arange(s: Site) -> Result:
    start, stop, step = (s.array(i).reshape(()).item() for i in range(3))
    dtype = s.text("dtype")
    return relax.const(np.arange(start, stop, step).astype(dtype), dtype)


def _shape_of(s: Site) -> Result:
    dtype = s.text("dtype") or "int32"
    return relax.const(np.array(s.shape(), dtype), dtype)


def _size_of(s: Site) -> Result:
    dtype = s.text("dtype") or "int32"
    return relax.const(np.array(math.prod(s.shape()), dtype), dtype)


# ---------------------------------------------------------------- images
def _resized(s: Site, size: Sequence[int], mode: str, rounding: str, **more: object) -> Result:
    """Write a resizing.

    Relay leaves the rounding of nearest pixels open by default: down, or to the nearest with
    aligned corners.
    """
    method = s.text("method")
    method = {"bilinear": "linear", "bicubic": "cubic"}.get(method, method)
    if not rounding:
        rounding = "round" if mode == "align_corners" else "floor"
    return relax.op.image.resize2d(
        s.tensor(0),
        relax.ShapeExpr(list(size)),
        layout=s.text("layout"),
        method=method,
        coordinate_transformation_mode=mode,
        rounding_method=rounding,
        **more,
    )


def _resize2d(s: Site) -> Result:
    mode = s.text("coordinate_transformation_mode")
    if mode == "tf_crop_and_resize":
        raise s.error("crops while it resizes; resizings of the whole image are taken")
    return _resized(
        s,
        s.integers("size", 2),
        mode,
        s.text("rounding_method"),
        cubic_alpha=s.number("cubic_alpha"),
        cubic_exclude=s.integer("cubic_exclude"),
    )


def _resize_old(s: Site) -> Result:
    """`image.resize` of 0.7 and before."""
    mode = s.text("coordinate_transformation_mode")
    return _resized(s, s.integers("size", 2), mode, s.text("rounding_method"), cubic_alpha=-0.5)


def _upsampling(s: Site) -> Result:
    layout = s.text("layout")
    plane = [s.shape()[layout.index(axis)] for axis in "HW"]
    factors = (s.number("scale_h"), s.number("scale_w"))
    size = [round(old * factor) for old, factor in zip(plane, factors, strict=True)]
    mode = "align_corners" if s.flag("align_corners") else "asymmetric"
    return _resized(s, size, mode, "", cubic_alpha=-0.5)


_RESIZE: Attributes = {
    "size": Ref(),
    "layout": "NCHW",
    "method": "linear",
    "coordinate_transformation_mode": "half_pixel",
    "rounding_method": "",
    "out_dtype": "",
}
_MADE: Attributes = {"shape": Ref(), "dtype": ""}
OPERATORS: dict[str, Operator] = {
    "take": Operator(_take, 2, 2, {"axis": Ref(), "batch_dims": Ref(0), "mode": "clip"}),
    "gather": Operator(_gather, 2, 2, {"axis": Ref(0)}),
    "gather_nd": Operator(_gather_nd, 2, 2, {"batch_dims": Ref(0), "index_rank": Ref()}),
    "one_hot": Operator(_one_hot, 3, 3, {"depth": 1, "axis": -1, "dtype": ""}),
    "topk": Operator(
        _topk,
        1,
        1,
        {"k": Ref(1), "axis": -1, "ret_type": "both", "is_ascend": False, "dtype": "int32"},
    ),
    "argsort": Operator(_argsort, 1, 1, {"axis": -1, "is_ascend": True, "dtype": ""}),
    "sort": Operator(_sort, 1, 1, {"axis": -1, "is_ascend": True, "dtype": ""}),
    "cumsum": Operator(_cumsum, 1, 1, {"axis": Ref(), "dtype": "", "exclusive": False}),
    "full": Operator(_filled(None), 1, 2, _MADE),
    "zeros": Operator(_filled(0.0), 0, 1, _MADE),
    "ones": Operator(_filled(1.0), 0, 1, _MADE),
    "full_like": Operator(_filled_like(None), 2, 2),
    "zeros_like": Operator(_filled_like(0.0), 1, 1),
    "ones_like": Operator(_filled_like(1.0), 1, 1),
    "arange": Operator(_arange, 3, 3, {"start": Ref(), "stop": Ref(), "step": Ref(), "dtype": ""}),
    "shape_of": Operator(_shape_of, 1, 1, {"dtype": ""}),
    "ndarray_size": Operator(_size_of, 1, 1, {"dtype": ""}),
    "image.resize2d": Operator(
        _resize2d,
        1,
        1,
        {
            **_RESIZE,
            "roi": Ref(),
            "cubic_alpha": -0.5,
            "cubic_exclude": 0,
            "extrapolation_value": 0.0,
        },
    ),
    "image.resize": Operator(
        _resize_old, 1, 1, {**_RESIZE, "bicubic_alpha": -0.5, "bicubic_exclude": 0}
    ),
    "nn.upsampling": Operator(
        _upsampling,
        1,
        1,
        {
            "scale_h": 1.0,
            "scale_w": 1.0,
            "layout": "NCHW",
            "method": "nearest_neighbor",
            "align_corners": False,
        },
    ),
}
"""Relay's name -> how it becomes Relax."""
