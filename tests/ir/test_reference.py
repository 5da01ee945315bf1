"""The fast host build computes what TVM's default build computes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import Graph, call
from tvm import relax

from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.reference import build_reference
from vta_byoc.quantize import quantize


def fast(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(build_reference(mod), tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(array) for array in inputs)).numpy()


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tvm.IRModule, np.ndarray]:
    """A convolution of any size, padding, stride and dilation, and an input."""
    kernel = [draw(st.integers(1, 4)) for _ in range(2)]
    dilation = [draw(st.integers(1, 2)) for _ in range(2)]
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    groups = draw(st.sampled_from([1, 1, 1, 2]))
    shape = (draw(st.integers(1, 2)), groups * draw(st.integers(1, 5)),
             *(size + draw(st.integers(0, 18)) for size in extent))  # fmt: skip
    g = Graph(shape, seed=draw(st.integers(0, 99)))
    outputs = groups * draw(st.sampled_from([1, 3, 8, 10]))
    weight = g.normal(outputs, shape[1] // groups, *kernel)
    x = g.op(
        "nn.conv2d",
        g.params[0],
        weight,
        strides=[draw(st.integers(1, 3)) for _ in range(2)],
        padding=[draw(st.integers(0, 3)) for _ in range(4)],
        dilation=dilation,
        groups=groups,
    )
    return g.module(g.op("nn.relu", x)), g.rng.standard_normal(shape).astype("float32")


@settings(max_examples=6, deadline=None)
@given(convolutions())
def test_any_convolution(case):
    mod, x = case
    np.testing.assert_allclose(fast(mod, x), call(mod, x)[0], rtol=1e-4, atol=1e-4)
    qmod = quantize(mod, calibration=[x])
    np.testing.assert_array_equal(fast(qmod, x), call(qmod, x)[0])


def test_weights_that_are_computed_use_the_default_schedule():
    g = Graph((1, 3, 8, 8), (4, 3, 3, 3))
    mod = g.module(g.op("nn.conv2d", *g.params))
    x, weight = (np.float32(g.rng.standard_normal(static_shape(p))) for p in mod["main"].params)
    np.testing.assert_allclose(fast(mod, x, weight), call(mod, x, weight)[0], atol=1e-4)


@pytest.mark.parametrize("outputs", [16, 20])
def test_layers_that_share_a_shape(outputs):
    g = Graph((1, 16, 10, 10))
    x = g.conv(g.conv(g.params[0], outputs, name="a"), 16, name="b")
    mod = g.module(g.conv(g.conv(x, outputs, name="c"), 16, name="d"))
    x = g.rng.standard_normal((1, 16, 10, 10)).astype("float32")
    np.testing.assert_allclose(fast(mod, x), call(mod, x)[0], atol=1e-4)

