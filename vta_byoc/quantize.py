"""Quantization: float Relax, or Relax of a model that came quantized, to the integer dialect."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import tvm
from tvm import relax
from tvm.ir import GenericConst

from vta_byoc.base.boundary import boundary
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import with_main
from vta_byoc.ir.quantization_record import CAME_INTEGER, EMPTY_RECORD, FORMS, QUANTIZATION
from vta_byoc.partitioning.matcher import estimated_cycles
from vta_byoc.quantization import equalize as equalization
from vta_byoc.quantization import keep_float as float_names
from vta_byoc.quantization import qdq
from vta_byoc.quantization.bias_correction import correct_biases
from vta_byoc.quantization.calibration.samples import (
    Progress,
    Sample,
    default_calibration,
    load_calibration,
    tensor_ranges,
)
from vta_byoc.quantization.channels_first import channels_first
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.ops import multiplier_table as multiplier_ops
from vta_byoc.quantization.ops import table as integer_ops
from vta_byoc.quantization.rewriter import Arithmetic, Quantizer

__all__ = ["QUANTIZATION", "SCALES", "default_calibration", "load_calibration", "quantize"]

SCALES = ("pow2", "mul")
"""Forms of scales: powers of two, rescaled by shifts; any, rescaled by multiplier and shift."""


@boundary("quantized", "the module")
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
    rescale: str | None = None,
) -> tvm.IRModule:
    """Quantize a module into the integer dialect.

    Args:
        mod: one straight-line `main` of static shapes (`load_model`): float32, or float operators
            between quantize and dequantize, as models that come quantized are imported. Layers with
            channels last are taken with channels first (`channels_first`). A module that came in
            integers of its own (`relay.quantize`) is kept as it is, and samples are not read.
        calibration: representative samples: arrays, tuples of arrays or dicts input name -> array
            (see `calibrate`). Read once; `equalize` and `bias_correction` read it again and need a
            list. A model that came quantized needs none: operators whose scales it does not state
            stay float then.
        config: the machine; the default preset when None. Without MUL, layers at any scales get
            their factor in the form that costs it the fewest cycles.
        progress: called after each sample with the samples done and their number.
        scales: "pow2" or "mul"; None: "mul" for a model that came quantized, whose scales are kept
            then, "pow2" for a float model. With "pow2", stated scales become the next power of
            two and the weights are quantized again.
        per_channel: quantize the weights of each output channel at a scale of its own.
        method, percentile: how ranges are chosen (`range_estimators`).
        equalize: balance the weights of successive layers first (`equalize`).
        bias_correction: correct the mean error of each layer (`bias_correction`).
        keep_float: names or patterns of operators that stay float.
        rescale: how layers at scales "mul" get the factor of their result: "multiply", "digits"
            (in weights of two int8 digits), "shifts" (sums of shifts of the accumulator) or
            "approximate" (in weights of one digit: cheapest, beyond the promise of one step). A
            layer that the form cannot hold takes another exact one. None: "multiply" where the
            machine has MUL, else the cheaper of "digits" and "shifts", layer by layer.

    Returns:
        A module with the same signature. The attribute `vta.quantization` holds JSON:
        `tensors` {name: {scale, amax}}, `accumulators` {layer: {bound, shift}} and `sources`
        {layer: source names that the group absorbed}; `factors` {layer: {form, error}} where the
        factor is not multiplied, the error in steps of the result at most.

    Raises:
        VTAError: the module, a sample or an option cannot be used, or an accumulator could
            overflow.
    """
    mod = channels_first(mod)
    if mod.get_attr(CAME_INTEGER) is not None:
        _check_nothing_chosen(
            scales=scales,
            per_channel=per_channel,
            equalize=equalize,
            bias_correction=bias_correction,
            keep_float=keep_float,
            rescale=rescale,
        )
        return mod.with_attr(QUANTIZATION, EMPTY_RECORD)
    came_quantized = qdq.is_quantized(mod)
    form = _checked_form(scales, came_quantized)
    _check_rescale(rescale, form)
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
        rescale=rescale,
        config=config or VTAConfig(),
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
    rescale: str | None,
    config: VTAConfig,
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
    arithmetic = Arithmetic(
        table,
        form == "pow2",
        per_channel,
        config.capabilities.mul,
        rescale,
        lambda write, shape: estimate(write, shape, config),
    )
    quantizer = Quantizer(mod, {**ranges, **stated}, arithmetic, kept, constants)
    result = with_main(mod, quantizer.run())
    return result.with_attr(QUANTIZATION, quantizer.record.to_json())


def _check_nothing_chosen(**options: object) -> None:
    """Refuse options for a module whose integers are its own."""
    given = [name for name, value in options.items() if value]
    if given:
        raise VTAError(
            f"{given[0]} chooses how a model is quantized; this one came in integers of its own, "
            "which are kept as they are; leave it out, or start from the float model"
        )


def _checked_form(scales: str | None, came_quantized: bool) -> str:
    if scales is None:
        return "mul" if came_quantized else "pow2"
    if scales not in SCALES:
        raise VTAError(f'scales "{scales}" is not known; {" and ".join(SCALES)} are; choose one')
    return scales


def _check_rescale(rescale: str | None, form: str) -> None:
    if rescale is None:
        return
    if rescale not in FORMS:
        raise VTAError(f'rescale "{rescale}" is not known; {", ".join(FORMS)} are; choose one')
    if form == "pow2":
        raise VTAError(
            f'rescale "{rescale}" with scales "pow2", which are rescaled by shifts; use scales '
            '"mul" or leave rescale out'
        )


def _readable_again(calibration: Iterable[Sample]) -> Iterable[Sample]:
    if iter(calibration) is calibration:
        raise VTAError(
            f"calibration is a {type(calibration).__name__}, which can be read once; equalize and "
            "bias_correction read it again; give a list"
        )
    return calibration


def estimate(
    write: Callable[[DialectWriter, relax.Expr], relax.Var],
    shape: tuple[int, ...],
    config: VTAConfig,
) -> float | None:
    """Cycles that the compiler expects of what `write` writes on int8 data of `shape`; None where
    the partition table leaves any of it to the CPU."""
    data = relax.Var("data", relax.TensorType(shape, "int8"))
    writer = DialectWriter()
    writer.names.fresh("data")
    out = write(writer, data)
    source = relax.Function([data], data, ret_ty=data.ty)
    mod = tvm.IRModule({"main": writer.finish(source, out)})
    return estimated_cycles(relax.transform.Normalize()(mod)["main"], config)
