"""Layers with channels last become layers with channels first, which VTA computes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import tvm
from tvm import relax

import vta_byoc as vta
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.reference import build_reference
from vta_byoc.partition import placements
from vta_byoc.partitioning.placement import VTA
from vta_byoc.quantization.channels_first import channels_first
from vta_byoc.runtime.execute import run_vm

RX = relax.op
IMAGE, SEQUENCE = (1, 8, 8, 3), (1, 9, 4)


class Last:
    """A function of tensors with channels last under construction."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.builder = relax.BlockBuilder()

    def const(self, *shape: int) -> relax.Expr:
        return relax.const((0.3 * self.rng.standard_normal(shape)).astype(np.float32))

    def emit(self, expr: relax.Expr, name: str) -> relax.Var:
        return self.builder.emit(expr, name)

    def conv2d(self, x: relax.Expr, name: str, *shape: int, **attrs: object) -> relax.Var:
        """``shape`` of the weights, HWIO."""
        layout = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": 1}
        return self.emit(RX.nn.conv2d(x, self.const(*shape), **layout, **attrs), name)


def network(*, transposed: bool = True) -> tvm.IRModule:
    """Every operator that is taken with channels first, and some that are not; TVM itself has no
    transposed convolution with channels last."""
    net = Last()
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    s = relax.Var("s", relax.TensorType(SEQUENCE, "float32"))
    with net.builder.function("main", [x, s]):
        with net.builder.dataflow():
            y = net.conv2d(x, "conv", 3, 3, 3, 16)
            y = net.emit(RX.nn.relu(net.emit(RX.add(y, net.const(16)), "bias")), "relu")
            z = net.conv2d(y, "depthwise", 3, 3, 1, 16, groups=16)
            y = net.emit(RX.concat([net.emit(RX.add(y, z), "sum"), z], -1), "cat")
            y = net.emit(RX.nn.pad(y, [0, 0, 1, 0, 0, 1, 0, 0]), "pad")
            y = net.emit(RX.nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC"), "maximum")
            y = net.emit(RX.nn.avg_pool2d(y, (2, 2), layout="NHWC"), "average")
            y = net.emit(RX.multiply(y, net.emit(RX.mean(y, [1, 2], True), "mean")), "gate")
            flat = net.emit(RX.reshape(y, (1, 3 * 3 * 32)), "flat")
            dense = net.emit(RX.matmul(flat, net.const(288, 5)), "dense")
            layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
            weight = net.const(2, 2, 32, 4)
            if transposed:
                y = net.emit(RX.nn.conv2d_transpose(y, weight, strides=2, **layouts), "up")
            layouts = {"data_layout": "NWC", "kernel_layout": "WIO"}
            line = net.emit(RX.nn.conv1d(s, net.const(3, 4, 6), padding=1, **layouts), "line")
            results = relax.Tuple([dense, y, line])
            out = net.builder.emit_output(results)
        net.builder.emit_func_output(out)
    return net.builder.get()


def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape).astype(np.float32) for shape in (IMAGE, SEQUENCE)]


def test_a_network_computes_the_same_with_channels_first() -> None:
    mod = network(transposed=False)
    made = channels_first(mod)
    kinds = Counter(op_name(b.value) for b in straight_bindings(made["main"]))
    # Two inputs; what the reshape reads and is a result; the other result.
    assert kinds["relax.permute_dims"] == 4
    for binding in straight_bindings(made["main"]):
        attrs = getattr(binding.value, "attrs", None)
        for layout in ("layout", "data_layout"):
            assert str(getattr(attrs, layout, "NCHW")) in ("NCHW", "NCW")
    got, want = (
        run_vm(relax.VirtualMachine(build_reference(m), tvm.cpu()), inputs()) for m in (made, mod)
    )
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_tensors_of_lower_rank_are_broadcast_from_the_last_axis() -> None:
    """Whether they are numbers, channels or rows, and on either side of an operator."""
    net, rng = Last(), np.random.default_rng(3)
    shapes = ((1, 4, 5, 3), (6,), (5, 1), (4, 5, 6), ())
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with net.builder.function("main", params):
        with net.builder.dataflow():
            y = net.conv2d(params[0], "conv", 3, 3, 3, 6)
            for number, param in enumerate(params[1:]):
                sides = (y, param) if number % 2 else (param, y)
                y = net.emit(RX.subtract(*sides), f"sum{number}")
            out = net.builder.emit_output(RX.nn.relu(y), "result")
        net.builder.emit_func_output(out)
    mod = net.builder.get()
    made = channels_first(mod)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    got, want = (
        run_vm(relax.VirtualMachine(build_reference(m), tvm.cpu()), given) for m in (made, mod)
    )
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)
    kinds = Counter(op_name(b.value) for b in straight_bindings(made["main"]))
    assert (kinds["relax.reshape"], kinds["relax.permute_dims"]) == (3, 5)


def test_quantize_brings_channels_last_to_vta() -> None:
    qmod = vta.quantize(network(), calibration=[tuple(inputs())])
    placed = {op.name: op.device for op in placements(vta.partition_for_vta(qmod))}
    names = "conv depthwise sum pad maximum average mean dense up line"
    assert {name: placed[name] for name in names.split()} == dict.fromkeys(names.split(), VTA)


def test_a_module_without_channels_last_is_returned_as_it_is() -> None:
    made = channels_first(network())
    assert channels_first(made) is made


def test_quantize_and_dequantize_of_a_tensor_do_not_change_its_form() -> None:
    """Those of each channel do: their axis is one of the order with channels last."""
    for scales, permuted in ((1, 2), (4, 3)):
        net = Last()
        x = relax.Var("x", relax.TensorType((1, 4, 4, 3), "float32"))
        scale = relax.const(np.full(scales, 0.1, np.float32) if scales > 1 else np.float32(0.1))
        zero = relax.const(np.zeros(scales, np.int8) if scales > 1 else np.int8(0))
        with net.builder.function("main", [x]):
            with net.builder.dataflow():
                y = net.conv2d(x, "conv", 1, 1, 3, 4)
                y = net.emit(RX.quantize(y, scale, zero, axis=3), "small")
                out = net.builder.emit_output(RX.dequantize(y, scale, zero, axis=3), "real")
            net.builder.emit_func_output(out)
        made = channels_first(net.builder.get())
        names = [str(b.var.name) for b in straight_bindings(made["main"])]
        assert names.index("conv") < names.index("small") < names.index("real")
        place = next(i for i, n in enumerate(names) if n.endswith("__last"))
        assert place > names.index("real") if scales == 1 else place < names.index("small")
        assert len(names) == 3 + permuted - (scales > 1)
