"""The fast host build computes what TVM's default build computes."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import Graph, call
from tvm import relax

from vta_byoc.hw.sim.target import X86, arch, native_target
from vta_byoc.ir import optimization, reference
from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings
from vta_byoc.ir.observe import Observer
from vta_byoc.ir.optimization import worth
from vta_byoc.ir.reference import ReferenceMachine, build_reference, is_scheduled, worth_of
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


@settings(max_examples=6)
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


# ---------------------------------------------------------------- LLVM's optimizations
@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether LLVM optimized, for each module that is built."""
    made: list[bool] = []
    target_of = reference._target

    def target(mod: tvm.IRModule, optimized: bool) -> tvm.target.Target:
        made.append(optimized)
        return target_of(mod, optimized)

    monkeypatch.setattr(reference, "_target", target)
    return made


def layers(*operators: str) -> tuple[tvm.IRModule, np.ndarray]:
    """Two convolutions and what follows, and an input."""
    g = Graph((1, 8, 10, 10))
    x = g.conv(g.conv(g.params[0], 20, name="a"), 8, name="b")
    for operator in operators:
        x = g.op(operator, x)
    return g.module(x), g.rng.standard_normal((1, 8, 10, 10)).astype("float32")


def cheapened(monkeypatch: pytest.MonkeyPatch, mod: tvm.IRModule, runs: float) -> None:
    """Make LLVM's optimizations of a module worth so many runs, however small it is."""
    monkeypatch.setattr(optimization, "SMALL", 0)
    seconds = optimization.OPERATOR * runs / worth_of(mod).runs
    monkeypatch.setattr(optimization, "OPERATOR", seconds)
    assert math.isclose(worth_of(mod).runs, runs)


on_x86 = pytest.mark.skipif(
    arch(native_target()) not in X86, reason="other processors always contract"
)


@on_x86
@pytest.mark.parametrize("scales", ["pow2", "mul"])
def test_optimizations_come_once_they_pay_and_change_no_bit(
    scales: str, built: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    mod, x = layers("nn.softmax", "sigmoid")  # which stay float between integers
    qmod = quantize(mod, calibration=[x], scales=scales)
    built.clear()
    cheapened(monkeypatch, qmod, 2.5)
    machine = ReferenceMachine(qmod)
    results = [machine.for_next_run()["main"](tvm.runtime.tensor(x)).numpy() for _ in range(5)]
    assert built == [False, True]  # before the first and the third run
    assert len({result.tobytes() for result in results}) == 1


@pytest.mark.parametrize(("runs", "optimized"), [(1, False), (2, False), (3, True)])
def test_float_modules_are_built_once(
    runs: int, optimized: bool, built: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    mod, x = layers("nn.softmax")
    cheapened(monkeypatch, mod, 2.5)
    machine = ReferenceMachine(mod, floats=runs)
    results = [machine.for_next_run()["main"](tvm.runtime.tensor(x)).numpy() for _ in range(5)]
    assert built == [optimized]
    assert len({result.tobytes() for result in results}) == 1


@pytest.mark.parametrize(("runs", "optimized"), [(15.9, True), (16.1, False)])
def test_calibration_builds_for_so_many_samples(
    runs: float, optimized: bool, built: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    mod, x = layers("nn.softmax", "sigmoid", "nn.silu")
    seen: list[bytes] = []
    tensors = [binding.var for binding in straight_bindings(mod["main"])]
    observer = Observer(mod, tensors, lambda _index, values: seen.append(values.tobytes()))
    cheapened(monkeypatch, observer._observed(), runs)
    for _ in range(40):
        observer.run([x])
    assert built == [optimized]
    assert seen[: len(tensors)] * 40 == seen


def test_one_run_of_a_network_is_not_worth_it_and_one_of_large_or_plain_loops_is() -> None:
    small, _ = layers()
    g = Graph((1, 256, 56, 56))
    large = g.module(g.conv(g.conv(g.params[0], 256, name="a"), 256, name="b"))
    plain = Graph((1, 64, 28, 28))
    transposed = plain.op("nn.conv2d_transpose", plain.params[0], plain.normal(64, 32, 4, 4))
    qmods = [
        quantize(mod, calibration=[np.ones(static_shape(mod["main"].params[0]), "float32")])
        for mod in (small, large, plain.module(transposed))
    ]
    found = [worth_of(qmod).runs for qmod in qmods]
    assert found[1] <= 1 and found[2] <= 1 and 1 < found[0] < math.inf


def test_equal_operators_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimization, "SMALL", 0)
    g = Graph((1, 8, 10, 10))
    x = g.conv(g.conv(g.params[0], 8, name="a"), 8, name="b")
    two = worth_of(g.module(x)).runs
    for number in range(8):
        x = g.conv(x, 8, name=f"c{number}")
    assert math.isclose(two / worth_of(g.module(x)).runs, 5)  # ten lose five times as much a run


def test_callers_that_know_the_number_of_runs_say_it(built: list[bool]) -> None:
    mod, x = layers()
    qmod = quantize(mod, calibration=[x])
    built.clear()
    often = math.ceil(worth_of(qmod).runs)
    quick, optimized = build_reference(qmod), build_reference(qmod, often)
    assert built == [False, True]
    results = [
        relax.VirtualMachine(exe, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
        for exe in (quick, optimized)
    ]
    np.testing.assert_array_equal(*results)


def test_where_bits_may_change_the_module_alone_decides() -> None:
    """Small float modules are never optimized then, and those beside integers always."""
    mod, x = layers()
    g = Graph((1, 8, 10, 10))
    power = g.module(g.op("power", g.conv(g.params[0], 8, name="a"), relax.const(2.0, "float32")))
    islands, _ = layers("nn.softmax")
    integers, mixed, powers = (quantize(m, calibration=[x]) for m in (mod, islands, power))
    for contracts_all in (False, True):
        of = functools.partial(worth, is_scheduled=is_scheduled, contracts_all=contracts_all)
        assert of(power) == of(mod) == (math.inf, True)
        assert of(powers) == (0, True)
        assert of(integers).settled is False and 1 < of(integers).runs < math.inf
        assert of(mixed).settled is contracts_all and (of(mixed).runs == 0) is contracts_all


UNARY = ("abs", "clip", "cos", "erf", "exp", "floor", "negative", "round", "sigmoid", "sin",
         "square", "tanh", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.log_softmax", "nn.prelu",
         "nn.relu", "nn.silu", "nn.softmax", "nn.softplus")  # fmt: skip
POSITIVE = ("log", "rsqrt", "sqrt")
BINARY = ("add", "divide", "maximum", "minimum", "multiply", "subtract")
REDUCED = ("max", "mean", "min", "prod", "std", "sum", "variance")
LAYERS: Mapping[str, Mapping[str, Any]] = {
    "nn.conv1d": {"weight": (8, 12, 3)},
    "nn.conv1d_transpose": {"weight": (12, 8, 3), "strides": 2},
    "nn.conv2d": {"weight": (8, 12, 3, 3), "padding": 1},
    "nn.conv2d_transpose": {"weight": (12, 8, 3, 3), "strides": (2, 2)},
    "nn.max_pool2d": {"pool_size": (3, 3), "strides": (2, 2)},
    "nn.avg_pool2d": {"pool_size": (3, 3), "strides": (2, 2)},
    "nn.adaptive_avg_pool2d": {"output_size": (2, 2)},
}


def plain_operators() -> tuple[tvm.IRModule, list[np.ndarray]]:
    """Every operator of PLAIN, on values of any sign and on positive ones, and the inputs.

    Each is followed by an expression with two products, in one loop of which contraction would
    show.
    """
    g = Graph((2, 12, 11, 13), (2, 12, 143), (2, 12, 11, 13))
    x, rows, positive = g.params
    results = []
    for op in UNARY:
        more = {"clip": [-0.7, 0.9], "nn.leakyrelu": [0.1], "nn.prelu": [g.normal(12)]}.get(op, [])
        results.append(g.op(op, x, *more))
    results += [g.op(op, positive) for op in POSITIVE]
    results += [g.op(op, x, positive) for op in BINARY]
    results += [g.op(op, x, axis=[2, 3]) for op in REDUCED]
    results.append(g.op("cumsum", x, axis=1))
    results.append(g.op("where", g.op("greater", x, g.const(0.5)), x, positive))
    results.append(g.op("full_like", x, g.const(0.1)))
    results += [g.op("matmul", x, g.normal(13, 17)), g.op("matmul", rows, g.normal(2, 143, 9))]
    for op, options in LAYERS.items():
        shape = options.get("weight")
        weights = [] if shape is None else [g.normal(*shape)]
        given = {key: value for key, value in options.items() if key != "weight"}
        results.append(g.op(op, rows if "1d" in op else x, *weights, **given))
    ends = [g.op("add", g.op("multiply", r, g.const(0.3)), g.op("multiply", r, r)) for r in results]
    shapes = [static_shape(p) for p in g.params]
    inputs = [np.float32(3 * g.rng.standard_normal(shape)) for shape in shapes]
    return g.module(*results, *ends), [*inputs[:2], np.abs(inputs[2]) + np.float32(1e-3)]


@on_x86
def test_optimizations_change_no_bit_of_any_plain_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside integers, where nothing is contracted."""
    mod, inputs = plain_operators()
    covered = {op_name(b.value) for b in straight_bindings(mod["main"])}
    assert covered - {"", "relax.greater"} == optimization.PLAIN - {"relax.call_dps_packed"}
    monkeypatch.setattr(reference, "computes_integers", lambda _mod: True)
    quick, optimized = (
        relax.VirtualMachine(reference._built(mod, level), tvm.cpu())["main"](
            *map(tvm.runtime.tensor, inputs)
        )
        for level in (False, True)
    )
    differing = [n for n, (a, b) in enumerate(zip(quick, optimized, strict=True))
                 if a.numpy().tobytes() != b.numpy().tobytes()]  # fmt: skip
    assert len(quick) == 2 * 49 and differing == []
