"""Which operators go to VTA: one table of patterns with checks, and a reason for everything else.

:func:`mark` groups every match of the table into a composite function (attribute ``Composite`` =
``vta.conv2d``, ``vta.add``) that still computes on unpacked tensors, and records where each
operator of the model runs and why.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.dpl.pattern import DFPattern

from vta_byoc.bindings import is_constant, op_name, source_name, static_shape, straight_bindings
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError

from .strategy import blocks
from .tiling import choose_add_tile, choose_conv_tile
from .workload import AddWorkload, Conv2dWorkload

PLACEMENT_ATTR = "vta.placement"
SOURCE_ATTR = "vta.source"
"""On a composite: the source operator it computes."""
RESCALE_OPS = frozenset(
    f"relax.{op}"
    for op in ("astype", "multiply", "right_shift", "left_shift", "maximum", "minimum")
)
"""Operators that only widen, scale and saturate what another operator of the group computed."""
INT32_HIGH = 2**31 - 1
MAX_SHIFT = 31
Bindings = Sequence[tuple[relax.Var, relax.Expr]]


@dataclass(frozen=True)
class Placement:
    """Where one operator of the model runs.

    ``op`` is its kind, ``device`` "vta" or "cpu", ``reason`` the rule that decided, ``macs`` its
    multiplications (0 for operators that do not multiply-accumulate).
    """

    name: str
    op: str
    device: str
    reason: str
    macs: int


@dataclass(frozen=True)
class PatternEntry:
    """One row of the partition table.

    ``pattern`` matches the operators of a group, ``parse`` reads the matched bindings into a
    workload and its constants, ``check`` gives the reason why this machine does not take it (None:
    it does).  ``anchor`` is the operator that names the group.
    """

    name: str
    anchor: str
    pattern: Callable[[], DFPattern]
    parse: Callable[[Bindings], Parsed]
    check: Callable[[Parsed, VTAConfig], str | None]

    @property
    def strategy(self) -> str:
        """Name of the strategy that computes it."""
        return self.name.removeprefix("vta.")


@dataclass(frozen=True)
class Parsed:
    """A matched group: its workload, tensor operands in order, and named constants."""

    work: Any
    operands: tuple[relax.Expr, ...]
    constants: dict[str, np.ndarray]


# ---------------------------------------------------------------- patterns
def _saturated(value: DFPattern) -> DFPattern:
    floor = is_op("relax.maximum")(value, is_const())
    return is_op("relax.astype")(is_op("relax.minimum")(floor, is_const()))


def _shifted(value: DFPattern) -> DFPattern:
    right = is_op("relax.right_shift")(value, is_const())
    return right | is_op("relax.left_shift")(value, is_const()) | value


def _rounded(value: DFPattern) -> DFPattern:
    """A rescale: add the rounding constant and shift right, shift left, or nothing."""
    right = is_op("relax.right_shift")(is_op("relax.add")(value, is_const()), is_const())
    return right | is_op("relax.left_shift")(value, is_const()) | value


def _conv2d_pattern() -> DFPattern:
    product = is_op("relax.nn.conv2d")(wildcard(), is_const())
    return _saturated(_shifted(is_op("relax.add")(product, is_const())))


def _add_pattern() -> DFPattern:
    sides = [_rounded(is_op("relax.astype")(wildcard())) for _ in range(2)]
    return _saturated(_rounded(is_op("relax.add")(*sides)))


# ---------------------------------------------------------------- parsing
def _scalar(expr: relax.Expr) -> int:
    return int(expr.value.numpy().reshape(-1)[0])


def _array(expr: relax.Expr) -> np.ndarray:
    return np.asarray(expr.value.numpy())


def _calls(bindings: Bindings, *names: str) -> list[tuple[relax.Var, relax.Call]]:
    return [(var, value) for var, value in bindings if op_name(value) in names]


def _signed_shift(call: relax.Call) -> int:
    amount = _scalar(call.args[1])
    return amount if op_name(call) == "relax.right_shift" else -amount


def _clamp(bindings: Bindings) -> tuple[int, int]:
    _, floor = _calls(bindings, "relax.maximum")[-1]
    _, cap = _calls(bindings, "relax.minimum")[-1]
    return _scalar(floor.args[1]), _scalar(cap.args[1])


def _parse_conv2d(bindings: Bindings) -> Parsed:
    ((_, conv),) = _calls(bindings, "relax.nn.conv2d")
    ((_, biased),) = _calls(bindings, "relax.add")
    shifts = _calls(bindings, "relax.right_shift", "relax.left_shift")
    low, high = _clamp(bindings)
    n, ci, height, width = static_shape(conv.args[0])
    weight = _array(conv.args[1])
    top, left, bottom, right = (int(p) for p in conv.attrs.padding)
    work = Conv2dWorkload(
        batch=n,
        in_channels=ci,
        out_channels=weight.shape[0],
        height=height,
        width=width,
        kernel=(weight.shape[2], weight.shape[3]),
        strides=_pair(conv.attrs.strides),
        padding=(top, left, bottom, right),
        dilation=_pair(conv.attrs.dilation),
        shift=sum(_signed_shift(c) for _, c in shifts),
        low=low,
        high=high,
    )
    constants = {
        "weight": weight,
        "bias": _array(biased.args[1]),
        "groups": np.array(int(conv.attrs.groups)),
    }
    return Parsed(work, (conv.args[0],), constants)


def _pair(values: Any) -> tuple[int, int]:
    first, second = (int(v) for v in values)
    return first, second


def _parse_add(bindings: Bindings) -> Parsed:
    values = dict(bindings)
    var, total = next(
        (v, c) for v, c in _calls(bindings, "relax.add") if not is_constant(c.args[1])
    )
    sides = [_side(arg, values) for arg in total.args]
    work: dict[str, int] = {"shift": 0, "rounding": 0}
    while True:
        user = next(
            (v, c) for v, c in bindings if isinstance(c, relax.Call) and var in list(c.args)
        )
        var, call = user
        if op_name(call) == "relax.add":
            work["rounding"] = _scalar(call.args[1])
        elif op_name(call) in ("relax.right_shift", "relax.left_shift"):
            work["shift"] = _signed_shift(call)
        else:
            break
    low, high = _clamp(bindings)
    shape = static_shape(sides[0][0])
    n, c, h, w = (*shape, 1, 1, 1, 1)[:4] if len(shape) <= 4 else (0, 0, 0, 0)
    parsed = AddWorkload(
        n, c, h, w, left_lhs=sides[0][1], left_rhs=sides[1][1], low=low, high=high, **work
    )
    return Parsed(parsed, tuple(s[0] for s in sides), {"rank": np.array(len(shape))})


def _side(arg: relax.Expr, values: dict[relax.Var, relax.Expr]) -> tuple[relax.Expr, int]:
    """The int8 tensor of one side of an addition and its left shift (right when negative)."""
    call, left = values[arg], 0
    while op_name(call) != "relax.astype":
        if op_name(call) in ("relax.right_shift", "relax.left_shift"):
            left = -_signed_shift(call)
        call = values[call.args[0]]
    return call.args[0], left


# ---------------------------------------------------------------- checks
def _check_conv2d(parsed: Parsed, config: VTAConfig) -> str | None:
    work: Conv2dWorkload = parsed.work
    groups = int(parsed.constants["groups"])
    if groups != 1:
        return f"convolution has {groups} groups; the strategy takes 1; write it as a dense conv"
    if work.in_channels * 4 < config.block:
        return (
            f"{work.in_channels} of {config.block} input lanes would work; at least a quarter "
            "must; fold space into channels or use a machine with a smaller BLOCK"
        )
    bias = parsed.constants["bias"]
    if bias.size not in (1, work.out_channels):
        return f"bias has shape {bias.shape}; one value per output channel is taken"
    reason = _check_rescale(work.shift, work.low, work.high)
    if reason is not None:
        return reason
    bound = accumulator_bound(parsed.constants["weight"], bias)
    if bound << max(-work.shift, 0) > INT32_HIGH:
        return f"the accumulator may reach {bound}; int32 holds {INT32_HIGH}; use smaller weights"
    return _fits(lambda: choose_conv_tile(work, config))


def accumulator_bound(weight: np.ndarray, bias: np.ndarray) -> int:
    """Largest magnitude of ``conv(x, weight) + bias`` for any int8 x."""
    taps = np.abs(weight.astype(np.int64)).reshape(weight.shape[0], -1).sum(axis=1)
    return int((taps * 128 + np.abs(bias.astype(np.int64)).reshape(-1)).max())


def _check_rescale(shift: int, low: int, high: int) -> str | None:
    if abs(shift) > MAX_SHIFT:
        return f"shift by {shift}; int32 shifts are -{MAX_SHIFT} to {MAX_SHIFT}"
    if not -128 <= low <= high <= 127:
        return f"clamp to [{low}, {high}]; an int8 result needs -128 <= low <= high <= 127"
    return None


def _check_add(parsed: Parsed, config: VTAConfig) -> str | None:
    work: AddWorkload = parsed.work
    lhs, rhs = (static_shape(x) for x in parsed.operands)
    if int(parsed.constants["rank"]) != 4 or lhs != rhs:
        return f"operands have shapes {lhs} and {rhs}; two equal NCHW shapes are taken"
    if not config.capabilities.acc_8bit:
        return (
            "the machine has no ACC_8BIT load (CAPABILITIES.acc_8bit is false); "
            "a machine that loads int8 into the accumulator takes it"
        )
    if work.rounding >= 1 << 15:
        return f"rounding constant {work.rounding} exceeds the 16-bit immediate 32767"
    bound = sum(128 << max(s, 0) for s in (work.left_lhs, work.left_rhs)) + abs(work.rounding)
    if bound << max(-work.shift, 0) > INT32_HIGH:
        return f"the sum may reach {bound}; int32 holds {INT32_HIGH}; use closer scales"
    return _check_rescale(work.shift, work.low, work.high) or _fits(
        lambda: choose_add_tile(work, config)
    )


def _check_operands(parsed: Parsed) -> str | None:
    if any(is_constant(x) for x in parsed.operands):
        return "an operand is a constant; fold the operator before quantizing"
    if any(str(x.ty.dtype) != "int8" for x in parsed.operands):
        return "an operand is not int8; quantize it"
    return None


def _fits(choose: Callable[[], object]) -> str | None:
    try:
        choose()
    except VTAError as err:
        return str(err)
    return None


TABLE: tuple[PatternEntry, ...] = (
    PatternEntry("vta.conv2d", "relax.nn.conv2d", _conv2d_pattern, _parse_conv2d, _check_conv2d),
    PatternEntry("vta.add", "relax.add", _add_pattern, _parse_add, _check_add),
)


def entry_of(composite: str) -> PatternEntry:
    """The table's row of a composite name."""
    return next(e for e in TABLE if e.name == composite)


# ---------------------------------------------------------------- the pass
def mark(config: VTAConfig) -> tvm.transform.Pass:
    """Group what the table takes into composite functions and attach the placement record."""

    @tvm.transform.module_pass(opt_level=0, name="vta.Mark")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        rejected: dict[str, str] = {}
        patterns = [_fusion_pattern(entry, _checker(entry, config, rejected)) for entry in TABLE]
        marked = relax.transform.FuseOpsByPattern(
            patterns, bind_constants=True, annotate_codegen=False
        )(mod)
        records = list(_placements(marked, config, rejected))
        text = json.dumps([dataclasses.asdict(r) for r in records])
        return marked.with_attr(PLACEMENT_ATTR, text)

    return run


def _fusion_pattern(entry: PatternEntry, check: Callable[[Any], bool]) -> tuple[Any, ...]:
    """What FuseOpsByPattern takes; the composite keeps the name of its source operator.

    Equal functions are merged, so without the name two equal operators would become one.
    """
    pattern = entry.pattern()

    def attrs(matched: Any) -> dict[str, str]:
        return {SOURCE_ATTR: source_name(matched["capped"].args[0])}

    return entry.name, pattern, {"capped": pattern.args[0]}, check, attrs


def _checker(
    entry: PatternEntry, config: VTAConfig, rejected: dict[str, str]
) -> Callable[[Any], bool]:
    def check(context: Any) -> bool:
        bindings = _ordered(list(context.matched_bindings.items()))
        if str(bindings[-1][0].ty.dtype) != "int8":
            return False
        parsed = entry.parse(bindings)
        reason = _check_operands(parsed) or entry.check(parsed, config)
        if reason is not None:
            for var, _ in bindings:
                rejected[source_name(var)] = reason
        return reason is None

    return check


def _ordered(bindings: Bindings) -> Bindings:
    """Bindings sorted so that every value comes after those it reads."""
    waiting, done = dict(bindings), []
    while waiting:
        ready = [v for v, e in waiting.items() if not any(a in waiting for a in _args(e))]
        for var in ready:
            done.append((var, waiting.pop(var)))
    return done


def _args(expr: relax.Expr) -> list[relax.Var]:
    return [a for a in getattr(expr, "args", ()) if isinstance(a, relax.Var)]


def composites(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """Composite functions of ``mod`` by the name of their global variable."""
    return {
        gv.name_hint: func
        for gv, func in mod.functions.items()
        if isinstance(func, relax.Function) and func.attrs and "Composite" in func.attrs
    }


def parse_composite(func: relax.Function) -> tuple[PatternEntry, Parsed]:
    """The table row and workload of a composite function."""
    entry = entry_of(str(func.attrs["Composite"]))
    bindings = [(b.var, b.value) for b in straight_bindings(func)]
    return entry, entry.parse(bindings)


def _placements(
    mod: tvm.IRModule, config: VTAConfig, rejected: dict[str, str]
) -> Iterator[Placement]:
    """One record for each operator of the model, in the order of their first bindings."""
    groups = composites(mod)
    sources: dict[str, list[relax.VarBinding]] = {}
    offloaded: dict[str, relax.Function] = {}
    for binding in straight_bindings(mod["main"]):
        value = binding.value
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            name = composite_source(groups[value.op.name_hint])
            offloaded[name] = groups[value.op.name_hint]
            sources.setdefault(name, [])
        elif op_name(value):
            sources.setdefault(source_name(binding.var), []).append(binding)
    for name, bindings in sources.items():
        if name in offloaded:
            yield _vta_record(offloaded[name], config)
        else:
            yield _cpu_record(bindings, rejected)


def _vta_record(func: relax.Function, config: VTAConfig) -> Placement:
    entry, parsed = parse_composite(func)
    macs = getattr(parsed.work, "macs", 0)
    idle = _idle_share(parsed.work, config)
    reason = f"pattern {entry.name}" + (f"; {idle}" if idle else "")
    return Placement(composite_source(func), entry.anchor, "vta", reason, macs)


def composite_source(func: relax.Function) -> str:
    """The source operator of a composite that :func:`mark` made."""
    return str(func.attrs[SOURCE_ATTR])


def _idle_share(work: Any, config: VTAConfig) -> str:
    """What share of the machine's lanes the shape leaves idle, "" when none."""
    rows = work.batch / (blocks(work.batch, config.batch) * config.batch)
    return "" if rows == 1 else f"{100 * (1 - rows):.0f} % of the batch lanes idle"


def _cpu_record(bindings: list[relax.VarBinding], rejected: dict[str, str]) -> Placement:
    name = source_name(bindings[-1].var)
    anchors = {e.anchor: e for e in TABLE}
    kinds = [op_name(b.value) for b in bindings]
    kind = next((k for k in kinds if k not in RESCALE_OPS), kinds[-1])
    if name in rejected:
        reason = rejected[name]
    elif kind in anchors:
        reason = f"not the whole pattern {anchors[kind].name} (bias, shift and clamp to int8)"
    else:
        reason = f"no pattern of the partition table takes {kind}"
    return Placement(name, kind, "cpu", reason, sum(macs_of(b.value) for b in bindings))


def macs_of(expr: relax.Expr) -> int:
    """Multiply-accumulates of one operator, from its shapes."""
    if op_name(expr) == "relax.nn.conv2d":
        return math.prod(static_shape(expr)) * math.prod(static_shape(expr.args[1])[1:])
    if op_name(expr) == "relax.matmul":
        return math.prod(static_shape(expr)) * static_shape(expr.args[0])[-1]
    return 0


def placements(mod: tvm.IRModule) -> list[Placement]:
    """The placement record of a module that :func:`mark` has seen."""
    if mod.attrs is None or PLACEMENT_ATTR not in mod.attrs:
        raise VTAError("module has no placement record; run partition_for_vta on it first")
    return [Placement(**r) for r in json.loads(str(mod.attrs[PLACEMENT_ATTR]))]
