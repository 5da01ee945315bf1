"""How near the outputs of a quantized model are to those of the float model that it was made of."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import tvm

from vta_byoc.ir.float_modules import computes_floats, computes_integers
from vta_byoc.ir.reference import ReferenceMachine
from vta_byoc.runtime.execute import Inputs, run_vm
from vta_byoc.validation.noise import decibels


def output_sqnr(
    mod: tvm.IRModule, inputs: Inputs, outputs: Mapping[str, np.ndarray]
) -> dict[str, float] | None:
    """The SQNR of each float output in dB: the model's signal to what quantization adds.

    Args:
        mod: the model before :func:`vta_byoc.quantize`.
        inputs: of one run, as :func:`vta_byoc.profile` takes them.
        outputs: what the quantized model gave for them, by name, in the model's order.

    Returns:
        Name -> dB of the finite values: infinite for equal outputs, NaN where the float model gives
        zeros only, and minus infinity where other values are finite than in the float model. None
        where `mod` is no float model.
    """
    if not is_float_model(mod):
        return None
    wanted = run_vm(ReferenceMachine(mod, floats=1).for_next_run(), inputs)
    found = {}
    for (name, got), want in zip(outputs.items(), wanted, strict=True):
        if np.issubdtype(want.dtype, np.floating):
            found[name] = _sqnr(got, want)
    return found


def is_float_model(mod: tvm.IRModule) -> bool:
    """Whether a module is a model that nobody has quantized, and that computes something."""
    return computes_floats(mod) and not computes_integers(mod)


def _sqnr(got: np.ndarray, want: np.ndarray) -> float:
    finite = np.isfinite(want)
    if not np.array_equal(finite, np.isfinite(got)):
        return -math.inf
    signal = want[finite].astype("float64")
    error = got[finite] - signal
    return decibels(float((signal**2).sum()), float((error**2).sum()))
