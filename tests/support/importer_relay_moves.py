"""Draws of Relay operators that move, choose or make values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from importer_draws import Draw

Drawn = tuple[Any, ...]


def _floats(d: Draw, low: int = 1, high: int = 4) -> np.ndarray:
    return d.floats(d.shape(low, high))


def _listed(values: Any) -> str:
    return str([int(v) for v in values])


def _reshape(d: Draw) -> Drawn:
    a, b, c = d.size(), d.size(), d.size()
    asked = d.pick(
        [a * b, c], [-1], [0, -1], [0, -3], [-2], [a, 1, b, c], [-4, 1, -1, -2], [-3, 0], [0, 0, -1]
    )
    if asked == [0, -1] and d.flag():
        return [d.floats((a, b, c))], {"newshape": _listed(asked), "reverse": "True"}
    return [d.floats((a, b, c))], {"newshape": _listed(asked)}


def _squeeze(d: Draw) -> Drawn:
    shape = (1, d.size(2, 4), 1, d.size(2, 4))
    return [d.floats(shape)], d.pick({}, {"axis": "[0]"}, {"axis": "[0, 2]"}, {"axis": "[-2]"})


def _expand_dims(d: Draw) -> Drawn:
    x = _floats(d, 1, 3)
    attrs = {"axis": str(d.size(-x.ndim - 1, x.ndim))}
    return [x], {**attrs, **({"num_newaxis": "2"} if int(attrs["axis"]) >= 0 and d.flag() else {})}


def _transpose(d: Draw) -> Drawn:
    x = _floats(d)
    return [x], {"axes": _listed(d.rng.permutation(x.ndim))} if d.flag() else {}


def _layout(d: Draw) -> Drawn:
    source, target = d.pick(("NCHW", "NHWC"), ("NHWC", "NCHW"), ("OIHW", "HWIO"))
    return [d.floats((2, 3, 4, 5))], {"src_layout": f'"{source}"', "dst_layout": f'"{target}"'}


def _broadcast(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [d.floats(d.broadcast(shape))], {"shape": _listed(shape)}


def _broadcast_like(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return ([d.floats(d.broadcast(shape)), d.floats(shape)],)


def _parts(d: Draw) -> tuple[list[np.ndarray], int]:
    shape = list(d.shape(1, 4))
    axis = d.axis(len(shape))
    parts = []
    for _ in range(d.size(1, 3)):
        shape[axis] = d.size()
        parts.append(d.floats(shape))
    return parts, axis


def _tuple(count: int) -> str:
    inner = ", ".join(f"%x{i}" for i in range(count))
    return f"({inner},)" if count == 1 else f"({inner})"


def _concatenate(d: Draw) -> Drawn:
    parts, axis = _parts(d)
    return parts, {"axis": str(axis)} if axis else {}, _tuple(len(parts))


def _stack(d: Draw) -> Drawn:
    shape, count = d.shape(1, 3), d.size(1, 3)
    parts = [d.floats(shape) for _ in range(count)]
    return parts, {"axis": str(d.size(-len(shape) - 1, len(shape)))}, _tuple(count)


def _split(d: Draw) -> Drawn:
    shape = list(d.shape(1, 4))
    axis, parts = d.axis(len(shape)), d.size(1, 3)
    if d.flag():
        shape[axis] = parts * d.size(1, 3)
        return [d.floats(shape)], {"indices_or_sections": str(parts), "axis": str(axis)}
    shape[axis] = d.size(5, 8)
    edges = sorted({d.size(1, 2), d.size(3, 4)})
    return [d.floats(shape)], {"indices_or_sections": _listed(edges), "axis": str(axis)}


def _slice(d: Draw) -> Drawn:
    shape = [d.size(3, 7) for _ in range(d.size(1, 3))]
    begin = [d.size(-1, 1) if d.flag() else 0 for _ in shape]
    end = [d.size(begin[i] % s + 1, s + 3) for i, s in enumerate(shape)]
    attrs = {"begin": _listed(begin), "end": _listed(end)}
    kind = d.size(1, 4)
    if kind == 1:
        attrs["strides"] = _listed(d.size(1, 3) for _ in shape)
    elif kind == 2:
        sizes = [d.pick(-1, 1, s - b % s) for b, s in zip(begin, shape, strict=True)]
        attrs = {"begin": _listed(begin), "end": _listed(sizes), "slice_mode": '"size"'}
    elif kind == 3:
        attrs = {"begin": "[-1]", "end": "[-100]", "strides": "[-1]", "axes": "[0]"}
    return [d.floats(shape)], attrs


def _slice_like(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    smaller = tuple(d.size(1, dim) for dim in shape)
    if d.flag():
        return [d.floats(shape), d.floats(smaller)], {"axes": f"[{d.axis(len(shape))}]"}
    return ([d.floats(shape), d.floats(smaller)],)


def _tile(d: Draw) -> Drawn:
    x = _floats(d, 1, 3)
    return [x], {"reps": _listed(d.size(1, 3) for _ in range(x.ndim))}


def _repeat(d: Draw) -> Drawn:
    x = _floats(d)
    return [x], {"repeats": str(d.size(1, 3)), "axis": str(d.axis(x.ndim))}


def _reverse(d: Draw) -> Drawn:
    x = _floats(d)
    return [x], {"axis": str(d.axis(x.ndim))}


def _widths(d: Draw, x: np.ndarray, most: int) -> str:
    return str([[d.size(0, min(most, s - 1)), d.size(0, min(most, s - 1))] for s in x.shape])


def _pad(d: Draw) -> Drawn:
    x = d.floats([d.size(3, 5) for _ in range(d.size(1, 4))])
    attrs = {"pad_width": _widths(d, x, 2)}
    mode = d.pick("constant", "constant", "edge", "reflect")
    if mode != "constant":
        return [x], {**attrs, "pad_mode": f'"{mode}"'}, "%x0, 0f"
    return d.pick(
        ([x], attrs, "%x0, 0f /* ty=float32 */"),
        ([x], attrs, "%x0, -1.5f"),
        ([x], {**attrs, "pad_value": "2f"}),
    )


def _mirror_pad(d: Draw) -> Drawn:
    x = d.floats([d.size(3, 5) for _ in range(d.size(1, 3))])
    attrs = {"pad_width": _widths(d, x, 2)}
    return [x], {**attrs, "mode": '"REFLECT"'} if d.flag() else attrs


def _depth_to_space(d: Draw) -> Drawn:
    block = d.size(1, 3)
    shape = (1, block * block * d.size(1, 3), d.size(1, 3), d.size(1, 3))
    attrs = {"block_size": str(block), **({"mode": '"CRD"'} if d.flag() else {})}
    if d.flag():
        x = np.ascontiguousarray(np.moveaxis(d.floats(shape), 1, 3))
        return [x], {**attrs, "layout": '"NHWC"'}
    return [d.floats(shape)], attrs


def _space_to_depth(d: Draw) -> Drawn:
    block = d.size(1, 3)
    shape = (1, d.size(1, 3), block * d.size(1, 3), block * d.size(1, 3))
    attrs = {"block_size": str(block)}
    if d.flag():
        x = np.ascontiguousarray(np.moveaxis(d.floats(shape), 1, 3))
        return [x], {**attrs, "layout": '"NHWC"'}
    return [d.floats(shape)], attrs


def _take(d: Draw) -> Drawn:
    x = d.floats([d.size(2, 5) for _ in range(d.size(1, 3))])
    mode = d.pick("clip", "wrap", "fast")
    axis = d.pick(None, d.size(0, x.ndim - 1))
    size = x.size if axis is None else x.shape[axis]
    low, high = (0, size - 1) if mode == "fast" else (-size - 2, size + 2)
    indices = d.integers(d.shape(1, 2), low, high).astype("int32")
    attrs = {} if axis is None else {"axis": str(axis)}
    return [x, indices], attrs if mode == "clip" else {**attrs, "mode": f'"{mode}"'}


def _gather(d: Draw) -> Drawn:
    x = d.floats((d.size(2, 4), d.size(2, 4)))
    axis = d.size(0, 1)
    indices = d.integers(x.shape, 0, x.shape[axis] - 1)
    return [x, indices], {"axis": str(axis)}


def _gather_nd(d: Draw) -> Drawn:
    x = d.floats((d.size(2, 4), d.size(2, 4), d.size(1, 3)))
    count = d.size(1, 2)
    rows = [d.integers((3,), 0, x.shape[i] - 1) for i in range(count)]
    return ([x, np.stack(rows).astype("int64")],)


def _one_hot(d: Draw) -> Drawn:
    depth = d.size(2, 5)
    x = d.integers(d.shape(1, 3), 0, depth - 1).astype("int32")
    axis = d.pick(-1, d.size(0, x.ndim))
    attrs = {"depth": str(depth), "axis": str(axis), "dtype": d.pick('"float32"', '"int32"')}
    on = "1f, 0f" if "float" in attrs["dtype"] else "3, -1"
    return [x], attrs, f"%x0, {on}"


def _ranked(d: Draw) -> np.ndarray:
    """No two equal values along any axis: sorting is not stable everywhere."""
    shape = d.shape(1, 3)
    return d.rng.permutation(int(np.prod(shape))).reshape(shape).astype("float32")


def _topk(d: Draw) -> Drawn:
    x = _ranked(d)
    axis = d.axis(x.ndim)
    attrs = {"k": str(d.size(1, x.shape[axis])), "axis": str(axis)}
    attrs |= {"is_ascend": "True"} if d.flag() else {}
    kind = d.pick("both", "values", "indices")
    return [x], attrs if kind == "both" else {**attrs, "ret_type": f'"{kind}"'}


def _sorted(d: Draw) -> Drawn:
    x = _ranked(d)
    attrs = {"axis": str(d.axis(x.ndim))}
    return [x], {**attrs, **({"is_ascend": "False"} if d.flag() else {})}


def _argsort(d: Draw) -> Drawn:
    inputs, attrs = _sorted(d)
    return inputs, {**attrs, "dtype": '"int32"'}


def _cumsum(d: Draw) -> Drawn:
    x = _floats(d, 1, 3)
    attrs = {"axis": str(d.axis(x.ndim))}
    return [x], {**attrs, **({"exclusive": "True"} if d.flag() else {})}


def _made(d: Draw) -> Drawn:
    """A tensor from nothing, added to an input so that the model has one."""
    shape = d.shape(1, 3)
    dtype = d.pick("float32", "int32")
    return [], {"shape": _listed(shape), "dtype": f'"{dtype}"'}


def _full(d: Draw) -> Drawn:
    _, attrs = _made(d)
    return [], attrs, d.pick("2", "-3") if "int" in attrs["dtype"] else d.pick("2.5f", "0f")


def _full_like(d: Draw) -> Drawn:
    return [_floats(d)], {}, "%x0, 1.5f"


def _resize2d(d: Draw) -> Drawn:
    shape = (1, d.size(1, 2), d.size(2, 5), d.size(2, 5))
    attrs = {"size": _listed([d.size(1, 8), d.size(1, 8)])}
    method = d.pick("linear", "nearest_neighbor", "nearest_neighbor", "cubic")
    mode = d.pick("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    attrs |= {} if method == "linear" else {"method": f'"{method}"'}
    attrs |= {} if mode == "half_pixel" else {"coordinate_transformation_mode": f'"{mode}"'}
    if method == "nearest_neighbor":
        rounding = d.pick("", "floor", "round_prefer_floor", "round_prefer_ceil")
        attrs |= {"rounding_method": f'"{rounding}"'}
    if d.flag():
        x = np.ascontiguousarray(np.moveaxis(d.floats(shape), 1, 3))
        return [x], {**attrs, "layout": '"NHWC"'}
    return [d.floats(shape)], attrs


def _resize(d: Draw) -> Drawn:
    inputs, attrs = _resize2d(d)
    return inputs, {k: v.replace('"linear"', '"bilinear"') for k, v in attrs.items()}


def _upsampling(d: Draw) -> Drawn:
    attrs = {"scale_h": d.pick("2f", "3f"), "scale_w": d.pick("2f", "1f")}
    method = d.pick("nearest_neighbor", "bilinear")
    attrs |= {} if method == "nearest_neighbor" else {"method": '"bilinear"'}
    attrs |= {"align_corners": "True"} if method == "bilinear" and d.flag() else {}
    return [d.floats((1, 2, d.size(2, 4), d.size(2, 4)))], attrs


MOVES: dict[str, Callable[[Draw], Drawn]] = {
    "reshape": _reshape,
    "contrib_reverse_reshape": lambda d: ([d.floats((2, 3, 4))], {"newshape": "[-1, 0]"}),
    "reshape_like": lambda d: ([d.floats((2, 6)), d.floats((3, 4))],),
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "transpose": _transpose,
    "nn.batch_flatten": lambda d: ([_floats(d, 2, 4)],),
    "layout_transform": _layout,
    "broadcast_to": _broadcast,
    "broadcast_to_like": _broadcast_like,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "strided_slice": _slice,
    "slice_like": _slice_like,
    "tile": _tile,
    "repeat": _repeat,
    "reverse": _reverse,
    "nn.pad": _pad,
    "nn.mirror_pad": _mirror_pad,
    "nn.depth_to_space": _depth_to_space,
    "nn.space_to_depth": _space_to_depth,
    "take": _take,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
    "topk": _topk,
    "argsort": _argsort,
    "sort": _sorted,
    "cumsum": _cumsum,
    "full": _full,
    "zeros": _made,
    "ones": _made,
    "full_like": _full_like,
    "zeros_like": lambda d: ([_floats(d)],),
    "ones_like": lambda d: ([_floats(d)],),
    "arange": lambda d: (
        [],
        {"start": "0", "stop": "9", "step": "2", "dtype": '"int32"'},
        "0, 9, 2",
    ),
    "shape_of": lambda d: ([_floats(d)], {"dtype": '"int32"'}),
    "ndarray_size": lambda d: ([_floats(d)], {"dtype": '"int32"'}),
    "image.resize2d": _resize2d,
    "image.resize": _resize,
    "nn.upsampling": _upsampling,
}
"""Operator -> inputs, attributes and operands of one draw."""
