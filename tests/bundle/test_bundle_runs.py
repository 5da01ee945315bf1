"""The C runtime on the C simulator computes what the integer dialect computes, bit for bit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from bundle_runs import drawn_inputs, reference, results_of, run_bundle
from draws import draws
from integer_models import IntegerNet
from tvm import relax

import vta_byoc as vta
from models import digits
from vta_byoc.hw.config import VTAConfig

TFLITE = Path(__file__).resolve().parents[1] / "fixtures" / "tflite"
INPUTS = 4


def check(
    mod: tvm.IRModule,
    config: VTAConfig,
    example: Path,
    folder: Path,
    count: int = INPUTS,
    machine: relax.VirtualMachine | None = None,
) -> None:
    """`machine`: the reference of `mod`, where it was built before."""
    bundle = vta.write_bundle(mod, folder / "bundle", config)
    machine = machine or reference(mod)
    for seed in range(count):
        inputs = drawn_inputs(mod, seed)
        wanted = results_of(machine, inputs)
        found, _ = run_bundle(example, bundle, inputs, wanted, folder)
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("network", digits.NETWORKS)
def test_digits(network: str, example: Path, tmp_path: Path) -> None:
    config = VTAConfig.preset("sim")
    mod = vta.load_model(digits.trained(network, fold=0))
    samples = list(np.random.default_rng(0).standard_normal((8, 1, 1, 16, 16), np.float32))
    check(vta.quantize(mod, calibration=samples, config=config), config, example, tmp_path)


@pytest.mark.parametrize(
    ("network", "preset"), [("net", "sim"), ("net_uint8_io", "pynq"), ("softmax", "sim")]
)
def test_prequantized_tflite(network: str, preset: str, example: Path, tmp_path: Path) -> None:
    """Transposed images, unsigned integers, and a softmax between dequantize and quantize."""
    config = VTAConfig.preset(preset)
    mod = vta.quantize(vta.load_model(TFLITE / f"{network}.tflite"), config=config)
    check(mod, config, example, tmp_path)


# ---------------------------------------------------------------- small networks
@functools.cache
def two_of_each() -> tuple[tvm.IRModule, relax.VirtualMachine]:
    """Two inputs and two results, channels that do not fill their blocks, two images."""
    net = IntegerNet(3, a=(2, 5, 6, 6), b=(2, 20, 6, 6))
    first = net.conv(net.params[0], 20)
    second = net.residual(first, net.params[1])
    mod = net.module(second, first)
    return mod, reference(mod)


@pytest.mark.parametrize("preset", ["1x32", "2x16", "tophub_4x8", "chisel", "zcu104"])
def test_machines(preset: str, example: Path, tmp_path: Path) -> None:
    mod, machine = two_of_each()
    check(mod, VTAConfig.preset(preset), example, tmp_path, 2, machine)


@pytest.mark.parametrize("seed", range(draws(4, 8)))
def test_drawn_networks(seed: int, example: Path, tmp_path: Path) -> None:
    """Odd sizes, strides, groups and paddings on machines of drawn shapes."""
    rng = np.random.default_rng(seed)
    batch, ci, side = (int(rng.integers(1, most)) for most in (4, 24, 12))
    config = VTAConfig(log_batch=int(rng.integers(0, 3)), log_block=int(rng.integers(4, 6)))
    net = IntegerNet(seed, x=(batch, ci, side + 3, side + 2))
    value: relax.Var = net.params[0]
    for number in range(int(rng.integers(1, 4))):
        pads = tuple(int(p) for p in rng.integers(0, 2, 4))
        value = net.conv(
            value,
            int(rng.integers(1, 40)),
            int(rng.choice([1, 3])),
            stride=int(rng.integers(1, 3)),
            pads=(pads[0] + 1, pads[1] + 1, pads[2] + 1, pads[3] + 1),
            relu=bool(rng.integers(2)),
            name=f"layer{number}",
        )
    check(net.module(value), config, example, tmp_path, 1)


def host_net(*ops: Callable[[IntegerNet, relax.Var], relax.Var]) -> tvm.IRModule:
    """A float input, quantized; a convolution on VTA; `ops` on its result, dequantized."""
    net = IntegerNet(5)
    net.params = [relax.Var("x", relax.TensorType((2, 3, 4, 5), "float32"))]
    scale, zero = relax.const(0.3, "float32"), relax.const(-3, "int8")
    whole = net.op("quantize", net.params[0], scale, zero, axis=0, out_dtype="int8")
    made = net.conv(whole, 7, name="layer")
    real = net.op("dequantize", made, scale, zero, axis=0, out_dtype="float32")
    return net.module(*(op(net, real) for op in ops), whole)


def test_host_steps(example: Path, tmp_path: Path) -> None:
    mod = host_net(
        lambda net, x: net.op("nn.softmax", x, axis=1),
        lambda net, x: net.op("nn.softmax", net.op("permute_dims", x, axes=[2, 0, 3, 1]), axis=-1),
        lambda net, x: net.op("argmax", x, axis=3, keepdims=True),
        lambda net, x: net.op("astype", net.op("argmax", x, axis=1), "int32"),
        lambda net, x: net.op("reshape", net.op("permute_dims", x), (5, 56)),
    )
    check(mod, VTAConfig(), example, tmp_path)


def test_floats_at_the_edges(example: Path, tmp_path: Path) -> None:
    """Halves go to the even integer; infinities and what is no number to the ends, as in TVM."""
    mod = host_net(lambda _net, x: x)
    step = np.float32(0.3)
    edges = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, -0.0, 2.0**22 * step], np.float32)
    halves = (np.arange(-40, 73, dtype=np.float32) + np.float32(0.5)) * step
    inputs = [np.concatenate([edges, halves]).reshape(2, 3, 4, 5)]
    bundle = vta.write_bundle(mod, tmp_path / "bundle", VTAConfig())
    wanted = results_of(reference(mod), inputs)
    found, _ = run_bundle(example, bundle, inputs, wanted, tmp_path)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_two_regions_and_their_counters(example: Path, tmp_path: Path) -> None:
    """Regions with a step of the host between them; the simulator counts what Python's does."""
    net = IntegerNet(6, x=(1, 16, 6, 6))
    first = net.conv(net.params[0], 16, name="first")
    fine, coarse, zero = (
        relax.const(*of) for of in ((0.25, "float32"), (0.5, "float32"), (0, "int8"))
    )
    real = net.op("dequantize", first, fine, zero, axis=0, out_dtype="float32")
    again = net.op("quantize", real, coarse, zero, axis=0, out_dtype="int8")
    mod = net.module(net.conv(again, 16, name="second"))
    check(mod, VTAConfig(), example, tmp_path)
    inputs = drawn_inputs(mod, 0)
    profile = vta.profile(vta.build(mod, config=VTAConfig()), inputs)
    assert len(profile.regions) == 2
    bundle = tmp_path / "bundle"
    _, printed = run_bundle(example, bundle, inputs, profile.outputs, tmp_path, "-c")
    counted = dict(line.split() for line in printed.splitlines())
    assert {name: int(value) for name, value in counted.items()} == profile.counters


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    mod = host_net(lambda _net, x: x)
    first, second = (vta.write_bundle(mod, tmp_path / name) for name in "ab")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()
