"""Rules that write convolution and pooling of (N, C, D, H, W) as those of its planes.

The planes of all depths become images, depth by depth: (D * N, C, H, W).  What a filter sees
of several depths lies side by side in the channels of one image, so that one convolution of planes
sums all its products before anything is rounded.  With groups each depth of the filter is a
convolution of its own, and their results are added.  Pooling is that of planes, then of the depths
of each window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.importers.canonicalize.calls import attributes, shape_of
from vta_byoc.importers.canonicalize.view_rules import chain_of_views, moved
from vta_byoc.ir.bindings import SEPARATOR, constant_of, is_constant, is_float32, op_name
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import View, view_of

SPATIAL = 3
"""Axes behind the channels."""
LAYOUTS = ("NCDHW", "OIDHW", "NCDHW")
"""Of data, weights and result, as TVM's importers give them."""


@dataclass(frozen=True)
class _Windows:
    """How a window moves along the three axes.

    Attributes:
        size, stride, dilation: by axis, depth first.
        before, after: padding by axis.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @staticmethod
    def of(call: relax.Call, size: Sequence[int]) -> _Windows:
        """Those of a convolution or pooling."""
        attrs = call.attrs
        padding = tuple(int(width) for width in attrs.padding)
        strides, dilation = ((int(n) for n in each) for each in (attrs.strides, attrs.dilation))
        whole = tuple(int(n) for n in size)
        return _Windows(
            whole, tuple(strides), tuple(dilation), padding[:SPATIAL], padding[SPATIAL:]
        )

    @property
    def plane(self) -> dict[str, list[int]]:
        """Strides, padding and dilation of the planes."""
        padding = [*self.before[1:], *self.after[1:]]
        return {
            "strides": list(self.stride[1:]),
            "padding": padding,
            "dilation": list(self.dilation[1:]),
        }

    @property
    def keeps_planes(self) -> bool:
        """Whether a window is one pixel of each plane, and there is one for each."""
        ones = (*self.size[1:], *self.stride[1:])
        return set(ones) == {1} and not any((*self.before[1:], *self.after[1:]))

    def depths(self, count: int) -> list[np.ndarray]:
        """For each place of the window, the padded depths that ``count`` windows see there."""
        first = np.arange(count) * self.stride[0]
        return [first + tap * self.dilation[0] for tap in range(self.size[0])]

    def own_depths(self, count: int, size: int) -> list[np.ndarray] | None:
        """The same of the tensor's ``size`` depths: in place of padding, the nearest of the window.

        A maximum is the same if a depth is seen twice. None where a window sees padding alone.
        """
        seen = np.stack(self.depths(count)) - self.before[0]
        is_own = (seen >= 0) & (seen < size)
        if not is_own.any(axis=0).all():
            return None
        low = np.where(is_own, seen, size).min(axis=0)
        high = np.where(is_own, seen, -1).max(axis=0)
        return list(np.clip(seen, low, high))


class _Planes:
    """Writes operators on the planes of a tensor; variables are called after the result."""

    def __init__(self, rewriter: Rewriter, batch: int) -> None:
        self._rewriter, self._name, self._batch = rewriter, str(rewriter.name), batch

    def bound(self, value: relax.Expr, what: str) -> relax.Expr:
        """``value`` as a variable."""
        return self._rewriter.as_variable(value, f"{self._name}{SEPARATOR}{what}")

    def of(self, data: relax.Expr) -> relax.Expr:
        """(N, C, D, H, W) as (D * N, C, H, W)."""
        n, c, d, h, w = shape_of(data) or ()
        moved = self.bound(relax.op.permute_dims(data, [2, 0, 1, 3, 4]), "depths_first")
        return self.bound(relax.op.reshape(moved, (d * n, c, h, w)), "planes")

    def back(self, images: relax.Expr, shape: Sequence[int]) -> relax.Expr:
        """(D * N, C, H, W) as ``shape``, (N, C, D, H, W)."""
        n, c, d, h, w = shape
        images = self.bound(images, str(op_name(images)).split(".")[-1])
        split = self.bound(relax.op.reshape(images, (d, n, c, h, w)), "depths")
        return relax.op.permute_dims(split, [1, 2, 0, 3, 4])

    def padded(self, planes: relax.Expr, windows: _Windows) -> relax.Expr:
        """Planes of zeros in front and behind."""
        ends = [width * self._batch for width in (windows.before[0], windows.after[0])]
        if not any(ends):
            return planes
        padded = relax.op.nn.pad(planes, [*ends, 0, 0, 0, 0, 0, 0])
        return self.bound(padded, "padded_depths")

    def seen(self, planes: relax.Expr, depths: Sequence[np.ndarray]) -> list[relax.Expr]:
        """For each place of a window, the planes of the ``depths`` that are seen there."""
        pieces = [self._taken(planes, each) for each in depths]
        return [self.bound(piece, f"depth_{tap}") for tap, piece in enumerate(pieces)]

    def folded(
        self, step: Callable[..., relax.Expr], pieces: Sequence[relax.Expr], what: str
    ) -> relax.Expr:
        """``step`` of the first two of ``pieces``, of its result and the next, and so on."""
        value = pieces[0]
        for number, piece in enumerate(pieces[1:]):
            value = self.bound(step(value, piece), f"{what}_{number}")
        return value

    def _taken(self, planes: relax.Expr, depths: np.ndarray) -> relax.Expr:
        n, steps = self._batch, np.unique(np.diff(depths))
        step = int(steps[0]) if len(steps) else 1
        if len(steps) <= 1 and step > 0 and (n == 1 or step == 1):
            begin, end = int(depths[0]) * n, (int(depths[-1]) + 1) * n
            return relax.op.strided_slice(planes, [0], [begin], [end], [step])
        numbers = depths[:, None] * n + np.arange(n)
        return relax.op.take(planes, relax.const(numbers.reshape(-1).astype("int64")), 0)


def convolution_of_planes(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A convolution of three axes with constant weights as one of planes, or a sum of them."""
    attrs, weight, shape = call.attrs, call.args[1], shape_of(call)
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    known = shape is not None and shape_of(call.args[0]) is not None
    if not known or layouts != LAYOUTS or not is_constant(weight) or shape is None:
        return None
    kernel, planes = weight.value.numpy(), _Planes(rewriter, shape[0])
    windows, groups = _Windows.of(call, kernel.shape[2:]), int(attrs.groups)
    data = planes.padded(planes.of(call.args[0]), windows)
    seen = planes.seen(data, windows.depths(shape[2]))
    if groups == 1:
        together = seen[0]
        if len(seen) > 1:
            together = planes.bound(relax.op.concat(seen, 1), "seen")
        taps = kernel.transpose(0, 2, 1, 3, 4).reshape(len(kernel), -1, *kernel.shape[3:])
        parts = [(together, taps)]
    else:
        parts = [(piece, kernel[:, :, tap]) for tap, piece in enumerate(seen)]
    results = [
        relax.op.nn.conv2d(
            piece,
            relax.const(np.ascontiguousarray(taps)),
            groups=groups,
            **windows.plane,
            **attributes(call, "out_dtype"),
        )
        for piece, taps in parts
    ]
    if len(results) > 1:
        results = [planes.bound(each, f"tap_{tap}") for tap, each in enumerate(results)]
    return planes.back(planes.folded(relax.op.add, results, "sum"), shape)


# ---------------------------------------------------------------- pooling
def pool_of_planes(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Pooling of three axes as that of planes, then of the depths of each window."""
    attrs, shape, data = call.attrs, shape_of(call), shape_of(call.args[0])
    is_plain = (str(attrs.layout), str(attrs.out_layout)) == ("NCDHW", "NCDHW")
    if shape is None or data is None or not is_plain:
        return None
    windows, planes = _Windows.of(call, attrs.pool_size), _Planes(rewriter, shape[0])
    counts = {"ceil_mode": bool(attrs.ceil_mode)}
    is_average = op_name(call) == "relax.nn.avg_pool3d"
    if is_average:
        if not is_float32(call) or not _has_divisor_of_planes(call, windows, data[1]):
            return None
        counts["count_include_pad"] = bool(attrs.count_include_pad)
    own = windows.own_depths(shape[2], data[2])
    if own is None:
        return None
    value = planes.of(call.args[0])
    if not windows.keeps_planes:
        function = relax.op.nn.avg_pool2d if is_average else relax.op.nn.max_pool2d
        pooled = function(value, list(windows.size[1:]), **counts, **windows.plane)
        value = planes.bound(pooled, "pooled")
    if is_average:
        seen = planes.seen(planes.padded(value, windows), windows.depths(shape[2]))
    else:
        seen = planes.seen(value, own)
    return planes.back(_of_depths(planes, seen, is_average), shape)


def _has_divisor_of_planes(call: relax.Call, windows: _Windows, channels: int) -> bool:
    """Whether all windows have as many depths, so that averages of planes are averaged.

    Depths of one pixel each, with padding, of one channel, are sums of neighbouring channels as
    those of LRN, whose float operators belong together.
    """
    is_padded = any((windows.before[0], windows.after[0]))
    if is_padded and windows.keeps_planes and channels == 1:
        return False
    return not call.attrs.ceil_mode and (bool(call.attrs.count_include_pad) or not is_padded)


def _of_depths(planes: _Planes, seen: Sequence[relax.Expr], is_average: bool) -> relax.Expr:
    """The maximum or the average of the depths of each window."""
    value = planes.folded(relax.op.add if is_average else relax.op.maximum, seen, "depths")
    if is_average and len(seen) > 1:
        scale = relax.const(np.float32(1 / len(seen)))
        value = planes.bound(relax.op.multiply(value, scale), "average")
    return value


def mean_of_depths(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """The average over all axes behind the channels is that of a plane of D * H rows."""
    data, result = call.args[0], shape_of(call)
    shape = shape_of(data)
    if shape is None or result is None or len(shape) != 2 + SPATIAL or not _is_of_all(call, shape):
        return None
    n, c, d, h, w = shape
    name = str(rewriter.name)
    plane = relax.op.reshape(data, (n, c, d * h, w))
    plane = rewriter.as_variable(plane, f"{name}{SEPARATOR}plane")
    mean = relax.op.mean(plane, [2, 3], keepdims=True)
    return relax.op.reshape(rewriter.as_variable(mean, f"{name}{SEPARATOR}mean"), result)


def _is_of_all(call: relax.Call, shape: Sequence[int]) -> bool:
    """Whether ``call`` averages all axes behind the channels, whatever its name."""
    name, attrs = op_name(call), call.attrs
    if name == "relax.mean":
        axes = [] if attrs.axis is None else sorted(int(axis) % len(shape) for axis in attrs.axis)
        return axes == [2, 3, 4]
    ends = (shape_of(call) or ())[2:] == (1, 1, 1)
    if name == "relax.nn.adaptive_avg_pool3d":
        return ends and str(attrs.layout) == "NCDHW"
    window = tuple(int(size) for size in attrs.pool_size)
    is_whole = window == tuple(shape[2:]) and not any(int(width) for width in attrs.padding)
    return ends and is_whole and str(attrs.layout) == "NCDHW"


# ---------------------------------------------------------------- between layers
ELEMENTWISE = tuple(
    f"relax.{name}"
    for name in (
        *("nn.relu", "nn.relu6", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu"),
        *("nn.softplus", "sigmoid", "tanh", "exp", "erf", "negative", "abs", "clip"),
    )
)
BINARY = tuple(f"relax.{name}" for name in ("add", "subtract", "multiply", "maximum", "minimum"))


def elementwise_of_planes(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """An operator on (N, C, D, H, W) that is a view of planes is the view of one on the planes.

    Another operand is a constant with one value or one for each channel, the same view of other
    planes, or a gate (1, C, 1, 1, 1).
    """
    if call.ty.ndim != 2 + SPATIAL or shape_of(call) is None:
        return None
    found = [_planes_of(rewriter, arg) for arg in call.args]
    views = (each[1] for each in found if each is not None)
    view = next((each for each in views if each.shape == shape_of(call)), None)
    if view is None:
        return None
    args = [
        _beside_planes(rewriter, arg, each, view)
        for arg, each in zip(call.args, found, strict=True)
    ]
    given = [arg for arg in args if arg is not None]
    if len(given) != len(args):
        return None
    name = str(rewriter.name)
    made = relax.Call(call.op, given, call.attrs, call.ty_args)
    value = rewriter.as_variable(made, f"{name}{SEPARATOR}planes")
    return moved(rewriter, value, view, name)


def concat_of_planes(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A concat along the channels of tensors that are views of planes."""
    shape, parts = shape_of(call), call.args[0]
    if shape is None or len(shape) != 2 + SPATIAL or not isinstance(parts, Tuple):
        return None
    found = [_planes_of(rewriter, field) for field in parts.fields]
    planes = [each[0] for each in found if each is not None]
    if len(planes) != len(found) or int(call.attrs.axis) % len(shape) != 1:
        return None
    return _Planes(rewriter, shape[0]).back(relax.op.concat(planes, 1), shape)


def _planes_of(rewriter: Rewriter, value: relax.Expr) -> tuple[relax.Expr, View] | None:
    """The planes (D * N, C, H, W) that ``value`` is a view of, and the view."""
    if is_constant(value) or not isinstance(value, relax.Var):
        return None
    source, chain = chain_of_views(rewriter, value)
    view = view_of(source, chain) if chain else None
    is_planes = view is not None and len(view.source) == 4
    return (source, view) if view is not None and is_planes and _is_depths(view) else None


def _is_depths(view: View) -> bool:
    """Whether (D * N, C, H, W) is seen as (N, C, D, H, W)."""
    if len(view.shape) != 2 + SPATIAL:
        return False
    n, c, d, h, w = view.shape
    wanted = View.of((d * n, c, h, w)).reshaped((d, n, c, h, w))
    return wanted is not None and view == wanted.permuted([1, 2, 0, 3, 4])


def _beside_planes(
    rewriter: Rewriter, arg: relax.Expr, found: tuple[relax.Expr, View] | None, view: View
) -> relax.Expr | None:
    """``arg`` as an operand of what is computed on planes; None where it has no such form."""
    if found is not None and found[1] == view:
        return found[0]
    if not isinstance(arg.ty, relax.TensorType):
        return arg  # a bound of a clip
    shape = shape_of(arg)
    if shape is None:
        return None
    is_by_channel = len(shape) == 2 + SPATIAL and (shape[0], *shape[2:]) == (1, 1, 1, 1)
    if shape and max(shape) > 1 and not is_by_channel:
        return None
    channels = (1, shape[1], 1, 1) if is_by_channel else ()
    if is_constant(arg):
        return constant_of(arg.value.numpy().reshape(channels))
    if not is_by_channel:
        return None
    gate = relax.op.reshape(arg, channels)
    return rewriter.as_variable(gate, f"{rewriter.name}{SEPARATOR}gate")


DEPTH_RULES: dict[str, Sequence[Rule]] = {
    "relax.nn.conv3d": (convolution_of_planes,),
    "relax.nn.max_pool3d": (pool_of_planes,),
    "relax.nn.avg_pool3d": (mean_of_depths, pool_of_planes),
    "relax.nn.adaptive_avg_pool3d": (mean_of_depths,),
    "relax.mean": (mean_of_depths,),
    "relax.concat": (concat_of_planes,),
    **{name: (elementwise_of_planes,) for name in (*ELEMENTWISE, *BINARY)},
}
"""Operator -> its rules; they apply when scales of channels are in the weights already."""
