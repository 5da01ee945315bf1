"""What functions of one operand are made of is computed as TVM computes it."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import call
from tvm import relax

from vta_byoc.quantization.ops.curves import CURVES, SIMPLE, evaluate, is_evaluated

OPERANDS = {
    "relax.where": ("bool", "float32", "float32"),
    "relax.astype": ("bool",),
    **{f"relax.logical_{name}": ("bool", "bool") for name in ("and", "or", "xor")},
    "relax.logical_not": ("bool",),
}
"""Of operators of truth values."""
TWO = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power"),
    *("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"),
)
WITHIN = {
    "relax.acosh": (1.0, 4.0),
    **dict.fromkeys(("relax.asin", "relax.acos"), (-1.0, 1.0)),
    "relax.atanh": (-0.9, 0.9),
    **dict.fromkeys(("relax.log", "relax.power"), (0.1, 4.0)),
}
"""Operands, of functions that are not numbers elsewhere."""


def call_of(name: str, args: list[relax.Var]) -> relax.Expr:
    if name == "relax.astype":
        return relax.op.astype(args[0], "float32")
    module = relax.op
    for part in name.removeprefix("relax.").split("."):
        module = getattr(module, part)
    return module(*args)


@pytest.mark.parametrize("name", sorted({*CURVES, *SIMPLE, "relax.astype"}))
def test_an_operator_is_evaluated_as_tvm_computes_it(name: str) -> None:
    single = ("float32",) * (2 if name.removeprefix("relax.") in TWO else 1)
    dtypes = OPERANDS.get(name, single)
    rng = np.random.default_rng(0)
    low, high = WITHIN.get(name, (-3.0, 3.0))
    values = [
        rng.integers(0, 2, 64).astype(bool) if d == "bool" else rng.uniform(low, high, 64)
        for d in dtypes
    ]
    for value in values:
        if value.dtype != bool:
            value[:8] = np.round(2 * value[:8]) / 2  # equal ones, halves and whole numbers
    values = [v if v.dtype == bool else v.astype("float32") for v in values]
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType((64,), d)) for i, d in enumerate(dtypes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit(call_of(name, params))
            out = builder.emit_output(result)
        builder.emit_func_output(out)
    mod = builder.get()
    binding = mod["main"].body.blocks[0].bindings[0]
    assert is_evaluated(binding)
    (got,) = call(mod, *values)
    with np.errstate(all="ignore"):
        exact = [v if v.dtype == bool else v.astype(np.float64) for v in values]
        want = np.asarray(evaluate(binding.value, exact))
    assert (got.dtype == bool) == (want.dtype == bool)
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2e-5, atol=2e-6)


def test_a_cast_to_float_is_one_of_truth_values() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.op.astype(x, "float16")))
        builder.emit_func_output(out)
    assert not is_evaluated(builder.get()["main"].body.blocks[0].bindings[0])
