"""Definitions in TE: packed operands, the steps of an epilogue on tensors, and the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.alu import OPERATIONS
from vta_byoc.workload.packing import PLANES, operand_shape, pack_operand, packed_shape
from vta_byoc.workload.workloads import CHANNEL, MAP, Epilogue, Shape, Step, Workload


def packed_operands(work: Workload, config: VTAConfig) -> list[te.Tensor]:
    """Placeholders of the packed int8 operands: "data", or "data0", "data1", ... of several."""
    count = len(work.in_shapes)
    return [
        te.placeholder(
            packed_shape(shape, config), "int8", name="data" if count == 1 else f"data{i}"
        )
        for i, shape in enumerate(work.in_shapes)
    ]


def elementwise(name: str, function: Callable[..., Expr], *tensors: te.Tensor) -> te.Tensor:
    """Elementwise ``function`` over tensors of one shape."""
    return te.compute(tensors[0].shape, lambda *i: function(*(t(*i) for t in tensors)), name=name)


def epilogue_operands(
    tensors: Sequence[str], shape: Shape, config: VTAConfig, prefix: str = "operand"
) -> list[te.Tensor]:
    """Placeholders for tensor operands of steps on a result (N, C, H, W)."""
    return [
        te.placeholder(operand_shape(kind, shape, config), "int32", name=f"{prefix}{i}")
        for i, kind in enumerate(tensors)
    ]


def epilogue_constants(
    tensors: Sequence[str], parts: Mapping[str, np.ndarray], config: VTAConfig, first: int = 0
) -> list[np.ndarray]:
    """The packed tensor operands; ``parts`` has them as ``operand<first>``, and so on."""
    return [
        pack_operand(parts[f"operand{first + i}"], kind, config) for i, kind in enumerate(tensors)
    ]


OPERATORS: dict[str, Callable[[Expr, Expr], Expr]] = {
    name: operation.build for name, operation in OPERATIONS.items()
}


def apply_steps(
    value: te.Tensor,
    steps: Sequence[Step],
    operands: Sequence[te.Tensor],
    prefix: str,
    other: te.Tensor | None = None,
) -> te.Tensor:
    """``value`` (n, c, h, w, b, k) int32 after ``steps``; ``operands`` are the tensor operands.

    ``other`` is what steps of OTHER add.
    """
    waiting, kept = list(operands), value
    for number, step in enumerate(steps):
        name = f"{prefix}{number}_{step.op}"
        if step.op == "keep":
            kept = value
            continue
        if step.is_square:
            value = elementwise(name, OPERATORS[step.op], value, value)
            continue
        if step.is_kept:
            value = elementwise(name, OPERATORS[step.op], value, kept)
            continue
        if step.is_other:
            assert other is not None, f"nothing is joined before {steps}"
            value = elementwise(name, OPERATORS[step.op], value, other)
            continue
        operand = waiting.pop(0) if step.is_tensor else tirx.const(int(step.operand), "int32")
        value = _stage(name, value, step, operand)
    return value


def _stage(name: str, value: te.Tensor, step: Step, operand: te.Tensor | tirx.IntImm) -> te.Tensor:
    function = OPERATORS[step.op]

    def at(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        if not step.is_tensor:
            return function(value[n, c, h, w, b, k], operand)
        if step.operand == CHANNEL:
            return function(value[n, c, h, w, b, k], operand[c, b, k])
        if step.operand == MAP:
            return function(value[n, c, h, w, b, k], operand[h, w, b, k])
        return function(value[n, c, h, w, b, k], operand[c, h, w, b, k])

    return te.compute(value.shape, at, name=name)


def with_epilogue(
    inputs: Sequence[te.Tensor], acc: te.Tensor, work: Workload, config: VTAConfig
) -> tirx.PrimFunc:
    """The PrimFunc of ``inputs``, the tensor operands of the epilogue, and what ``acc`` becomes."""
    operands = epilogue_operands(work.epilogue.tensors, work.out_shape, config)
    value = apply_steps(acc, work.epilogue.steps, operands, "step")
    return te.create_prim_func([*inputs, *operands, stored(value, work.epilogue)])


def stored(value: te.Tensor, epilogue: Epilogue, name: str = "out") -> te.Tensor:
    """The int8 result of int32 ``value``; an int32 one as byte planes in front of its shape."""
    if epilogue.dtype == "int8":
        return elementwise(name, lambda v: v.astype("int8"), value)
    return te.compute(
        (PLANES, *value.shape), lambda p, *i: (value(*i) >> (p * 8)).astype("int8"), name=name
    )
