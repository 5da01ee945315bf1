"""Active ranges: int8 of a tensor reaches as far as its readers tell values apart."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import dialect_numpy
import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from layer_runs import machines, run_module
from operators_llvm import OPERATORS, results
from small_models import Graph
from tvm import relax

from vta_byoc.hw.errors import VTAWarning
from vta_byoc.ir.bindings import straight_bindings
from vta_byoc.ir.quantization_record import active_ranges as active_of
from vta_byoc.ir.quantization_record import float_regions, functions
from vta_byoc.ir.records import text_of
from vta_byoc.quantization import active_ranges, rewriter
from vta_byoc.quantization.bias_correction import correct_biases
from vta_byoc.quantization.fused_ops import FusedOperators
from vta_byoc.quantization.ops import unary
from vta_byoc.quantization.policy import AnyScales
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.scales import Scale
from vta_byoc.quantize import QUANTIZATION, quantize
from vta_byoc.reports.quantization.report import quantization_report
from vta_byoc.unary.program import Program
from vta_byoc.unary.search import Found
from vta_byoc.validation.against_runtime import bound_for, compare
from vta_byoc.validation.noise import decibels

MACHINES = list(machines().values())
SHAPE = (1, 16, 6, 6)
Function = Callable[[Graph, relax.Var], relax.Var]


def hard_swish(g: Graph, x: relax.Var) -> relax.Var:
    gate = g.op("clip", g.op("add", x, g.const(3.0), name="moved"), 0.0, 6.0, name="gate")
    return g.op("divide", g.op("multiply", x, gate), g.const(6.0), name="swish")


def hard_sigmoid(g: Graph, x: relax.Var) -> relax.Var:
    return g.op("clip", g.op("multiply", x, g.const(0.25)), 0.0, 1.0, name="hard")


def plain(op: str, **options: Any) -> Function:
    return lambda g, x: g.op(op, x, name="curve", **options)


FUNCTIONS: dict[str, tuple[Function, Callable[[np.ndarray], np.ndarray], float, float]] = {
    "sigmoid": (plain("sigmoid"), lambda x: 1 / (1 + np.exp(-x)), -7.0, 7.0),
    "tanh": (plain("tanh"), np.tanh, -3.5, 3.5),
    "silu": (plain("nn.silu"), lambda x: x / (1 + np.exp(-x)), -4.8, np.inf),
    "gelu": (
        plain("nn.gelu"),
        lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
        -2.6,
        np.inf,
    ),
    "softplus": (plain("nn.softplus"), lambda x: np.logaddexp(x, 0), -3.3, np.inf),
    "hard swish": (hard_swish, lambda x: x * np.clip(x + 3, 0, 6) / 6, -3.0, np.inf),
    "hard sigmoid": (hard_sigmoid, lambda x: np.clip(x / 4, 0, 1), 0.0, 4.0),
}
"""A function, what it computes, and about where it becomes flat for operands up to about 30."""


@functools.cache
def network(
    function: Function, seed: int = 1
) -> tuple[tvm.IRModule, tuple[np.ndarray, ...], np.ndarray]:
    """A layer, the function, and a layer behind; samples, and the first layer's results."""
    g = Graph(SHAPE, seed=seed)
    weight = g.rng.standard_normal((16, 16, 1, 1)).astype("float32") * 3
    x = g.op("nn.conv2d", g.params[0], g.const(weight), name="layer")
    mod = g.module(g.conv(function(g, x), 8, 1, name="last"))
    rng = np.random.default_rng(seed)
    samples = tuple(rng.standard_normal(SHAPE, dtype=np.float32) for _ in range(3))
    return mod, samples, np.einsum("oi,snihw->snohw", weight[:, :, 0, 0], np.array(samples))


@functools.cache
def quantized(function: Function, scales: str) -> tvm.IRModule:
    """The network of a function; its samples are computed operator by operator."""
    mod, samples, _ = network(function)
    with OPERATORS.calibrating():
        return quantize(mod, calibration=samples, scales=scales)


def entry(qmod: tvm.IRModule, name: str) -> dict[str, float]:
    """What the record says of an int8 tensor."""
    found: dict[str, float] = json.loads(text_of(qmod.get_attr(QUANTIZATION)))["tensors"][name]
    return found


def sqnr(mod: tvm.IRModule, qmod: tvm.IRModule, samples: tuple[np.ndarray, ...]) -> float:
    """Of the result in dB."""
    exact = np.array([results(mod["main"], OPERATORS.values(mod, [x])) for x in samples])
    got = np.array([[dialect_numpy.run(qmod, x)["result"]] for x in samples])
    return decibels(float((exact**2).sum()), float(((got - exact) ** 2).sum()))


@pytest.fixture
def unsearched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions get a program that is not theirs: ranges are known before it is searched for."""
    found = Found(Program(after=(("max", -128), ("min", 127))), error=0, exact=1.0, noise=0.0)
    monkeypatch.setattr(unary, "found_for", lambda *_args: found)


# ---------------------------------------------------------------- functions
@pytest.mark.parametrize("scales", ["pow2", "mul"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_operands_reach_as_far_as_their_function_bends(
    name: str, scales: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first layer's range is as it should be, and the result so many dB nearer to float."""
    function, _, low, high = FUNCTIONS[name]
    mod, samples, values = network(function)
    qmod = quantized(function, scales)
    found = active_of(qmod)["layer"]
    assert found[0] == pytest.approx(low, abs=0.9)
    assert found[1] == pytest.approx(min(high, values.max()), abs=0.9)
    scale, zero = entry(qmod, "layer")["scale"], entry(qmod, "layer").get("zero", 0)
    reached = scale * (-128 - zero), scale * (127 - zero)
    assert reached[0] <= found[0] + scale and reached[1] >= found[1] - scale
    monkeypatch.setattr(rewriter, "active_ranges", lambda _q: {})
    with OPERATORS.calibrating():
        whole = quantize(mod, calibration=samples, scales=scales)
    assert not active_of(whole) and entry(whole, "layer")["scale"] >= scale
    gain = sqnr(mod, qmod, samples) - sqnr(mod, whole, samples)
    assert gain > (1.5 if np.isfinite(high) else 0.4 if scales == "mul" else -0.1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vta_equals_the_reference(name: str) -> None:
    number = list(FUNCTIONS).index(name)
    _, samples, _ = network(FUNCTIONS[name][0])
    qmod = quantized(FUNCTIONS[name][0], ("pow2", "mul")[number % 2])
    machine, x = MACHINES[number % len(MACHINES)], samples[0] * np.float32(1.5)
    found = run_module(qmod, machine, [x]).outputs[0]
    np.testing.assert_array_equal(found, dialect_numpy.run(qmod, x)["result"])


@pytest.mark.parametrize(
    "function",
    [
        plain("nn.leakyrelu", alpha=0.1),
        plain("negative"),
        lambda g, x: g.op("log", g.op("add", x, g.const(5.0)), name="log"),
        lambda g, x: g.op("clip", x, 500.0, 600.0, name="never"),
    ],
    ids=["bends nowhere flat", "line", "not finite", "flat all over"],
)
def test_others_keep_their_range(function: Function) -> None:
    g = Graph(SHAPE)
    curve = function(g, g.op("add", g.params[0], g.const(0.0), name="layer"))
    assert not ranges_of(g.module(g.conv(curve, 4, 1)), -30.0, 40.0)


def test_ends_that_are_flat_for_less_than_a_thirtysecond_stay() -> None:
    values = [0.0] * 30 + [1.0] * 971
    assert active_ranges._flat(np.array(values), 0.25) == 0
    values = [0.0] * 60 + [1.0] * 941
    assert active_ranges._flat(np.array(values), 0.25) == 59
    assert active_ranges._flat(np.array(values), 1.0) == 1000
    places = [active_ranges._flat(1.0 * (np.arange(33) >= flat), 0.25) for flat in (1, 2, 3)]
    assert places == [0, 1, 2], "a 32nd counts"
    drift = np.arange(1001) / 1000
    assert active_ranges._flat(drift, 0.25) == 250, "none is further from the end than a quarter"


@pytest.mark.parametrize(("step", "flat"), [(4.0, True), (5.0, True), (3.9, False)])
def test_a_part_of_no_length_is_flat_all_over(
    step: float, flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of two tolerances: the flat parts at both ends meet in one point."""
    x = relax.Var("x", relax.TensorType((1,), "float32"))
    line: Any = SimpleNamespace(of=lambda values: values, last=x)
    monkeypatch.setattr(active_ranges, "follow", lambda *_: FusedOperators(x, scale=Scale(step)))
    low, high = active_ranges._active(None, line, (0.0, 2.0))  # type: ignore[arg-type]
    assert ((low, high) == (0.0, 2.0)) == flat and low < high


def ranges_of(mod: tvm.IRModule, low: float, high: float) -> Mapping[str, tuple[float, float]]:
    """The active ranges where calibration saw the sum "layer" from `low` to `high`."""
    (var,) = (b.var for b in straight_bindings(mod["main"]) if b.var.name == "layer")
    q = Quantizer(mod, {}, AnyScales(), intervals={var: (low, high)})
    return {str(v.name): span for v, span in active_ranges.active_ranges(q).items()}


@given(st.floats(-40, 40), st.floats(0.1, 60), st.sampled_from(sorted(FUNCTIONS)))
def test_what_lies_beyond_reads_as_the_same(middle: float, width: float, name: str) -> None:
    """Results at operands cut to the active range are within a quarter of a step."""
    write, curve, *_ = FUNCTIONS[name]
    g = Graph((1, 4, 2, 2))
    x = g.op("add", g.params[0], g.const(0.0), name="layer")
    low, high = middle - width, middle + width
    cut = ranges_of(g.module(g.conv(write(g, x), 4, 1)), low, high).get("layer", (low, high))
    assert min(low, 0) <= cut[0] < cut[1] <= max(high, 0)
    values = np.linspace(low, high, 1001)
    exact = curve(values)
    off = np.abs(exact - curve(values.clip(*cut)))
    assert off.max() <= 0.27 * np.ptp(exact) / 255 + 1e-9


# ---------------------------------------------------------------- readers
def read_by(*readers: str, **options: Any) -> tuple[float, float] | None:
    """The active range of a layer's result with these readers; None: its whole range."""
    g = Graph(SHAPE, seed=1)
    x = g.op("nn.conv2d", g.params[0], g.normal(16, 16, 1, 1, scale=4), name="layer")
    outputs: list[relax.Expr] = []
    for reader in readers:
        y: relax.Var = x
        if reader == "result":
            outputs.append(x)
            continue
        if reader == "layer":
            outputs.append(g.conv(x, 4, 1, name="other"))
            continue
        if reader == "sum of two":
            y = g.op("add", x, g.conv(g.params[0], 16, 1, name="second"), name="two")
        elif reader == "moved":
            y = g.op("permute_dims", g.op("reshape", x, (1, 16, 36, 1)), [0, 1, 3, 2], name="there")
        elif reader == "largest":
            y = g.op("nn.max_pool2d", x, (2, 2), strides=(2, 2), name="most")
        elif reader == "parts":
            parts = g.op("split", x, 2, 1, name="parts")
            gate = g.op("sigmoid", g.emit(relax.TupleGetItem(parts, 0), "left"), name="gate")
            y = g.op("multiply", gate, g.op("tanh", g.emit(relax.TupleGetItem(parts, 1), "right")))
            outputs.append(g.conv(y, 4, 1))
            continue
        elif reader == "wide":
            y = g.op("multiply", x, g.const(0.25), name="narrow")
        outputs.append(g.conv(g.op("sigmoid", y, name=f"gate_{reader[:4]}"), 4, 1))
    mod = g.module(*outputs)
    samples = [np.random.default_rng(k).standard_normal(SHAPE, dtype=np.float32) for k in range(2)]
    return active_of(quantize(mod, calibration=samples, scales="mul", **options)).get("layer")


@pytest.mark.usefixtures("unsearched")
def test_functions_behind_moves_and_the_widest_of_several_count() -> None:
    alone, wide = read_by("sigmoid"), read_by("wide")
    assert alone is not None and wide is not None and 3.5 < wide[1] / alone[1] < 4.5
    assert read_by("moved") == alone
    assert read_by("sigmoid", "wide") == wide
    largest, parts = read_by("largest"), read_by("parts")
    assert largest == pytest.approx(alone, abs=0.1)
    assert parts == pytest.approx(alone, abs=0.3)


@pytest.mark.usefixtures("unsearched")
@pytest.mark.parametrize("reader", ["result", "layer", "sum of two"])
def test_readers_that_tell_all_values_apart(reader: str) -> None:
    assert read_by(reader, "sigmoid") is None


@pytest.mark.usefixtures("unsearched")
def test_what_stays_float_reads_all() -> None:
    assert read_by("sigmoid", keep_float=["gate_sigm"]) is None


@pytest.mark.usefixtures("unsearched")
def test_inputs_of_the_model_keep_their_range() -> None:
    g = Graph(SHAPE)
    mod = g.module(g.conv(g.op("sigmoid", g.params[0], name="gate"), 4, 1))
    sample = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32) * 20
    qmod = quantize(mod, calibration=[sample], scales="mul")
    assert not active_of(qmod)
    assert entry(qmod, "x0__int8")["scale"] == pytest.approx(np.abs(sample).max() / 127)


# ---------------------------------------------------------------- results
def curve_of(
    function: Function,
) -> tuple[tvm.IRModule, dict[str, float], dict[str, float]]:
    """A module, and what its record says of the operand and of the result of the function."""
    qmod = quantized(function, "mul")
    name = next(name for name in functions(qmod))
    return qmod, entry(qmod, "layer"), entry(qmod, name)


@pytest.mark.parametrize("name", ["gelu", "silu", "hard swish"])
def test_a_result_has_the_steps_of_an_operand_that_it_is_on_a_side(name: str) -> None:
    _, operand, result = curve_of(FUNCTIONS[name][0])
    assert operand["zero"] != result["zero"]
    assert result["scale"] == pytest.approx(operand["scale"], rel=2e-3)
    least = result["amax"] / 255
    assert least < result["scale"] < 1.25 * least


def test_other_functions_do_not() -> None:
    for name in ("sigmoid", "tanh"):
        _, operand, result = curve_of(FUNCTIONS[name][0])
        halvings = math.log2(result["scale"] / operand["scale"])
        assert abs(halvings - round(halvings)) > 0.01


@pytest.mark.parametrize("name", ["gelu", "silu", "hard swish", "softplus"])
def test_a_saturated_end_is_exact_where_many_operands_saturate(name: str) -> None:
    """-128 is one of 256 values, but it is what a third of the operands become."""
    _, samples, values = network(FUNCTIONS[name][0])
    qmod, operand, result = curve_of(FUNCTIONS[name][0])
    step, zero = operand["scale"], operand["zero"]
    lowest = values < (-128 - zero) * step
    assert lowest.mean() > 0.25
    function = next(iter(functions(qmod)))
    got = np.array([dialect_numpy.run(qmod, x)[function] for x in samples])
    wanted = FUNCTIONS[name][1](values) / result["scale"] + result["zero"]
    assert np.abs(got - wanted)[lowest].max() < 0.76


@pytest.mark.usefixtures("unsearched")
def test_exact_functions_keep_their_operands_range() -> None:
    """A finer operand has more different results, and no program gives all of them exactly."""
    mod, samples, _ = network(FUNCTIONS["silu"][0])
    qmod = quantize(mod, calibration=samples, scales="mul", function_tolerance=0)
    assert not active_of(qmod)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_no_function_leaves_a_machine_without_mul_for_it(name: str) -> None:
    """Where operands reach far these are relus to within a step, which need no MUL."""
    capabilities = dataclasses.replace(MACHINES[0].capabilities, mul=False)
    machine = dataclasses.replace(MACHINES[0], capabilities=capabilities)
    mod, samples, _ = network(FUNCTIONS[name][0], seed=0)
    qmod = quantize(mod, calibration=samples, scales="mul", config=machine)
    assert functions(qmod) and not float_regions(qmod)


# ---------------------------------------------------------------- comparisons
def test_reports_do_not_count_what_saturates_on_purpose() -> None:
    mod, samples, values = network(FUNCTIONS["sigmoid"][0])
    qmod = quantized(FUNCTIONS["sigmoid"][0], "mul")
    assert np.abs(values).max() > 3 * active_of(qmod)["layer"][1]
    (op,) = (o for o in quantization_report(mod, qmod, samples).operators if o.name == "layer")
    assert op.measures.levels is not None and op.measures.levels.saturated == 0
    assert op.measures.sqnr > 35 and "saturation" not in {each.rule for each in op.advice}


@pytest.mark.parametrize("scales", ["pow2", "mul"])
def test_comparisons_are_within_the_active_range(scales: str) -> None:
    mod, samples, _ = network(FUNCTIONS["hard swish"][0])
    qmod = quantized(FUNCTIONS["hard swish"][0], scales)

    def other(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dialect_numpy.run(mod, *inputs.values())

    for bound in (bound_for(mod, sqnr=25), bound_for(mod, lsb=3)):
        found = compare(mod, qmod, samples, other, bound)
        assert found.first is None
        (layer,) = (tensor for tensor in found.tensors if tensor.name == "layer")
        assert layer.lsb is not None and layer.lsb <= 2 and layer.equal and layer.equal > 0.65


def test_bias_correction_leaves_what_saturates_on_purpose() -> None:
    mod, samples, _ = network(FUNCTIONS["hard swish"][0])
    write = functools.partial(quantize, calibration=samples, scales="mul")
    before = sqnr(mod, quantized(FUNCTIONS["hard swish"][0], "mul"), samples)
    with OPERATORS.calibrating(), warnings.catch_warnings():
        warnings.simplefilter("ignore", VTAWarning)
        corrected = correct_biases(mod, write, list(samples))
        after = sqnr(mod, write(corrected), samples)
    assert after > before - 0.5
