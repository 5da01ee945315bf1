"""Layers with weights, normalization and pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from vta_byoc.importers.relay.graph import Value
from vta_byoc.importers.relay.operators.averages import integer_average
from vta_byoc.importers.relay.operators.entry import Attributes, Operator, Ref, Result, Site, scalar

DATA_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
PLANES = {1: "W", 2: "HW", 3: "DHW"}


def _out_dtype(s: Site) -> str | None:
    """Of a sum of products; None: that of floats."""
    stated = s.text("out_dtype") or s.dtype()
    return None if stated == s.dtype() == "float32" else stated


# ---------------------------------------------------------------- convolutions
def _layouts(s: Site, axes: int) -> tuple[str, str]:
    """Of the data and of the weights.

    Raises:
        VTAError: packed layouts, which TVM's own passes make.
    """
    data, kernel = s.text("data_layout"), s.text("kernel_layout")
    plain = sorted("OI" + PLANES[axes])
    if data not in DATA_LAYOUTS[axes] or sorted(kernel) != plain:
        raise s.error(
            f"has the layouts {data} and {kernel}; {' and '.join(DATA_LAYOUTS[axes])} with plain "
            "weights are taken; save the module before it is packed or altered"
        )
    return data, kernel


def _convolution(axes: int, make: Callable[..., relax.Expr]) -> Callable[[Site], Result]:
    def convert(s: Site) -> Result:
        data, kernel = _layouts(s, axes)
        return make(
            s.tensor(0),
            s.tensor(1),
            strides=s.integers("strides", axes),
            padding=s.padding(axes),
            dilation=s.integers("dilation", axes),
            groups=s.integer("groups"),
            data_layout=data,
            kernel_layout=kernel,
            out_dtype=_out_dtype(s),
        )

    return convert


def _transposed(axes: int, make: Callable[..., relax.Expr]) -> Callable[[Site], Result]:
    """Write a transposed convolution.

    Until 0.8 weights of (input, output / groups, height, width) were called OIHW: the number of
    input channels tells what is meant.
    """

    def convert(s: Site) -> Result:
        data, kernel = _layouts(s, axes)
        weight, wanted = s.tensor(1), "IO" + PLANES[axes]
        if kernel == "OI" + PLANES[axes] and s.shape(1)[0] == s.shape()[data.index("C")]:
            kernel = wanted
        if kernel != wanted:
            order = [kernel.index(axis) for axis in wanted]
            weight = s.emit(relax.op.permute_dims(weight, order), "kernel")
        return make(
            s.tensor(0),
            weight,
            strides=s.integers("strides", axes),
            padding=s.padding(axes),
            output_padding=s.integers("output_padding", axes),
            dilation=s.integers("dilation", axes),
            groups=s.integer("groups"),
            data_layout=data,
            kernel_layout=wanted,
            out_dtype=_out_dtype(s),
        )

    return convert


def conv_attrs(axes: int, **more: Value | Ref) -> Attributes:
    """Attributes of a convolution and their defaults."""
    return {
        "strides": Ref([1] * axes),
        "padding": Ref([0] * axes),
        "dilation": Ref([1] * axes),
        "groups": 1,
        "channels": Ref(),
        "kernel_size": Ref(),
        "data_layout": "NC" + PLANES[axes],
        "kernel_layout": "OI" + PLANES[axes],
        "out_layout": "",
        "out_dtype": "",
        **more,
    }


# ---------------------------------------------------------------- products
def _dense(s: Site) -> Result:
    order = s.emit(relax.op.permute_dims(s.tensor(1), [1, 0]), "weight")
    return relax.op.matmul(s.tensor(0), order, out_dtype=_out_dtype(s))


def _turned(s: Site, position: int, turn: bool) -> relax.Expr:
    value = s.tensor(position)
    if not turn:
        return value
    rank = len(s.shape(position))
    order = [*range(rank - 2), rank - 1, rank - 2]
    return s.emit(relax.op.permute_dims(value, order), f"turned{position}")


def _matmul(s: Site) -> Result:
    left = _turned(s, 0, s.flag("transpose_a"))
    right = _turned(s, 1, s.flag("transpose_b"))
    return relax.op.matmul(left, right, out_dtype=_out_dtype(s))


def _batch_matmul(s: Site) -> Result:
    """Before 0.8 the second operand was always (batch, columns, rows); no attribute said so."""
    turn = s.flag("transpose_b")
    if not s.states("transpose_b"):
        inner = s.shape(0)[-2 if s.flag("transpose_a") else -1]
        turn = s.shape(1)[-2] != inner
    left, right = _turned(s, 0, s.flag("transpose_a")), _turned(s, 1, turn)
    return relax.op.matmul(left, right, out_dtype=_out_dtype(s))


def along(s: Site, position: int, axis: int, rank: int) -> relax.Expr:
    """An operand of one value per channel, in the shape that broadcasts along `axis`."""
    value = s.tensor(position)
    size = s.shape(position)[0]
    shape = [size if i == axis else 1 for i in range(axis, rank)]
    return value if len(shape) == 1 else s.emit(relax.op.reshape(value, shape), f"wide{position}")


def _bias_add(s: Site) -> Result:
    rank = len(s.shape())
    axis = s.axis(s.integer("axis"), rank)
    return relax.op.add(s.tensor(0), along(s, 1, axis, rank))


# ---------------------------------------------------------------- normalization
def _batch_norm(s: Site) -> Result:
    result = relax.op.nn.batch_norm(
        *(s.tensor(i) for i in range(5)),
        axis=s.axis(s.integer("axis"), len(s.shape())),
        epsilon=s.number("epsilon"),
        center=s.flag("center"),
        scale=s.flag("scale"),
        training=False,
    )
    whole = s.emit(result, "outputs")
    fields = [s.emit(relax.TupleGetItem(whole, i), f"{i}") for i in (1, 2)]
    return (relax.TupleGetItem(whole, 0), *fields)


def _layer_norm(s: Site) -> Result:
    return relax.op.nn.layer_norm(
        s.tensor(0),
        s.tensor(1),
        s.tensor(2),
        axes=[s.integer("axis")],
        epsilon=s.number("epsilon"),
        center=s.flag("center"),
        scale=s.flag("scale"),
    )


def _group_norm(s: Site) -> Result:
    rank = len(s.shape())
    axis = s.axis(s.integer("axis"), rank)
    return relax.op.nn.group_norm(
        s.tensor(0),
        s.tensor(1),
        s.tensor(2),
        num_groups=s.integer("num_groups"),
        channel_axis=axis,
        axes=[i for i in range(1, rank) if i != axis],
        epsilon=s.number("epsilon"),
        center=s.flag("center"),
        scale=s.flag("scale"),
    )


def _instance_norm(s: Site) -> Result:
    """Mean and variance of each image and channel; written out, as any axis may be the channel."""
    rank = len(s.shape())
    axis = s.axis(s.integer("axis"), rank)
    axes = [i for i in range(1, rank) if i != axis]
    mean = s.emit(relax.op.mean(s.tensor(0), axes, keepdims=True), "mean")
    apart = s.emit(relax.op.subtract(s.tensor(0), mean), "apart")
    squares = s.emit(relax.op.multiply(apart, apart), "squares")
    variance = s.emit(relax.op.mean(squares, axes, keepdims=True), "variance")
    wide = s.emit(relax.op.add(variance, scalar(s.number("epsilon"), s.dtype())), "wide")
    value: relax.Expr = relax.op.divide(apart, s.emit(relax.op.sqrt(wide), "deviation"))
    if s.flag("scale"):
        scaled = relax.op.multiply(s.emit(value, "normal"), along(s, 1, axis, rank))
        value = scaled
    if s.flag("center"):
        value = relax.op.add(s.emit(value, "scaled"), along(s, 2, axis, rank))
    return value


def _l2_normalize(s: Site) -> Result:
    axes = s.optional_integers("axis")
    squares = s.emit(relax.op.multiply(s.tensor(0), s.tensor(0)), "squares")
    total = s.emit(relax.op.sum(squares, axes, keepdims=True), "sum")
    least = s.emit(relax.op.maximum(total, scalar(s.number("eps"), s.dtype())), "least")
    return relax.op.divide(s.tensor(0), s.emit(relax.op.sqrt(least), "length"))


def _lrn(s: Site) -> Result:
    """Squares are summed over a window of channels: slices of a padded tensor."""
    rank, size = len(s.shape()), s.integer("size")
    axis = s.axis(s.integer("axis"), rank)
    squares = s.emit(relax.op.multiply(s.tensor(0), s.tensor(0)), "squares")
    widths = [0] * (2 * rank)
    widths[2 * axis : 2 * axis + 2] = [size // 2, size // 2]
    wide = s.emit(relax.op.nn.pad(squares, widths), "padded")
    total: relax.Expr | None = None
    for begin in range(2 * (size // 2) + 1):
        part = relax.op.strided_slice(wide, [axis], [begin], [begin + s.shape()[axis]])
        bound = s.emit(part, f"window{begin}")
        total = bound if total is None else s.emit(relax.op.add(total, bound), f"sum{begin}")
    share = scalar(s.number("alpha") / size, s.dtype())
    scaled = s.emit(relax.op.multiply(total, share), "share")
    base = s.emit(relax.op.add(scaled, scalar(s.number("bias"), s.dtype())), "base")
    divisor = s.emit(relax.op.power(base, scalar(s.number("beta"), s.dtype())), "divisor")
    return relax.op.divide(s.tensor(0), divisor)


def _softmax(make: Callable[..., relax.Expr]) -> Callable[[Site], Result]:
    return lambda s: make(s.tensor(0), axis=s.integer("axis"))


def _dropout(s: Site) -> Result:
    """A model that runs drops nothing; the mask says so."""
    return s.args[0], relax.const(np.ones(s.shape(), s.dtype()))


# ---------------------------------------------------------------- pooling
def _pool(axes: int, make: Callable[..., relax.Expr], average: bool) -> Callable[[Site], Result]:
    def convert(s: Site) -> Result:
        layout = _pool_layout(s, axes)
        if average and not s.dtype().startswith("float"):
            return integer_average(s, axes, layout)
        return make(
            s.tensor(0),
            s.integers("pool_size", axes),
            s.integers("strides", axes),
            s.padding(axes),
            s.integers("dilation", axes),
            s.flag("ceil_mode"),
            s.flag("count_include_pad") if average else False,
            layout,
        )

    return convert


def _pool_layout(s: Site, axes: int) -> str:
    layout = s.text("layout")
    if layout not in DATA_LAYOUTS[axes]:
        raise s.error(
            f"has the layout {layout}; {' and '.join(DATA_LAYOUTS[axes])} are taken; save the "
            "module before it is packed or altered"
        )
    return layout


def _pool_attrs(axes: int, **more: Value) -> Attributes:
    return {
        "pool_size": Ref(),
        "strides": Ref([1] * axes),
        "dilation": Ref([1] * axes),
        "padding": Ref([0] * axes),
        "layout": "NC" + PLANES[axes],
        "out_layout": "",
        "ceil_mode": False,
        **more,
    }


def _global(reduce: Callable[..., relax.Expr]) -> Callable[[Site], Result]:
    def convert(s: Site) -> Result:
        layout = _pool_layout(s, len(s.shape()) - 2)
        axes = [layout.index(axis) for axis in PLANES[len(layout) - 2]]
        if reduce is relax.op.mean and not s.dtype().startswith("float"):
            count = math.prod(s.shape()[axis] for axis in axes)
            total = s.emit(relax.op.sum(s.tensor(0), axes, keepdims=True), "sum")
            return relax.op.divide(total, scalar(count, s.dtype()))  # cut towards zero
        return reduce(s.tensor(0), axes, keepdims=True)

    return convert


def _adaptive(maximum: bool) -> Callable[[Site], Result]:
    """Windows that divide the plane evenly are a pooling; others only as averages."""

    def convert(s: Site) -> Result:
        layout = _pool_layout(s, 2)
        plane = [s.shape()[layout.index(axis)] for axis in "HW"]
        size = s.optional_integers("output_size") or plane
        size = size * 2 if len(size) == 1 else size
        if not maximum:
            return relax.op.nn.adaptive_avg_pool2d(s.tensor(0), size, layout)
        if any(whole % part for whole, part in zip(plane, size, strict=True)):
            raise s.error(
                f"makes {size} of {plane} by maxima; sizes that divide the plane are taken"
            )
        window = [whole // part for whole, part in zip(plane, size, strict=True)]
        return relax.op.nn.max_pool2d(s.tensor(0), window, window, layout=layout)

    return convert


_NORM: Attributes = {"epsilon": 1e-5, "center": True, "scale": True}
_PRODUCT: Attributes = {"out_dtype": "", "transpose_a": False, "transpose_b": False}
OPERATORS: dict[str, Operator] = {
    "nn.conv1d": Operator(_convolution(1, relax.op.nn.conv1d), 2, 2, conv_attrs(1)),
    "nn.conv2d": Operator(_convolution(2, relax.op.nn.conv2d), 2, 2, conv_attrs(2)),
    "nn.conv3d": Operator(_convolution(3, relax.op.nn.conv3d), 2, 2, conv_attrs(3)),
    "nn.conv1d_transpose": Operator(
        _transposed(1, relax.op.nn.conv1d_transpose),
        2,
        2,
        conv_attrs(1, output_padding=Ref([0])),
    ),
    "nn.conv2d_transpose": Operator(
        _transposed(2, relax.op.nn.conv2d_transpose),
        2,
        2,
        conv_attrs(2, output_padding=Ref([0, 0]), kernel_layout="IOHW"),
    ),
    "nn.dense": Operator(_dense, 2, 2, {"units": Ref(), "out_dtype": ""}),
    "nn.matmul": Operator(_matmul, 2, 2, {"units": Ref(), **_PRODUCT}),
    "nn.batch_matmul": Operator(_batch_matmul, 2, 2, _PRODUCT),
    "nn.bias_add": Operator(_bias_add, 2, 2, {"axis": 1}),
    "nn.batch_norm": Operator(_batch_norm, 5, 5, {"axis": 1, **_NORM}),
    "nn.layer_norm": Operator(_layer_norm, 3, 3, {"axis": -1, **_NORM}),
    "nn.group_norm": Operator(_group_norm, 3, 3, {"num_groups": 0, "axis": 1, **_NORM}),
    "nn.instance_norm": Operator(_instance_norm, 3, 3, {"axis": 1, **_NORM}),
    "nn.l2_normalize": Operator(_l2_normalize, 1, 1, {"eps": 0.0, "axis": Ref()}),
    "nn.lrn": Operator(
        _lrn, 1, 1, {"size": 5, "axis": 1, "bias": 2.0, "alpha": 1e-4, "beta": 0.75}
    ),
    "nn.softmax": Operator(_softmax(relax.op.nn.softmax), 1, 1, {"axis": -1}),
    "nn.fast_softmax": Operator(_softmax(relax.op.nn.softmax), 1, 1, {"axis": -1}),
    "nn.log_softmax": Operator(_softmax(relax.op.nn.log_softmax), 1, 1, {"axis": -1}),
    "nn.dropout": Operator(_dropout, 1, 1, {"rate": 0.5}),
    "nn.max_pool1d": Operator(_pool(1, relax.op.nn.max_pool1d, False), 1, 1, _pool_attrs(1)),
    "nn.max_pool2d": Operator(_pool(2, relax.op.nn.max_pool2d, False), 1, 1, _pool_attrs(2)),
    "nn.avg_pool1d": Operator(
        _pool(1, relax.op.nn.avg_pool1d, True), 1, 1, _pool_attrs(1, count_include_pad=False)
    ),
    "nn.avg_pool2d": Operator(
        _pool(2, relax.op.nn.avg_pool2d, True), 1, 1, _pool_attrs(2, count_include_pad=False)
    ),
    "nn.global_avg_pool2d": Operator(
        _global(relax.op.mean), 1, 1, {"layout": "NCHW", "out_layout": ""}
    ),
    "nn.global_max_pool2d": Operator(
        _global(relax.op.max), 1, 1, {"layout": "NCHW", "out_layout": ""}
    ),
    "nn.adaptive_avg_pool2d": Operator(
        _adaptive(False), 1, 1, {"output_size": Ref(), "layout": "NCHW", "out_layout": ""}
    ),
    "nn.adaptive_max_pool2d": Operator(
        _adaptive(True), 1, 1, {"output_size": Ref(), "layout": "NCHW", "out_layout": ""}
    ),
}
"""Relay's name -> how it becomes Relax."""
