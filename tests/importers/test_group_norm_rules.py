"""Normalizations over positions as exporters write them are one `group_norm`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from rule_cases import becomes, weight
from tvm import relax


def plain(emit: Callable, x: relax.Expr, epsilon: float = 1e-5) -> relax.Expr:
    """InstanceNormalization as TVM's importer of ONNX writes it, without weight and bias."""
    axes = list(range(2, x.ty.ndim))
    deviation = emit(relax.op.subtract(x, emit(relax.op.mean(x, axes, keepdims=True))))
    variance = emit(relax.op.variance(x, axes, keepdims=True))
    total = emit(relax.op.add(variance, relax.const(np.float32(epsilon))))
    return relax.op.divide(deviation, emit(relax.op.sqrt(total)))


def per_channel(channels: int, rank: int, seed: int) -> relax.Expr:
    values = weight(channels, seed=seed).value.numpy()
    return relax.const(values.reshape(-1, *[1] * (rank - 2)))


@pytest.mark.parametrize("plane", [(4, 5), (7,)])
def test_an_instance_normalization(plane: tuple[int, ...]) -> None:
    def build(emit: Callable, x: relax.Expr) -> relax.Expr:
        rank = len(plane) + 2
        scaled = emit(relax.op.multiply(emit(plain(emit, x)), per_channel(6, rank, 1)))
        return relax.op.add(scaled, per_channel(6, rank, 2))

    assert becomes([(2, 6, *plane)], build, 1e-4) == ["nn.group_norm"]


@pytest.mark.parametrize("own", [False, True])
def test_a_group_normalization_between_reshapes(own: bool) -> None:
    """Weight and bias behind it, and those of the groups where the file has some."""
    shape, groups = (2, 6, 4, 5), 3

    def build(emit: Callable, x: relax.Expr) -> relax.Expr:
        y = emit(relax.op.reshape(x, (2, groups, -1)))
        y = emit(plain(emit, y))
        if own:
            y = emit(relax.op.multiply(y, per_channel(groups, 3, 3)))
            y = emit(relax.op.add(y, per_channel(groups, 3, 4)))
        y = emit(relax.op.reshape(y, shape))
        if own:
            return y
        y = emit(relax.op.multiply(y, per_channel(6, 4, 1)))
        return relax.op.add(y, per_channel(6, 4, 2))

    assert becomes([shape], build, 1e-4) == ["nn.group_norm"]


@pytest.mark.parametrize("axes", [[2, 3], [0, 2, 3]])
def test_an_instance_norm_of_one_image(axes: list[int]) -> None:
    def build(_emit: Callable, x: relax.Expr) -> relax.Expr:
        return relax.op.nn.instance_norm(x, weight(6), weight(6, seed=2), 1, axes)

    assert becomes([(1, 6, 4, 5)], build, 1e-4) == ["nn.group_norm"]


def test_what_is_no_instance_normalization_stays() -> None:
    """Of several images together; with the mean of another tensor; the variance of rows alone."""

    def together(_emit: Callable, x: relax.Expr, _y: relax.Expr) -> relax.Expr:
        return relax.op.nn.instance_norm(x, weight(6), weight(6, seed=2), 1, [0, 2, 3])

    def other(emit: Callable, x: relax.Expr, y: relax.Expr, rows: bool = False) -> relax.Expr:
        mean = emit(relax.op.mean(x if rows else y, [2, 3], keepdims=True))
        variance = emit(relax.op.variance(x, [2] if rows else [2, 3], keepdims=True))
        total = emit(relax.op.add(variance, relax.const(np.float32(1e-5))))
        deviation = emit(relax.op.subtract(x, mean))
        return relax.op.divide(deviation, emit(relax.op.sqrt(total)))

    shapes = [(2, 6, 4, 5)] * 2
    assert "nn.instance_norm" in becomes(shapes, together, 1e-4)
    assert "divide" in becomes(shapes, other, 1e-4)
    assert "divide" in becomes(shapes, lambda emit, x, y: other(emit, x, y, True), 1e-4)
