"""Attention over pixels and windows: networks that mix convolutions and tokens, one region each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from attention_cases import checked, computed, quantized, samples
from region_runs import Found
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.names import COPIED
from vta_byoc.validation.bit_exact import stored

Build = Callable[["Written", relax.Expr], relax.Expr]


class Written:
    """A float module under construction: operators with seeded weights."""

    def __init__(self, seed: int) -> None:
        self.rng, self.builder = np.random.default_rng(seed), relax.BlockBuilder()

    def emit(self, value: relax.Expr) -> relax.Expr:
        return self.builder.emit(value)

    def weight(self, *shape: int, fan: int) -> relax.Expr:
        return relax.const((self.rng.standard_normal(shape) / np.sqrt(fan)).astype("float32"))

    def conv(self, x: relax.Expr, outputs: int, kernel: int = 1) -> relax.Expr:
        inputs = int(x.ty.shape[1])
        weight = self.weight(outputs, inputs, kernel, kernel, fan=inputs * kernel**2)
        made = self.emit(relax.op.nn.conv2d(x, weight, padding=kernel // 2))
        return self.emit(relax.op.add(made, self.weight(1, outputs, 1, 1, fan=100)))

    def dense(self, x: relax.Expr, outputs: int) -> relax.Expr:
        inputs = int(x.ty.shape[-1])
        made = self.emit(relax.op.matmul(x, self.weight(inputs, outputs, fan=inputs)))
        return self.emit(relax.op.add(made, self.weight(outputs, fan=100)))

    def moved(self, x: relax.Expr, *steps: tuple[int, ...] | list[int]) -> relax.Expr:
        """Lists are orders of axes, tuples are shapes."""
        for step in steps:
            is_order = isinstance(step, list)
            x = self.emit((relax.op.permute_dims if is_order else relax.op.reshape)(x, step))
        return x

    def norm(self, x: relax.Expr) -> relax.Expr:
        size = int(x.ty.shape[-1])
        ones, zeros = (relax.const(np.full(size, n, "float32")) for n in (1, 0))
        return self.emit(relax.op.nn.layer_norm(x, ones, zeros, [-1]))

    def shares(self, query: relax.Expr, key: relax.Expr, factor: np.ndarray) -> relax.Expr:
        scores = self.emit(relax.op.matmul(query, key))
        scaled = self.emit(relax.op.multiply(scores, relax.const(factor.astype("float32"))))
        return self.emit(relax.op.nn.softmax(scaled, -1))


def module(shape: Sequence[int], build: Build, seed: int = 0) -> tvm.IRModule:
    """What `build` makes of an input, normalized as importers leave it."""
    net, x = Written(seed), relax.Var("x", relax.TensorType(tuple(shape), "float32"))
    with net.builder.function("main", [x]):
        with net.builder.dataflow():
            result = net.builder.emit_output(build(net, x))
        net.builder.emit_func_output(result)
    before = net.builder.get()
    after = normalize(before)
    inputs = samples(before)[0]
    np.testing.assert_allclose(computed(after, inputs), computed(before, inputs), atol=1e-4)
    return after


def assert_one_region(compiled: Found, *rules: str) -> None:
    """Nothing is left to the CPU but the input, and nothing goes back and forth."""
    assert [op.name for op in compiled.placement if op.device == "cpu"] == ["x"]
    assert len(compiled.programs) == 1
    assert set(rules) <= {getattr(op.why, "rule", "") for op in compiled.placement}


def over_pixels(heads: int, width: int) -> Build:
    """Queries, keys and values of one convolution; the values stand before the shares."""

    def build(net: Written, x: relax.Expr) -> relax.Expr:
        _, channels, high, wide = (int(n) for n in x.ty.shape)
        pixels, size = high * wide, width
        made = net.conv(net.emit(relax.op.nn.relu(net.conv(x, channels))), 3 * heads * size)
        parted = net.moved(made, (1, heads, 3 * size, pixels))
        query, key, value = (
            net.emit(relax.op.strided_slice(parted, [2], [i * size], [(i + 1) * size]))
            for i in range(3)
        )
        shares = net.shares(net.moved(query, [0, 1, 3, 2]), key, np.array(size**-0.5))
        mixed = net.emit(relax.op.matmul(value, net.moved(shares, [0, 1, 3, 2])))
        image = net.moved(mixed, (1, heads * size, high, wide))
        return net.emit(relax.op.add(x, net.conv(image, channels, 3)))

    return build


@pytest.mark.parametrize(
    "machine, size, heads, width",
    [
        ("sim", (4, 4), 2, 16),
        ("sim", (7, 7), 1, 24),
        ("sim", (6, 5), 3, 16),
        ("1x32", (6, 6), 2, 32),
    ],
)
def test_over_pixels(machine: str, size: tuple[int, int], heads: int, width: int) -> None:
    """Planes of whole blocks and of others, channels of whole blocks and of others."""
    mod = module((1, 2 * width, *size), over_pixels(heads, width))
    assert_one_region(checked(mod, VTAConfig.preset(machine), "mul"), "pattern vta.attention")


@pytest.mark.parametrize("size, channels", [((4, 8), 32), ((5, 5), 24), ((8, 6), 48)])
def test_tokens_between_images(size: tuple[int, int], channels: int) -> None:
    """An image, its pixels as tokens, rows of the image again, and an image."""
    high, wide = size

    def build(net: Written, x: relax.Expr) -> relax.Expr:
        image = net.conv(x, channels, 3)
        tokens = net.moved(image, (1, channels, high * wide), [0, 2, 1])
        tokens = net.emit(relax.op.add(tokens, net.dense(net.norm(tokens), channels)))
        rows = net.norm(net.moved(tokens, (1, high, wide, channels)))
        rows = net.dense(net.emit(relax.op.nn.relu(net.dense(rows, 2 * channels))), channels)
        again = net.moved(rows, [0, 3, 1, 2])
        return net.conv(net.emit(relax.op.add(image, again)), 16)

    compiled = checked(module((1, 16, *size), build), VTAConfig.preset("sim"), "mul")
    assert_one_region(compiled, "pattern vta.norm")


def test_windows_of_an_image() -> None:
    """Attention within the windows of an image, whose pixels are rows of four images."""
    heads, size, channels = 2, 16, 32

    def build(net: Written, x: relax.Expr) -> relax.Expr:
        image = net.conv(x, channels, 3)
        rows = net.moved(image, (channels * 4, 2, 4, 2), [0, 2, 1, 3])
        rows = net.moved(rows, (1, channels, 16, 4), [0, 3, 2, 1], (4, 16, channels))
        query, key, value = (
            net.moved(net.dense(rows, channels), (4, 16, heads, size), order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        shares = net.shares(query, key, np.array(size**-0.5))
        mixed = net.emit(relax.op.matmul(shares, value))
        joined = net.moved(mixed, [0, 2, 1, 3], (4, 16, channels))
        rows = net.emit(relax.op.add(rows, net.dense(joined, channels)))
        image = net.moved(rows, (1, 4, 16, channels), [0, 3, 2, 1], (channels * 4, 4, 2, 2))
        return net.conv(net.moved(image, [0, 2, 1, 3], (1, channels, 8, 8)), channels, 3)

    compiled = checked(module((1, 16, 8, 8), build), VTAConfig.preset("sim"), "mul")
    assert_one_region(compiled, "pattern vta.attention")


def test_cosines_with_a_temperature_for_each_head() -> None:
    """Queries and keys of length 1, as Swin V2 has them: norms and attention."""
    heads, size, tokens = 3, 16, 32

    def unit(net: Written, x: relax.Expr) -> relax.Expr:
        squares = net.emit(relax.op.sum(net.emit(relax.op.multiply(x, x)), -1, True))
        length = net.emit(relax.op.maximum(net.emit(relax.op.sqrt(squares)), relax.const(1e-12)))
        return net.emit(relax.op.divide(x, length))

    def build(net: Written, x: relax.Expr) -> relax.Expr:
        query, key, value = (
            net.moved(net.dense(x, heads * size), (1, tokens, heads, size), [0, 2, 1, 3])
            for _ in range(3)
        )
        temperatures = np.array([4.0, 10.0, 7.0]).reshape(heads, 1, 1)
        turned = net.moved(unit(net, key), [0, 1, 3, 2])
        shares = net.shares(unit(net, query), turned, temperatures)
        mixed = net.emit(relax.op.matmul(shares, value))
        return net.dense(net.moved(mixed, [0, 2, 1, 3], (1, tokens, heads * size)), 16)

    mod = module((1, tokens, 48), build)
    config = VTAConfig.preset("sim")
    compiled = checked(mod, config, "mul")
    assert_one_region(compiled, "pattern vta.attention", "pattern vta.norm")
    inputs = samples(mod)[0]
    found, wanted = (computed(each, inputs) for each in (quantized(mod, config, "mul"), mod))
    noise = float(((found - wanted) ** 2).sum() / (wanted**2).sum())
    assert noise < 10**-2.5


@pytest.mark.parametrize("seed", range(6))
def test_drawn_chains_between_layouts(seed: int) -> None:
    """An image, moved to rows or tokens in any way, computed there, and moved back."""
    config = VTAConfig.preset(("sim", "2x16", "pynq", "1x32")[seed % 4])
    rng = np.random.default_rng(seed)
    high, wide, channels = (int(n) for n in (*rng.integers(2, 5, 2) * 2, rng.integers(1, 4) * 12))
    parted = (1, channels, high // 2, 2, wide // 2, 2)
    axes = [int(a) for a in rng.permutation([2, 3, 4, 5])]
    count = int(rng.integers(0, 3))
    sizes = [parted[a] for a in axes]
    images = int(np.prod(sizes[:count]))

    def build(net: Written, x: relax.Expr) -> relax.Expr:
        image = net.conv(x, channels)
        seen = net.moved(image, parted, [0, *axes, 1])
        rolled = net.emit(relax.op.take(seen, relax.const(np.roll(np.arange(sizes[0]), 1)), axis=1))
        rows = net.moved(rolled, (images, -1, channels))
        if seed % 2:
            rows = net.norm(rows)
        rows = net.emit(relax.op.add(rows, net.dense(rows, channels)))
        back = [0, 5, *(1 + axes.index(a) for a in (2, 3, 4, 5))]
        again = net.moved(rows, (1, *sizes, channels), back, (1, channels, high, wide))
        return net.conv(net.emit(relax.op.add(image, again)), 16)

    scales = "mul" if config.capabilities.mul else "pow2"
    checked(module((1, 16, high, wide), build, seed), config, scales)


def test_an_operand_of_two_products_is_copied_once() -> None:
    """With zeros behind its 24 channels, and compared with the tensor that it is a copy of."""

    def build(net: Written, x: relax.Expr) -> relax.Expr:
        left = net.dense(x, 24)
        products = (
            net.emit(relax.op.matmul(left, net.moved(net.dense(x, 24), [0, 2, 1])))
            for _ in range(2)
        )
        return net.dense(net.emit(relax.op.add(*products)), 16)

    compiled = checked(module((1, 32, 32), build), VTAConfig.preset("sim"), "mul")
    (program,) = compiled.programs.values()
    assert [name for name in stored(program) if COPIED in name] == [f"lv{COPIED}"]


def test_a_copy_of_single_lanes_is_the_hosts() -> None:
    """Elements in any order say how many boxes a copy would take."""
    order = relax.const(np.random.default_rng(2).permutation(64 * 16))

    def build(net: Written, x: relax.Expr) -> relax.Expr:
        flat = net.moved(net.dense(x, 16), (1, 64 * 16))
        mixed = net.emit(relax.op.take(flat, order, axis=1))
        return net.dense(net.moved(mixed, (1, 32, 32)), 48)

    compiled = checked(module((1, 64, 32), build), VTAConfig.preset("sim"), "mul")
    (taken,) = (op for op in compiled.placement if op.op == "relax.take")
    assert taken.device == "cpu"
    assert taken.reason.startswith("a copy takes ")
    assert "boxes of vectors; at most 48 are taken" in taken.reason
