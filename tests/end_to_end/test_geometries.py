"""Every entry of the partition table on every geometry, and what becomes of the batch lanes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dialect_numpy
import numpy as np
import pytest
from integer_models import IntegerNet
from layer_runs import Run, machines, run_module
from random_layers import random_layer, write
from tvm import relax

from vta_byoc.ir.bindings import static_shape
from vta_byoc.partition import mark, placements
from vta_byoc.partitioning.table import entries
from vta_byoc.quantization.scales import Rescale
from vta_byoc.strategy import STRATEGIES

MACHINES = machines()
PLANNED = "1x16"
"""The machine whose plans are looked at."""
SHAPE = (3, 40, 9, 7)
"""Batch and channels fill no block of any machine."""


def inputs_of(count: int, shape: tuple[int, ...] = SHAPE) -> IntegerNet:
    return IntegerNet(**{f"x{i}": shape for i in range(count)})


def conv(channels: int, kernel: int, **options: int) -> Callable[[], IntegerNet]:
    """A convolution of an image with ``channels``."""

    def net() -> IntegerNet:
        made = inputs_of(1, (3, channels, 11, 9))
        made.result = made.conv(made.params[0], 40, kernel, name="layer0", **options)
        return made

    return net


def generated(kind: str, seed: int) -> Callable[[], IntegerNet]:
    """A layer of random_layers.py."""

    def net() -> IntegerNet:
        layer = random_layer(kind, seed)
        made = inputs_of(1, layer.shape)
        made.result = write(made, made.params[0], layer, "layer0")
        return made

    return net


def transposed() -> IntegerNet:
    net = inputs_of(1)
    attrs = SimpleNamespace(
        strides=[2, 2], padding=[1, 1, 1, 1], output_padding=[1, 0], dilation=[1, 1], groups=1
    )
    weight = net.rng.integers(-127, 128, (40, 24, 4, 3)).astype("int8")
    bias = net.rng.integers(-3000, 3000, 24).astype("int32")
    net.result = net.conv2d_transpose(net.params[0], weight, bias, attrs, Rescale(9), "layer0")
    return net


def dense() -> IntegerNet:
    net = inputs_of(1, (5, 70))
    weight = net.rng.integers(-127, 128, (70, 50)).astype("int8")
    bias = net.rng.integers(-3000, 3000, 50).astype("int32")
    net.result = net.matmul(net.params[0], weight, bias, Rescale(9), "layer0")
    return net


def logits() -> IntegerNet:
    """An int32 result."""
    net = inputs_of(1, (2, 70))
    weight = net.rng.integers(-127, 128, (70, 10)).astype("int8")
    bias = net.rng.integers(-3000, 3000, 10).astype("int32")
    net.result = net.matmul(net.params[0], weight, bias, None, "layer0")
    return net


def max_pool() -> IntegerNet:
    net = inputs_of(1)
    net.result = net.op(
        "nn.max_pool2d",
        net.params[0],
        pool_size=(3, 3),
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        name="layer0",
    )
    return net


def average() -> IntegerNet:
    """A ninth of the sum of each window."""
    net = inputs_of(1)
    x, padding = net.params[0], [1, 1, 1, 1]
    channels = static_shape(x)[1]
    ones = relax.const(np.ones((channels, 1, 3, 3), "int8"))
    value = net.op(
        "nn.conv2d", x, ones, padding=padding, groups=channels, out_dtype="int32", name="layer0__0"
    )
    for number, (op, operand) in enumerate(
        (("multiply", 3641), ("add", 1 << 14), ("right_shift", 15)), 1
    ):
        value = net.op(op, value, relax.const(operand), name=f"layer0__{number}")
    net.result = net.op("astype", value, "int8", name="layer0")
    return net


def mean() -> IntegerNet:
    net = inputs_of(1)
    net.result = net.mean(net.params[0], [2, 3], 4161, Rescale(18), "layer0")
    return net


def addition() -> IntegerNet:
    net = inputs_of(2)
    net.result = net.residual(net.params[0], net.params[1], (0, 2), shift=2, name="layer0")
    return net


def rescaled() -> IntegerNet:
    net = inputs_of(1)
    net.result = net.rescale(net.params[0], Rescale(2, -20, 25), "layer0")
    return net


def clamped() -> IntegerNet:
    net = inputs_of(1)
    net.result = net.clamp(net.params[0], 0, 96, "layer0")
    return net


def joined() -> IntegerNet:
    """A concat of whole blocks between convolutions."""
    net = inputs_of(1, (2, 32, 6, 5))
    parts = [net.conv(net.params[0], 32, k, name=f"part{k}") for k in (1, 3)]
    both = net.op("concat", parts, axis=1, name="layer0")
    net.result = net.conv(both, 16, 1, name="after")
    return net


def moved(
    *ops: tuple[str, tuple[Any, ...], dict[str, Any]], pooled: bool = False
) -> Callable[[], IntegerNet]:
    """Operators that move what a convolution computed; the last one is the case."""

    def net() -> IntegerNet:
        made = inputs_of(1, (2, 32, 6, 5))
        value = made.conv(made.params[0], 36, name="before")
        if pooled:
            value = made.op("nn.max_pool2d", value, (3,), padding=(1, 1), name="pooled")
        for number, (op, args, attrs) in enumerate(ops, 1):
            name = "layer0" if number == len(ops) else f"layer0__{number}"
            value = made.op(op, value, *args, **attrs, name=name)
        made.result = value
        return made

    return net


def tiny_depthwise() -> IntegerNet:
    """One pixel a channel: the weights are the traffic, and the vector ALU wins."""
    net = inputs_of(1, (1, 128, 3, 3))
    net.result = net.conv(net.params[0], 128, 3, groups=128, pads=(0, 0, 0, 0), name="layer0")
    return net


SHUFFLE = (
    ("reshape", ((2, 3, 12, 6, 5),), {}),
    ("permute_dims", (), {"axes": [0, 2, 1, 3, 4]}),
    ("reshape", ((2, 36, 6, 5),), {}),
)
CASES: dict[str, tuple[str, Callable[[], IntegerNet]]] = {
    "conv2d": ("vta.conv2d", conv(40, 3, stride=2)),
    "stem": ("vta.conv2d", conv(3, 7, stride=2)),
    "grouped": ("vta.conv2d", conv(80, 3, groups=5)),
    "depthwise": ("vta.conv2d", conv(40, 3, groups=40)),
    "tiny depthwise": ("vta.conv2d", tiny_depthwise),
    "conv1d": ("vta.conv1d", generated("conv1d", 7)),
    "dense": ("vta.dense", dense),
    "logits": ("vta.dense", logits),
    "transposed": ("vta.conv2d_transpose", transposed),
    "max pool": ("vta.max_pool2d", max_pool),
    "average": ("vta.avg_pool2d", average),
    "mean": ("vta.mean", mean),
    "addition": ("vta.binary", addition),
    "rescale": ("vta.unary", rescaled),
    "clamp": ("vta.clamp", clamped),
    "concat": ("vta.concat", joined),
    "pad": ("vta.pad", moved(("nn.pad", ((0, 0, 0, 0, 1, 2, 3, 0),), {}))),
    "slice": ("vta.slice", moved(("strided_slice", ([1, 3], [5, 1], [30, 5], [2, 2]), {}))),
    "upsample": ("vta.upsample", moved(("repeat", (2, 2), {}), ("repeat", (3, 3), {}))),
    "shuffle": ("vta.channel_shuffle", moved(*SHUFFLE, pooled=True)),
    "shuffled": ("vta.conv2d_shuffled", moved(*SHUFFLE)),
}


@functools.cache
def run(case: str, machine: str) -> Run:
    """The case on the machine, compared with numpy."""
    net = CASES[case][1]()
    mod, inputs = net.module(net.result), net.inputs()
    found = run_module(mod, MACHINES[machine], inputs, planned=machine == PLANNED)
    np.testing.assert_array_equal(found.outputs[0], dialect_numpy.run(mod, *inputs)["result"])
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("machine", MACHINES)
def test_matrix(machine: str, case: str) -> None:
    found = run(case, machine)
    record = found.placement["layer0"]
    assert record.device == "vta", record
    assert record.why.rule == f"pattern {CASES[case][0]}"


ELSEWHERE = {
    *("vta.matmul2", "vta.transpose", "vta.norm", "vta.attention", "vta.move"),
    *("vta.joined_moves", "vta.token_concat", "vta.token_slice", "vta.append", "vta.softmax"),
}
"""Drawn on several machines in test_products.py, test_norms.py, test_attention.py, test_softmax.py,
test_token_moves.py, test_moves_between_layers.py and test_decoding.py."""


def test_the_matrix_has_every_entry_and_every_strategy() -> None:
    assert {entry for entry, _ in CASES.values()} == {entry.name for entry in entries()} - ELSEWHERE
    used = {plan.strategy for case in CASES for plan in run(case, PLANNED).plans.values()}
    drawn = {"matmul2", "transpose", "norm", "group_norm", "softmax", "attention", "join"}
    assert used == set(STRATEGIES) - drawn


# ---------------------------------------------------------------- batch lanes
@pytest.mark.parametrize("rows", [1, 3, 4, 16, 30])
@pytest.mark.parametrize("machine", MACHINES)
def test_rows_of_a_dense_layer_fill_the_batch_lanes(machine: str, rows: int) -> None:
    """BATCH rows take one GEMM micro-op; (rows, 2, K) is as good as (2 * rows, K)."""
    config = MACHINES[machine]
    for shape in ((2 * rows, 64), (rows, 2, 64)):
        net = inputs_of(1, shape)
        weight = net.rng.integers(-127, 128, (64, 32)).astype("int8")
        out = net.matmul(net.params[0], weight, np.zeros(32, "int32"), Rescale(9), "layer0")
        found = run_module(net.module(out), config, net.inputs(), planned=False)
        (program,) = found.programs.values()
        vectors = -(-2 * rows // config.batch)
        assert program.counters()["gemm_counter"] == vectors * (64 // config.block) * (
            32 // config.block
        )


@pytest.mark.parametrize(
    ("machine", "batch", "share"),
    [
        ("4x8", 1, 75),
        ("4x8", 3, 25),
        ("4x8", 5, 38),
        ("2x16", 1, 50),
        ("4x8", 4, 0),
        ("1x16", 1, 0),
    ],
)
def test_idle_batch_lanes_are_reported(machine: str, batch: int, share: int) -> None:
    net = IntegerNet(x=(batch, 16, 4, 4))
    out = net.conv(net.params[0], 16, name="layer0")
    (record,) = placements(mark(MACHINES[machine])(net.module(out)))
    idle = f"; {share} % of the batch lanes idle" if share else ""
    assert (record.device, record.reason) == ("vta", f"pattern vta.conv2d{idle}")


# ---------------------------------------------------------------- beyond the buffers and the fields
LARGE: dict[str, tuple[tuple[int, ...], int, int, dict[str, Any]]] = {
    "rows wider than SRAM": ((1, 8, 3, 5000), 20, 3, {}),
    "thousands of channels": ((1, 3000, 2, 2), 2000, 1, {"pads": (0, 0, 0, 0)}),
    "plane beyond the 16-bit stride": ((1, 40, 260, 257), 16, 1, {"pads": (0, 0, 0, 0)}),
    "image beyond the 16-bit stride": ((1, 3, 262, 300), 16, 3, {"stride": 2}),
    "kernel larger than SRAM": ((1, 300, 12, 12), 16, 11, {}),
    "pads beyond 15": ((2, 20, 3, 4), 20, 3, {"pads": (40, 17, 3, 33), "stride": 3}),
    "column of 70,000 rows": ((1, 16, 70000, 1), 4, 1, {"pads": (0, 0, 0, 0), "stride": 7}),
}
"""Input, output channels, kernel, options of the convolution."""


@pytest.mark.parametrize("what", LARGE)
@pytest.mark.parametrize("machine", ["1x16", "quarter", "4x8"])
def test_beyond_the_buffers_and_the_fields(machine: str, what: str) -> None:
    shape, channels, kernel, options = LARGE[what]
    net = inputs_of(1, shape)
    out = net.conv(net.params[0], channels, kernel, shift=10, name="layer0", **options)
    mod, inputs = net.module(out), net.inputs()
    found = run_module(mod, MACHINES[machine], inputs, planned=False)
    assert found.placement["layer0"].device == "vta"
    np.testing.assert_array_equal(found.outputs[0], dialect_numpy.run(mod, *inputs)["result"])


def test_the_small_machine_has_a_quarter_of_the_memory() -> None:
    small, sim = MACHINES["quarter"], MACHINES["1x16"]
    for name in ("inp", "wgt", "acc"):
        assert getattr(small, f"{name}_depth") * 4 == getattr(sim, f"{name}_depth")
