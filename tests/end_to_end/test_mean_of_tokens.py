"""The mean of all tokens, in front of a classifier, runs on VTA between its layers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import quantize
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner


def classifier(tokens: int, channels: int, keepdims: bool) -> tvm.IRModule:
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, tokens, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = rng.normal(size=(16, channels)).astype("float32")
            last = rng.normal(size=(channels, 10)).astype("float32")
            bias = rng.normal(size=channels).astype("float32")
            layer = builder.emit(relax.op.matmul(x, relax.const(first)))
            layer = builder.emit(relax.op.add(layer, relax.const(bias)))
            layer = builder.emit(relax.op.nn.relu(layer))
            mean = builder.emit(relax.op.mean(layer, [1], keepdims=keepdims))
            result = builder.emit_output(relax.op.matmul(mean, relax.const(last)))
        builder.emit_func_output(result)
    return normalize(builder.get())


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    "tokens, channels, machine, scales",
    [
        (32, 48, "sim", "mul"),
        (20, 16, "sim", "mul"),
        (197, 64, "sim", "pow2"),
        (20, 32, "pynq", "pow2"),
        (40, 64, "1x32", "mul"),
    ],
)
def test_it_is_one_region(
    tokens: int, channels: int, machine: str, scales: str, keepdims: bool
) -> None:
    config, shape = VTAConfig.preset(machine), (1, tokens, 16)
    rng = np.random.default_rng(1)
    samples = [(rng.normal(size=shape).astype("float32"),) for _ in range(3)]
    mod = classifier(tokens, channels, keepdims)
    qmod = quantize(mod, calibration=samples, config=config, scales=scales)
    compiled = compile_module(qmod, config)
    assert len(compiled.programs) == 1
    assert [p.name for p in compiled.placement if p.device == "cpu"] == ["x"]
    wanted = reference_runner(qmod, compiled.programs)(list(samples[0]))
    run = profile(compiled.exe, list(samples[0]), arenas=True)
    checks = compare_outputs(["output0"], run.outputs, wanted)
    checks += compare_stored(run, compiled.programs, wanted)
    assert all(check.equal for check in checks), checks


@pytest.mark.parametrize("tokens, channels", [(8, 32), (32, 24)])
def test_what_fills_no_blocks_is_left_to_the_cpu(tokens: int, channels: int) -> None:
    """Few tokens are rows, and a mean of rows is none of a plane."""
    samples = [(np.random.default_rng(1).normal(size=(1, tokens, 16)).astype("float32"),)]
    qmod = quantize(classifier(tokens, channels, False), calibration=samples)
    reasons = [p.reason for p in compile_module(qmod).placement if p.device == "cpu"]
    assert any(f"sum over the axes [1] of a tensor (1, {tokens}, {channels})" in r for r in reasons)
