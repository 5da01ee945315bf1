"""Float operators of the host compute the same bits in an executable and in the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from small_models import Net
from tvm.target import Target

import vta_byoc as vta
from vta_byoc.check import compare_outputs, compare_stored, reference_runner
from vta_byoc.hw.target import X86, arch, exact_target, export_target, features, native_target
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime import profile

C, SIZE = 4, 6


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
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("cubic", "half_pixel"),
        ("cubic", "asymmetric"),
    )
}
FORMS = (batch_norm, mish, silu, gelu, layer_norm, polynomial)
NODES = ("Softmax", "Sigmoid", "Tanh", "Exp", "Softplus", "Elu", "HardSigmoid", "Erf")
POSITIVE = ("Sqrt", "Log", "Pow")
"""Operators of values above zero."""
REDUCED = ("ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceProd")


def island_net(seed: int) -> tuple[onnx.ModelProto, list[str]]:
    """Every operator, each of the stem or of what another has computed; some feed convolutions."""
    net = Net(seed, x=(1, C, SIZE, SIZE))
    same: list[str] = [net.conv("x", C, C, 1, name="stem")]
    results = []
    makers: list[Any] = [*FORMS, *(_node(op) for op in NODES), *(_positive(op) for op in POSITIVE)]
    net.rng.shuffle(makers)
    for number, make in enumerate(makers):
        source = net.node("Clip", _any(net, same), net.const(-3.0), net.const(3.0))
        value = make(net, source)
        same.append(net.conv(value, C, C, 1) if number % 4 == 0 else value)
    for attrs in RESIZE.values():
        results.append(resized(net, _any(net, same), **attrs))
    for op in REDUCED:
        results.append(net.node(op, _any(net, same), axes=[2], keepdims=1))
    results += same[1:]
    return net.model(*results), results


def _any(net: Net, names: list[str]) -> str:
    return names[int(net.rng.integers(len(names)))]


def _node(op: str) -> Any:
    return lambda net, x: net.node(op, x)


def _positive(op: str) -> Any:
    def make(net: Net, x: str) -> str:
        value = net.node("Add", net.node("Abs", x), net.const(0.2))
        return str(net.node(op, value, *([net.const(2.0)] if op == "Pow" else [])))

    return make


def differences(model: onnx.ModelProto, names: list[str], path: Path) -> list[str]:
    """What `--check` finds."""
    onnx.save(model, str(path))
    inputs = {"x": np.random.default_rng(0).standard_normal((1, C, SIZE, SIZE)).astype(np.float32)}
    qmod = vta.quantize(vta.load_model(path), calibration=[inputs])
    compiled = compile_module(qmod)
    run = profile(compiled.exe, inputs, arenas=True)
    reference = reference_runner(qmod, compiled.programs)(inputs)
    checks = compare_outputs(names, run.outputs, reference)
    assert len(compiled.programs) > 1
    checks += compare_stored(run, compiled.programs, reference)
    return [str(check) for check in checks if not check.equal]


def test_host_operators_equal_the_reference(tmp_path: Path) -> None:
    """One random network with every operator: 25 of the host beside regions."""
    model, names = island_net(0)
    assert differences(model, names, tmp_path / "islands.onnx") == []


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
