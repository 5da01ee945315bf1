"""The host's part of a partitioned module as steps that the C runtime does, or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import TupleGetItem
from tvm_ffi import structural_equal

from vta_byoc.bundle.model import (
    DTYPES,
    PACKED,
    PLAIN,
    PLANES,
    BundleModel,
    HostStep,
    HostTensor,
    RunStep,
)
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import (
    is_constant,
    op_name,
    source_name,
    static_shape,
    straight_bindings,
)
from vta_byoc.ir.views import RESHAPES
from vta_byoc.partitioning.region import Region, RegionCall, region_calls
from vta_byoc.workload.im2col import FOLD_ATTR, Im2col
from vta_byoc.workload.layout import pack_compute, unpack_compute
from vta_byoc.workload.packing import packed_shape

PLANES_RANK = 7
"""Dimensions of packed int32 results, which a region gives as four planes of bytes."""
TAKEN = (
    "quantize, dequantize, pack, fold, unpack, softmax, argmax, reshape, transpose, casts of "
    "integers and additions of an int32 constant"
)
"""What the host does in a bundle, in words."""


def bundle_model(mod: tvm.IRModule, config: VTAConfig) -> BundleModel:
    """The model of a partitioned module; its programs are not compiled yet.

    Raises:
        VTAError: the host computes something that bundles do not hold.
    """
    return _Reader(mod, config).read()


class _Reader:
    def __init__(self, mod: tvm.IRModule, config: VTAConfig):
        self._mod = mod
        self._config = config
        self._model = BundleModel()
        self._regions = region_calls(mod)
        self._numbers: dict[relax.Var, int] = {}
        self._results: dict[relax.Var, list[int]] = {}

    def read(self) -> BundleModel:
        main = self._mod["main"]
        for param in main.params:
            self._numbers[param] = self._declare(param, PLAIN)
            self._model.inputs.append(self._numbers[param])
        for binding in straight_bindings(main):
            self._binding(binding.var, binding.value)
        result = main.body.body
        fields = result.fields if isinstance(result, relax.Tuple) else [result]
        self._model.outputs = [self._result(each) for each in fields]
        return self._model

    # ------------------------------------------------------------ tensors
    def _declare(self, var: relax.Var, layout: str, storage: int | None = None) -> int:
        dtype = str(getattr(var.ty, "dtype", ""))
        if dtype not in DTYPES:
            raise VTAError(
                f'tensor "{var.name}" has the type {var.ty}; tensors of a bundle are of '
                f"{', '.join(DTYPES)}; {_instead()}"
            )
        return self._add(str(var.name), dtype, static_shape(var), layout, storage)

    def _add(
        self, name: str, dtype: str, shape: Sequence[int], layout: str, storage: int | None = None
    ) -> int:
        number = len(self._model.tensors)
        kept = number if storage is None else storage
        self._model.tensors.append(HostTensor(name, dtype, tuple(shape), layout, kept))
        return number

    def _result(self, expr: relax.Expr) -> int:
        if expr not in self._numbers:
            raise VTAError(
                "a result of the model is a constant or a tuple in a tuple; results of a bundle "
                f"are tensors that it computes; {_instead()}"
            )
        return self._numbers[expr]

    # ------------------------------------------------------------ bindings
    def _binding(self, var: relax.Var, value: relax.Expr) -> None:
        if var in self._regions:
            self._region(var, self._regions[var])
        elif isinstance(value, TupleGetItem) and value.tuple_value in self._results:
            self._numbers[var] = self._results[value.tuple_value][value.index]
        elif isinstance(value, relax.Var) and value in self._numbers:
            self._numbers[var] = self._numbers[value]
        elif op_name(value) in RESHAPES and value.args[0] in self._numbers:
            source = self._model.tensors[self._numbers[value.args[0]]]
            layout = source.layout if source.shape == static_shape(var) else PLAIN
            self._numbers[var] = self._declare(var, layout, source.storage)
        else:
            self._host_step(var, value)

    def _region(self, var: relax.Var, region: RegionCall) -> None:
        read = Region.of(region.func)
        given = [
            (self._numbers[arg], name)
            for name, arg in zip(read.params, region.call.args, strict=True)
            if not is_constant(arg)
        ]
        results = []
        for name in read.outputs:
            shape, dtype = read.tensors[name]
            layout = PLANES if len(shape) == PLANES_RANK else PACKED
            results.append(self._add(name, dtype, shape, layout))
        self._results[var] = results
        if not isinstance(var.ty, relax.TupleType):
            self._numbers[var] = results[0]
        outputs = tuple(zip(results, read.outputs, strict=True))
        self._model.steps.append(RunStep(region.number, tuple(given), outputs))

    def _host_step(self, var: relax.Var, value: relax.Expr) -> None:
        name = op_name(value)
        if name == "relax.call_tir":
            self._copy(var, value)
            return
        values = STEPS[name](value) if name in STEPS else None
        sources = [] if values is None else [a for a in value.args if a in self._numbers]
        if values is None or len(sources) != 1:
            raise refused(var, value)
        op, parameters = values
        self._step(op, sources[0], var, PLAIN, parameters)

    def _step(
        self, op: str, source: relax.Var, var: relax.Var, layout: str, values: Mapping[str, Any]
    ) -> None:
        self._numbers[var] = self._declare(var, layout)
        step = HostStep(op, self._numbers[source], self._numbers[var], values)
        self._model.steps.append(step)

    def _copy(self, var: relax.Var, value: relax.Call) -> None:
        """A pack, a fold or an unpack: known by the function that it calls, not by its name."""
        args = value.args[1].fields
        if len(args) != 1 or args[0] not in self._numbers:
            raise refused(var, value)
        source, shape = args[0], static_shape(var)
        func, given = self._mod[value.args[0]], static_shape(args[0])
        dtype = str(var.ty.dtype)
        if func.attrs and FOLD_ATTR in func.attrs:
            fold = Im2col.of(func)
            self._same(var, value, func, lambda: fold.compute(given, self._config))
            self._step("fold", source, var, PACKED, _fold_values(fold))
        elif len(given) == 4 and shape == packed_shape(given, self._config):
            self._same(var, value, func, lambda: pack_compute(given, self._config))
            self._step("pack", source, var, PACKED, {})
        elif len(shape) == 4 and given == packed_shape(shape, self._config, dtype):
            self._same(var, value, func, lambda: unpack_compute(shape, self._config, dtype))
            self._step("unpack", source, var, PLAIN, {})
        else:
            raise refused(var, value)

    def _same(
        self,
        var: relax.Var,
        value: relax.Expr,
        func: tirx.PrimFunc,
        known: Callable[[], tirx.PrimFunc],
    ) -> None:
        """Refuse a function of the right types that computes something else."""
        if not structural_equal(func.without_attr("global_symbol"), known()):
            raise refused(var, value)


def refused(var: relax.Var, value: relax.Expr) -> VTAError:
    """The error about an operator that bundles do not hold."""
    name = op_name(value)
    if name == "relax.call_tir":
        name = str(value.args[0].name_hint)
    kind = name.removeprefix("relax.") or type(value).__name__
    return VTAError(
        f'operator "{source_name(var)}" ({kind}) stays on the CPU; there bundles hold {TAKEN}; '
        f"{_instead()}"
    )


def _instead() -> str:
    return (
        "cut the model before it, let VTA compute it (vta-byoc place says what would), or compile "
        "a library for TVM's runtime (--format library)"
    )


# ---------------------------------------------------------------- operators
Values = tuple[str, dict[str, Any]]


def _scalar(expr: relax.Expr) -> np.ndarray | None:
    """The one value of a constant; None of anything else."""
    if not is_constant(expr):
        return None
    value = np.asarray(expr.value.numpy())
    return value.reshape(()) if value.size == 1 else None


def _scaled(op: str) -> Callable[[relax.Call], Values | None]:
    def values(call: relax.Call) -> Values | None:
        scale, zero = map(_scalar, call.args[1:3])
        if scale is None or zero is None or scale.dtype != np.float32:
            return None
        types = str(call.args[0].ty.dtype), str(call.attrs.out_dtype)
        floats, integers = types if op == "quantize" else types[::-1]
        if floats != "float32" or integers not in INTEGERS[op]:
            return None
        bits = int(scale.view(np.uint32))
        return op, {"scale_bits": bits, "zero_point": int(zero)}

    return values


INTEGERS = {"quantize": ("int8", "uint8"), "dequantize": ("int8", "uint8", "int32")}


def _cast(call: relax.Call) -> Values | None:
    return None if str(call.args[0].ty.dtype) == "float32" else ("cast", {})


def _added(sign: int) -> Callable[[relax.Call], Values | None]:
    def values(call: relax.Call) -> Values | None:
        given = _scalar(call.args[1])
        if given is None or str(call.args[0].ty.dtype) != "int32":
            return None
        value = sign * int(given)
        return ("add", {"value": value}) if abs(value) < 1 << 31 else None

    return values


def _transposed(call: relax.Call) -> Values:
    rank = len(static_shape(call.args[0]))
    given = call.attrs.axes
    axes = range(rank)[::-1] if given is None else [int(axis) % rank for axis in given]
    return "transpose", {"axes": list(axes)}


def _along(op: str) -> Callable[[relax.Call], Values | None]:
    def values(call: relax.Call) -> Values | None:
        shape, axis = static_shape(call.args[0]), call.attrs.axis
        if op == "softmax" and str(call.args[0].ty.dtype) != "float32":
            return None
        if axis is None or str(call.args[0].ty.dtype) == "int64":
            return None
        return op, {"axis": int(axis) % len(shape)}

    return values


STEPS: Mapping[str, Callable[[relax.Call], Values | None]] = {
    "relax.quantize": _scaled("quantize"),
    "relax.dequantize": _scaled("dequantize"),
    "relax.astype": _cast,
    "relax.add": _added(1),
    "relax.subtract": _added(-1),
    "relax.permute_dims": _transposed,
    "relax.nn.softmax": _along("softmax"),
    "relax.argmax": _along("argmax"),
}
"""Operator -> its step and values; None where a bundle does not hold it in this form."""


def _fold_values(fold: Im2col) -> dict[str, Any]:
    pairs = {key: list(getattr(fold, key)) for key in ("window", "grid", "dilation", "offset")}
    return {**pairs, "constants": fold.constants}
