"""Operands with fewer axes than the result, computed on VTA: packed as the result's axes say."""

from __future__ import annotations

import math

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
SHAPES = [
    ((1, 192), (1, 1, 192)),
    ((1, 1, 192), (1, 1, 192)),
    ((5, 40), (1, 5, 40)),
    ((40, 5), (3, 40, 5)),
    ((16, 48), (2, 1, 48)),
    ((24, 1, 1), (1, 24, 4, 5)),
    ((24, 4, 5), (1, 24, 4, 5)),
    ((5, 7), (1, 20, 5, 7)),
    ((1, 7), (20, 7)),
]


@pytest.mark.parametrize("op", [relax.op.add, relax.op.multiply])
@pytest.mark.parametrize("one, two", SHAPES)
def test_both_are_computed_and_joined_on_vta(
    op: object, one: tuple[int, ...], two: tuple[int, ...]
) -> None:
    """Two dense layers, seen in these shapes: the first is what LSTMs of torch.export do."""
    rng = np.random.default_rng(0)
    x, y = (relax.Var(n, relax.TensorType((1, 16), "float32")) for n in "xy")
    b = relax.BlockBuilder()
    with b.function("main", [x, y]):
        with b.dataflow():
            given = []
            for var, shape in ((x, one), (y, two)):
                weight = rng.normal(size=(16, math.prod(shape))).astype("float32")
                layer = b.emit(relax.op.matmul(var, relax.const(weight)))
                given.append(b.emit(relax.op.reshape(layer, shape)))
            assert callable(op)
            out = b.emit_output(relax.op.nn.relu(b.emit(op(*given))))
        b.emit_func_output(out)
    samples = [[rng.normal(size=(1, 16)).astype("float32") for _ in "xy"] for _ in range(3)]
    qmod = quantize(b.get(), calibration=samples, config=CONFIG, scales="mul")
    left = [row.reason for row in placements(partition_for_vta(qmod, CONFIG)) if row.reason]
    assert not any("operands have shapes" in reason for reason in left)
    compiled = compile_module(qmod, CONFIG)
    assert sum(len(p.layers) for p in compiled.programs.values()) >= 3
    run = profile(compiled.exe, samples[0], arenas=True)
    wanted = reference_runner(qmod, compiled.programs)(samples[0])
    checks = compare_outputs(["output0"], run.outputs, wanted)
    checks += compare_stored(run, compiled.programs, wanted)
    assert all(check.equal for check in checks), checks
