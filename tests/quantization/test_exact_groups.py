"""Groups of models that came quantized: exact to the bit, or with the reason why not."""

from __future__ import annotations

from pathlib import Path

import dialect_numpy
import numpy as np
import pytest
import tvm
from quantized_graphs import QuantizedGraph
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.quantization_record import CAME_FROM, exact_reasons
from vta_byoc.quantization.runtime_arithmetic import ARITHMETICS
from vta_byoc.quantization.scales import Scale
from vta_byoc.quantize import quantize

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tflite"
SIM = VTAConfig.preset("sim")


def recorded(name: str) -> tuple[tvm.IRModule, np.ndarray, np.ndarray]:
    """A model of the fixtures, an input, and what TFLite made of it."""
    path = FIXTURES / f"{name}.tflite"
    with np.load(path.with_suffix(".npz")) as arrays:
        return load_model(path), arrays["x0"], arrays["y0"]


def scales(mod: tvm.IRModule, kind: str) -> list[Scale]:
    """Of all operators of a kind, as the model states them."""
    calls = [b.value for b in straight_bindings(mod["main"]) if op_name(b.value) == kind]
    numbers = [[arg.value.numpy().item() for arg in call.args[1:]] for call in calls]
    return [Scale(float(step), int(zero)) for step, zero in numbers]


@pytest.mark.parametrize("name", ("dense", "net", "conv_without_bias"))
def test_layers_are_the_runtimes_and_say_so(name: str) -> None:
    mod, data, wanted = recorded(name)
    found = quantize(mod, config=SIM, exact_rescale=True)
    assert set(exact_reasons(found).values()) == {""}
    np.testing.assert_array_equal(dialect_numpy.run(found, data)["result"], wanted)


def test_a_mean_is_the_runtimes_whatever_its_zero_point() -> None:
    mod, data, _ = recorded("mean")
    source, target = scales(mod, "relax.dequantize")[0], scales(mod, "relax.quantize")[0]
    assert source.zero and target.zero
    sums = (data.astype(np.int64) - source.zero).sum(axis=(1, 2))
    found = quantize(mod, config=SIM, exact_rescale=True)
    assert exact_reasons(found) == {"Identity": ""}
    wanted = np.clip(ARITHMETICS["tflite"].mean(source, target, 64)(sums), -128, 127)
    np.testing.assert_array_equal(dialect_numpy.run(found, data)["result"], wanted)


@pytest.mark.parametrize(("step", "why"), ((0.0137, ""), (0.0625, "no steps within int32")))
def test_a_change_of_scale_that_halves_to_even_has_no_steps(step: float, why: str) -> None:
    """ONNX Runtime rounds 0.5 to 0 and 1.5 to 2, which no shift does."""
    g = QuantizedGraph((1, 16, 3, 3), dtype="int8")
    g.scales = [(relax.const(np.float32(0.03125)), relax.const(np.int8(5)))]
    value = g.op("dequantize", g.params[0], *g.scales[0], axis=0)
    scale = relax.const(np.float32(step)), relax.const(np.int8(-9))
    result = g.op("quantize", g.op("nn.relu", value), *scale, axis=0, out_dtype="int8")
    found = quantize(
        g.module(result).with_attr(CAME_FROM, "onnxruntime"), config=SIM, exact_rescale=True
    )
    reasons = list(exact_reasons(found).values())
    assert len(reasons) == 1 and (why in reasons[0] if why else not reasons[0])
