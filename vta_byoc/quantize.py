"""Quantization: float Relax, or Relax of a model that came quantized, to the integer dialect."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import tvm
from tvm import relax
from tvm.ir import GenericConst

from vta_byoc import equalize as equalization
from vta_byoc import integer_ops, multiplier_ops, qdq
from vta_byoc import keep_float as float_names
from vta_byoc.bias_correction import correct_biases
from vta_byoc.bindings import with_main
from vta_byoc.calibrate import (
    Progress,
    Sample,
    default_calibration,
    load_calibration,
    tensor_ranges,
)
from vta_byoc.channels_first import channels_first
from vta_byoc.hw.errors import VTAError
from vta_byoc.quantizer import QUANTIZATION, Arithmetic, Quantizer

if TYPE_CHECKING:
    from vta_byoc.hw.config import VTAConfig

__all__ = ["QUANTIZATION", "SCALES", "default_calibration", "load_calibration", "quantize"]

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
    method: str = "minmax",
    percentile: float = 99.99,
    equalize: bool = False,
    bias_correction: bool = False,
    keep_float: Sequence[str] = (),
) -> tvm.IRModule:
    """Quantize a module into the integer dialect.

    Args:
        mod: one straight-line `main` of static shapes (`load_model`): float32, or float operators
            between quantize and dequantize, as models that come quantized are imported. Layers with
            channels last are taken with channels first (`channels_first`).
        calibration: representative samples: arrays, tuples of arrays or dicts input name -> array
            (see `calibrate`). Read once; `equalize` and `bias_correction` read it again and need a
            list. A model that came quantized needs none: operators whose scales it does not state
            stay float then.
        config: the machine. Every machine is int8 x int8 -> int32, so it changes nothing.
        progress: called after each sample with the samples done and their number.
        scales: "pow2" or "mul"; None: "mul" for a model that came quantized, whose scales are kept
            then, "pow2" for a float model. With "pow2", stated scales become the next power of
            two and the weights are quantized again.
        per_channel: quantize the weights of each output channel at a scale of its own.
        method, percentile: how ranges are chosen (`calibrators`).
        equalize: balance the weights of successive layers first (`equalize`).
        bias_correction: correct the mean error of each layer (`bias_correction`).
        keep_float: names or patterns of operators that stay float.

    Returns:
        A module with the same signature. The attribute `vta.quantization` holds JSON:
        `tensors` {name: {scale, amax}}, `accumulators` {layer: {bound, shift}} and `sources`
        {layer: source names that the group absorbed}.

    Raises:
        VTAError: the module, a sample or an option cannot be used, or an accumulator could
            overflow.
    """
    mod = channels_first(mod)
    came_quantized = qdq.is_quantized(mod)
    form = _checked_form(scales, came_quantized)
    if calibration is None and not came_quantized:
        raise VTAError(
            "calibration is missing; a float model is quantized by the ranges that its tensors "
            "have on representative samples; give calibration= (or --calibration)"
        )
    if came_quantized and (equalize or bias_correction):
        raise VTAError(
            "equalize and bias_correction change float weights; this model came quantized; leave "
            "them out, or start from the float model"
        )
    write = functools.partial(
        _written,
        form=form,
        per_channel=per_channel,
        method=method,
        percentile=percentile,
        keep_float=keep_float,
    )
    if calibration is None:
        return write(mod, None, None)
    if equalize or bias_correction:
        calibration = _readable_again(calibration)
    if equalize:
        mod = equalization.equalize(mod, calibration, progress)
    if bias_correction:
        mod = correct_biases(
            mod, lambda each: write(each, calibration, None), calibration, progress
        )
    return write(mod, calibration, progress)


def _written(
    mod: tvm.IRModule,
    calibration: Iterable[Sample] | None,
    progress: Progress | None,
    *,
    form: str,
    per_channel: bool,
    method: str,
    percentile: float,
    keep_float: Sequence[str],
) -> tvm.IRModule:
    """The integer module, with its record."""
    constants: Mapping[GenericConst, qdq.ConstantScale] = {}
    stated: Mapping[relax.Var, float] = {}
    if qdq.is_quantized(mod):
        mod, constants = qdq.resolved(mod)
        if form == "pow2":
            mod, stated = qdq.as_float(mod)
    kept = frozenset(float_names.keep_float(mod, keep_float))
    ranges: Mapping[relax.Var, float] = {}
    if calibration is not None:
        ranges = tensor_ranges(
            mod, calibration, progress, method=method, percentile=percentile, scales=form
        )
    table = integer_ops.OPERATORS if form == "pow2" else multiplier_ops.OPERATORS
    arithmetic = Arithmetic(table, form == "pow2", per_channel)
    quantizer = Quantizer(mod, {**ranges, **stated}, arithmetic, kept, constants)
    result = with_main(mod, quantizer.run())
    return result.with_attr(QUANTIZATION, quantizer.record.to_json())


def _checked_form(scales: str | None, came_quantized: bool) -> str:
    if scales is None:
        return "mul" if came_quantized else "pow2"
    if scales not in SCALES:
        raise VTAError(f'scales "{scales}" is not known; {" and ".join(SCALES)} are; choose one')
    return scales


def _readable_again(calibration: Iterable[Sample]) -> Iterable[Sample]:
    if iter(calibration) is calibration:
        raise VTAError(
            f"calibration is a {type(calibration).__name__}, which can be read once; equalize and "
            "bias_correction read it again; give a list"
        )
    return calibration
