"""What stays float between the last layers and the results of a model, and why."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from layer_runs import equal_run
from quantized_graphs import QuantizedGraph
from small_models import Graph, call, ops

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.quantization_record import float_regions
from vta_byoc.partition import placements
from vta_byoc.pipeline import partition_for_vta
from vta_byoc.quantize import default_calibration, quantize

SIM = VTAConfig.preset("sim")
FLOATS = "it reads what the CPU has in float, and only results of the model follow"


def quantized(mod: tvm.IRModule, *, float_tail: bool = True, scales: str = "mul") -> tvm.IRModule:
    return quantize(
        mod,
        calibration=default_calibration(mod, 4),
        config=SIM,
        scales=scales,
        float_tail=float_tail,
    )


def on_cpu(qmod: tvm.IRModule) -> set[str]:
    rows = placements(partition_for_vta(qmod, config=SIM))
    return {row.name for row in rows if row.device == "cpu"}


def reasons(qmod: tvm.IRModule) -> dict[str, str]:
    return {name: refusal.text for name, refusal in float_regions(qmod).items()}


def sample(mod: tvm.IRModule) -> list[np.ndarray]:
    return list(default_calibration(mod, 1)[0].values())


# ---------------------------------------------------------------- a detector
def detector(bins: int = 0) -> tvm.IRModule:
    """Boxes of 32 cells around anchors up to 640 pixels, joined with the scores of 8 classes.

    With `bins`, each side of a box is the mean of a softmax over so many distances.
    """
    g = Graph((1, 3, 16, 32))
    x = g.op("nn.relu", g.conv(g.params[0], 16, strides=2, name="stem"))
    x = g.op("nn.relu", g.conv(x, 64, strides=2, name="body"))
    x = g.op("nn.relu", g.conv(x, 64, name="neck0"))
    x = g.op("nn.relu", g.conv(x, 64, name="neck1"))
    sides = g.conv(x, 4 * max(bins, 1), 1, name="sides")
    scores = g.op("reshape", g.conv(x, 8, 1, name="scores"), (1, 8, 32))
    sides = g.op("reshape", sides, (1, 4, 32) if not bins else (1, 4, bins, 32))
    if bins:
        turned = g.op("permute_dims", sides, [0, 2, 1, 3])
        shares = g.op("nn.softmax", turned, 1, name="shares")
        mean = g.const(np.arange(bins).reshape(1, bins, 1, 1))
        sides = g.op("reshape", g.op("nn.conv2d", shares, mean, name="mean"), (1, 4, 32))
    anchors = g.const(np.linspace(0, 80, 4 * 32).reshape(1, 4, 32))
    cells = g.op("add", sides, anchors, name="cells")
    pixels = g.op("multiply", cells, g.const(8.0), name="pixels")
    classes = g.op("sigmoid", scores, name="classes")
    return g.module(g.op("concat", [pixels, classes], axis=1, name="found"))


@pytest.mark.parametrize("bins", [0, 16])
@pytest.mark.parametrize("scales", ["mul", "pow2"])
def test_a_detector_keeps_its_scores(bins, scales):
    mod = detector(bins)
    inputs = sample(mod)
    wanted = call(mod, *inputs)[0]
    errors = {}
    for float_tail in (True, False):
        qmod = quantized(mod, float_tail=float_tail, scales=scales)
        got = call(qmod, *inputs)[0]
        errors[float_tail] = [
            np.abs(got[:, at] - wanted[:, at]).max() for at in (slice(4), slice(4, 12))
        ]
        equal_run(qmod, SIM, inputs)
    assert errors[True][0] < errors[False][0]
    assert errors[True][1] < 0.05 < 0.4 < errors[False][1], "a step of a pixel hides every score"


def test_what_the_cpu_computes_is_the_end_alone():
    assert on_cpu(quantized(detector())) == {"x0", "reshape", "cells", "pixels", "classes", "found"}


def test_the_record_says_why():
    said = reasons(quantized(detector()))
    assert said["cells"].startswith(
        "stays float: only results of the model follow, and a step of its result is "
    )
    assert said["cells"].endswith(
        " times one of what it reads; 2 times is taken; quantize(float_tail=False), or "
        "--no-float-tail, takes it as int8"
    )
    takes = "; quantize(float_tail=False), or --no-float-tail, takes it as int8"
    assert said["pixels"] == said["found"] == f"stays float: {FLOATS}{takes}"


def test_a_small_layer_between_floats_stays_with_them():
    mod = detector(16)
    assert {"shares", "mean", "cells", "pixels", "classes", "found"} <= on_cpu(quantized(mod))
    assert "mean" not in on_cpu(quantized(mod, float_tail=False))


# ---------------------------------------------------------------- what is no tail
def test_a_layer_of_weight_is_no_tail():
    g = Graph((1, 16, 4, 4))
    shares = g.op("nn.softmax", g.conv(g.params[0], 16, name="first"), 1, name="shares")
    qmod = quantized(g.module(g.conv(shares, 16, name="second")))
    assert on_cpu(qmod) == {"x0", "shares"}


def joined(apart: float, *, read: bool = False) -> tvm.IRModule:
    """Two pools joined, one of values so many times as large; perhaps a layer reads that too."""
    g = Graph((1, 16, 4, 4))
    near = g.conv(g.params[0], 16, name="near")
    far = g.op("nn.conv2d", g.params[0], g.normal(16, 16, 1, 1, scale=apart / 4), name="far")
    pools = [g.op("nn.max_pool2d", each, [2, 2]) for each in (near, far)]
    both = g.op("concat", pools, axis=1, name="both")
    return g.module(both, g.conv(both, 16, name="next")) if read else g.module(both)


def test_a_join_of_equal_reach_is_integer():
    assert on_cpu(quantized(joined(1.0))) == {"x0"}


def test_a_join_that_hides_one_part_stays_float():
    qmod = quantized(joined(40.0))
    assert on_cpu(qmod) == {"x0", "both"}
    assert "; 2 times is taken; " in reasons(qmod)["both"]


def test_a_join_that_a_layer_reads_is_integer():
    assert on_cpu(quantized(joined(40.0, read=True))) == {"x0"}


def test_a_bias_is_no_shift():
    g = Graph((1, 16, 4, 4))
    large = g.const(np.full((1, 16, 1, 1), 50.0))
    layer = g.op("nn.conv2d", g.params[0], g.normal(16, 16, 1, 1, scale=0.2), name="layer")
    assert on_cpu(quantized(g.module(g.op("add", layer, large, name="biased")))) == {"x0"}


def test_a_shift_in_front_of_a_small_layer_is_integer():
    g = Graph((1, 16, 16, 16))
    x = g.conv(g.conv(g.params[0], 32, name="first"), 32, name="second")
    x = g.op("add", g.op("nn.max_pool2d", x, [2, 2]), g.const(50.0), name="shift")
    x = g.op("mean", g.op("nn.relu", x), [2, 3])
    assert on_cpu(quantized(g.module(g.dense(x, 10)))) == {"x0"}


@pytest.mark.parametrize("beside", [False, True])
def test_attention_at_the_end_is_integer(beside):
    """Also where it is a small part of the MACs."""
    g = Graph((1, 32, 64), (1, 64, 32, 32))
    parts = [g.dense(g.params[0], 64, name=name) for name in "qkv"]
    scores = g.op("matmul", parts[0], g.op("permute_dims", parts[1], [0, 2, 1]), name="scores")
    shares = g.op("nn.softmax", g.op("multiply", scores, g.const(0.125)), -1, name="shares")
    seen = g.op("matmul", shares, parts[2], name="seen")
    outputs = [seen]
    if beside:
        outputs.append(g.conv(g.conv(g.params[1], 128, name="first"), 128, name="second"))
    assert on_cpu(quantized(g.module(*outputs))) - {"x1"} == {"x0"}


def test_a_model_that_came_quantized_keeps_its_scales():
    g = QuantizedGraph((1, 8, 4, 4), seed=3, dtype="int8")
    shares = g.op("nn.softmax", g.inputs[0], 1, name="shares")
    mod = g.module(g.quantized(g.op("multiply", shares, g.const(0.5)), 0.5, name="out"))
    modules = [quantize(mod, config=SIM, float_tail=tail) for tail in (True, False)]
    assert ops(modules[0]) == ops(modules[1])
    assert FLOATS not in "".join(reasons(modules[0]).values())


def test_movement_in_the_tail_goes_along():
    g = Graph((1, 16, 4, 4))
    shares = g.op("nn.softmax", g.conv(g.params[0], 16, name="layer"), 1, name="shares")
    half = g.op("strided_slice", shares, [1], [0], [8], name="half")
    moved = g.op("permute_dims", half, [0, 2, 3, 1], name="moved")
    out = g.op("add", moved, g.op("flip", moved, 3), name="out")
    qmod = quantized(g.module(out))
    assert {"shares", "half", "moved", "flip", "out"} <= on_cpu(qmod)
    assert static_shape(out) == (1, 4, 4, 8)
