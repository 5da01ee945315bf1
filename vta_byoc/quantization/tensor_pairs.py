"""Tensors of a module beside those of its quantized form, both computed in one run.

`paired` writes one module that computes three versions of every tensor: as the source module has
it, as the quantized module has it, and as the quantized operator would have it if its inputs were
those of the source module, rounded to their scales.  The third shows what an operator adds to the
error by itself.  A model that came quantized is its own source: its float operators between
quantize and dequantize.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import (
    SEPARATOR,
    is_float32,
    sanitized,
    source_name,
    static_shape,
    straight_bindings,
    substituted,
    vars_in,
    with_main,
)
from vta_byoc.ir.names import is_step
from vta_byoc.ir.quantization_record import (
    QUANTIZATION,
    QuantizationRecord,
    TensorEntry,
    active_ranges,
    group_factors,
    results,
)
from vta_byoc.ir.records import text_of
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.qdq import quantize_scale
from vta_byoc.quantization.scales import UINT8_ZERO, Scale

ALL_VALUES = (-math.inf, math.inf)
"""The active range of a tensor all of whose values are told apart."""


@dataclass(frozen=True)
class Twin:
    """A tensor of the quantized module: (value - zero_point) * scale is the float value.

    Values beyond `low` and `high`, its active range, count as these. Those of the source module are
    compared times `factors`, one for each channel of axis 1, where there are any: groups of
    channels that were made to reach equally far.
    """

    var: relax.Var
    scale: float = 1.0
    zero_point: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Pair:
    """A tensor of the source module and the tensor of the quantized module that stands for it.

    Attributes:
        name: the operator that makes it, the first of its group.
        operators: source names of the group; the last one's result is compared.
        source, quantized: the variables; (value - zero_point) * scale is the real value.
        inputs: numbers of the pairs that it is computed from, without others in between.
        is_group: an operator with arithmetic of its own; others move values or are float.
    """

    name: str
    operators: tuple[str, ...]
    source: Twin
    quantized: Twin
    inputs: tuple[int, ...] = ()
    is_group: bool = False

    @property
    def is_int8(self) -> bool:
        """Whether the quantized module has the tensor as integers."""
        return not is_float32(self.quantized.var)

    @property
    def scale(self) -> Scale:
        """Of the int8 tensor."""
        return Scale(self.quantized.scale, int(self.quantized.zero_point))


def real(values: np.ndarray, twin: Twin) -> np.ndarray:
    """What a tensor stands for, float64, within its active range."""
    wide = np.asarray(values, np.float64)
    if twin.scale != 1 or twin.zero_point:
        wide = (wide - twin.zero_point) * twin.scale
    if twin.factors:
        wide = wide * _by_channel(twin, wide.ndim)
    is_whole = math.isinf(twin.low) and math.isinf(twin.high)
    return wide if is_whole else wide.clip(twin.low, twin.high)


def _by_channel(twin: Twin, rank: int) -> np.ndarray:
    """The factors of a twin as they broadcast over a tensor."""
    return np.asarray(twin.factors, np.float64).reshape(-1, *[1] * (rank - 2))


def quantization_record(qmod: tvm.IRModule) -> QuantizationRecord:
    """The attribute `vta.quantization`.

    Raises:
        VTAError: the module has none.
    """
    attribute = qmod.get_attr(QUANTIZATION)
    if attribute is None:
        raise VTAError(
            f'the module has no attribute "{QUANTIZATION}"; tensors are paired by what quantize '
            "records there; give the result of vta_byoc.quantize"
        )
    record: QuantizationRecord = json.loads(text_of(attribute))
    return record


def tensor_pairs(mod: tvm.IRModule, qmod: tvm.IRModule) -> list[Pair]:
    """Every tensor that both modules have, in the order of execution.

    Args:
        mod: what was quantized (`load_model`).
        qmod: the result of `quantize`.

    Raises:
        VTAError: `qmod` has no record, or nothing of `mod` is in it.
    """
    record, active = quantization_record(qmod), active_ranges(qmod)
    factors = group_factors(qmod)
    producers = {b.var: b.value for b in straight_bindings(mod["main"])}
    found = {}
    for var, twin in twins(mod, qmod).items():
        source = _source(var, producers.get(var))
        if source is not None:
            low, high = active.get(str(var.name), ALL_VALUES)
            if not is_float32(twin.var):
                source, twin = (replace(each, low=low, high=high) for each in (source, twin))
            source = replace(source, factors=factors.get(source_name(var), ()))
            found[twin.var] = (source, twin)
    if not found:
        raise VTAError(
            "no tensor of the module is in the quantized one; the names of their operators "
            "differ; give the module that was quantized"
        )
    groups = record["sources"]
    params = {sanitized(param.name) for param in mod["main"].params}
    pairs: list[Pair] = []
    numbers: dict[relax.Var, tuple[int, ...]] = {}
    for binding in straight_bindings(qmod["main"]):
        var = binding.var
        read = [number for v in vars_in(binding.value) for number in numbers.get(v, ())]
        numbers[var] = tuple(dict.fromkeys(read))
        if var not in found:
            continue
        source, twin = found[var]
        name = str(source.var.name) if is_step(source.var) else source_name(var)
        # What a group makes may stand there moved, under another name.
        group = str(var.name) if is_float32(var) or str(var.name) in groups else name
        operators = tuple(groups.get(group, [name]))
        is_group = group in groups or name in params
        pair = Pair(name, operators, source, twin, numbers[var], is_group)
        numbers[var] = (len(pairs),)
        pairs.append(pair)
    return pairs


def _source(var: relax.Var, value: relax.Expr | None) -> Twin | None:
    """The variable of the source module; None if nothing says what its integers stand for."""
    if is_float32(var):
        return Twin(var)
    scale = None if value is None else quantize_scale(value)
    if scale is None:
        return None
    moved = UINT8_ZERO if str(var.ty.dtype) == "uint8" else 0
    return Twin(var, scale.step, scale.zero + moved)


# ---------------------------------------------------------------- what corresponds to what
def twins(mod: tvm.IRModule, qmod: tvm.IRModule) -> dict[relax.Var, Twin]:
    """Variable of the float module -> the tensor of the quantized module with its value.

    A group of operators bears the name of its first and has the value of its last.  Where groups
    compute parts of one operator, such as the steps of a recurrent layer, the record says which
    value each has; the operator's result then has a twin, and what a step hands on.  An operator
    whose result only moves to become the source's (a mean, reshaped) stands there with the moved
    tensor.
    """
    record = quantization_record(qmod)
    named: dict[str, list[relax.Var]] = {sanitized(p.name): [p] for p in mod["main"].params}
    for binding in straight_bindings(mod["main"]):
        named.setdefault(source_name(binding.var), []).append(binding.var)
    found: dict[relax.Var, Twin] = {}
    moved: dict[relax.Var, Twin] = {}
    steps = {str(v.name): v for variables in named.values() for v in variables if is_step(v)}
    parts = results(qmod)
    in_parts = {record["sources"][name][-1] for name in parts}
    for binding in straight_bindings(qmod["main"]):
        name = str(binding.var.name)
        source = record["sources"].get(name, [name.removesuffix(f"{SEPARATOR}int8")])[-1]
        twin = _twin_of(binding.var, record["tensors"].get(name))
        if twin is None:
            continue
        if (step := steps.get(parts.get(name, name))) is not None:
            found[step] = twin
            continue
        var = _result_of(source, named.get(source, []), binding.var)
        if source in in_parts and (var is None or parts.get(name, source) != var.name):
            continue
        if var is not None:
            found.setdefault(var, twin)
        else:
            source = source_name(binding.var)
            var = _result_of(source, named.get(source, []), binding.var)
            if var is not None and sanitized(var.name) == source:
                moved.setdefault(var, twin)
    replaced = {source_name(var) for var in moved.keys() - found.keys()}
    kept = {v: twin for v, twin in found.items() if is_step(v) or source_name(v) not in replaced}
    return {**moved, **kept}


def _twin_of(var: relax.Var, entry: TensorEntry | None) -> Twin | None:
    """A tensor of the quantized module; `entry` is what its record says of it."""
    if is_float32(var):
        return Twin(var)
    if entry is None:
        return None
    return Twin(var, float(entry["scale"]), float(entry.get("zero", 0)))


def _result_of(source: str, variables: Sequence[relax.Var], like: relax.Var) -> relax.Var | None:
    """Which of an operator's `variables` is its result, in the shape of `like`.

    It is the one of the operator's own name, else the last.
    """
    tensors = [var for var in variables if isinstance(var.ty, relax.TensorType)]
    if not isinstance(like.ty, relax.TensorType):
        return None
    fitting = [var for var in tensors if static_shape(var) == static_shape(like)]
    own = [var for var in fitting if sanitized(var.name) == source]
    return next(reversed(own or fitting), None)


# ---------------------------------------------------------------- one module for all
def paired(
    mod: tvm.IRModule, qmod: tvm.IRModule, pairs: Sequence[Pair]
) -> tuple[tvm.IRModule, list[relax.Var]]:
    """A module with the parameters of `mod` that computes all versions of all pairs.

    Returns:
        The module, and three of its variables for each pair: the tensor of `mod`, that of `qmod`,
        and the quantized operator's result on the rounded inputs of `mod`.
    """
    main, write = mod["main"], DialectWriter()
    for param in main.params:
        write.names.fresh(param.name)
    source = _copied(main, write, {param: param for param in main.params})
    params = dict(zip(qmod["main"].params, main.params, strict=True))
    quantized = _copied(qmod["main"], write, params)
    ideal = {pair.quantized.var: _rounded(write, pair, source) for pair in pairs}
    alone = _copied(qmod["main"], write, params, ideal)
    shown = [
        table[var]
        for pair in pairs
        for table, var in (
            (source, pair.source.var),
            (quantized, pair.quantized.var),
            (alone, pair.quantized.var),
        )
    ]
    result = with_main(mod, write.finish(main, relax.Tuple(shown)))
    return result, list(vars_in(result["main"].body.body))


def _copied(
    main: relax.Function,
    write: DialectWriter,
    params: Mapping[relax.Var, relax.Var],
    ideal: Mapping[relax.Var, relax.Var] | None = None,
) -> dict[relax.Var, relax.Var]:
    """Write the bindings of `main`, and give its variables -> the new ones.

    Who reads a variable of `ideal` gets that instead.
    """
    made, read = dict(params), dict(params)
    for binding in straight_bindings(main):
        var = binding.var
        made[var] = write.emit(substituted(binding.value, read), var.name)
        read[var] = made[var] if ideal is None else ideal.get(var, made[var])
    return made


def _rounded(write: DialectWriter, pair: Pair, source: Mapping[relax.Var, relax.Var]) -> relax.Var:
    """The tensor of the source module in the form of the quantized one."""
    var, twin, name = source[pair.source.var], pair.source, f"{pair.name}{SEPARATOR}ideal"
    if not is_float32(var):
        var = write.dequantize(var, Scale(twin.scale, int(twin.zero_point)), name)
    if twin.factors:
        by = relax.const(_by_channel(twin, var.ty.ndim).astype(np.float32))
        var = write.emit(relax.op.multiply(var, by), name)
    return write.quantize(var, pair.scale, name) if pair.is_int8 else var
