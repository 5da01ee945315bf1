"""The scale of a result that only a sum reads: the sum's, where that loses nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from small_models import Graph, call
from test_quantize_elementwise import parts, record
from test_quantize_layers import check

from vta_byoc.quantization.policy import Policy, PowersOfTwo
from vta_byoc.quantization.scales import Scale
from vta_byoc.quantize import default_calibration, quantize

CHANNELS, SIZE = 4, 6


def branches(seed: int = 0, fine: float = 0.06) -> tuple[Graph, Any, Any]:
    """Two convolutions of one input, the second of results that are that much smaller."""
    g = Graph((1, CHANNELS, SIZE, SIZE), seed=seed)
    coarse = g.conv(g.params[0], CHANNELS, name="coarse")
    weight = g.normal(CHANNELS, CHANNELS, 1, 1, scale=fine)
    small = g.op("nn.conv2d", g.params[0], weight, name="small__conv2d")
    return g, coarse, g.op("add", small, g.normal(1, CHANNELS, 1, 1, scale=fine), name="small")


def quantized(mod: tvm.IRModule, scales: str = "pow2") -> tvm.IRModule:
    return quantize(mod, calibration=default_calibration(mod, 2), scales=scales)


def scale(qmod: tvm.IRModule, name: str) -> float:
    return float(record(qmod)["tensors"][name]["scale"])


@pytest.mark.parametrize("first", (False, True), ids=("second", "first"))
def test_a_finer_operand_has_the_scale_of_the_sum(first):
    g, coarse, small = branches()
    terms = (small, coarse) if first else (coarse, small)
    qmod = check(g.module(g.op("nn.relu", g.op("add", *terms, name="sum"), name="relu")))
    assert scale(qmod, "small") == scale(qmod, "sum")
    assert "right_shift" not in dict(parts(qmod, "sum")).values()


def test_the_sum_is_nearer_to_the_exact_one(monkeypatch):
    errors: dict[str, list[np.ndarray]] = {"own": [], "sum": []}
    for seed in range(6):
        g, coarse, small = branches(seed, fine=0.03 * (1 + seed))
        mod = g.module(g.op("add", coarse, small, name="sum"))
        (x,) = default_calibration(mod, 1)[0].values()
        changed = quantized(mod)
        with monkeypatch.context() as patched:
            patched.setattr(PowersOfTwo, "term", Policy.term)
            plain = quantized(mod)
        assert scale(changed, "small") > scale(plain, "small")
        step = scale(changed, "sum")
        assert step == scale(plain, "sum")
        (got,), (before,), (real,) = (call(m, x) for m in (changed, plain, mod))
        assert np.abs(got - before).max() <= step
        errors["sum"].append((got - real) / step)
        errors["own"].append((before - real) / step)
    own, summed = (np.concatenate(errors[name]) for name in ("own", "sum"))
    assert np.square(summed).mean() < np.square(own).mean()
    assert abs(summed.mean()) < own.mean() / 2  # halves that were rounded up twice


def _read_twice(g: Graph, coarse: Any, small: Any) -> tvm.IRModule:
    return g.module(g.op("add", coarse, small, name="sum"), small)


def _added_to_itself(g: Graph, _coarse: Any, small: Any) -> tvm.IRModule:
    return g.module(g.op("add", small, small, name="sum"))


def _clamped(g: Graph, coarse: Any, small: Any) -> tvm.IRModule:
    cut = g.op("clip", small, -0.11, 0.07, name="cut")
    return g.module(g.op("add", coarse, cut, name="sum"))


def _subtracted(g: Graph, coarse: Any, small: Any) -> tvm.IRModule:
    return g.module(g.op("subtract", coarse, small, name="sum"))


def _scaled(g: Graph, _coarse: Any, small: Any) -> tvm.IRModule:
    return g.module(g.op("add", small, g.normal(1, CHANNELS, SIZE, SIZE), name="sum"))


def _joined_with_finer(g: Graph, _coarse: Any, small: Any) -> tvm.IRModule:
    """Both operands have bits below the sum, which are rounded together."""
    other = g.conv(g.op("multiply", g.params[0], g.const(0.05)), CHANNELS, name="other")
    return g.module(g.op("add", other, small, name="sum"))


@pytest.mark.parametrize(
    "build",
    (_read_twice, _added_to_itself, _clamped, _subtracted, _scaled, _joined_with_finer),
    ids=lambda build: build.__name__.strip("_"),
)
def test_it_keeps_its_own_scale(build, monkeypatch):
    mod = build(*branches())
    changed = quantized(mod)
    monkeypatch.setattr(PowersOfTwo, "term", Policy.term)
    tvm.ir.assert_structural_equal(changed, quantized(mod))


def test_any_scale_keeps_its_bits():
    g, coarse, small = branches()
    qmod = quantized(g.module(g.op("add", coarse, small, name="sum")), "mul")
    assert scale(qmod, "small") < scale(qmod, "sum")


@pytest.mark.parametrize(
    ("own", "other", "total", "unit", "found"),
    (
        (-9, -7, -8, -20, -8),
        (-9, -8, -8, -20, -8),
        (-9, -9, -8, -20, -9),  # the other has a bit below the sum
        (-7, -7, -8, -20, -7),  # coarser than the sum already
        (-9, -7, -8, -40, -9),  # a shift of 32 bits
        (-9, -7, -8, -39, -8),
    ),
)
def test_the_choice(own, other, total, unit, found):
    scales = (Scale.power(exponent) for exponent in (own, other, total))
    assert PowersOfTwo().term(*scales, np.array(2.0**unit)) == Scale.power(found)


@pytest.mark.parametrize(("channels", "most"), ((0, 10), (3, 9)))
def test_a_fine_result_stops_where_int32_does(channels: int, most: int) -> None:
    """Channels are rounded after their left shift, which needs one bit more."""
    unit = np.ones(channels) if channels else np.array(1.0)
    found = PowersOfTwo().result(1e-9, unit, 1 << 20, "fine")
    assert found == Scale.power(-most)


def test_a_silent_difference_is_not_shifted_far() -> None:
    """Of tensors far smaller than the scale of silent ones: 15 bits coarser than they are."""
    g = Graph((1, CHANNELS, SIZE, SIZE))
    first = g.conv(g.params[0], CHANNELS, 1, name="first")
    tiny = g.op("multiply", first, g.const(2.0**-24), name="tiny")
    mod = g.module(g.op("subtract", tiny, tiny, name="nothing"))
    qmod = quantized(mod)
    assert scale(qmod, "nothing") == scale(qmod, "tiny") * 2.0**15
