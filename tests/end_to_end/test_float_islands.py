"""Float operators of the host compute the same bits in an executable and in the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest
import tvm
from small_models import Net
from tvm.target import Target

import vta_byoc as vta
from vta_byoc.hw.sim.target import X86, arch, exact_target, export_target, features, native_target
from vta_byoc.ir import reference
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

C, SIZE = 4, 6
PYNQ = vta.VTAConfig.preset("pynq")
"""Without MUL functions stay float, and no program is searched for them."""
Make: TypeAlias = Callable[[Net, str], str]


def batch_norm(net: Net, x: str) -> str:
    return net.batch_norm(x, C)


def mish(net: Net, x: str) -> str:
    softplus = net.node("Log", net.node("Add", net.node("Exp", x), net.const(1.0)))
    return str(net.node("Mul", x, net.node("Tanh", softplus)))


def silu(net: Net, x: str) -> str:
    return str(net.node("Mul", x, net.node("Sigmoid", x)))


def gelu(net: Net, x: str) -> str:
    scaled = net.node("Erf", net.node("Div", x, net.const(2**0.5)))
    gate = net.node("Add", scaled, net.const(1.0))
    return str(net.node("Mul", net.node("Mul", x, gate), net.const(0.5)))


def layer_norm(net: Net, x: str) -> str:
    centred = net.node("Sub", x, net.node("ReduceMean", x, axes=[1]))
    variance = net.node("ReduceMean", net.node("Pow", centred, net.const(2.0)), axes=[1])
    deviation = net.node("Sqrt", net.node("Add", variance, net.const(1e-5)))
    scaled = net.node("Mul", net.node("Div", centred, deviation), net.normal(1, C, 1, 1))
    return str(net.node("Add", scaled, net.normal(1, C, 1, 1)))


def polynomial(net: Net, x: str) -> str:
    """Products and sums that a processor would contract."""
    y = net.node("Add", net.node("Mul", x, net.normal(1, C, 1, 1)), net.const(0.3))
    return str(net.node("Sub", net.node("Mul", y, x), net.node("Mul", x, net.const(1.7))))


def resized(net: Net, x: str, **attrs: Any) -> str:
    sizes = net.const([1.0, 1.0, 1.5, 1.5])
    return str(net.node("Resize", x, net.const([]), sizes, **attrs))


RESIZE = {
    f"resize_{mode}_{where}": {"mode": mode, "coordinate_transformation_mode": where}
    for mode, where in (
        ("linear", "align_corners"),
        ("cubic", "half_pixel"),
    )
}
REDUCED = ("ReduceL2", "ReduceLogSumExp")
POSITIVE = ("Sqrt", "Log", "Pow")
"""Operators of values above zero."""


def _node(op: str) -> Make:
    return lambda net, x: str(net.node(op, x))


def _positive(op: str) -> Make:
    def make(net: Net, x: str) -> str:
        value = net.node("Add", net.node("Abs", x), net.const(0.2))
        return str(net.node(op, value, *([net.const(2.0)] if op == "Pow" else [])))

    return make


def _resize(attrs: dict[str, Any]) -> Make:
    return lambda net, x: resized(net, x, **attrs)


def _reduced(op: str) -> Make:
    return lambda net, x: str(net.node(op, x, axes=[2], keepdims=1))


PLAIN_OPERATORS: list[Make] = [
    batch_norm,
    mish,
    silu,
    polynomial,
    gelu,
    *map(_node, ("Softmax", "Sigmoid", "Tanh", "Exp", "LeakyRelu", "Softplus", "Erf")),
    _reduced("ReduceMean"),
]
"""Of which the reference is built without LLVM's optimizations."""
OTHER_OPERATORS: list[Make] = [
    layer_norm,
    *map(_node, ("Elu", "HardSigmoid")),
    *map(_positive, POSITIVE),
    *map(_resize, RESIZE.values()),
    *map(_reduced, REDUCED),
]


def island_net(seed: int, operators: list[Make]) -> tuple[onnx.ModelProto, list[str]]:
    """Every operator, each of the stem or of what another has computed; some feed convolutions."""
    net = Net(seed, x=(1, C, SIZE, SIZE))
    makers = list(operators)
    net.rng.shuffle(makers)  # type: ignore[arg-type]
    same = [net.conv("x", C, C, 1, name="stem")]
    results = []
    for number, make in enumerate(makers):
        source = net.node("Clip", _any(net, same), net.const(-3.0), net.const(3.0))
        value = make(net, source)
        value = net.conv(value, C, C, 1) if number % 4 == 0 else value
        results.append(value)
        if make in (batch_norm, silu, gelu, layer_norm, polynomial):  # as large as the stem
            same.append(value)
    return net.model(*results), results


def _any(net: Net, names: list[str]) -> str:
    return names[int(net.rng.integers(len(names)))]


def differences(model: onnx.ModelProto, names: list[str], path: Path) -> list[str]:
    """What `--check` finds."""
    onnx.save(model, str(path))
    inputs = {"x": np.random.default_rng(0).standard_normal((1, C, SIZE, SIZE)).astype(np.float32)}
    qmod = vta.quantize(vta.load_model(path), calibration=[inputs], config=PYNQ)
    compiled = compile_module(qmod, PYNQ)
    run = profile(compiled.exe, inputs, arenas=True)
    wanted = reference_runner(qmod, compiled.programs)(inputs)
    checks = compare_outputs(names, run.outputs, wanted)
    assert len(compiled.programs) > 1
    checks += compare_stored(run, compiled.programs, wanted)
    return [str(check) for check in checks if not check.equal]


@pytest.mark.parametrize(
    ("operators", "quick"), [(PLAIN_OPERATORS, True), (OTHER_OPERATORS, False)]
)
def test_host_operators_equal_the_reference(
    operators: list[Make], quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random networks with every operator of the host beside regions."""
    built = []
    target_of = reference._target

    def target(mod: tvm.IRModule, optimized: bool) -> Target:
        built.append(target_of(mod, optimized))
        return built[-1]

    monkeypatch.setattr(reference, "_target", target)
    model, names = island_net(0, operators)
    assert differences(model, names, tmp_path / "islands.onnx") == []
    assert ("opt-level" in built[-1].attrs) == quick
    assert "fma" not in features(built[-1])


@pytest.mark.skipif(arch(native_target()) not in X86, reason="other processors always contract")
def test_exact_targets_cannot_contract() -> None:
    for target in (native_target(), export_target()):
        found = features(exact_target(target))
        assert not found & {"fma", "fma4"}
        assert ("avx2" in found) == ("avx2" in features(target))
    own = Target({"kind": "llvm", "mcpu": "x86-64-v3", "mattr": ["+fma"], "opt-level": 1})
    assert "fma" not in features(exact_target(own))
    assert exact_target(own).attrs["opt-level"] == 1


def test_other_processors_are_taken_as_they_are() -> None:
    target = Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    assert exact_target(target) is target
