"""Draws of layers, normalization, pooling and reductions of Relay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from importer_draws import Draw

Drawn = tuple[Any, ...]
SPACE = {1: "W", 2: "HW", 3: "DHW"}


def _text(values: Any) -> str:
    return str([int(v) for v in values])


def _moved(x: np.ndarray, layout: str, target: str) -> np.ndarray:
    return np.ascontiguousarray(x.transpose([layout.index(axis) for axis in target]))


def _data(d: Draw, shape: tuple[int, ...], integer: bool) -> np.ndarray:
    return d.integers(shape, -128, 127).astype("int8") if integer else d.floats(shape, -1, 1)


def _window(d: Draw, axes: int, attrs: dict[str, str]) -> None:
    if d.flag():
        attrs["strides"] = _text(d.size(1, 2) for _ in range(axes))
    if d.flag():
        attrs["padding"] = _text(d.size(0, 2) for _ in range(d.pick(axes, 2 * axes)))


def conv(axes: int) -> Callable[[Draw], Drawn]:
    """A convolution of floats or int8, in the layouts of all importers."""
    space = SPACE[axes]

    def draw(d: Draw) -> Drawn:
        groups = d.pick(1, 1, 2)
        inputs, outputs = groups * d.size(1, 3), groups * d.size(1, 3)
        kernel = [d.size(1, 3) for _ in range(axes)]
        plane = [d.size(5, 8) for _ in range(axes)]
        integer = axes == 2 and d.flag()
        data = _data(d, (d.size(1, 2), inputs, *plane), integer)
        weight = _data(d, (outputs, inputs // groups, *kernel), integer)
        attrs: dict[str, str] = {"channels": str(outputs), "kernel_size": _text(kernel)}
        _window(d, axes, attrs)
        if d.flag():
            attrs["dilation"] = _text(d.size(1, 2) for _ in range(axes))
        if groups > 1:
            attrs["groups"] = str(groups)
        if integer:
            attrs["out_dtype"] = '"int32"'
        if axes < 3 and d.flag():
            layout = "N" + space + "C"
            kind = d.pick(space + "IO", "OI" + space) if groups == 1 else "OI" + space
            data = _moved(data, "NC" + space, layout)
            weight = _moved(weight, "OI" + space, kind)
            attrs |= {"data_layout": f'"{layout}"', "kernel_layout": f'"{kind}"'}
        return [data, weight], attrs

    return draw


def conv_transpose(axes: int) -> Callable[[Draw], Drawn]:
    """A transposed convolution."""

    def draw(d: Draw) -> Drawn:
        inputs, outputs = d.size(1, 3), d.size(1, 3)
        kernel = [d.size(2, 3) for _ in range(axes)]
        plane = [d.size(3, 5) for _ in range(axes)]
        data = d.floats((d.size(1, 2), inputs, *plane), -1, 1)
        weight = d.floats((inputs, outputs, *kernel), -1, 1)
        attrs = {"channels": str(outputs), "kernel_size": _text(kernel)}
        if d.flag():
            attrs["strides"] = _text([2] * axes)
            if d.flag():
                attrs["output_padding"] = _text([1] * axes)
        if d.flag():
            attrs["padding"] = _text([1] * (2 * axes))
        return [data, weight], attrs

    return draw


def _dense(d: Draw) -> Drawn:
    rows, inner, columns = d.size(), d.size(1, 9), d.size()
    integer = d.flag()
    attrs = {"units": str(columns), **({"out_dtype": '"int32"'} if integer else {})}
    return [_data(d, (rows, inner), integer), _data(d, (columns, inner), integer)], attrs


def _matmul(d: Draw, batch: bool = False) -> Drawn:
    a, b, rows, inner, columns = d.flag(), d.flag(), d.size(), d.size(), d.size()
    lead = (d.size(1, 3),) if batch else ()
    left = d.floats((*lead, inner, rows) if a else (*lead, rows, inner))
    right = d.floats((*lead, columns, inner) if b else (*lead, inner, columns))
    attrs = {"transpose_a": "True"} if a else {}
    return [left, right], {**attrs, **({"transpose_b": "True"} if b else {})}


def _bias_add(d: Draw) -> Drawn:
    shape = d.shape(2, 4)
    axis = d.axis(len(shape))
    return [d.floats(shape), d.floats((shape[axis],))], {"axis": str(axis)}


def _batch_norm(d: Draw) -> Drawn:
    shape = d.shape(2, 4)
    axis = d.size(1, len(shape) - 1)
    size = (shape[axis],)
    values = [d.floats(size), d.floats(size), d.floats(size), d.floats(size, 0.5, 2)]
    attrs = {"axis": str(axis)} if axis != 1 else {}
    attrs |= {"epsilon": "0.001f"} if d.flag() else {}
    attrs |= {"scale": "False"} if d.size(1, 4) == 1 else {}
    return [d.floats(shape), *values], attrs


def _norm(last: bool) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        shape = (d.size(1, 2), d.size(1, 4), d.size(2, 5), d.size(2, 5))
        axis = -1 if last else d.pick(1, 1, 3)
        size = (shape[axis],)
        attrs = {} if axis in (-1, 1) else {"axis": str(axis)}
        attrs |= {"epsilon": "0.01f"} if d.flag() else {}
        return [d.floats(shape), d.floats(size), d.floats(size)], attrs

    return draw


def _group_norm(d: Draw) -> Drawn:
    groups = d.size(1, 3)
    channels = groups * d.size(1, 3)
    x = d.floats((d.size(1, 2), channels, 3, 4))
    return [x, d.floats((channels,)), d.floats((channels,))], {"num_groups": str(groups)}


def _l2(d: Draw) -> Drawn:
    shape = d.shape(2, 4)
    return [d.floats(shape, 0.5, 2)], {"eps": "1e-05f", "axis": _text([d.size(0, len(shape) - 1)])}


def _lrn(d: Draw) -> Drawn:
    return [d.floats((1, d.size(1, 7), 3, 3))], {"size": d.pick("3", "5"), "alpha": "0.1f"}


def _softmax(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [d.floats(shape)], {"axis": str(d.axis(len(shape)))} if d.flag() else {}


def pool(axes: int, average: bool) -> Callable[[Draw], Drawn]:
    """A pooling; a window lies on the plane in part at least."""
    space = SPACE[axes]

    def draw(d: Draw) -> Drawn:
        plane = [d.size(5, 9) for _ in range(axes)]
        data = d.floats((d.size(1, 2), d.size(1, 3), *plane))
        if d.size(1, 4) == 1:
            data = d.integers(data.shape, -999, 999).astype("int32")
        size = [d.size(2, 3) for _ in range(axes)]
        attrs = {"pool_size": _text(size)}
        if d.flag():
            attrs["strides"] = _text(d.size(1, 3) for _ in range(axes))
        if d.flag():
            attrs["padding"] = _text([1] * d.pick(axes, 2 * axes))
        if d.size(1, 4) == 1 and not average:
            attrs["ceil_mode"] = "True"
        if average and d.flag():
            attrs["count_include_pad"] = "True"
        if d.flag():
            data = _moved(data, "NC" + space, "N" + space + "C")
            attrs["layout"] = f'"N{space}C"'
        return [data], attrs

    return draw


def _global(d: Draw) -> Drawn:
    shape = (d.size(1, 2), d.size(1, 4), d.size(2, 5), d.size(2, 5))
    attrs = {"layout": '"NHWC"'} if d.flag() else {}
    if d.size(1, 3) == 1:
        return [d.integers(shape, -999, 999).astype("int32")], attrs
    return [d.floats(shape)], attrs


def _adaptive(maximum: bool) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        size = [d.size(1, 3), d.size(1, 3)]
        plane = [s * d.size(1, 3) if maximum else d.size(s, 7) for s in size]
        return [d.floats((1, d.size(1, 3), *plane))], {"output_size": _text(size)}

    return draw


def _reduction(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [d.floats(shape)], _reduced(d, len(shape))


def _reduced(d: Draw, rank: int) -> dict[str, str]:
    attrs = {"axis": _text(d.axes(rank))} if d.flag() else {}
    attrs |= {"keepdims": "True"} if d.flag() else {}
    is_part = "axis" in attrs and attrs["axis"].count(",") + 1 < rank
    return {**attrs, "exclude": "True"} if is_part and d.flag() else attrs


def _truth(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [d.integers(shape, 0, 3).astype("bool")], _reduced(d, len(shape))


def _arg(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    attrs = {"axis": _text([d.axis(len(shape))])} if d.flag() else {}
    attrs |= {"keepdims": "True"} if d.flag() else {}
    return [d.floats(shape)], {**attrs, **({"select_last_index": "True"} if d.flag() else {})}


def _variance(d: Draw) -> Drawn:
    shape = (d.size(2, 4), d.size(2, 4), d.size(2, 4))
    x = d.floats(shape)
    attrs = {"axis": "[1]", "keepdims": "True"}
    attrs |= {"unbiased": "True"} if d.flag() else {}
    return [x, x.mean(1, keepdims=True)], attrs


LAYERS: dict[str, Callable[[Draw], Drawn]] = {
    **{f"nn.conv{axes}d": conv(axes) for axes in (1, 2, 3)},
    **{f"nn.conv{axes}d_transpose": conv_transpose(axes) for axes in (1, 2)},
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.batch_matmul": lambda d: _matmul(d, batch=True),
    "nn.bias_add": _bias_add,
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _norm(last=True),
    "nn.instance_norm": _norm(last=False),
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2,
    "nn.lrn": _lrn,
    **{n: _softmax for n in ("nn.softmax", "nn.fast_softmax", "nn.log_softmax")},
    "nn.dropout": lambda d: ([d.floats(d.shape())], {"rate": "0.3f"}),
    **{f"nn.max_pool{axes}d": pool(axes, average=False) for axes in (1, 2)},
    **{f"nn.avg_pool{axes}d": pool(axes, average=True) for axes in (1, 2)},
    "nn.global_avg_pool2d": _global,
    "nn.global_max_pool2d": _global,
    "nn.adaptive_avg_pool2d": _adaptive(maximum=False),
    "nn.adaptive_max_pool2d": _adaptive(maximum=True),
    **{n: _reduction for n in ("sum", "mean", "max", "min", "prod", "logsumexp")},
    "all": _truth,
    "any": _truth,
    "argmax": _arg,
    "argmin": _arg,
    "variance": _variance,
}
"""Operator -> inputs and attributes of one draw."""
