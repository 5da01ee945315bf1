"""Convolution and add cases for the tests of code generation: numpy references, programs, tiles."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from vta_byoc.codegen import BEST, FoldMode, ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program import Program
from vta_byoc.strategy import (
    add_compute,
    add_schedule,
    blocks,
    conv2d_compute,
    conv2d_schedule,
    pack_activation,
    pack_bias,
    pack_weight,
    unpack_activation,
)
from vta_byoc.tiling import AddTile, ConvTile
from vta_byoc.workload import AddWorkload, Conv2dWorkload


def rescaled(acc: np.ndarray, shift: int, low: int, high: int) -> np.ndarray:
    """int8 of int64 accumulators: shift (left when negative), clamp."""
    moved = acc >> shift if shift >= 0 else acc << -shift
    return np.minimum(np.maximum(moved, low), high).astype(np.int8)


def numpy_conv(
    work: Conv2dWorkload, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """Direct convolution of NCHW ``x`` and OIHW ``weight`` in int64, without packing."""
    top, left, bottom, right = work.padding
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    (sh, sw), (dh, dw) = work.strides, work.dilation
    oh = (wide.shape[2] - (work.kernel[0] - 1) * dh - 1) // sh + 1
    ow = (wide.shape[3] - (work.kernel[1] - 1) * dw - 1) // sw + 1
    acc = np.zeros((x.shape[0], weight.shape[0], oh, ow), np.int64)
    for kh in range(work.kernel[0]):
        for kw in range(work.kernel[1]):
            rows = wide[:, :, kh * dh : kh * dh + (oh - 1) * sh + 1 : sh]
            seen = rows[:, :, :, kw * dw : kw * dw + (ow - 1) * sw + 1 : sw]
            acc += np.einsum("nihw,oi->nohw", seen, weight[:, :, kh, kw].astype(np.int64))
    acc += bias.astype(np.int64)[None, :, None, None]
    assert abs(acc).max() < 2**31
    return rescaled(acc, work.shift, work.low, work.high)


def numpy_add(work: AddWorkload, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """The sum of two int8 tensors in int64, rescaled."""
    total = _scaled(lhs, work.left_lhs) + _scaled(rhs, work.left_rhs)
    return rescaled(total + work.rounding, work.shift, work.low, work.high)


def _scaled(x: np.ndarray, left: int) -> np.ndarray:
    """``x << left`` in int64; to the right it rounds half up."""
    wide = x.astype(np.int64)
    return wide << left if left >= 0 else (wide + (1 << (-left - 1))) >> -left


def random_int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)


@dataclasses.dataclass
class Case:
    """A Program with its inputs, the NCHW result that numpy expects and where it is."""

    program: Program
    inputs: dict[str, np.ndarray]
    expected: np.ndarray
    output: str = "y"

    def check(self, arena: np.ndarray) -> None:
        """The output of a run must equal the reference, bit for bit."""
        batch, channels = self.expected.shape[:2]
        packed = self.program.view(arena, self.output)
        np.testing.assert_array_equal(unpack_activation(packed, batch, channels), self.expected)


def packed_shape(config: VTAConfig, n: int, c: int, h: int, w: int) -> tuple[int, ...]:
    """Shape of a packed activation."""
    b, k = config.batch, config.block
    return blocks(n, b), blocks(c, k), h, w, b, k


class NetBuilder:
    """Layers in one Program next to their numpy results."""

    def __init__(self, config: VTAConfig, seed: int = 0, fold: FoldMode = BEST):
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.builder = ProgramBuilder(config, fold=fold)
        self.values: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}

    def input(self, name: str, *shape: int) -> str:
        """A random int8 input of NCHW ``shape``."""
        self.values[name] = random_int8(self.rng, *shape)
        self.inputs[name] = pack_activation(self.values[name], self.config)
        return self.builder.symbol(name, "input", self.inputs[name].shape, "int8")

    def _output(self, name: str, value: np.ndarray, kind: str) -> str:
        self.values[name] = value
        return self.builder.symbol(name, kind, packed_shape(self.config, *value.shape), "int8")

    def conv(
        self,
        name: str,
        x: str,
        work: Conv2dWorkload,
        tile: ConvTile | None = None,
        kind: str = "temp",
    ) -> str:
        """A convolution of ``x`` with random weights and bias."""
        rng, cfg = self.rng, self.config
        weight = random_int8(rng, work.out_channels, work.in_channels, *work.kernel)
        bias = rng.integers(-5000, 5000, work.out_channels).astype(np.int32)
        self.builder.constant(f"{name}_w", pack_weight(weight, cfg))
        self.builder.constant(f"{name}_b", pack_bias(bias, cfg))
        self._output(name, numpy_conv(work, self.values[x], weight, bias), kind)
        func = conv2d_schedule(conv2d_compute(work, cfg), work, cfg, tile)
        self.builder.layer(name, func, [x, f"{name}_w", f"{name}_b", name])
        return name

    def add(
        self,
        name: str,
        lhs: str,
        rhs: str,
        work: AddWorkload,
        tile: AddTile | None = None,
        kind: str = "temp",
    ) -> str:
        """A residual add of ``lhs`` and ``rhs``."""
        self._output(name, numpy_add(work, self.values[lhs], self.values[rhs]), kind)
        func = add_schedule(add_compute(work, self.config), work, self.config, tile)
        self.builder.layer(name, func, [lhs, rhs, name])
        return name

    def finish(self, output: str) -> Case:
        return Case(self.builder.finish(), self.inputs, self.values[output], output)


def conv_case(
    work: Conv2dWorkload,
    config: VTAConfig,
    tile: ConvTile | None = None,
    seed: int = 0,
    fold: FoldMode = BEST,
) -> Case:
    """One convolution as a Program."""
    net = NetBuilder(config, seed, fold)
    net.input("x", work.batch, work.in_channels, work.height, work.width)
    return net.finish(net.conv("y", "x", work, tile, "output"))


def add_case(
    work: AddWorkload, config: VTAConfig, tile: AddTile | None = None, seed: int = 0
) -> Case:
    """One add as a Program."""
    net = NetBuilder(config, seed)
    for name in ("lhs", "rhs"):
        net.input(name, work.batch, work.channels, work.height, work.width)
    return net.finish(net.add("y", "lhs", "rhs", work, tile, "output"))


# ---------------------------------------------------------------- random cases
def random_work(rng: np.random.Generator, **fixed: Any) -> Conv2dWorkload:
    """A convolution whose output has at least one pixel; ``fixed`` fields are taken as given."""
    kernel = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    if rng.random() < 0.5:
        kernel = kernel[0], kernel[0]
    dilation = (1, 1) if rng.random() < 0.7 else (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    stride = int(rng.integers(1, 4))
    strides = (stride, stride) if rng.random() < 0.7 else (stride, int(rng.integers(1, 4)))
    wide_pad = 24 if rng.random() < 0.1 else 4
    most, whole = (4, 16) if rng.random() < 0.3 else (50, 1)
    values: dict[str, Any] = {
        "batch": int(rng.choice([1, 1, 1, 2, 3, 4])),
        "in_channels": whole * int(rng.integers(1, most)),
        "out_channels": whole * int(rng.integers(1, most)),
        "kernel": kernel,
        "strides": strides,
        "dilation": dilation,
        "padding": tuple(int(p) for p in rng.integers(0, wide_pad, 4))
        if rng.random() < 0.8
        else (0, 0, 0, 0),
        "shift": int(rng.choice([-1, 0, 5, 8, 9, 12, 17])),
        "low": int(rng.choice([-128, 0])),
    } | fixed
    work = Conv2dWorkload(height=1, width=1, **values)
    need = [work.reach[k] - work.padding[k] - work.padding[k + 2] for k in (0, 1)]
    height, width = (max(1, n) + int(rng.integers(0, 14)) for n in need)
    return dataclasses.replace(work, height=height, width=width)


def random_tile(
    rng: np.random.Generator, work: Conv2dWorkload, config: VTAConfig
) -> ConvTile | None:
    """A random tile that fits SRAM, or None when none of some tries does."""
    ci, co = blocks(work.in_channels, config.block), blocks(work.out_channels, config.block)
    for _ in range(20):
        tile = ConvTile(
            co=int(rng.integers(1, co + 1)),
            oh=int(rng.integers(1, work.out_height + 1)),
            ow=int(rng.integers(1, work.out_width + 1)),
            ci=int(rng.integers(1, ci + 1)),
            order=str(rng.choice(["weights", "inputs"])),
            inp_slots=int(rng.integers(1, 3)),
            wgt_slots=int(rng.integers(1, 3)),
            acc_slots=int(rng.integers(1, 3)),
        )
        if fits(tile, work, config):
            return tile
    return None


def fits(tile: ConvTile, work: Conv2dWorkload, config: VTAConfig) -> bool:
    """Whether all slots of ``tile`` fit SRAM."""
    step = 1 if work.skips_rows else work.strides[0]
    rows = (tile.oh - 1) * step + work.reach[0]
    cols = (tile.ow - 1) * work.strides[1] + work.reach[1]
    taps = work.kernel[0] * work.kernel[1]
    return (
        tile.inp_slots * tile.ci * rows * cols <= config.inp_depth
        and tile.wgt_slots * tile.co * tile.ci * taps <= config.wgt_depth
        and tile.acc_slots * tile.co * (tile.oh * tile.ow + 1) <= config.acc_depth
    )
