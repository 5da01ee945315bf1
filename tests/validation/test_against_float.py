"""Outputs of quantized models beside those of their float models."""

from __future__ import annotations

import math

import numpy as np
import tvm
from small_models import Graph
from tvm import relax

from vta_byoc.ir.reference import build_reference
from vta_byoc.quantize import quantize
from vta_byoc.runtime.execute import run_vm
from vta_byoc.validation.against_float import output_sqnr


def two_outputs() -> tuple[tvm.IRModule, np.ndarray]:
    """A convolution, and which of its channels is the largest."""
    g = Graph((1, 8, 6, 6))
    x = g.conv(g.params[0], 16, name="a")
    return g.module(x, g.op("argmax", x, axis=1)), np.float32(g.rng.standard_normal((1, 8, 6, 6)))


def test_signal_to_what_quantization_adds() -> None:
    mod, x = two_outputs()
    qmod = quantize(mod, calibration=[x])
    want, got = (
        run_vm(relax.VirtualMachine(build_reference(each), tvm.cpu()), x) for each in (mod, qmod)
    )
    found = output_sqnr(mod, x, dict(zip(("scores", "best"), got, strict=True)))
    error = (got[0].astype("float64") - want[0]) ** 2
    assert found is not None and list(found) == ["scores"]  # the other is of integers
    assert math.isclose(
        found["scores"], 10 * math.log10((want[0] ** 2).sum() / error.sum()), rel_tol=1e-6
    )
    assert 20 < found["scores"] < 60


def test_equal_outputs_and_zeros() -> None:
    mod, x = two_outputs()
    wanted = run_vm(relax.VirtualMachine(build_reference(mod), tvm.cpu()), x)
    names = ("scores", "best")
    assert output_sqnr(mod, x, dict(zip(names, wanted, strict=True))) == {"scores": math.inf}
    g = Graph((1, 4))
    zeros = g.module(g.op("multiply", g.params[0], g.const(0.0)))
    found = output_sqnr(zeros, np.ones((1, 4), "float32"), {"y": np.ones((1, 4), "float32")})
    assert found is not None and math.isnan(found["y"])


def test_a_model_that_was_quantized_before_has_no_float_model() -> None:
    mod, x = two_outputs()
    assert output_sqnr(quantize(mod, calibration=[x]), x, {}) is None


def test_values_that_are_not_finite_are_no_signal_and_no_zero_error() -> None:
    """They are equal where both models have them, and make outputs differ where one has."""
    g = Graph((1, 4))
    mod = g.module(g.op("divide", g.const(1.0), g.params[0]))
    x = np.float32([[0.0, 1.0, 2.0, 4.0]])
    far = {"y": np.float32([[np.inf, 1.1, 0.5, 0.25]])}
    found = output_sqnr(mod, x, far)
    assert found is not None
    wanted = 10 * math.log10((1 + 0.5**2 + 0.25**2) / (np.float32(1.1) - 1.0) ** 2)
    assert math.isclose(found["y"], wanted, rel_tol=1e-6)
    assert output_sqnr(mod, x, {"y": np.float32([[9.0, 1.0, 0.5, 0.25]])}) == {"y": -math.inf}
