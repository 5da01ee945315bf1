"""Products of two tensors that the model computes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph, dtype_of, is_narrowing
from vta_byoc.ir.views import PERMUTE_DIMS, VIEWS, exchanges
from vta_byoc.partitioning import digits
from vta_byoc.partitioning.appended import APPEND
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import MATMUL, check_sizes, simple_plan
from vta_byoc.partitioning.softmax import begins_softmax, ends_softmax
from vta_byoc.partitioning.steps import Range, StepReader, axes_of
from vta_byoc.workload.layout import ROWS, tokens, turned
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.products import ProductWorkload, TransposeWorkload
from vta_byoc.workload.workloads import CHANNEL, Epilogue


def match_product(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """An int8 product of two computed tensors, and the steps that follow to int8."""
    args = anchor.value.args
    if dtype_of(anchor.var) != "int32" or any(dtype_of(a) != "int8" for a in args):
        return None
    if any(is_constant(a) for a in args):
        return None
    found = [anchor, *digits.chain(graph, anchor.var)]
    return found if is_narrowing(found[-1].value) else None


def read_product(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """(..., M, K) times (..., K, S): tokens are columns, groups of channels the products."""
    call, k = bindings[0].value, config.block
    left, right = (static_shape(arg) for arg in call.args)
    if config.batch != 1:
        raise VTAError(_wide_batch(config))
    if len(left) != len(right) or left[:-2] != right[:-2]:
        raise VTAError(
            Refusal(
                "the operands of a product have shapes",
                f"{left} and {right}",
                "equal leading dimensions are taken",
                "broadcast the smaller one in the model",
            )
        )
    groups, (rows, sums), columns = math.prod(left[:-2]), left[-2:], right[-1]
    shape = static_shape(bindings[0].var)
    reach = Range(
        np.full(columns, -128 * 127 * sums, np.int64), np.full(columns, 128 * 128 * sums, np.int64)
    )
    reader = StepReader(shape, axes_of(ROWS, len(shape)), reach, config, "the accumulator")
    reader.read(digits.steps_of(bindings[1:]))
    if any(kind != CHANNEL for kind in Epilogue(tuple(reader.steps)).tensors):
        raise VTAError(
            Refusal(
                "a constant behind the product has",
                "a value for each position",
                "one value, or one for each column, is taken",
                "leave it to the CPU",
            )
        )
    work = ProductWorkload(
        batch=1,
        in_channels=groups * blocks(sums, k) * k,
        out_channels=groups * blocks(columns, k) * k,
        height=1,
        width=blocks(rows, k) * k,
        kernel=(1, 1),
        groups=groups,
        epilogue=Epilogue(tuple(reader.steps)),
    )
    check_sizes(work)
    filled = blocks(columns, k) * k - columns
    operands = {
        f"operand{i}": np.tile(np.pad(values, (0, filled)), groups)
        for i, values in enumerate(reader.operands)
    }
    layouts = (tokens(k), turned(k))
    return Parsed(work, tuple(call.args), operands, tokens(k), layouts)


def _wide_batch(config: VTAConfig) -> Refusal:
    return Refusal(
        "the machine has BATCH",
        f"{config.batch}",
        "a product of two activations takes 1: a weight serves all images of a batch",
        "use a machine with BATCH 1 or leave it to the CPU",
    )


def plan_product(parsed: Parsed, config: VTAConfig) -> Plan:
    """On the GEMM core."""
    how = "GEMM, the second operand as weights"
    return simple_plan("matmul2", parsed.work, parsed.constants, config, how)


# ---------------------------------------------------------------- transposition
def match_transpose(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """The first of two exchanges in front of a product, of what a layer computed.

    Or the one in front of a softmax that stands alone, or behind it.
    """
    if dtype_of(anchor.var) != "int8" or not exchanges(anchor.value):
        return None
    source = graph.defined.get(anchor.value.args[0])
    while source is not None and op_name(source.value) in VIEWS:
        source = graph.defined.get(source.value.args[0])
    if source is None or not is_narrowing(source.value):
        return None
    again = graph.only_user(anchor.var)
    is_first = again is not None and (
        _feeds_product(graph, again) or op_name(again.value) == APPEND
    )
    is_turned = is_first or begins_softmax(graph, anchor.var) or ends_softmax(graph, source)
    return [anchor] if is_turned else None


def _feeds_product(graph: Graph, again: Binding) -> bool:
    """Whether it exchanges once more, in front of a product."""
    products = [op_name(getattr(user, "value", None)) for user in graph.users.get(again.var, [])]
    return exchanges(again.value) and MATMUL in products


def read_transpose(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """(..., S, D) to (..., D, S)."""
    call, k = bindings[0].value, config.block
    if config.batch != 1:
        raise VTAError(_wide_batch(config))
    *leading, rows, channels = static_shape(call.args[0])
    groups = math.prod(leading)
    whole, width = (blocks(size, k) * k for size in (rows, channels))
    work = TransposeWorkload(
        batch=1,
        in_channels=groups * width,
        out_channels=groups * whole,
        height=1,
        width=width,
        kernel=(1, 1),
        groups=groups,
    )
    check_sizes(work)
    return Parsed(work, (call.args[0],), {}, tokens(k))


def plan_transpose(parsed: Parsed, config: VTAConfig) -> Plan:
    """On the GEMM core."""
    return simple_plan("transpose", parsed.work, {}, config, "GEMM with the identity")


ENTRIES = (
    PatternEntry("vta.matmul2", (MATMUL,), match_product, read_product, plan_product),
    PatternEntry("vta.transpose", (PERMUTE_DIMS,), match_transpose, read_transpose, plan_transpose),
)
