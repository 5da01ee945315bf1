"""Cross-layer equalization: the same function, weights that reach equally far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from small_models import Graph, flat
from tvm import relax

from vta_byoc.ir.bindings import static_shape, straight_bindings
from vta_byoc.ir.reference import build_reference
from vta_byoc.quantization.equalize import equalizable, equalize
from vta_byoc.quantization.float_layers import FloatLayer, float_layers
from vta_byoc.quantize import quantize

SHAPE = (1, 8, 12, 12)


def samples(n: int = 4, seed: int = 5, shape: tuple[int, ...] = SHAPE) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, dtype="float32") for _ in range(n)]


def uneven(g: Graph, x: Any, co: int, name: str, **options: Any) -> Any:
    """A convolution of even weights, times a factor per output channel, divided by those of
    the input channels: what `equalize` should find. Attributes: made, read (factors), k, groups."""
    made, read = options.pop("made", np.ones(co)), options.pop("read", np.ones(1))
    k, groups = options.pop("k", 3), options.get("groups", 1)
    options.setdefault("padding", k // 2)
    per_group = static_shape(x)[1] // groups
    weight = g.rng.standard_normal((co, per_group, k, k)) / (per_group * k * k) ** 0.5
    weight *= made.reshape(-1, 1, 1, 1)
    rows = np.repeat(np.broadcast_to(read, groups * per_group).reshape(groups, -1), co // groups, 0)
    y = g.op(
        "nn.conv2d", x, g.const(weight / rows[:, :, None, None]), name=f"{name}__conv", **options
    )
    bias = g.rng.standard_normal(co) * made * 0.2
    return g.op("add", y, g.const(bias.reshape(1, -1, 1, 1)), name=name)


def factors(g: Graph, n: int) -> np.ndarray:
    return np.asarray(10 ** g.rng.uniform(-1, 0.5, n))


def act(g: Graph, x: Any, kind: str, name: str) -> Any:
    if kind == "relu6":
        low = g.op("maximum", x, g.const([0.0]), name=f"{name}__low")
        return g.op("minimum", low, g.const([6.0]), name=name)
    if kind == "clip":
        return g.op("clip", x, 0, 3, name=name)
    if kind == "leaky":
        return g.op("nn.leakyrelu", x, 0.1, name=name)
    return g.op("nn.relu", x, name=name) if kind == "relu" else x


def separable(kind: str = "relu", multiplier: int = 1, seed: int = 0) -> tvm.IRModule:
    """conv, depthwise, conv: two pairs that share the depthwise layer."""
    g = Graph(SHAPE, seed=seed)
    one, two = factors(g, 16), factors(g, 16 * multiplier)
    x = act(g, uneven(g, g.params[0], 16, "first", k=1, made=one), kind, "act1")
    x = uneven(g, x, 16 * multiplier, "middle", groups=16, made=two, read=one)
    x = act(g, x, kind, "act2")
    return g.module(uneven(g, x, 8, "last", k=1, read=two))


def layers(mod: tvm.IRModule) -> list[FloatLayer]:
    return float_layers(mod["main"])


def outputs(mod: tvm.IRModule, data: list[np.ndarray]) -> list[np.ndarray]:
    """The last result of `main` on each sample."""
    machine = relax.VirtualMachine(build_reference(mod), tvm.cpu())
    return [flat(machine["main"](tvm.runtime.tensor(sample)))[-1] for sample in data]


def same_function(mod: tvm.IRModule, other: tvm.IRModule, data: list[np.ndarray]) -> None:
    for want, got in zip(outputs(mod, data), outputs(other, data), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def spread(mod: tvm.IRModule, index: int = 0) -> float:
    """Largest over smallest reach of the weights of a layer's output channels."""
    reach = np.abs(layers(mod)[index].weight).max(axis=(1, 2, 3))
    return float(reach.max() / reach.min())


def error(mod: tvm.IRModule, reference: tvm.IRModule) -> float:
    """Of the quantized module, as a share of the float result's power."""
    qmod, data = quantize(mod, calibration=samples()), samples(2, seed=9)
    want, got = np.array(outputs(reference, data)), np.array(outputs(qmod, data))
    return float(((got - want) ** 2).sum() / (want**2).sum())


# ---------------------------------------------------------------- the same function
@pytest.mark.parametrize(
    "kind,multiplier", [("linear", 1), ("relu", 2), ("leaky", 1), ("relu6", 2), ("clip", 1)]
)
def test_the_network_computes_the_same(kind: str, multiplier: int) -> None:
    mod = separable(kind, multiplier)
    even = equalize(mod, samples())
    assert [b.var.name for b in straight_bindings(even["main"])] == [
        b.var.name for b in straight_bindings(mod["main"])
    ]
    far = [10 * x for x in samples(2, seed=8)]  # beyond calibration: the same without a clamp
    same_function(mod, even, samples() + (far if kind in ("linear", "relu", "leaky") else []))
    changed = [
        not np.array_equal(a.weight, b.weight)
        for a, b in zip(layers(mod), layers(even), strict=True)
    ]
    assert changed == [True, True, True]


def test_weights_reach_equally_far() -> None:
    mod = separable()
    even = equalize(mod, samples())
    assert spread(mod, 0) > 20 and spread(mod, 1) > 20
    assert spread(even, 0) < spread(mod, 0) / 3
    assert spread(even, 1) < spread(mod, 1) / 3


def test_it_converges() -> None:
    """A second equalization finds nothing left to do."""
    even = equalize(separable(), samples())
    again = equalize(even, samples())
    for first, second in zip(layers(even), layers(again), strict=True):
        np.testing.assert_allclose(second.weight, first.weight, rtol=0.02)


def test_it_is_deterministic() -> None:
    texts = {equalize(separable(), samples()).script(show_meta=True) for _ in range(2)}
    assert len(texts) == 1


def test_activations_do_not_reach_further() -> None:
    """A channel of tiny weights and a large bias must not take over the shared scale."""
    g = Graph(SHAPE)
    weight = g.rng.standard_normal((16, 8, 1, 1))
    weight[3] *= 1e-5
    bias = np.zeros((1, 16, 1, 1))
    bias[0, 3] = 1.0
    x = g.op("nn.conv2d", g.params[0], g.const(weight), name="first__conv")
    x = g.op("nn.relu", g.op("add", x, g.const(bias), name="first"), name="act")
    mod = g.module(g.conv(x, 4, name="last"), x)
    even = equalize(g.module(g.conv(x, 4, name="last")), samples())
    shown = Graph(SHAPE)
    first = layers(even)[0]
    y = shown.op("nn.conv2d", shown.params[0], shown.const(first.weight), name="first__conv")
    y = shown.op("add", y, shown.const(first.as_bias(first.bias(first.biases[0]))), name="first")
    even_act = shown.module(shown.op("nn.relu", y, name="act"))
    reach = np.max(outputs(mod, samples()))
    assert np.max(outputs(even_act, samples())) <= reach * 1.0001
    assert np.abs(first.weight[3]).max() > 1e-5


# ---------------------------------------------------------------- clamps
def test_a_channel_that_is_clamped_keeps_its_factor() -> None:
    g = Graph(SHAPE)
    x = g.op("nn.conv2d", g.params[0], g.const(np.eye(8).reshape(8, 8, 1, 1)), name="first__conv")
    bias = np.linspace(0, 7, 8).reshape(1, -1, 1, 1)
    x = act(g, g.op("add", x, g.const(bias), name="first"), "relu6", "act")
    weight = g.rng.standard_normal((4, 8, 1, 1)) * 0.1
    mod = g.module(g.op("nn.conv2d", x, g.const(weight), name="last"))
    data = [np.clip(x, -2, 2) for x in samples()]
    even = equalize(mod, data)
    same_function(mod, even, data)
    kept = np.isclose(layers(even)[0].weight[range(8), range(8), 0, 0], 1)
    peaks = bias.reshape(-1) + np.max(data, axis=(0, 1, 3, 4))
    assert list(kept) == list(peaks > 6)


def test_a_clamp_at_other_values_ends_a_pair() -> None:
    for bounds in ((1, 6), (-1, 1), (-6, -1)):
        g = Graph(SHAPE)
        x = g.op("clip", g.conv(g.params[0], 8, name="first"), *bounds)
        assert equalizable(g.module(g.conv(x, 4, name="last"))["main"]) == []


def test_a_silent_channel_keeps_its_factor() -> None:
    g = Graph(SHAPE)
    x = g.op("nn.conv2d", g.params[0], g.normal(8, 8, 1, 1, scale=0.01), name="first__conv")
    bias = np.zeros((1, 8, 1, 1))
    bias[0, 2] = -50
    x = g.op("nn.relu", g.op("add", x, g.const(bias), name="first"), name="act")
    mod = g.module(g.conv(x, 4, name="last"))
    even = equalize(mod, samples())
    np.testing.assert_array_equal(layers(even)[0].weight[2], layers(mod)[0].weight[2])


# ---------------------------------------------------------------- which layers
def names_of_pairs(mod: tvm.IRModule) -> list[tuple[str, str]]:
    return [(p.first.end.name, p.second.end.name) for p in equalizable(mod["main"])]


def test_pairs() -> None:
    assert names_of_pairs(separable("relu6")) == [("first", "middle"), ("middle", "last")]
    g = Graph(SHAPE)
    a = g.op("nn.max_pool2d", g.conv(g.params[0], 8, name="a"), [2, 2], [2, 2], name="pool")
    b = g.conv(a, 8, name="b")
    c = g.conv(g.op("nn.relu", b), 8, name="c")
    d = g.conv(g.op("add", c, b, name="join"), 8, name="d")
    e = g.conv(g.op("sigmoid", d), 8, name="e")
    # b and its sum have two readers, a sum and a sigmoid do not commute, e is a result.
    assert names_of_pairs(g.module(e)) == [("a", "b")]


def test_a_result_of_the_model_is_not_scaled() -> None:
    g = Graph(SHAPE)
    a = g.conv(g.params[0], 8, name="a")
    assert names_of_pairs(g.module(g.conv(a, 8, name="b"), a)) == []


def test_without_pairs_the_module_is_the_same() -> None:
    g = Graph(SHAPE)
    mod = g.module(g.conv(g.params[0], 8))
    assert equalize(mod, []) is mod


def test_grouped_convolutions() -> None:
    g = Graph(SHAPE)
    made = factors(g, 12)
    x = g.op("nn.relu", uneven(g, g.params[0], 12, "a", made=made), name="act")
    x = g.op("nn.avg_pool2d", x, [2, 2], [2, 2], name="pool")
    mod = g.module(uneven(g, x, 6, "b", groups=3, read=made))
    even = equalize(mod, samples())
    same_function(mod, even, samples())
    assert spread(even) < spread(mod) / 3


# ---------------------------------------------------------------- what it is for
@pytest.mark.parametrize("kind", ["relu", "relu6"])
def test_quantization_improves_on_an_uneven_network(kind: str) -> None:
    mod = separable(kind)
    assert error(equalize(mod, samples()), mod) < error(mod, mod) / 2
