"""Guards of softmax against rows that are hidden: which belong to attention, and which do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from attention_cases import quantized
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import op_name, straight_bindings

SIM = VTAConfig.preset("sim")
OP = relax.op


def guarded(
    form: str, number: float = -math.inf, filled: float = 0.0, axis: int = -1
) -> tvm.IRModule:
    """Attention with a mask of run time and a guard.

    `form`: "scores" compares them, "shares" asks which are NaN. `number`: what is compared with;
    `filled`: what stands in hidden rows; `axis`: of the maximum.
    """
    builder = relax.BlockBuilder()
    kind = relax.TensorType((1, 2, 16, 16), "float32")
    q, k, v = (relax.Var(name, kind) for name in "qkv")
    mask = relax.Var("mask", relax.TensorType((1, 1, 16, 16), "bool"))

    def emit(value: relax.Expr) -> relax.Var:
        return builder.emit(value)

    with builder.function("main", [q, k, v, mask]):
        with builder.dataflow():
            far = emit(OP.where(mask, relax.const(np.float32(0)), relax.const(-np.float32("inf"))))
            scores = emit(OP.add(emit(OP.matmul(q, k)), far))
            shares = emit(OP.nn.softmax(scores, -1))
            fill = relax.const(np.float32(filled))
            if form == "shares":
                kept = emit(OP.where(emit(OP.isnan(shares)), fill, shares))
            else:
                same = emit(OP.equal(scores, relax.const(np.float32(number))))
                seen = emit(OP.astype(emit(OP.logical_not(same)), "int8"))
                most = emit(OP.max(seen, axis, True))
                hidden = emit(OP.logical_not(emit(OP.astype(most, "bool"))))
                kept = emit(OP.where(hidden, emit(OP.full_like(shares, fill)), shares))
            result = builder.emit_output(OP.matmul(kept, v))
        builder.emit_func_output(result)
    return builder.get()


def has_softmax(mod: tvm.IRModule) -> bool:
    found = straight_bindings(quantized(mod, SIM, "mul")["main"])
    return any(op_name(binding.value) == "relax.nn.softmax" for binding in found)


@pytest.mark.parametrize("form", ["scores", "shares"])
def test_a_guard_is_a_part_of_attention(form: str) -> None:
    assert not has_softmax(guarded(form))


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ("scores", {"number": 0.0}),
        ("scores", {"filled": 1.0}),
        ("scores", {"axis": -2}),
        ("shares", {"filled": 1.0}),
    ],
)
def test_what_is_no_guard_keeps_the_softmax(form: str, change: dict[str, float]) -> None:
    assert has_softmax(guarded(form, **change))
