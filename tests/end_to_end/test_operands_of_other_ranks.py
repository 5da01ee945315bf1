"""Operands with fewer axes than the result, computed on VTA: packed as the result's axes say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from layer_runs import equal_run
from operators_llvm import OPERATORS
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.quantize import quantize

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
OPS = (relax.op.add, relax.op.multiply)
CASES = [(OPS[1], *SHAPES[0]), *((OPS[i % 2], *pair) for i, pair in enumerate(SHAPES))]
"""Every pair of shapes with one of the operators, the first with both."""


@pytest.mark.parametrize("op, one, two", CASES)
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
    with OPERATORS.calibrating():
        qmod = quantize(b.get(), calibration=samples, config=CONFIG, scales="mul")
    run = equal_run(qmod, CONFIG, samples[0])
    left = [row.reason for row in run.placement.values() if row.reason]
    assert not any("operands have shapes" in reason for reason in left)
    assert sum(len(p.layers) for p in run.programs.values()) >= 3
