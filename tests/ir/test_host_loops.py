"""Loops of the host's operators: intermediates of one fused operator never share bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from small_models import Net
from tvm import relax, tirx

from vta_byoc import pipeline
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import load_model
from vta_byoc.ir.host_loops import NO_ASSERTS, TIR_PIPELINE, lower_host_loops
from vta_byoc.ir.reference import build_reference
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import quantize
from vta_byoc.validation.bit_exact import compare_layers

CONFIG = VTAConfig.preset("sim")


def gate() -> tvm.IRModule:
    """dequantize, sigmoid, quantize, multiply: intermediates of three dtypes."""
    x = relax.Var("x", relax.TensorType((1, 16, 1, 1), "int32"))
    y = relax.Var("y", relax.TensorType((1, 16, 32, 32), "int8"))
    builder = relax.BlockBuilder()
    zero, step = relax.const(np.int32(0)), relax.const(np.float32(0.006))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            value = builder.emit(relax.op.dequantize(x, step, zero))
            value = builder.emit(relax.op.sigmoid(value))
            value = builder.emit(relax.op.quantize(value, step, relax.const(np.int8(0))))
            value = builder.emit(relax.op.astype(value, "int32"))
            wide = builder.emit(relax.op.astype(y, "int32"))
            out = builder.emit_output(relax.op.multiply(wide, value))
        builder.emit_func_output(out)
    return builder.get()


def shared(mod: tvm.IRModule) -> bool:
    """Whether some memory is seen as another dtype than it was allocated with."""
    return '.view("' in mod.script()


def fused(mod: tvm.IRModule) -> tvm.IRModule:
    target = tvm.target.Target({"kind": "llvm"})
    with target:
        mod = relax.get_pipeline("zero")(mod)
    loops = {
        name: function.with_attr("global_symbol", name.name_hint)
        for name, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    return tirx.transform.BindTarget(target.with_host(target))(tvm.IRModule(loops))


def test_no_memory_has_two_dtypes() -> None:
    mod = fused(gate())
    theirs, _host, _device = tvm.tirx.get_tir_pipeline("default")
    assert shared(theirs(mod)) and not shared(lower_host_loops(mod))


def test_it_is_tvms_pipeline_of_this_name() -> None:
    lower, *_ends = tvm.tirx.get_tir_pipeline(TIR_PIPELINE)
    assert lower is lower_host_loops


def test_options_of_the_context_count() -> None:
    seen: list[dict[str, object]] = []

    @tvm.transform.module_pass(opt_level=0)
    def spy(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        seen.append(dict(tvm.transform.PassContext.current().config))
        return mod

    with (
        pytest.MonkeyPatch.context() as patch,
        tvm.transform.PassContext(config={"tirx.disable_vectorize": True}),
    ):
        patch.setattr(tvm.tirx, "get_tir_pipeline", lambda _name: (spy, None, None))
        lower_host_loops(tvm.IRModule())
    assert seen == [{"tirx.disable_vectorize": True, "tirx.disable_storage_rewrite": True}]


@pytest.mark.parametrize("seed", range(3))
def test_a_squeeze_and_excitation_block_is_bit_exact(seed: int, tmp_path: Path) -> None:
    net = Net(data=(1, 16, 32, 32))
    x = net.node("Relu", net.conv("data", 16, 16, name="first"))
    mean = net.node("GlobalAveragePool", x)
    small = net.node("Relu", net.conv(mean, 16, 4, 1, name="reduce"))
    gated = net.node("Sigmoid", net.conv(small, 4, 16, 1, name="expand"))
    out = net.conv(net.node("Mul", x, gated), 16, 8, 1, name="last")
    mod = load_model(net.save(tmp_path / "net.onnx", out))
    rng = np.random.default_rng(seed)
    images = [rng.standard_normal((1, 16, 32, 32)).astype("float32") for _ in range(3)]
    qmod = quantize(mod, calibration=images, config=CONFIG, scales="mul", per_channel=True)
    checks = compare_layers(qmod, compile_module(qmod, CONFIG), images[:1])
    assert all(check.equal for check in checks), [str(c) for c in checks if not c.equal]


def test_the_pipeline_builds_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    build = relax.build

    def spy(*args: object, **options: object) -> object:
        given.append(options["tir_pipeline"])
        return build(*args, **options)

    monkeypatch.setattr(pipeline.relax, "build", spy)
    compile_module(gate())
    assert given == [TIR_PIPELINE]


def test_only_what_we_call_ourselves_goes_without_asserts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    build = relax.build

    def spy(*args: object, **options: object) -> object:
        seen.append(bool(tvm.transform.PassContext.current().config.get(NO_ASSERTS, False)))
        return build(*args, **options)

    monkeypatch.setattr(pipeline.relax, "build", spy)
    build_reference(gate())
    compile_module(gate())
    assert seen == [True, False]
