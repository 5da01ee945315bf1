"""Layers with weights: convolutions and matrix products."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.base.int8_digits import split
from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph, dtype_of, is_narrowing
from vta_byoc.partitioning import digits
from vta_byoc.partitioning.entry import Candidate, Parsed, PatternEntry, Plan, Shaped
from vta_byoc.partitioning.steps import Range, StepReader, axes_of
from vta_byoc.strategies.conv.bias import in_idle_lanes
from vta_byoc.strategy import STRATEGIES, LayerWork, estimated_by
from vta_byoc.workload.im2col import Im2col, folded, folds, host_cycles
from vta_byoc.workload.layout import NCHW, ROWS, canonical, fits_tokens, tokens
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.receptive import without_blind_taps
from vta_byoc.workload.workloads import Conv2dWorkload, ConvTransposeWorkload, Epilogue

CONV2D, CONV1D = "relax.nn.conv2d", "relax.nn.conv1d"
TRANSPOSE, MATMUL = "relax.nn.conv2d_transpose", "relax.matmul"


def match_layer(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """An int8 product with constant int8 weights, and the steps that follow."""
    if dtype_of(anchor.var) != "int32" or any(dtype_of(a) != "int8" for a in anchor.value.args):
        return None
    if not is_constant(anchor.value.args[1]) or is_constant(anchor.value.args[0]):
        return None
    if digits.is_lower_digit(graph, anchor):
        return None
    product = digits.joined(graph, anchor) or [anchor]
    return [*product, *digits.chain(graph, product[-1].var)]


def weight_of(bindings: Sequence[Binding]) -> np.ndarray:
    """The constant weights of the anchor, as the operator has them.

    They are int8; those of two digits are joined, as int32.
    """
    high = np.asarray(bindings[0].value.args[1].value.numpy())
    shift = digits.digit_shift(bindings)
    if not shift:
        return high
    low = np.asarray(bindings[2].value.args[1].value.numpy())
    return (high.astype(np.int32) << shift) + low


def _epilogue(
    bindings: Sequence[Binding], layout: str, products: Sequence[np.ndarray], config: VTAConfig
) -> tuple[Epilogue, list[np.ndarray]]:
    """The epilogue after the anchor; each of ``products`` (O, n) are weights that meet in a sum."""
    shape = static_shape(bindings[0].var)
    axes = axes_of(layout, len(shape))
    shift = digits.digit_shift(bindings)
    if shift:
        upper = [split(each, shift)[0] << shift for each in products]
        StepReader(shape, axes, _reach(upper), config, "the accumulator of the upper digits")
    reader = StepReader(shape, axes, _reach(products), config, "the accumulator")
    reader.read(digits.steps_of(bindings[digits.JOIN if shift else 1 :]))
    dtype = "int8" if is_narrowing(bindings[-1].value) else "int32"
    return Epilogue(tuple(reader.steps), dtype), reader.operands


def _reach(products: Sequence[np.ndarray]) -> Range:
    """What sums of int8 data times the rows of any of ``products`` can be."""
    ends = []
    for each in products:
        positive = np.maximum(each, 0).sum(axis=1, dtype=np.int64)
        negative = np.minimum(each, 0).sum(axis=1, dtype=np.int64)
        ends.append((127 * negative - 128 * positive, 127 * positive - 128 * negative))
    lows, highs = zip(*ends, strict=True)
    return Range(np.minimum.reduce(lows), np.maximum.reduce(highs))


def _phases(products: np.ndarray, attrs: Attrs) -> list[np.ndarray]:
    """Of (O, I, KH, KW) those that a transposed convolution adds up for one result, (O, n) each.

    They are the taps whose places are congruent modulo the strides.
    """
    rows, cols = (
        np.arange(size) * int(dilation) % int(stride)
        for size, dilation, stride in zip(
            products.shape[2:], attrs.dilation, attrs.strides, strict=True
        )
    )
    found = [
        products[:, :, rows == row][..., cols == col]
        for row in np.unique(rows)
        for col in np.unique(cols)
    ]
    return [each.reshape(len(products), -1) for each in found]


def _constants(weight: np.ndarray, operands: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    return {"weight": weight, **{f"operand{i}": x for i, x in enumerate(operands)}}


# ---------------------------------------------------------------- reading
def read_conv(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """conv2d, and conv1d as a convolution of one row."""
    call = bindings[0].value
    flat = op_name(call) == CONV1D
    check_layout(call, ("NCW", "OIW") if flat else ("NCHW", "OIHW"))
    weight = weight_of(bindings)
    epilogue, operands = _epilogue(bindings, NCHW, [weight.reshape(len(weight), -1)], config)
    shape = static_shape(call.args[0])
    n, ci, *space = shape
    attrs = call.attrs
    if flat:
        weight = weight[:, :, None, :]
    height, width = (1, *space) if flat else space
    given = Conv2dWorkload(
        batch=n,
        in_channels=ci,
        out_channels=len(weight),
        height=height,
        width=width,
        kernel=_pair(weight.shape[2:], flat=False),
        strides=_pair(attrs.strides, flat=flat),
        padding=_pads(attrs.padding, flat=flat),
        dilation=_pair(attrs.dilation, flat=flat),
        groups=int(attrs.groups),
        epilogue=epilogue,
        digit_shift=digits.digit_shift(bindings),
    )
    check_sizes(given)
    work, seeing = without_blind_taps(given) if is_on("skip_padding") else (given, ())
    return Parsed(work, (call.args[0],), _constants(weight[(..., *seeing)], operands))


def read_matmul(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """x[..., K] times W[K, M]: a 1 x 1 convolution, of rows as images or of tokens as columns."""
    call = bindings[0].value
    weight = weight_of(bindings)
    shape = static_shape(call.args[0])
    if weight.ndim != 2 or len(shape) < 2:
        raise VTAError(
            Refusal(
                "the matrices have shapes",
                f"{shape} and {weight.shape}",
                "rows (..., K) times a constant (K, M) are taken",
                "reshape them",
            )
        )
    epilogue, operands = _epilogue(bindings, ROWS, [weight.T], config)
    layout = tokens(config.block) if fits_tokens(shape, config) else ROWS
    view = canonical(shape, layout)
    assert view is not None
    work = Conv2dWorkload(
        batch=view[0],
        in_channels=shape[-1],
        out_channels=weight.shape[1],
        height=1,
        width=view[3],
        kernel=(1, 1),
        epilogue=epilogue,
        digit_shift=digits.digit_shift(bindings),
    )
    check_sizes(work)
    constants = _constants(weight.T[:, :, None, None], operands)
    return Parsed(work, (call.args[0],), constants, layout)


def read_transpose(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """conv2d_transpose; weights stay (I, O/groups, KH, KW)."""
    call = bindings[0].value
    check_layout(call, ("NCHW", "IOHW"))
    attrs, weight = call.attrs, weight_of(bindings)
    groups = int(attrs.groups)
    per_group = weight.reshape(groups, -1, *weight.shape[1:])
    products = np.moveaxis(per_group, 2, 1)
    products = products.reshape(groups * weight.shape[1], -1, *weight.shape[2:])
    epilogue, operands = _epilogue(bindings, NCHW, _phases(products, attrs), config)
    n, ci, height, width = static_shape(call.args[0])
    work = ConvTransposeWorkload(
        batch=n,
        in_channels=ci,
        out_channels=weight.shape[1] * groups,
        height=height,
        width=width,
        kernel=_pair(weight.shape[2:], flat=False),
        strides=_pair(attrs.strides, flat=False),
        padding=_pads(attrs.padding, flat=False),
        output_padding=_pair(attrs.output_padding, flat=False),
        dilation=_pair(attrs.dilation, flat=False),
        groups=groups,
        epilogue=epilogue,
        digit_shift=digits.digit_shift(bindings),
    )
    check_sizes(work)
    return Parsed(work, (call.args[0],), _constants(weight, operands))


def check_layout(call: relax.Call, wanted: tuple[str, str]) -> None:
    """Refuse a call whose data and weights are not in the layouts ``wanted``."""
    have = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    if have != wanted or str(call.attrs.out_layout) not in ("", wanted[0]):
        raise VTAError(
            Refusal(
                "data and weights have the layouts",
                " and ".join(have),
                f"{' and '.join(wanted)} are taken",
                "transpose them",
            )
        )


def check_sizes(work: Shaped) -> None:
    """No empty tensor, and none that a 32-bit element address cannot reach."""
    for shape in (*work.in_shapes, work.out_shape):
        if min(shape) < 1:
            raise VTAError(
                Refusal(
                    "a tensor has the shape",
                    f"{shape}",
                    "every dimension must be 1 or more",
                    "leave out the operator, which computes nothing",
                )
            )
        if math.prod(shape) >= 1 << 32:
            raise VTAError(
                Refusal(
                    f"a tensor of shape {shape} has",
                    f"{math.prod(shape)} elements",
                    "a 32-bit address reaches 4294967295",
                    "split the layer",
                )
            )


def _pair(values: Sequence[int], *, flat: bool) -> tuple[int, int]:
    first, second = (1, int(values[0])) if flat else (int(v) for v in values)
    return first, second


def _pads(values: Sequence[int], *, flat: bool) -> tuple[int, int, int, int]:
    top, left, bottom, right = (0, values[0], 0, values[1]) if flat else values
    return int(top), int(left), int(bottom), int(right)


# ---------------------------------------------------------------- planning
def plan_conv(parsed: Parsed, config: VTAConfig) -> Plan:
    """The cheapest of: packed GEMM, and vector ALU (depthwise)."""
    return _cheapest(_packed_plans(parsed, config))


def plan_hosted_conv(parsed: Parsed, config: VTAConfig) -> Plan:
    """The cheapest of those of :func:`plan_conv` and of what the host can fold."""
    work: Conv2dWorkload = parsed.work
    packing = host_cycles(math.prod(packed_shape(work.in_shapes[0], config)), config)
    plans = [_with_host(plan, packing) for plan in _packed_plans(parsed, config)]
    return _cheapest([*plans, *_folded_plans(work, parsed.constants, config)])


def _packed_plans(parsed: Parsed, config: VTAConfig) -> list[Plan]:
    """The plans on the packed tensor as it is."""
    work: Conv2dWorkload = parsed.work
    how = ("block-diagonal GEMM" if work.groups > 1 else "packed GEMM") + _factor(work)
    plans = [simple_plan("conv2d", work, parsed.constants, config, how)]
    if work.groups == work.in_channels == work.out_channels > 1 and not work.digit_shift:
        plans += _depthwise_plans(work, parsed.constants, config)
    return plans


def _cheapest(plans: Sequence[Plan]) -> Plan:
    """The plan of least cycles, beside the next and the dearest of the others."""
    best, *others = sorted(plans, key=lambda plan: plan.cycles)
    shown = tuple(plan.candidate for plan in [*others[:1], *others[1:][-1:]])
    return dataclasses.replace(best, candidate=dataclasses.replace(best.candidate, others=shown))


def _with_host(plan: Plan, cycles: float, fold: Im2col | None = None) -> Plan:
    """``plan`` after ``cycles`` of the host, which packs or folds the operand."""
    whole = plan.cycles + cycles
    candidate = dataclasses.replace(plan.candidate, cycles=whole)
    return dataclasses.replace(plan, cycles=whole, candidate=candidate, fold=fold)


def simple_plan(
    name: str, work: Shaped, constants: Mapping[str, np.ndarray], config: VTAConfig, how: str
) -> Plan:
    """The plan of strategy ``name``, with its bias where that costs less; ``how`` says it in words.

    The plan of a bias on the ALU is the first of two that cost the same.
    """
    check_sizes(work)
    strategy = STRATEGIES[name]
    forms = [(work, constants), *strategy.bias_forms(work, constants, config)]
    plans = []
    for each, given in forms:
        schedule = strategy.choose(LayerWork(each), config)
        cycles = estimated_by(strategy, schedule, config)
        plans.append(Plan(name, each, given, schedule.kernels, cycles, Candidate(how, cycles)))
    return min(plans, key=lambda plan: plan.cycles)


def refusal_of(name: str, work: Callable[[], Shaped], config: VTAConfig) -> Refusal | None:
    """Why the machine does not take a layer of strategy ``name``; None where it does."""
    try:
        STRATEGIES[name].choose(LayerWork(work()), config)
    except VTAError as error:
        return error.refusal
    return None


def _depthwise_plans(
    work: Conv2dWorkload, constants: Mapping[str, np.ndarray], config: VTAConfig
) -> list[Plan]:
    """The mapping on the vector ALU, where the machine has what it needs."""
    try:
        return [simple_plan("depthwise", work, constants, config, "vector ALU")]
    except VTAError:
        return []


def _folded_plans(
    work: Conv2dWorkload, constants: Mapping[str, np.ndarray], config: VTAConfig
) -> list[Plan]:
    plans = []
    for fold in folds(work, config):
        inner = folded(work, fold)
        weights = {**constants, "weight": fold.weight(constants["weight"])}
        how = fold.text + _factor(work)
        plan = simple_plan("conv2d", inner, weights, config, how)
        plans.append(_with_host(plan, host_cycles(fold.nbytes(config), config), fold))
        filled = in_idle_lanes(inner, weights, config.block)
        if filled is not None:
            inner, weights, lanes = filled
            plan = simple_plan("conv2d", inner, weights, config, f"{how}, bias in idle lanes")
            fold = dataclasses.replace(fold, shape=inner.in_shapes[0], constants=lanes)
            plans.append(_with_host(plan, host_cycles(fold.nbytes(config), config), fold))
    return plans


def plan_transpose(parsed: Parsed, config: VTAConfig) -> Plan:
    """One convolution for each phase of the strides."""
    how = "stride phases" + _factor(parsed.work)
    return simple_plan("conv2d_transpose", parsed.work, parsed.constants, config, how)


def _factor(work: Conv2dWorkload | ConvTransposeWorkload) -> str:
    """Where the factor of the result is, in words."""
    if work.digit_shift:
        ends_apart = work.epilogue.dtype == "int32" or any(
            step.op == "mul" for step in work.epilogue.steps
        )
        words = "weights of two digits, two passes"
        return f", {words}" if ends_apart else ", factor in weights of two digits"
    if any(step.is_kept for step in work.epilogue.steps):
        multiplies = any(step.op == "mul" for step in work.epilogue.steps)
        return ", factor in two parts" if multiplies else ", factor as shifts and sums"
    return ""


ENTRIES = (
    PatternEntry("vta.conv2d", (CONV2D,), match_layer, read_conv, plan_conv, plan_hosted_conv),
    PatternEntry("vta.conv1d", (CONV1D,), match_layer, read_conv, plan_conv, plan_hosted_conv),
    PatternEntry("vta.dense", (MATMUL,), match_layer, read_matmul, plan_conv, plan_hosted_conv),
    PatternEntry("vta.conv2d_transpose", (TRANSPOSE,), match_layer, read_transpose, plan_transpose),
)
