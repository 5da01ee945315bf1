"""Normalizations in networks: every stored tensor equals the integer module's, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from float_nets import Net, compiled_from
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import quantize
from vta_byoc.testing.integer_ops import check_integer_op
from vta_byoc.validation.bit_exact import compare_layers

MACHINES = tuple(VTAConfig.preset(name) for name in ("sim", "2x16", "1x32"))
SIM = MACHINES[0]


def block(net: Net, kind: str, *, first: bool) -> relax.Expr:
    """Two layers beside a residual sum, normalized before them or behind the sum."""
    channels = int(net.data.ty.shape[-1])
    x = net.dense(net.data, channels, "embed")
    hidden = net.norm(x, kind, "norm") if first else x
    hidden = net.op(relax.op.nn.relu(net.dense(hidden, 2 * channels, "wide")), "relu")
    total = net.op(relax.op.add(x, net.dense(hidden, channels, "narrow")), "sum")
    return total if first else net.dense(net.norm(total, kind, "norm"), 16, "last")


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_drawn_blocks(kind: str) -> None:
    """Pre- and post-norm; tokens as columns, as rows, and lanes that stay idle."""

    def draw(rng: np.random.Generator, _config: VTAConfig) -> tvm.IRModule:
        tokens, channels = int(rng.choice([1, 5, 16, 30])), int(rng.choice([16, 24, 48]))
        first = bool(rng.integers(2))
        return Net(rng, (1, tokens, channels)).module(lambda net: block(net, kind, first=first))

    operator = f"relax.nn.{kind}_norm"
    check_integer_op(operator, draw, machines=MACHINES, cases=3, tolerance=0.2)


def test_channels_second() -> None:
    """ConvNeXt's normalization over the channels of an image, between two convolutions."""

    def draw(rng: np.random.Generator, _config: VTAConfig) -> tvm.IRModule:
        channels = int(rng.integers(3, 40))

        def build(net: Net) -> relax.Expr:
            weights = [net.const(channels, channels, 1, 1, spread=channels**-0.5) for _ in "ab"]
            x = net.op(relax.op.nn.conv2d(net.data, weights[0]), "first")
            x = net.norm(x, "layer", "norm", axis=1)
            return net.op(relax.op.nn.conv2d(x, weights[1]), "second")

        return Net(rng, (1, channels, 5, 4)).module(build)

    check_integer_op("relax.nn.layer_norm", draw, machines=MACHINES, cases=2, tolerance=0.2)


def test_groups_of_channels() -> None:
    """One channel each, parts of a block, blocks, all channels; a plane, a row, one position."""

    def draw(rng: np.random.Generator, config: VTAConfig) -> tvm.IRModule:
        size = int(rng.choice([1, 2, config.block // 2, config.block, 2 * config.block]))
        groups = int(rng.integers(1, 2 * config.block // size + 2))
        size = int(rng.integers(1, 40)) if groups == 1 else size
        plane = [(6, 5), (1, 1), (9,)][rng.integers(3)]

        def build(net: Net) -> relax.Expr:
            channels = groups * size
            ones = (1,) * len(plane)
            kernels = [net.const(channels, channels, *ones, spread=channels**-0.5) for _ in "ab"]
            conv = relax.op.nn.conv2d if len(plane) == 2 else relax.op.nn.conv1d
            x = net.op(conv(net.data, kernels[0]), "first")
            weight, bias = net.const(channels, middle=1.0), net.const(channels, spread=0.2)
            axes = list(range(2, 2 + len(plane)))
            x = net.op(relax.op.nn.group_norm(x, weight, bias, groups, 1, axes, 1e-5), "norm")
            return net.op(conv(x, kernels[1]), "second")

        return Net(rng, (int(rng.integers(1, 3)), groups * size, *plane)).module(build)

    check_integer_op("relax.nn.group_norm", draw, machines=MACHINES, cases=4, tolerance=0.2)


@pytest.mark.parametrize("channels", [32, 64])
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_a_block_is_one_region(first: bool, channels: int) -> None:
    """Residual sum, normalization and layers of tokens as columns stay on VTA.

    Two steps of the statistics of 64 channels are equal.
    """
    shape = (1, 32, channels)
    compiled = compiled_from(lambda net: block(net, "layer", first=first), shape, SIM)
    assert len(compiled.programs) == 1
    (record,) = (each for each in compiled.placement if each.name == "norm")
    assert record.device == "vta"
    assert record.why.rule == "pattern vta.norm"


def convnext(net: Net) -> relax.Expr:
    """A block as exporters write it: channels last between two permutations."""
    channels = int(net.data.ty.shape[1])
    x = net.op(
        relax.op.nn.conv2d(net.data, net.const(channels, channels, 1, 1, spread=0.4)), "stem"
    )
    taps = net.const(channels, 1, 3, 3, spread=0.4)
    deep = net.op(relax.op.nn.conv2d(x, taps, padding=1, groups=channels), "depthwise")
    last = net.op(relax.op.permute_dims(deep, [0, 2, 3, 1]), "last")
    wide = net.dense(net.norm(last, "layer", "norm"), 2 * channels, "wide")
    wide = net.op(relax.op.add(wide, net.const(2 * channels, spread=0.1)), "bias")
    halves = net.op(relax.op.divide(wide, relax.const(np.float32(2**0.5))), "halves")
    share = net.op(relax.op.add(net.op(relax.op.erf(halves), "erf"), relax.const(1.0)), "share")
    bent = net.op(relax.op.multiply(wide, share), "bent")
    bent = net.op(relax.op.multiply(bent, relax.const(0.5)), "gelu")
    back = net.op(relax.op.permute_dims(net.dense(bent, channels, "narrow"), [0, 3, 1, 2]), "back")
    return net.op(relax.op.add(x, back), "sum")


def gated(net: Net) -> relax.Expr:
    """MambaOut's block: a gate beside tokens of which some go through a convolution."""
    channels = int(net.data.ty.shape[1])
    x = net.op(
        relax.op.nn.conv2d(net.data, net.const(channels, channels, 1, 1, spread=0.4)), "stem"
    )
    normed = net.norm(net.op(relax.op.permute_dims(x, [0, 2, 3, 1]), "last"), "layer", "norm")
    parts = net.dense(normed, 4 * channels, "parts")
    ends = np.cumsum([0, 2 * channels, channels, channels]).tolist()
    gate, same, deep = (
        net.op(relax.op.strided_slice(parts, [3], [a], [b]), f"part{a}")
        for a, b in itertools.pairwise(ends)
    )
    deep = net.op(relax.op.permute_dims(deep, [0, 3, 1, 2]), "first")
    taps = net.const(channels, 1, 3, 3, spread=0.4)
    deep = net.op(relax.op.nn.conv2d(deep, taps, padding=1, groups=channels), "depthwise")
    deep = net.op(relax.op.permute_dims(deep, [0, 2, 3, 1]), "behind")
    both = net.op(relax.op.concat([same, deep], axis=-1), "both")
    product = net.op(relax.op.multiply(net.op(relax.op.nn.relu(gate), "gate"), both), "product")
    narrow = net.dense(product, channels, "narrow")
    whole = net.op(relax.op.mean(narrow, [1, 2], keepdims=net.rng.random() < 0.5), "mean")
    return net.dense(whole, 16, "head")


@pytest.mark.parametrize("block", [convnext, gated])
def test_a_block_with_channels_last_is_one_region(block: Callable[[Net], relax.Expr]) -> None:
    """No permutation is left; what follows reads what VTA stored."""
    rng = np.random.default_rng(4)
    mod = normalize(Net(rng, (1, 8, 6, 6)).module(block))
    kinds = [op_name(b.value) for b in straight_bindings(mod["main"])]
    assert "relax.permute_dims" not in kinds
    assert kinds.count("relax.matmul") == (block is gated)  # of the one row behind the mean
    samples = [{"data": rng.normal(size=(1, 8, 6, 6)).astype("float32")}]
    quantized = quantize(mod, calibration=samples, config=SIM)
    compiled = compile_module(quantized, SIM)
    assert len(compiled.programs) == 1
    checks = compare_layers(quantized, compiled, [samples[0]["data"]])
    assert all(check.equal for check in checks)
