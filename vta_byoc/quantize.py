"""Quantization: float Relax, or Relax of a model that came quantized, to the integer dialect."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import GenericConst

from vta_byoc.base.boundary import boundary
from vta_byoc.base.choices import CHEAP, FUNCTION_WORTH, NONE, RESCALES, SCALES, ZERO_POINTS
from vta_byoc.base.progress import Progress, shown
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.plugins import load_installed
from vta_byoc.hw.sim.target import scope_config
from vta_byoc.ir.bindings import op_name, straight_bindings, with_main
from vta_byoc.ir.quantization_record import (
    CAME_FROM,
    CAME_INTEGER,
    EMPTY_RECORD,
    QUANTIZATION,
    with_group_factors,
)
from vta_byoc.ir.records import as_record
from vta_byoc.ir.selection import Selectors, as_selectors
from vta_byoc.partitioning.attention import attention_refusal
from vta_byoc.partitioning.matcher import estimated_cycles
from vta_byoc.partitioning.softmax import softmax_refusal
from vta_byoc.quantization import equalize as equalization
from vta_byoc.quantization import keep_float as float_names
from vta_byoc.quantization import qdq
from vta_byoc.quantization.bias_correction import correct_biases
from vta_byoc.quantization.calibration.samples import Sample, default_calibration, load_calibration
from vta_byoc.quantization.calibration.statistics import TensorStatistics, tensor_statistics
from vta_byoc.quantization.channels_first import channels_first
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.group_scales import factors_of_groups, normed_layers, with_factors
from vta_byoc.quantization.ops.attention import SOFTMAX
from vta_byoc.quantization.policy import POLICIES, Policy
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.resizing import resizes_as_layers
from vta_byoc.quantization.rewriter import rewritten
from vta_byoc.quantization.runtime_arithmetic import ARITHMETICS, Arithmetic
from vta_byoc.quantization.tied_layers import share_ranges

LOG = logging.getLogger(__name__)
__all__ = ["QUANTIZATION", "SCALES", "default_calibration", "load_calibration", "quantize"]

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
    keep_float: Selectors = (),
    float_tail: bool = True,
    rescale: str | None = None,
    function_tolerance: int = 1,
    function_worth: float = FUNCTION_WORTH,
    exact_rescale: bool = False,
    zero_points: str | None = None,
    calibration_workers: int | None = None,
    calibration_scheduler: str | None = None,
) -> tvm.IRModule:
    """Quantize a module into the integer dialect; `docs/quantization.md` says when an option helps.

    Args:
        mod: a module of `load_model`: float32, or one that came quantized. One that came in
            integers of its own (`relay.quantize`) is kept as it is.
        calibration: representative samples (`checked_samples`), read once; a list where `equalize`
            or `bias_correction` reads them again; kept in memory where groups are normalized behind
            a convolution (docs/norms.md). Only a model that came quantized needs none: operators
            whose scales it does not state stay float then.
        config: the machine; the default preset when None.
        progress: called after each sample with the samples done and their number; when None a
            terminal and a notebook show a bar.
        scales: "pow2", "mul", or None: "mul" for a model that came quantized, else "pow2".
        per_channel: whether the weights of each output channel have a scale of their own.
        method: how ranges are chosen (`range_estimators`).
        percentile: of the method "percentile", in percent.
        equalize: whether the weights of successive layers are balanced first.
        bias_correction: whether the mean error of each layer is corrected.
        keep_float: selectors of operators that stay float: names, patterns, ranges, kinds
            (`vta_byoc.ir.selection`).
        float_tail: whether operators that only results of the model follow stay float too where
            int8 would hide what they read (`quantization.float_tail`); never of a model that came
            quantized.
        rescale: how layers at scales "mul" get their factor, one of `base.choices.RESCALES` where
            a layer can have it; None: the exact one that costs least.
        function_tolerance: the largest error of a function of one operand (sigmoid, SiLU, GELU),
            in steps of its result; 0: exact.
        function_worth: cycles a vector that half of the noise of such a result is worth; 0: the
            program of the fewest cycles is taken.
        exact_rescale: whether the integers of a quantized TFLite or ONNX model are its runtime's
            to the bit, where the machine has MUL and int32 holds it; `vta.quantization` says of
            each layer why not ("exact").
        zero_points: which tensors get a zero point at scales "mul": "cheap", those that use more of
            int8 with one and whose readers take it at little cost; "all", also beside padding,
            where it costs a bias for each position; "none"; None: "cheap", and none at "pow2".
            Scales that the model states are kept.
        calibration_workers: processes of this computer that run the samples in parts; the module
            is the same, bit for bit. All samples are in memory then.
        calibration_scheduler: the address of a Dask scheduler whose workers do.

    Returns:
        A module with the same signature; its `vta.quantization` is a `QuantizationRecord` as JSON.

    Raises:
        VTAError: what is given cannot be used, or an accumulator could overflow.
    """
    mod = channels_first(mod)
    load_installed()
    if mod.get_attr(CAME_INTEGER) is not None:
        chosen: dict[str, object] = {"keep_float": keep_float, "exact_rescale": exact_rescale}
        chosen |= {"rescale": rescale, "equalize": equalize, "per_channel": per_channel}
        chosen |= {"scales": scales, "bias_correction": bias_correction, "zero_points": zero_points}
        _check_nothing_chosen(chosen)
        return mod.with_attr(QUANTIZATION, as_record(EMPTY_RECORD))
    machine = config or scope_config()
    _check_functions(function_tolerance, function_worth)
    policy = _policy(scales, per_channel, rescale, machine, qdq.is_quantized(mod))
    policy = dataclasses.replace(
        _asking(policy, machine),
        tolerance=function_tolerance,
        worth=function_worth,
        zero_points=_checked_zero_points(zero_points, policy),
        arithmetic=_arithmetic(mod, policy) if exact_rescale else None,
    )
    beside = (calibration_workers, calibration_scheduler)
    options = _Options(policy, method, percentile, as_selectors(keep_float), float_tail, *beside)
    if not qdq.is_quantized(mod):
        mod = resizes_as_layers(mod)
    _check_samples(mod, calibration, reads_again=equalize or bias_correction)
    with shown(progress, "calibrating") as told:
        return _quantized(mod, calibration, options, told, equalize, bias_correction)


def _asking(policy: Policy, machine: VTAConfig) -> Policy:
    """``policy`` that asks the machine which attention and which softmax it takes."""
    return dataclasses.replace(
        policy,
        attention=lambda shape, numbers: attention_refusal(
            dataclasses.astuple(shape)[:-1], numbers, machine, shape.hiding
        ),
        softmax=lambda shape, axis, numbers: softmax_refusal(shape, axis, numbers, machine),
    )


def quantized_alike(mod: tvm.IRModule, config: VTAConfig) -> Hashable:
    """Equal for two machines for which `quantize`, without options, gives the same module.

    A float model is told apart by MUL alone, one with a softmax also by what fits the machine; of
    one that came quantized a layer may take the form that costs the machine least.
    """
    kinds = {op_name(binding.value) for binding in straight_bindings(mod["main"])}
    whole = qdq.is_quantized(mod) or (config.capabilities.mul and SOFTMAX in kinds)
    return config if whole else config.capabilities.mul


def _quantized(
    mod: tvm.IRModule,
    calibration: Iterable[Sample] | None,
    options: _Options,
    progress: Progress | None,
    equalize: bool,
    bias_correction: bool,
) -> tvm.IRModule:
    """The integer module of a float or quantized one; options as of :func:`quantize`."""
    if calibration is not None and equalize:
        mod = equalization.equalize(mod, calibration, progress)
    factors: Mapping[str, Sequence[float]] = {}
    if calibration is not None and options.policy.multiplies and normed_layers(mod["main"]):
        calibration = list(calibration)
        per_channel = options.policy.per_channel
        factors = factors_of_groups(mod, calibration, progress, per_channel=per_channel)
        mod = with_factors(mod, factors)
    if calibration is not None and bias_correction:
        write = functools.partial(_written, calibration=calibration, options=options)
        mod = correct_biases(mod, write, calibration, progress)
    result = _written(mod, calibration, options, progress)
    return with_group_factors(result, factors) if factors else result


@dataclass(frozen=True)
class _Options:
    """How a module is quantized; see `quantize`."""

    policy: Policy
    method: str
    percentile: float
    keep_float: tuple[str, ...]
    float_tail: bool
    workers: int | None = None
    scheduler: str | None = None


def _written(
    mod: tvm.IRModule,
    calibration: Iterable[Sample] | None,
    options: _Options,
    progress: Progress | None = None,
) -> tvm.IRModule:
    """The integer module, with its record."""
    policy = options.policy
    constants: Mapping[GenericConst, qdq.ConstantScale] = {}
    stated: Mapping[relax.Var, float] = {}
    tail = options.float_tail and not qdq.is_quantized(mod)
    if qdq.is_quantized(mod):
        mod, constants = qdq.resolved(mod)
        if not policy.keeps_stated:
            mod, stated = qdq.as_float(mod)
            constants = {}
    kept = frozenset(float_names.keep_float(mod, options.keep_float))
    seen: Mapping[relax.Var, TensorStatistics] = {}
    if calibration is not None:
        method, percentile = options.method, options.percentile
        seen = tensor_statistics(
            mod,
            calibration,
            progress,
            method=method,
            percentile=percentile,
            scales=policy.name,
            workers=options.workers,
            scheduler=options.scheduler,
        )
    ranges = {var: each.amax for var, each in seen.items()} | dict(stated)
    intervals = {var: each.interval for var, each in seen.items() if math.isfinite(each.amax)}
    if policy.has_zero_points:
        share_ranges(mod, ranges, intervals)
    quantizer = Quantizer(mod, ranges, policy, kept, constants, intervals)
    result = with_main(mod, rewritten(quantizer, tail=tail))
    LOG.info("quantized: scales %s, layers: %d", policy.name, len(quantizer.record.accumulators))
    return result.with_attr(QUANTIZATION, as_record(quantizer.record.to_json()))


def _policy(
    scales: str | None,
    per_channel: bool,
    rescale: str | None,
    config: VTAConfig,
    came_quantized: bool,
) -> Policy:
    form = _checked_form(scales, came_quantized)
    _check_rescale(rescale, form)
    return POLICIES[form](
        per_channel,
        config.capabilities.mul,
        rescale,
        lambda write, shape: estimate(write, shape, config),
    )


def _arithmetic(mod: tvm.IRModule, policy: Policy) -> Arithmetic:
    """The arithmetic of the runtime that a module came from."""
    attribute = mod.attrs.get(CAME_FROM) if mod.attrs is not None else None
    source = None if attribute is None else str(attribute)
    if source is None or not policy.keeps_stated:
        raise VTAError(
            f"exact_rescale reproduces the integers of {' and '.join(ARITHMETICS)}, at the scales "
            "that a file states; this module came from no quantized .tflite or .onnx file, or "
            f'scales are "{policy.name}"; load such a file and leave scales out, or leave '
            "exact_rescale out"
        )
    return ARITHMETICS[source]


def _check_functions(tolerance: int, worth: float) -> None:
    if tolerance < 0:
        raise VTAError(
            f"function_tolerance is {tolerance} steps; 0 or more are taken; 0 asks for exact "
            "results"
        )
    if not 0 <= worth < math.inf:
        raise VTAError(
            f"function_worth is {worth:g} cycles a vector; finite numbers from 0 on are taken; 0 "
            f"asks for the fewest cycles, {FUNCTION_WORTH:g} is the default"
        )


def _check_samples(
    mod: tvm.IRModule, calibration: Iterable[Sample] | None, reads_again: bool
) -> None:
    """Whether there are samples where they are needed, and can be read as often."""
    came_quantized = qdq.is_quantized(mod)
    if calibration is None and not came_quantized:
        raise VTAError(
            "calibration is missing; a float model is quantized by the ranges that its tensors "
            "have on representative samples; give calibration= (or --calibration)"
        )
    if came_quantized and reads_again:
        raise VTAError(
            "equalize and bias_correction change float weights; this model came quantized; leave "
            "them out, or start from the float model"
        )
    if reads_again and iter(calibration or ()) is calibration:
        raise VTAError(
            f"calibration is a {type(calibration).__name__}, which can be read once; equalize and "
            "bias_correction read it again; give a list"
        )


def _check_nothing_chosen(options: Mapping[str, object]) -> None:
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


def _checked_zero_points(zero_points: str | None, policy: Policy) -> str:
    if zero_points is None:
        return CHEAP if policy.has_zero_points else NONE
    if zero_points not in ZERO_POINTS:
        raise VTAError(
            f'zero_points "{zero_points}" is not known; {", ".join(ZERO_POINTS)} are; choose one'
        )
    if zero_points != NONE and not policy.has_zero_points:
        raise VTAError(
            f'zero_points "{zero_points}" with scales "{policy.name}", which has none; use '
            'scales "mul" or leave zero_points out'
        )
    return zero_points


def _check_rescale(rescale: str | None, form: str) -> None:
    if rescale is None:
        return
    if rescale not in RESCALES:
        raise VTAError(f'rescale "{rescale}" is not known; {", ".join(RESCALES)} are; choose one')
    if form == "pow2":
        raise VTAError(
            f'rescale "{rescale}" with scales "pow2", which are rescaled by shifts; use scales '
            '"mul" or leave rescale out'
        )


def estimate(
    write: Callable[[DialectWriter, relax.Expr], relax.Var],
    shape: tuple[int, ...],
    config: VTAConfig,
) -> float | None:
    """Cycles that the compiler expects of what `write` writes on int8 data of `shape`.

    Returns:
        None where the partition table leaves any of it to the CPU.
    """
    data = relax.Var("data", relax.TensorType(shape, "int8"))
    writer = DialectWriter()
    writer.names.fresh("data")
    out = write(writer, data)
    source = relax.Function([data], data, ret_ty=data.ty)
    mod = tvm.IRModule({"main": writer.finish(source, out)})
    return estimated_cycles(relax.transform.Normalize()(mod)["main"], config)
