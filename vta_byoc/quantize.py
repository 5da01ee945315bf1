"""Quantization: float Relax, or Relax of a model that came quantized, to the integer dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import tvm
from tvm import relax
from tvm.ir import GenericConst

from vta_byoc import integer_ops, multiplier_ops, qdq
from vta_byoc.bindings import with_main
from vta_byoc.calibrate import (
    Progress,
    Sample,
    default_calibration,
    load_calibration,
    tensor_ranges,
)
from vta_byoc.hw.errors import VTAError
from vta_byoc.quantizer import Arithmetic, Quantizer

if TYPE_CHECKING:
    from vta_byoc.hw.config import VTAConfig

__all__ = ["QUANTIZATION", "SCALES", "default_calibration", "load_calibration", "quantize"]

QUANTIZATION = "vta.quantization"
"""Module attribute: JSON of `quantizer.Record`."""
SCALES = ("pow2", "mul")
"""Forms of scales: powers of two, rescaled by shifts; any, rescaled by multiplier and shift."""


def quantize(
    mod: tvm.IRModule,
    *,
    calibration: Iterable[Sample] | None = None,
    config: VTAConfig | None = None,
    progress: Progress | None = None,
    scales: str | None = None,
    per_channel: bool = False,
) -> tvm.IRModule:
    """Quantize a module into the integer dialect.

    Args:
        mod: one straight-line `main` of static shapes (`load_model`): float32, or float operators
            between quantize and dequantize, as models that come quantized are imported.
        calibration: representative samples, read once: arrays, tuples of arrays or dicts input
            name -> array (see `calibrate`). A model that came quantized needs none: operators
            whose scales it does not state stay float then.
        config: the machine. Every machine is int8 x int8 -> int32, so it changes nothing.
        progress: called after each sample with the samples done and their number.
        scales: "pow2" or "mul"; None: "mul" for a model that came quantized, whose scales are kept
            then, "pow2" for a float model. With "pow2", stated scales become the next power of
            two and the weights are quantized again.
        per_channel: quantize the weights of each output channel at a scale of its own.

    Returns:
        A module with the same signature. The attribute `vta.quantization` holds JSON:
        `tensors` {name: {scale, amax}}, `accumulators` {layer: {bound, shift}} and `sources`
        {layer: source names that the group absorbed}.

    Raises:
        VTAError: the module or a sample cannot be used, or an accumulator could overflow.
    """
    came_quantized = qdq.is_quantized(mod)
    form = _checked_form(scales, came_quantized)
    if calibration is None and not came_quantized:
        raise VTAError(
            "calibration is missing; a float model is quantized by the ranges that its tensors "
            "have on representative samples; give calibration= (or --calibration)"
        )
    constants: Mapping[GenericConst, qdq.ConstantScale] = {}
    stated: Mapping[relax.Var, float] = {}
    if came_quantized:
        mod, constants = qdq.resolved(mod)
    if came_quantized and form == "pow2":
        mod, stated = qdq.as_float(mod)
    ranges = {} if calibration is None else tensor_ranges(mod, calibration, progress)
    table = integer_ops.OPERATORS if form == "pow2" else multiplier_ops.OPERATORS
    arithmetic = Arithmetic(table, form == "pow2", per_channel)
    quantizer = Quantizer(mod, {**ranges, **stated}, arithmetic, frozenset(), constants)
    result = with_main(mod, quantizer.run())
    return result.with_attr(QUANTIZATION, quantizer.record.to_json())


def _checked_form(scales: str | None, came_quantized: bool) -> str:
    if scales is None:
        return "mul" if came_quantized else "pow2"
    if scales not in SCALES:
        raise VTAError(f'scales "{scales}" is not known; {" and ".join(SCALES)} are; choose one')
    return scales
