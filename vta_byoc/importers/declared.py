"""What an imported module declares, checked before any rule or compiler relies on it.

Importers take kernels of -1 and inputs of no elements as they come; what is computed from them is
whatever happens to be in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax
from tvm.ir import Call

from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name, source_name, static_shape, straight_bindings

AT_LEAST = {"pool_size": 1, "strides": 1, "dilation": 1, "groups": 1, "padding": 0}
"""Attribute of a layer or a pooling -> the smallest value that means something."""


def check_declared(mod: tvm.IRModule) -> None:
    """Refuse inputs without elements, windows of nothing, and more memory than the limit.

    Raises:
        VTAError: the input, operator or tensor, its value, and what is taken.
    """
    bindings = straight_bindings(mod["main"])
    for param in mod["main"].params:
        _check_input(param)
    for binding in bindings:
        if isinstance(binding.value, Call) and op_name(binding.value).startswith("relax.nn."):
            _check_window(source_name(binding.var), binding.value)
    tensors = [*mod["main"].params, *(binding.var for binding in bindings)]
    limits.check(_sizes(tensors), "the model")


def _check_input(param: relax.Var) -> None:
    shape = static_shape(param)
    if any(dim < 1 for dim in shape):
        raise VTAError(
            f'input "{param.name}" has the shape {shape}; every dimension must be at least 1; '
            "correct the shape and export the model again"
        )


def _check_window(name: str, call: relax.Call) -> None:
    for attribute, least in AT_LEAST.items():
        value = getattr(call.attrs, attribute, None)
        if value is None:
            continue
        values = [int(each) for each in (value if hasattr(value, "__len__") else [value])]
        if min(values, default=least) < least:
            kind = op_name(call).removeprefix("relax.nn.")
            raise VTAError(
                f'operator "{name}" ({kind}) has {attribute} = {limits.listed(values)}; every '
                f"value must be at least {least}; correct it and export the model again"
            )


def _sizes(tensors: list[relax.Var]) -> Iterator[limits.Declared]:
    for var in tensors:
        if isinstance(var.ty, relax.TensorType) and var.ty.shape is not None:
            dims = [max(int(getattr(dim, "value", 1)), 0) for dim in var.ty.shape]
            yield limits.declared(f'tensor "{source_name(var)}"', dims, str(var.ty.dtype))
