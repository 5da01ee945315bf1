"""Whole networks with `exact_rescale`: the integers of the runtime they come from, on VTA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from quantized_runs import loaded
from small_models import plain_machine

from models.quantized_ops import OP_CASES, SCHEMES, qdq, session
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import load_model
from vta_byoc.ir.quantization_record import exact_reasons
from vta_byoc.partitioning.placement import VTA
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import quantize
from vta_byoc.runtime.execute import profile

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "tflite"
SIM = VTAConfig.preset("sim")
EXACT_OPERATORS = ("conv 3x3", "conv depthwise", "gemm", "add", "global average pool", "concat")


def results(mod: tvm.IRModule, feed: list[np.ndarray]) -> list[np.ndarray]:
    """On LLVM, and the same on the simulator."""
    machine = plain_machine(mod)
    out = machine["main"](*(tvm.runtime.tensor(x) for x in feed))
    found = [out.numpy()] if hasattr(out, "numpy") else [item.numpy() for item in out]
    compiled = compile_module(mod, SIM)
    simulated = profile(compiled.exe, feed).outputs
    for ours, theirs in zip(simulated, found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return found


@pytest.mark.parametrize("name", ["mobilenet_v2_like", "unet_like"])
def test_a_tflite_network_is_the_interpreters_to_the_bit(name: str) -> None:
    """Its reference kernels; every layer is noted as exact and runs on VTA."""
    litert: Any = pytest.importorskip("ai_edge_litert.interpreter")
    path = FIXTURES / f"network_{name}.tflite"
    mod = quantize(load_model(path), config=SIM, exact_rescale=True)
    reasons = exact_reasons(mod)
    assert reasons and not any(reasons.values())
    with np.load(path.with_suffix(".npz")) as arrays:
        image = arrays["x0"][:1]
    interpreter = litert.Interpreter(
        model_path=str(path),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    wanted = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_array_equal(results(mod, [image])[0], wanted)


def test_layers_say_that_they_are_exact_where_they_are_placed() -> None:
    mod = quantize(load_model(FIXTURES / "net.tflite"), config=SIM, exact_rescale=True)
    compiled = compile_module(mod, SIM)
    notes = {row.name: row.note for row in compiled.placement if row.device == VTA}
    exact = [name for name, why in exact_reasons(mod).items() if not why and name in notes]
    assert exact and all("its runtime's to the bit" in notes[name] for name in exact)


@pytest.mark.parametrize("case", [c for c in OP_CASES if c.name in EXACT_OPERATORS], ids=str)
def test_onnx_operators_are_onnxruntimes_to_the_bit(case: Any, tmp_path: Path) -> None:
    """int8 per tensor, integers that are drawn; what is noted as exact is equal."""
    built = qdq(case, SCHEMES[0])
    mod = quantize(loaded(built.model, tmp_path), config=SIM, exact_rescale=True)
    assert not any(exact_reasons(mod).values())
    rng = np.random.default_rng(3)
    feed = {
        name: rng.integers(-128, 128, value.shape).astype(value.dtype)
        for name, value in built.feed.items()
    }
    wanted = session(built.model).run(None, feed)
    for ours, theirs in zip(results(mod, list(feed.values())), wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
