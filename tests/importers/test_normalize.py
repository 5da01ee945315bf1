"""What exporters write around the operators is rewritten; the model computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from small_models import Graph, Net, call, ops
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings
from vta_byoc.ir.joining import MOST_JOINED


def names(mod: tvm.IRModule) -> list[str]:
    return [op for _, op in ops(mod)] if mod["main"].body.blocks else []


def becomes(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    tvm.ir.assert_structural_equal(normalize(before), relax.transform.Normalize()(expected))


def same_result(mod: tvm.IRModule, after: tvm.IRModule) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(static_shape(p)).astype("float32") for p in mod["main"].params]
    for got, want in zip(call(after, *inputs), call(mod, *inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def loaded(net: Net, tmp_path: Any, *outputs: str) -> tvm.IRModule:
    """The model as Relax, after comparing it with onnxruntime."""
    path = net.save(tmp_path / "net.onnx", *outputs)
    mod = load_model(path)
    feed = {
        p.name: net.rng.standard_normal(static_shape(p)).astype("float32")
        for p in mod["main"].params
    }
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for got, want in zip(call(mod, *feed.values()), session.run(None, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return mod


# ---------------------------------------------------------------- before and after
def test_operators_that_do_nothing():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 3), "float32")) -> R.Tensor((1, 4, 3, 3), "float32"):
            with R.dataflow():
                a = R.reshape(x, R.shape([1, 4, 3, 3]))
                b = R.permute_dims(a, [0, 1, 2, 3])
                c = R.nn.pad(b, [0, 0, 0, 0, 0, 0, 0, 0])
                d = R.broadcast_to(c, R.shape([1, 4, 3, 3]))
                e = R.concat((d,), axis=1)
                f = R.astype(e, "float32")
                y = R.nn.relu(f)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 3), "float32")) -> R.Tensor((1, 4, 3, 3), "float32"):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    becomes(Before, Expected)


def test_reshapes_and_permutations_merge_and_cancel():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((3, 5, 4), "float32"):
            with R.dataflow():
                a = R.expand_dims(x, [0])
                b = R.squeeze(a, [0])
                c = R.permute_dims(b, [0, 2, 3, 1])
                d = R.permute_dims(c, [0, 3, 1, 2])
                e = R.permute_dims(d, [2, 3, 1, 0])
                f = R.reshape(e, R.shape([15, 4]))
                y = R.reshape(f, R.shape([3, 5, 4]))
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((3, 5, 4), "float32"):
            with R.dataflow():
                e = R.permute_dims(x, [2, 3, 1, 0])
                y = R.reshape(e, R.shape([3, 5, 4]))
                R.output(y)
            return y

    becomes(Before, Expected)


def test_padding_moves_into_the_convolution():
    weight = np.ones((2, 1, 3, 3), "float32")

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 1, 4, 5), "float32")) -> R.Tensor((1, 2, 4, 5), "float32"):
            with R.dataflow():
                pad = R.nn.pad(x, [0, 0, 0, 0, 1, 0, 2, 0])
                y = R.nn.conv2d(pad, R.const(weight), padding=[0, 0, 1, 0])
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 1, 4, 5), "float32")) -> R.Tensor((1, 2, 4, 5), "float32"):
            with R.dataflow():
                y = R.nn.conv2d(x, R.const(weight), padding=[1, 2, 1, 0])
                R.output(y)
            return y

    becomes(Before, Expected)


def test_an_island_in_another_layout():
    bias = np.float32([1, 2, 3])

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 4, 5), "float32")) -> R.Tensor((1, 3, 6, 5), "float32"):
            with R.dataflow():
                a = R.permute_dims(x, [0, 2, 3, 1])
                b = R.add(R.const(bias), a)
                c = R.nn.pad(b, [0, 0, 1, 1, 0, 0, 0, 0])
                d = R.nn.relu(c)
                y = R.permute_dims(d, [0, 3, 1, 2])
                R.output(y)
            return y

    moved = bias.reshape(1, 3, 1, 1)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 3, 4, 5), "float32")) -> R.Tensor((1, 3, 6, 5), "float32"):
            with R.dataflow():
                b = R.add(x, R.const(moved))
                c = R.nn.pad(b, [0, 0, 0, 0, 1, 1, 0, 0])
                d = R.nn.relu(c)
                R.output(d)
            return d

    becomes(Before, Expected)
    assert [name for name, _ in ops(normalize(Before))] == ["b__2", "c__2", "d__2"]


def test_clamps_that_are_implied_go_away():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.clip(x, 0, 6)
                b = R.nn.relu(a)
                y = R.minimum(b, R.const(7.0, "float32"))
                z = R.minimum(y, R.const(3.0, "float32"))
                R.output(z)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.clip(x, 0, 6)
                z = R.minimum(a, R.const(3.0, "float32"))
                R.output(z)
            return z

    becomes(Before, Expected)


# ---------------------------------------------------------------- near misses
@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: g.op("permute_dims", x, [0, 1, 3, 2]),
        lambda g, x: g.op("strided_slice", x, [2], [3], [-9], [-1]),
        lambda g, x: g.op("nn.relu", g.op("maximum", x, g.const(-1.0))),
        lambda g, x: g.op("nn.conv2d", g.op("nn.pad", x, [0] * 4 + [1] * 4, "constant", 1.0),
                          g.normal(2, 3, 3, 3)),
        lambda g, x: g.op("nn.conv2d", g.op("nn.pad", x, [0, 0, 1, 0] + [1] * 4),
                          g.normal(2, 4, 3, 3)),
        lambda g, x: g.op("permute_dims",
                          g.op("nn.relu", g.op("permute_dims", x, [0, 2, 3, 1])), [0, 2, 1, 3]),
        lambda g, x: g.op("nn.avg_pool2d", x, 4, padding=1),
    ],
)  # fmt: skip
def test_what_means_something_stays(build):
    g = Graph((1, 3, 4, 4))
    mod = g.module(build(g, g.params[0]))
    after = normalize(mod)
    assert names(after) == names(mod)
    same_result(mod, after)


def test_what_has_another_reader_stays():
    g = Graph((1, 3, 4, 4))
    padded = g.op("nn.pad", g.params[0], [0] * 4 + [1] * 4, name="pad")
    moved = g.op("permute_dims", g.op("nn.relu", padded), [0, 2, 3, 1])
    conv = g.op("nn.conv2d", padded, g.normal(2, 3, 3, 3))
    mod = g.module(padded, moved, conv, g.op("permute_dims", moved, [0, 3, 1, 2]))
    same_result(mod, normalize(mod))


# ---------------------------------------------------------------- scales of channels
@pytest.mark.parametrize("kind", ["conv1d", "conv2d", "conv2d_transpose", "matmul"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_scale_and_shift_after_a_layer_fold(kind, groups, bias):
    rank = {"conv1d": 1, "matmul": 0}.get(kind, 2)
    g = Graph((2, 4, *[5] * rank)) if rank else Graph((2, 3, 4))
    after = (6, *[1] * rank)
    if kind == "matmul":
        x = g.op("matmul", g.params[0], g.normal(4, 6))
    elif kind == "conv2d_transpose":
        x = g.op("nn.conv2d_transpose", g.params[0], g.normal(4, 6 // groups, 3, 3), groups=groups)
    else:
        weight = g.normal(6, 4 // groups, *[3] * rank)
        x = g.op(f"nn.{kind}", g.params[0], weight, groups=groups)
    if bias:
        x = g.op("add", g.normal(*after), x)
    x = g.op("multiply", g.normal(*after), x)
    mod = g.module(g.op("divide", g.op("add", x, g.normal(*after)), g.const(3)))
    folded = normalize(mod)
    assert names(folded) == [names(mod)[0], "add"]
    same_result(mod, folded)


@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_folds_into_a_transposed_convolution(tmp_path, group):
    net = Net(x=[1, 4, 5, 5])
    x = net.node("ConvTranspose", "x", net.normal(4, 6 // group, 3, 3), group=group)
    mod = loaded(net, tmp_path, net.batch_norm(x, 6))
    assert names(mod) == ["nn.conv2d_transpose", "add"]


def test_batch_norm_and_scale_of_old_exporters(tmp_path):
    """Caffe's BatchNorm and Scale: normalization, multiplication, addition."""
    net = Net(x=[1, 3, 6, 6])
    x = net.batch_norm(net.conv("x", 3, 4, bias=False), 4)
    scale = net.node("Unsqueeze", net.normal(4), net.const([1, 2], "int64"))
    x = net.node("Mul", x, scale)
    mod = loaded(net, tmp_path, net.node("Add", x, net.normal(4, 1, 1)))
    assert names(mod) == ["nn.conv2d", "add"]


# ---------------------------------------------------------------- as exporters write them
@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_operators_of_any_number_of_operands(tmp_path, op, count):
    net = Net(x=[1, 3, 4, 4], y=[3, 1, 4], z=[1])
    mod = loaded(net, tmp_path, net.node("Relu", net.node(op, *"xyz"[:count], name="all")))
    binary = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}[op]
    scaled = ["multiply"] if op == "Mean" and count > 1 else []
    assert names(mod) == [binary] * (count - 1) + scaled + ["nn.relu"]


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_padding_with_elements_of_the_tensor_takes_them(tmp_path, mode):
    net = Net(x=[1, 3, 5, 6])
    pads = net.const([0, 0, 1, 3, 0, 2, 2, 0], "int64")
    assert names(loaded(net, tmp_path, net.node("Pad", "x", pads, mode=mode))) == ["take"] * 3


@pytest.mark.parametrize(
    "attrs",
    [
        {"output_shape": [9, 11]},
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID"},
        {"pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    ],
)
def test_pads_of_a_transposed_convolution(tmp_path, attrs):
    net = Net(x=[1, 3, 5, 6])
    options = {"strides": [2, 2], "dilations": [1, 2], **attrs}
    x = net.node("ConvTranspose", "x", net.normal(3, 4, 4, 3), net.normal(4), **options)
    assert names(loaded(net, tmp_path, x)) == ["nn.conv2d_transpose", "add"]


def test_transposed_convolution_of_one_dimension(tmp_path):
    net = Net(x=[2, 3, 7])
    weight = net.normal(3, 4, 3)
    x = net.node("ConvTranspose", "x", weight, net.normal(4), strides=[2], pads=[1, 0])
    assert names(loaded(net, tmp_path, net.node("Relu", x)))[1:] == [
        "nn.conv2d_transpose",
        "add",
        "nn.relu",
        "squeeze",
    ]


def test_whole_plane_pooling_is_a_mean(tmp_path):
    net = Net(x=[1, 3, 7, 7])
    x = net.node("AveragePool", "x", kernel_shape=[7, 7])
    mod = loaded(net, tmp_path, x, net.node("GlobalAveragePool", "x"))
    assert names(mod) == ["mean", "mean"]


@pytest.mark.parametrize("where", ["scales", "sizes"])
@pytest.mark.parametrize("mode", ["asymmetric", "half_pixel"])
def test_nearest_resize_is_a_repeat(tmp_path, where, mode):
    net = Net(x=[1, 3, 4, 5])
    scales, sizes = net.const([1, 1, 2, 3]), net.const([1, 3, 8, 15], "int64")
    given = (scales,) if where == "scales" else ("", sizes)
    rounding = "floor" if mode == "asymmetric" else "round_prefer_floor"
    x = net.node("Resize", "x", "", *given, mode="nearest", nearest_mode=rounding,
                 coordinate_transformation_mode=mode)  # fmt: skip
    assert names(loaded(net, tmp_path, x)) == ["repeat", "repeat"]


def test_other_resizes_stay(tmp_path):
    net = Net(x=[1, 3, 4, 5])
    linear = net.node("Resize", "x", "", net.const([1, 1, 2, 2]), mode="linear")
    odd = net.node("Resize", "x", "", net.const([1, 1, 1.5, 2]), mode="nearest")
    corners = net.node("Resize", "x", "", net.const([1, 1, 2, 2]), mode="nearest",
                       coordinate_transformation_mode="align_corners")  # fmt: skip
    assert names(loaded(net, tmp_path, linear, odd, corners)) == ["image.resize2d"] * 3


@pytest.mark.parametrize("mode", ["asymmetric", "half_pixel", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("rounding", ["round", "round_prefer_floor", "floor"])
@pytest.mark.parametrize("factor", [2, 3])
def test_a_resize_that_is_rewritten_reads_the_same_elements(mode, rounding, factor):
    g = Graph((1, 1, 5, 4))
    size = relax.ShapeExpr([5 * factor, 4 * factor])
    options = {"coordinate_transformation_mode": mode, "rounding_method": rounding}
    x = g.op("image.resize2d", g.params[0], size, method="nearest_neighbor", **options)
    mod = g.module(x)
    same_result(mod, normalize(mod))


def test_upsample_of_opset_9(tmp_path):
    net = Net(x=[1, 3, 4, 5])
    x = net.node("Upsample", "x", net.const([1, 1, 2, 2]), mode="nearest")
    model = net.model(x)
    model.opset_import[0].version = 9
    onnx.save(model, str(tmp_path / "net.onnx"))
    mod = load_model(tmp_path / "net.onnx")
    assert names(mod) == ["repeat", "repeat"]
    x = np.arange(60, dtype="float32").reshape(1, 3, 4, 5)
    np.testing.assert_array_equal(call(mod, x)[0], x.repeat(2, axis=2).repeat(2, axis=3))


def test_shapes_that_are_computed_are_constants(tmp_path):
    """x.view(x.size(0), -1) and interpolate(x, size=y.shape[2:]) as PyTorch exports them."""
    net = Net(x=[2, 3, 4, 4], y=[2, 3, 8, 8])
    axis = net.const(0, "int64")
    batch = net.node("Gather", net.node("Shape", "x"), axis, axis=0)
    first = net.const([0], "int64")
    sizes = net.node(
        "Concat", net.node("Unsqueeze", batch, first), net.const([-1], "int64"), axis=0
    )
    flat = net.node("Reshape", "x", sizes, name="flat")
    ends = [net.const(value, "int64") for value in ([0], [2], [4])]
    head = net.node("Slice", net.node("Shape", "x"), *ends[:2])
    tail = net.node("Slice", net.node("Shape", "y"), *ends[1:])
    target = net.node("Cast", net.node("Concat", head, tail, axis=0), to=onnx.TensorProto.INT64)
    up = net.node("Resize", "x", "", "", target, mode="nearest", nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")  # fmt: skip
    mod = loaded(net, tmp_path, flat, net.node("Add", up, "y"))
    assert names(mod) == ["reshape", "repeat", "repeat", "add"]


def test_a_dropout_with_a_mask_that_nobody_reads(tmp_path):
    net = Net(x=[1, 3, 4, 4])
    kept, _ = net.node("Dropout", "x", outputs=2)
    assert names(loaded(net, tmp_path, net.node("Relu", kept))) == ["nn.relu"]


def test_squeeze_and_unsqueeze_around_a_layer(tmp_path):
    net = Net(x=[1, 4, 6])
    axes = net.const([2], "int64")
    x = net.conv(net.node("Unsqueeze", "x", axes), 4, 5, 1)
    x = net.node("Relu", net.node("Unsqueeze", net.node("Squeeze", x, axes), axes))
    mod = loaded(net, tmp_path, x)
    assert names(mod) == ["expand_dims", "nn.conv2d", "add", "nn.relu"]


def test_five_dimensions_are_loaded(tmp_path):
    net = Net(x=[1, 2, 3, 4, 4])
    x = net.node("Conv", "x", net.normal(3, 2, 2, 2, 2), net.normal(3))
    after = names(loaded(net, tmp_path, x))
    assert "nn.conv3d" not in after
    assert after[-4:] == ["nn.conv2d", "add", "reshape", "permute_dims"]


def test_a_split_is_slices():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 8, 3, 3), "float32")) -> R.Tuple(
            R.Tensor((1, 5, 3, 3), "float32"), R.Tensor((1, 2, 3, 3), "float32")
        ):
            with R.dataflow():
                parts = R.split(x, [2, 7], axis=1)
                first = parts[0]
                middle = parts[1]
                y = R.nn.relu(first)
                R.output(y, middle)
            return (middle, y)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 8, 3, 3), "float32")) -> R.Tuple(
            R.Tensor((1, 5, 3, 3), "float32"), R.Tensor((1, 2, 3, 3), "float32")
        ):
            with R.dataflow():
                parts = R.strided_slice(x, [1], [0], [2])
                parts__1 = R.strided_slice(x, [1], [2], [7])
                y = R.nn.relu(parts)
                R.output(y, parts__1)
            return (parts__1, y)

    becomes(Before, Expected)


def test_a_split_into_one_part_is_nothing(tmp_path):
    net = Net(x=[1, 3, 4, 4])
    x = net.node("Split", "x", net.const([3], "int64"), axis=1)
    assert names(loaded(net, tmp_path, net.node("Relu", x))) == ["nn.relu"]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_automatic_pads_of_a_pooling(tmp_path, op, mode):
    net = Net(x=[1, 3, 8, 7])
    x = net.node(op, "x", kernel_shape=[3, 2], strides=[2, 2], auto_pad=mode)
    loaded(net, tmp_path, x)


def test_a_dead_branch_is_removed(tmp_path):
    net = Net(x=[1, 3, 4, 4])
    net.conv("x", 3, 4, name="dead")
    assert names(loaded(net, tmp_path, net.node("Relu", "x"))) == ["nn.relu"]


@pytest.mark.parametrize("form", ["sums", "row", "turned", "limits"])
def test_long_integers_stay_long(form: str) -> None:
    """Constants of int64 that are merged, moved or reshaped stay int64, as their operands are."""
    far = 2**60 + 1  # neither an int32 nor a float64
    shape = (6,) if form == "row" else (1, 3, 2)
    x = relax.Var("x", relax.TensorType(shape, "int64"))
    steps: dict[str, Callable[[], relax.Expr]] = {
        "sums": lambda: relax.op.add(relax.op.add(x, long(far)), long(2)),
        "row": lambda: relax.op.add(x, long(np.arange(6).reshape(1, 6) + far)),
        "turned": lambda: relax.op.permute_dims(
            relax.op.multiply(relax.op.permute_dims(x, [0, 2, 1]), long([[1, 2, 3], [4, 5, far]])),
            [0, 2, 1],
        ),
        "limits": lambda: relax.op.minimum(relax.op.reshape(x, (6,)), long(far)),
    }
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(builder.normalize(steps[form]()))
        builder.emit_func_output(made)
    mod, values = builder.finalize(), np.arange(6).reshape(shape) + (1 << 40)
    for got, want in zip(call(normalize(mod), values), call(mod, values), strict=True):
        assert got.dtype == "int64"
        np.testing.assert_array_equal(got, want)


def long(value: Any) -> relax.Expr:
    return relax.const(np.array(value), "int64")


def test_very_many_tensors_are_joined_in_parts() -> None:
    """The parts are no concats of more, whichever rule comes first."""
    g = Graph((1, 3))
    rows = [g.op("multiply", g.params[0], g.const(n), name=f"row_{n}") for n in range(150)]
    mod = g.module(g.op("concat", rows, axis=0, name="all"))
    after = normalize(mod)
    values = [binding.value for binding in straight_bindings(after["main"])]
    joined = [value for value in values if op_name(value) == "relax.concat"]
    assert [len(value.args[0].fields) for value in joined] == [MOST_JOINED, MOST_JOINED, 22, 3]
    same_result(mod, after)
