"""A tensor that differs from itself: where NaN is."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from small_models import call
from tvm import relax

from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import op_name, straight_bindings


def module(dtype: str, *, itself: bool) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((2, 3), dtype)) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.not_equal(x, x if itself else y))
        builder.emit_func_output(result)
    return builder.get()


def operators(mod: tvm.IRModule) -> list[str]:
    return [op_name(binding.value) for binding in straight_bindings(mod["main"])]


def test_nan_is_found() -> None:
    mod = normalize(module("float32", itself=True))
    assert operators(mod) == ["relax.isnan"]
    x = np.array([[1, np.nan, np.inf], [np.nan, 0, -1]], "float32")
    np.testing.assert_array_equal(call(mod, x, x)[0], x != x)


@pytest.mark.parametrize("dtype, itself", [("float32", False), ("int8", True)])
def test_other_comparisons_stay(dtype: str, itself: bool) -> None:
    assert operators(normalize(module(dtype, itself=itself))) == ["relax.not_equal"]
