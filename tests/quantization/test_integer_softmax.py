"""The integer program of a softmax: how near it is to floats, and that nothing overflows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest
from float_nets import Net
from softmax_cases import softmax_of
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import HALF_BITS, RESULT
from vta_byoc.ir.quantization_record import float_regions
from vta_byoc.ir.softmax import MOST_KEYS, softmax_bound, softmaxed
from vta_byoc.quantization.scales import INT32_HIGH, Scale
from vta_byoc.quantize import quantize

LOWEST = -128
SIM = VTAConfig.preset("sim")


def exact(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def decibels(wanted: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((wanted - got) ** 2).sum()))


@pytest.mark.parametrize("keys", [16, 197, 1024])
@pytest.mark.parametrize("deviation", [0.5, 1.0, 2.0, 3.0, 4.0])
def test_it_is_as_near_as_rounding_lets_it_be(deviation: float, keys: int) -> None:
    """Beside a float softmax whose result is rounded: of the same int8 scores, and of floats."""
    floats = np.random.default_rng(0).normal(size=(256, keys)) * deviation
    step = float(np.abs(floats).max()) / 127
    scores = np.rint(floats / step).astype(np.int8)
    same = exact(scores * step)
    target = Scale(float(same.max()) / 255, LOWEST)
    found = softmaxed(scores, softmax_of(keys, step, target), -1)
    got = (found[RESULT] - target.zero) * target.step
    rounded = np.clip(np.rint(same / target.step), 0, 255) * target.step
    assert decibels(same, got) > decibels(same, rounded) - 5
    assert decibels(exact(floats), got) > decibels(exact(floats), rounded) - 2.5


@pytest.mark.parametrize("step", [1e-4, 0.01, 0.2])
def test_no_value_is_larger_than_the_bound(step: float) -> None:
    """Scores that are all equal, of which one is the largest, and drawn ones."""
    softmax = softmax_of(50, step, Scale(1 / 255, LOWEST))
    drawn = np.random.default_rng(1).integers(-128, 128, (40, 50))
    one = np.full((1, 50), -128)
    one[0, 7] = 127
    for scores in (np.zeros((1, 50)), one, drawn):
        values = softmaxed(scores.astype(np.int8), softmax, -1)
        assert max(int(np.abs(value).max()) for value in values.values()) <= softmax_bound(softmax)
    assert softmax_bound(softmax) <= INT32_HIGH


def test_a_softmax_of_one_score_is_one() -> None:
    softmax = softmax_of(1, 0.1, Scale(1 / 255, LOWEST))
    found = softmaxed(np.arange(-128, 128)[:, None], softmax, -1)[RESULT]
    assert (found == 127).all()


def test_no_share_is_shifted_to_the_right() -> None:
    """Of the most scores that are taken, whatever the scale of the result is."""
    for reach in np.geomspace(1e-4, 1, 40):
        softmax = softmax_of(MOST_KEYS, 0.1, Scale(float(reach) / 255, LOWEST))
        assert softmax.attention.before <= HALF_BITS


def reason_of(
    shape: tuple[int, ...],
    between: Callable[[relax.Expr], relax.Expr],
    config: VTAConfig = SIM,
) -> str:
    """Why what stands between two convolutions stays float; "" where it does not."""

    def build(net: Net) -> relax.Expr:
        kernels = [net.const(16, 16, 1, 1, spread=0.25) for _ in "ab"]
        x = net.op(relax.op.nn.conv2d(net.data, kernels[0]), "first")
        x = net.op(between(x), "middle")
        return net.op(relax.op.nn.conv2d(x, kernels[1]), "second")

    rng = np.random.default_rng(0)
    samples = [{"data": rng.normal(size=shape).astype("float32")}]
    integers = quantize(Net(rng, shape).module(build), calibration=samples, config=config)
    found = [each.text for each in float_regions(integers).values()]
    assert len(found) < 2
    return "".join(found)


IMAGE = (1, 16, 4, 8)


def test_more_scores_stay_float() -> None:
    """Their program would not be right; no machine that can be encoded holds them either."""
    shape = (1, 16, 1, MOST_KEYS + 1)
    assert reason_of(shape, lambda x: relax.op.nn.softmax(x, 3)) == (
        "stays float: its sums have 16001 scores; 16000 are taken; leave it to the CPU"
    )


def test_what_is_no_softmax_along_positions_has_its_reason() -> None:
    assert reason_of(IMAGE, lambda x: relax.op.nn.softmax(x, 3)) == ""
    assert reason_of(IMAGE, lambda x: relax.op.nn.softmax(x, 1)) == (
        "stays float: it is along axis 1 of a tensor of shape (1, 16, 4, 8); rows or columns of an "
        "image are taken, and the last two axes of (..., T, C); leave it to the CPU"
    )


def test_far_scores_have_their_reason() -> None:
    far = relax.const(np.float32(1000))
    reason = reason_of(IMAGE, lambda x: relax.op.nn.softmax(relax.op.multiply(x, far), 3))
    assert re.fullmatch(
        r"stays float: its scores reach \d+(\.\d+)?; 64 is taken; leave it to the CPU", reason
    )


def test_a_machine_without_products_has_its_reason() -> None:
    without = dataclasses.replace(
        SIM, capabilities=dataclasses.replace(SIM.capabilities, mul=False)
    )
    assert reason_of(IMAGE, lambda x: relax.op.nn.softmax(x, 3), without) == (
        "stays float: its exponential would multiply and the machine's ALU has no MUL "
        "(CAPABILITIES.mul is false); use a machine with MUL, or leave the softmax to the CPU"
    )


def test_a_sum_over_channels_has_its_reason() -> None:
    twice = relax.const(np.ones((1, 16, 1, 1), "float32"))

    def between(x: relax.Expr) -> relax.Expr:
        return relax.op.multiply(relax.op.sum(x, [1], True), twice)

    assert reason_of(IMAGE, between) == (
        "stays float: it sums over axes [1] of a tensor of shape (1, 16, 4, 8); 2, 3 or both of "
        "(N, C, H, W) are taken; leave it to the CPU"
    )


def test_a_sum_that_drops_its_axis_has_its_reason() -> None:
    reason = reason_of(IMAGE, lambda x: relax.op.reshape(relax.op.sum(x, [2]), (1, 16, 1, 8)))
    assert reason == "stays float: its sum drops axis 2; keep the axis, or leave it to the CPU"
