"""Operands with fewer axes than the result: refused where they are packed by other channels."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.partition import placements
from vta_byoc.pipeline import compile_module, partition_for_vta
from vta_byoc.quantize import quantize
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

CONFIG = VTAConfig()


@pytest.mark.parametrize("shape", [(1, 192), (1, 1, 192)])
def test_a_row_is_added_to_a_row_of_a_batch(shape: tuple[int, ...]) -> None:
    """As steps of an LSTM of torch.export do: (1, 1, 192) and a layer's (1, 192)."""
    rng = np.random.default_rng(0)
    x, y = (relax.Var(n, relax.TensorType((1, 16), "float32")) for n in "xy")
    b = relax.BlockBuilder()
    with b.function("main", [x, y]):
        with b.dataflow():
            weights = (rng.normal(size=(16, 192)).astype("float32") for _ in range(2))
            one, two = (
                b.emit(relax.op.matmul(v, relax.const(w)))
                for v, w in zip((x, y), weights, strict=True)
            )
            one = b.emit(relax.op.reshape(one, (1, 1, 192)))
            two = b.emit(relax.op.reshape(two, shape))
            out = b.emit_output(relax.op.nn.relu(b.emit(relax.op.add(one, two))))
        b.emit_func_output(out)
    samples = [[rng.normal(size=(1, 16)).astype("float32") for _ in "xy"] for _ in range(3)]
    qmod = quantize(b.get(), calibration=samples, config=CONFIG, scales="mul")
    reasons = [row.reason for row in placements(partition_for_vta(qmod, CONFIG))]
    told = [text for text in reasons if "is packed by other channels than the result" in text]
    assert bool(told) == (len(shape) == 2)
    compiled = compile_module(qmod, CONFIG)
    run = profile(compiled.exe, samples[0], arenas=True)
    wanted = reference_runner(qmod, compiled.programs)(samples[0])
    checks = compare_outputs(["output0"], run.outputs, wanted)
    checks += compare_stored(run, compiled.programs, wanted)
    assert all(check.equal for check in checks), checks
