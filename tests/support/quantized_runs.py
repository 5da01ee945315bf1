"""Pre-quantized models on LLVM beside the runtime they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from small_models import call
from tvm import relax

from vta_byoc.importers.canonicalize.qdq_rules import DEQUANTIZE, QUANTIZE
from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import is_constant, op_name, straight_bindings

FLOAT_FREE = (QUANTIZE, DEQUANTIZE)


def loaded(model: onnx.ModelProto, folder: Path) -> tvm.IRModule:
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    return load_model(path)


def operators(mod: tvm.IRModule) -> list[str]:
    """The operators of `main`, in order."""
    names = [op_name(b.value) for b in straight_bindings(mod["main"])]
    return [name.removeprefix("relax.") for name in names]


def assert_qdq(mod: tvm.IRModule) -> None:
    """Integers are made by quantize and read by dequantize, by nothing else."""
    for binding in straight_bindings(mod["main"]):
        call, name = binding.value, op_name(binding.value)
        args = [a for a in call.args if isinstance(a.ty, relax.TensorType)]
        if name == QUANTIZE:
            assert str(binding.var.ty.dtype) in ("int8", "uint8")
        else:
            assert str(binding.var.ty.dtype) == "float32", binding
        if name == DEQUANTIZE:
            assert str(args[0].ty.dtype) in ("int8", "uint8", "int32")
            assert all(is_constant(arg) for arg in args[1:])
        elif name != QUANTIZE:
            assert all(str(arg.ty.dtype) == "float32" for arg in args), binding


def differences(
    mod: tvm.IRModule, feed: Mapping[str, np.ndarray], expected: Sequence[np.ndarray]
) -> tuple[int, float]:
    """Largest difference in units of the last place, and the share of values that are equal."""
    results = call(mod, *feed.values())
    assert [r.shape for r in results] == [e.shape for e in expected]
    assert [r.dtype for r in results] == [e.dtype for e in expected]
    delta = [
        np.abs(got.astype("int64") - want.astype("int64")).reshape(-1)
        for got, want in zip(results, expected, strict=True)
    ]
    every = np.concatenate(delta)
    return int(every.max()), float((every == 0).mean())


def assert_close(mod: tvm.IRModule, feed: Mapping[str, Any], expected: Sequence[Any]) -> None:
    """At most one unit apart, and nearly always equal."""
    largest, equal = differences(mod, feed, expected)
    assert largest <= 1 and equal >= 0.998, (largest, equal)
