"""The quantization report: every metric against NumPy, every rule on a bad case of its own."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as plotly
import pytest
import tvm
from small_models import Graph, call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.ir import observe
from vta_byoc.quantization.calibration.samples import default_calibration as noise
from vta_byoc.quantization.equalize import equalize
from vta_byoc.quantization.float_layers import float_layers
from vta_byoc.quantization.tensor_pairs import tensor_pairs
from vta_byoc.quantize import quantize
from vta_byoc.reports.quantization.advice import RULES
from vta_byoc.reports.quantization.charts import details, sqnr_chart
from vta_byoc.reports.quantization.html import opening, quantization_html
from vta_byoc.reports.quantization.operator_noise import Operator
from vta_byoc.reports.quantization.report import QuantizationReport, quantization_report
from vta_byoc.reports.quantization.text import verdict, verdict_text
from vta_byoc.validation.noise import BINS, layer_macs, weight_measures

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tflite"
SHAPE = (1, 8, 6, 6)


def samples(count: int = 3, scale: float = 1.0, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.float32(scale * rng.standard_normal(SHAPE)) for _ in range(count)]


def net() -> tvm.IRModule:
    """conv, relu, conv, residual sum, pool, dense."""
    g = Graph(SHAPE, seed=1)
    a = g.op("nn.relu", g.conv(g.params[0], 8, name="first"), name="first_relu")
    b = g.op("add", g.conv(a, 8, name="second"), a, name="join")
    pooled = g.op("nn.max_pool2d", b, pool_size=2, strides=2, name="pool")
    flat = g.op("reshape", pooled, (1, 72), name="flat")
    return g.module(g.dense(flat, 5, name="scores"))


@functools.cache
def built() -> tuple[tvm.IRModule, tvm.IRModule]:
    mod = net()
    return mod, quantize(mod, calibration=samples())


@functools.cache
def small_report() -> QuantizationReport:
    return quantization_report(*built(), samples())


def named(report: QuantizationReport, name: str) -> Operator:
    return next(op for op in report.operators if op.name == name)


def decibels(wanted: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((got - wanted) ** 2).sum()))


# ---------------------------------------------------------------- charts
def test_operators_and_their_inputs() -> None:
    report = small_report()
    found = [(op.name, op.kind, op.inputs) for op in report.operators]
    assert found == [
        ("x0", "input", ()),
        ("first", "layer", ("x0",)),
        ("second", "layer", ("first",)),
        ("join", "operator", ("second", "first")),
        ("pool", "move", ("join",)),
        ("flat", "move", ("pool",)),
        ("scores", "layer", ("flat",)),
    ]
    assert named(report, "first").operators == ("first", "first_relu")
    assert (report.samples, report.came_quantized, report.silent) == (3, False, [])
    assert [op.name for op in report.results] == ["scores"]


def test_sqnr_and_cosine_of_the_result() -> None:
    mod, qmod = built()
    wanted, got = (np.array([call(m, x)[0] for x in samples()], float) for m in (mod, qmod))
    measures = named(small_report(), "scores").measures
    assert measures.sqnr == pytest.approx(decibels(wanted, got), abs=1e-3)
    one, other = ((tensor - tensor.mean(axis=0)).reshape(-1) for tensor in (wanted, got))
    cosine = one @ other / np.sqrt((one @ one) * (other @ other))
    assert measures.cosine == pytest.approx(cosine, abs=1e-6)
    assert measures.levels is None


def test_the_input_is_rounded_and_nothing_else() -> None:
    x = np.array(samples(), float)
    op = named(small_report(), "x0")
    assert op.scale is not None and op.measures.levels is not None
    levels = np.clip(np.rint(x / op.scale), -128, 127)
    assert op.measures.sqnr == op.measures.own_sqnr
    assert op.measures.sqnr == pytest.approx(decibels(x, levels * op.scale), abs=1e-3)
    assert op.measures.levels.used == len(np.unique(levels))
    assert op.measures.levels.reach == np.abs(levels).max() / 127
    counts = np.histogram(levels, bins=BINS, range=(-128, 128))[0]
    assert op.measures.levels.int8 == pytest.approx(counts / x.size)
    assert math.isinf(op.input_sqnr) and math.isnan(op.drop)


def test_what_an_operator_adds_alone() -> None:
    """The second convolution with int8 weights, on the rounded float tensor that it reads."""
    mod, _ = built()
    first, second = named(small_report(), "first"), named(small_report(), "second")
    assert first.scale and second.scale and second.weights
    (layer,) = [each for each in float_layers(mod["main"]) if str(each.var.name).startswith("sec")]
    step, weight = second.weights.steps[1], layer.weight
    rounded_weight = np.rint(weight / step) * step
    exact, rounded = (
        convolution(np.float32(each), layer.as_bias(layer.bias(layer.biases[0])))
        for each in (weight, rounded_weight)
    )
    middle = middle_of(mod, "first_relu")
    wanted, got = [], []
    for x in samples():
        data = middle(x)
        wanted.append(call(exact, data)[0].astype(float))
        (result,) = call(rounded, np.float32(np.rint(data / first.scale) * first.scale))
        got.append(np.clip(np.rint(result / second.scale), -128, 127) * second.scale)
    assert second.measures.own_sqnr == pytest.approx(
        decibels(np.array(wanted), np.array(got)), abs=0.1
    )
    assert second.drop == second.input_sqnr - second.measures.sqnr


def convolution(weight: np.ndarray, bias: np.ndarray) -> tvm.IRModule:
    g = Graph(SHAPE)
    result = g.op("nn.conv2d", g.params[0], g.const(weight), padding=1)
    return g.module(g.op("add", result, g.const(bias)))


def middle_of(mod: tvm.IRModule, name: str) -> Any:
    main = mod["main"]
    (var,) = [b.var for b in main.body.blocks[0].bindings if str(b.var.name) == name]
    seen: list[np.ndarray] = []
    observer = observe.Observer(mod, [var], lambda _index, values: seen.append(values.copy()))

    def run(x: np.ndarray) -> np.ndarray:
        observer.run([x])
        return seen.pop()

    return run


def test_harm_is_a_share_and_orders() -> None:
    report = small_report()
    assert sum(op.harm for op in report.operators) == pytest.approx(1)
    assert [op.harm for op in report.harmful] == sorted(op.harm for op in report.harmful)[::-1]
    assert {"pool", "flat"}.isdisjoint(op.name for op in report.harmful)  # moves add nothing
    total = sum(op.measures.own_noise for op in report.harmful)
    assert report.harmful[0].harm == pytest.approx(report.harmful[0].measures.own_noise / total)


def test_one_sample_has_no_cosine_and_equal_samples_neither() -> None:
    g = Graph(SHAPE)
    mod = g.module(g.conv(g.params[0], 8, 1))
    x = samples(1)
    qmod = quantize(mod, calibration=x)
    for given in (x, x * 2):
        report = quantization_report(mod, qmod, given)
        assert {op.measures.cosine for op in report.operators} == {None}


def test_is_deterministic_and_reads_samples_once() -> None:
    again = quantization_report(*built(), iter(samples()))
    assert again == small_report()


@pytest.mark.parametrize("kind", ["conv", "grouped", "depthwise", "transposed", "dense"])
@pytest.mark.parametrize("form", ["pow2", "mul"])
def test_weights(kind: str, form: str) -> None:
    g = Graph(SHAPE, seed=4)
    ends = np.geomspace(0.05, 2, 8)
    if kind == "transposed":
        w = g.rng.standard_normal((8, 4, 3, 3)) * np.tile(ends[:4], 8)[:32].reshape(8, 4, 1, 1)
        y = g.op("nn.conv2d_transpose", g.params[0], g.const(w), padding=1, groups=2, name="op")
        channels = [w[4 * (c // 4) : 4 * (c // 4) + 4, c % 4] for c in range(8)]
        macs = 8 * 36 * 4 * 9
    elif kind == "dense":
        w = g.rng.standard_normal((6, 8)) * ends
        y = g.op("matmul", g.params[0], g.const(w), name="op")
        channels, macs = list(w.T), 8 * 6 * 8 * 6
    else:
        groups = {"conv": 1, "grouped": 2, "depthwise": 8}[kind]
        w = g.rng.standard_normal((8, 8 // groups, 3, 3)) * ends.reshape(8, 1, 1, 1)
        y = g.op("nn.conv2d", g.params[0], g.const(w), padding=1, groups=groups, name="op")
        channels, macs = list(w), 8 * 36 * (8 // groups) * 9
    (layer,) = float_layers(g.module(y)["main"])
    peak = float(np.abs(np.float32(w)).max())

    def step(largest: float) -> float:
        return 2.0 ** math.ceil(math.log2(largest / 127)) if form == "pow2" else largest / 127

    def errors(steps: list[float]) -> list[float]:
        pairs = zip(channels, steps, strict=True)
        return [float(((np.rint(c / s) * s - c) ** 2).sum()) for c, s in pairs]

    signals = [float((c**2).sum()) for c in channels]
    one = errors([step(peak)] * 8)
    each = errors([step(float(np.abs(c).max())) for c in channels])
    found = weight_measures(layer, {"scale": step(peak)})
    db = [10 * math.log10(sum(signals) / sum(part)) for part in (one, each)]
    assert (found.per_tensor_sqnr, found.per_channel_sqnr) == pytest.approx(db, abs=0.05)
    assert found.sqnr == found.per_tensor_sqnr and not found.per_channel
    gains = [10 * math.log10(a / b) for a, b in zip(one, each, strict=True) if b]
    if len(gains) == 8:
        assert found.channel_gain == pytest.approx(np.mean(gains), abs=0.1)
    assert sum(found.histogram) == pytest.approx(1)
    assert layer_macs(layer) == macs


# ---------------------------------------------------------------- rules
def layer_report(
    weight: Any, inputs: list[np.ndarray], calibration: Any = None, bias: float = 0.0, **how: Any
) -> Operator:
    """The report about one 1x1 convolution followed by another that reads its int8 result."""
    g = Graph(SHAPE, seed=3)
    y = g.op("nn.conv2d", g.params[0], g.const(weight), name="layer__conv2d")
    y = g.op("add", y, g.const(np.full((1, 8, 1, 1), bias)), name="layer")
    mod = g.module(g.conv(y, 8, name="next"))
    qmod = quantize(mod, calibration=calibration or inputs, **how)
    if how.get("equalize"):
        mod = equalize(mod, calibration or inputs)
    return named(quantization_report(mod, qmod, inputs), "layer")


def rules_of(op: Operator) -> set[str]:
    return {each.rule for each in op.advice}


def good_weight() -> np.ndarray:
    """Rows that int8 holds well and whose rounding has no direction."""
    return np.random.default_rng(5).standard_normal((8, 8, 1, 1)) / 3


def test_a_good_layer_gets_no_advice() -> None:
    op = layer_report(good_weight(), samples(6), scales="mul")
    assert not rules_of(op) - {"small and harmful"}


def test_channel_spread() -> None:
    weight = good_weight()
    weight[1:] /= 100
    bad = layer_report(weight, samples(), scales="mul")
    assert "channel spread" in rules_of(bad)
    (found,) = [each for each in bad.advice if each.rule == "channel spread"]
    assert found.step == "--per-channel, or --equalize" and "dB more on average" in found.cause
    better = layer_report(weight, samples(), scales="mul", per_channel=True)
    assert "channel spread" not in rules_of(better)
    assert bad.weights and better.weights and better.weights.per_channel
    assert better.weights.sqnr == pytest.approx(bad.weights.per_channel_sqnr, abs=1e-3)
    equal = layer_report(weight, samples(), scales="mul", equalize=True)
    assert equal.weights and equal.weights.channel_gain < bad.weights.channel_gain - 10


def test_saturation() -> None:
    op = layer_report(good_weight(), samples(), samples(scale=0.3, seed=9))
    levels = op.measures.levels
    assert levels is not None and "saturation" in rules_of(op) and op.scale is not None
    middle = np.array([np.tensordot(good_weight()[:, :, 0, 0], x[0], 1) for x in samples()])
    beyond = (middle > 127.5 * op.scale) | (middle < -128.5 * op.scale)
    assert levels.source[0] + levels.source[-1] == pytest.approx(beyond.mean(), rel=0.02)
    assert 0.001 < levels.saturated < beyond.mean()  # its saturated inputs keep others inside
    better = layer_report(good_weight(), samples())
    assert "saturation" not in rules_of(better)
    assert better.measures.sqnr > op.measures.sqnr + 3


def test_saturation_of_the_input_is_counted_exactly() -> None:
    mod, qmod = built()
    given = samples(scale=2)
    op = named(quantization_report(mod, qmod, given), "x0")
    assert op.scale is not None and op.measures.levels is not None
    exact = np.array(given, float) / op.scale
    beyond = ((exact > 127.5) | (exact < -128.5)).mean()
    assert op.measures.levels.saturated == pytest.approx(beyond) and beyond > 0.001


def test_outliers() -> None:
    inputs = samples(40)
    inputs[0][0, :, 0, 0] = 40
    bad = layer_report(np.abs(good_weight()), inputs, scales="mul")
    assert "outliers" in rules_of(bad)
    better = layer_report(
        np.abs(good_weight()), inputs, scales="mul", method="percentile", percentile=99.9
    )
    assert "outliers" not in rules_of(better)
    assert better.scale is not None and bad.scale is not None and better.scale < bad.scale / 2


def test_unused_range() -> None:
    peak = max(
        float(np.abs(np.tensordot(good_weight()[:, :, 0, 0], x[0], 1)).max()) for x in samples()
    )
    inputs = [np.float32(x * 1.05 * 127 / 128 / peak) for x in samples()]  # just above 127 / 128
    bad = layer_report(good_weight(), inputs)
    assert "unused range" in rules_of(bad)
    assert bad.measures.levels is not None and bad.measures.levels.reach < 0.6
    better = layer_report(good_weight(), inputs, scales="mul")
    assert "unused range" not in rules_of(better)
    assert better.measures.own_sqnr > bad.measures.own_sqnr + 2


def test_one_sided_range() -> None:
    """What a relu leaves, in front of a layer with padding."""
    g = Graph(SHAPE, seed=3)
    y = g.op("nn.relu", g.conv(g.params[0], 8, 1, name="layer"), name="rectified")
    mod, inputs = g.module(g.conv(y, 8, name="next")), samples(6)
    rule = "one-sided range"
    for form, holds in (
        ({"scales": "mul"}, True),
        ({"scales": "mul", "zero_points": "all"}, False),
        ({"scales": "pow2"}, False),
    ):
        op = named(
            quantization_report(mod, quantize(mod, calibration=inputs, **form), inputs), "layer"
        )
        assert ({rule} <= rules_of(op)) is holds and (op.narrowed is not None) is holds
        if holds:
            (found,) = [each for each in op.advice if each.rule == rule]
            assert found.step == "--zero-points all"
            assert found.cause == "a zero point would make its scale 2.01 times smaller (limit 1.3)"
            assert op.to_json()["narrowed"] == 2.008


def test_mean_shift() -> None:
    """Weights that round up, on inputs above zero: the result's mean moves."""
    weight = np.full((8, 8, 1, 1), 0.34 / 127)
    weight[0, 0] = 1
    weight[1:, 0] = 0.01
    inputs = [np.float32(1 + x / 8) for x in samples(6)]
    bad = layer_report(weight, inputs, scales="mul")
    assert "mean shift" in rules_of(bad) and bad.measures.mean_shift > 0.25
    better = layer_report(weight, inputs, scales="mul", bias_correction=True)
    assert better.measures.mean_shift < bad.measures.mean_shift
    assert better.measures.own_sqnr > bad.measures.own_sqnr


def test_small_and_harmful() -> None:
    """A large weight on a channel that is always zero makes the scale useless for all others."""
    g = Graph((1, 16, 12, 12), seed=6)
    weight = g.rng.standard_normal((16, 16, 3, 3)) / 12
    weight[0] = 0
    y = g.op("nn.conv2d", g.params[0], g.const(weight), padding=1, name="large")
    pooled = g.op("nn.avg_pool2d", g.op("nn.relu", y), pool_size=12, strides=12, name="pool")
    weight = g.rng.standard_normal((4, 16, 1, 1)) / 4
    weight[:, 0] = 50
    small = g.op("nn.conv2d", pooled, g.const(weight), name="small")
    mod = g.module(g.conv(small, 4, 1, name="last"))
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal((1, 16, 12, 12), dtype=np.float32) for _ in range(3)]
    report = quantization_report(mod, quantize(mod, calibration=inputs), inputs)
    worst = report.harmful[0]
    assert worst.name == "small" and "small and harmful" in rules_of(worst)
    assert worst.macs == 64 and worst.harm > 0.5
    assert "--keep-float small" in [remedy.step for remedy in report.remedies]
    assert "small and harmful" not in rules_of(named(report, "large"))
    better = quantization_report(
        mod, quantize(mod, calibration=inputs, keep_float=["small"]), inputs
    )
    assert better.results[0].measures.sqnr > report.results[0].measures.sqnr + 10


def test_silent() -> None:
    op = layer_report(np.zeros((8, 8, 1, 1)), samples())
    assert rules_of(op) == {"silent"} and op.harm == 0 and math.isnan(op.measures.sqnr)
    assert op.to_json()["sqnr"] is None


def test_every_rule_is_tested_and_stated() -> None:
    tests = {name.removeprefix("test_").replace("_", " ") for name in globals()}
    assert {rule.name.replace("-", " ") for rule in RULES} <= tests
    page = (Path(__file__).parents[2] / "docs" / "quantization-report.md").read_text()
    for rule in RULES:
        assert f"| {rule.name} |" in page and f"{rule.threshold:g}" in page


# ---------------------------------------------------------------- models that came quantized
def test_a_model_that_came_quantized_is_compared_with_itself() -> None:
    mod = load_model(FIXTURES / "conv_relu6.tflite")
    report = quantization_report(mod, quantize(mod), noise(mod, 2, seed=3))
    assert report.came_quantized and report.operators[-1].weights
    assert min(op.measures.sqnr for op in report.operators) > 35
    for op in report.operators:
        assert op.weights is None or math.isinf(op.weights.sqnr)
        assert rules_of(op) <= {"silent", "saturation"}
    zeros = [op.zero_point for op in report.operators if op.zero_point]
    assert zeros and report.to_json()["compared_with"] == "the model as it came"


# ---------------------------------------------------------------- bad input
def test_modules_that_do_not_belong_together() -> None:
    mod, qmod = built()
    g = Graph(SHAPE)
    other = g.module(g.op("nn.relu", g.params[0], name="alone"))
    with pytest.raises(VTAError, match='no attribute "vta.quantization".*vta_byoc.quantize'):
        quantization_report(mod, mod, samples())
    stranger = Graph((1, 3))
    with pytest.raises(VTAError, match="no tensor of the module is in the quantized one"):
        tensor_pairs(stranger.module(stranger.op("exp", stranger.params[0])), qmod)
    assert not [p for p in tensor_pairs(other, qmod) if p.name != "x0"]
    with pytest.raises(VTAError, match="calibration has 0 samples"):
        quantization_report(mod, qmod, [])


def test_integer_samples_are_checked() -> None:
    mod = load_model(FIXTURES / "conv_relu6.tflite")
    qmod, (one,) = quantize(mod), noise(mod, 1, seed=0)
    wrong = {name: array.astype("float32") for name, array in one.items()}
    with pytest.raises(VTAError, match="has dtype float32; the input takes int8"):
        quantization_report(mod, qmod, [wrong])
    with pytest.raises(VTAError, match="inputs of the model are "):
        quantization_report(mod, qmod, [{"y": one["x"]}])
    with pytest.raises(VTAError, match="0 samples"):
        quantization_report(mod, qmod, [])


# ---------------------------------------------------------------- JSON and the page
def test_json() -> None:
    data = json.loads(json.dumps(small_report().to_json(), allow_nan=False))
    assert set(data) == {
        *("samples", "compared_with", "results", "most_harmful", "remedies", "silent", "operators")
    }
    assert data["most_harmful"][0] == small_report().harmful[0].name
    first = data["operators"][1]
    assert first["name"] == "first" and first["zero_point"] == 0
    assert len(first["levels"]["source"]) == BINS + 2 == len(first["levels"]["int8"]) + 2
    assert data["operators"][0]["input_sqnr"] == "exact"


class Page(HTMLParser):
    """Text outside of scripts, and what would load something."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text: list[str] = []
        self.script = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.script = tag == "script"
        self.loads += [name for name, _ in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if not self.script:
            self.text.append(data)


def test_page() -> None:
    html = quantization_html(small_report(), "models/net.onnx", "--scales mul")
    page = Page(html)
    text = " ".join(page.text)
    assert not page.loads and "net.onnx" in text and "quantized with --scales mul" in text
    for op in small_report().operators:
        assert op.name in text
    assert html == quantization_html(small_report(), "models/net.onnx", "--scales mul")


def test_hostile_names_stay_text() -> None:
    hostile = "</script><b>&amp;"
    ops = [dataclasses.replace(op, name=hostile) for op in small_report().operators]
    report = QuantizationReport(tuple(ops), 3, False)
    html = quantization_html(report, "x.onnx", "")
    assert html.count("</script>") == quantization_html(small_report(), "x", "").count("</script>")
    assert "</script><b>" not in html


@pytest.mark.parametrize("count", [1, 3, 60])
def test_charts_have_a_row_for_each_operator(count: int) -> None:
    ops = (small_report().operators * 9)[:count]
    chart = sqnr_chart(ops)
    plotly.Figure(chart["data"], chart["layout"])  # refuses what Plotly does not know
    assert len(chart["layout"]["yaxis"]["ticktext"]) == count == len(details(ops))
    assert all(len(trace["x"]) == count for trace in chart["data"])
    values = [value for trace in chart["data"] for value in trace["x"] if value is not None]
    assert values and all(math.isfinite(value) for value in values)


def test_a_report_without_operators_that_add_noise_makes_a_page() -> None:
    ops = tuple(dataclasses.replace(op, harm=0.0, advice=()) for op in small_report().operators)
    html = quantization_html(QuantizationReport(ops, 1, True), "x.onnx", "")
    assert "Nothing stands out" in html and "its own quantize" in html


@pytest.mark.parametrize(
    ("sqnr", "word"),
    [(50.0, "good"), (30.0, "good"), (29.9, "fair"), (10.0, "poor"), (-3.0, "bad")],
)
def test_says_whether_the_result_is_good(sqnr: float, word: str) -> None:
    assert verdict(sqnr).word == word
    op = small_report().results[0]
    told = dataclasses.replace(op, measures=dataclasses.replace(op.measures, sqnr=sqnr))
    share = 100 * 10 ** (-sqnr / 20)
    found = verdict_text(told)
    assert found.startswith(f"{sqnr:.1f} dB of the result {op.name} are {word}: its error is ")
    assert float(found.split(" % ")[0].split()[-1]) == pytest.approx(share, rel=0.1)
    silent = dataclasses.replace(op, measures=dataclasses.replace(op.measures, sqnr=math.nan))
    assert verdict_text(silent) == f"The result {op.name} is silent."


def test_opens_on_an_operator_with_something_to_show() -> None:
    report = small_report()
    assert report.operators[opening(report)] == report.harmful[0]
    quiet = tuple(dataclasses.replace(op, harm=0.0) for op in report.operators)
    shown = quiet[opening(dataclasses.replace(report, operators=quiet))]
    assert shown.measures.levels is not None and shown.weights is not None
    bare = tuple(
        dataclasses.replace(op, measures=dataclasses.replace(op.measures, levels=None))
        for op in quiet
    )
    assert opening(dataclasses.replace(report, operators=bare)) == 0
