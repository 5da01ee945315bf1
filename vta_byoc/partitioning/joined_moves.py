"""Movements of tensors that a concat joins, and the concat, as one copy.

Slices of one tensor side by side in the channels are what a filter sees of several depths, or a
space to depth; a concat along rows, columns or images is a copy, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.partitioning.moved import ANCHORS, moved_numbers
from vta_byoc.partitioning.movement import (
    CHANNELS,
    MOST_ELEMENTS,
    PAD,
    match_concat,
    parts_of,
)
from vta_byoc.strategies.movement.gather import gathered_by
from vta_byoc.workload.layout import NCHW, canonical

CONCAT = "relax.concat"
MOVES = (*ANCHORS, PAD)


def match_joined(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """The movements and the concat that ``anchor`` is the first of."""
    found = _joined(graph, anchor)
    return found if found and found[0].var.same_as(anchor.var) else None


def _joined(graph: Graph, first: Binding) -> list[Binding] | None:
    """A concat of movements that nothing else reads; or one along another axis than channels.

    ``first`` is one of them.  Where a part is computed, it is stored in place, and a slice beside
    it may not move at all.
    """
    anchor: Binding | None = first
    while anchor is not None and op_name(anchor.value) in MOVES:
        anchor = next(iter(graph.users.get(anchor.var, [])), None)
    if anchor is None or op_name(anchor.value) != CONCAT:
        return None
    if match_concat(graph, anchor) is None or len(static_shape(anchor.var)) not in (3, 4):
        return None
    found = {anchor.var: anchor}
    for move in reversed(graph.bindings):
        if op_name(move.value) in MOVES:
            users = graph.users.get(move.var, [])
            if users and all(user is not None and user.var in found for user in users):
                found[move.var] = move
    is_moved = all(part in found for part in parts_of(anchor.value))
    if not is_moved and int(anchor.value.attrs.axis) % anchor.var.ty.ndim == CHANNELS:
        return None
    return [binding for binding in graph.bindings if binding.var in found]


def read_joined(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """The copy of elements of all tensors that are read, numbered in row-major order."""
    inner = {binding.var for binding in bindings}
    anchor = bindings[-1]
    reads = [part for b in bindings[:-1] for part in b.value.args[:1]] + parts_of(anchor.value)
    sources = list(dict.fromkeys(read for read in reads if read not in inner))
    shapes = [canonical(static_shape(source), NCHW) for source in sources]
    after = canonical(static_shape(anchor.var), NCHW)
    known = [shape for shape in shapes if shape is not None]
    size = sum(math.prod(static_shape(each)) for each in (*sources, anchor.var))
    if after is None or len(known) != len(shapes) or size > 2 * MOST_ELEMENTS:
        raise VTAError(
            Refusal(
                "a concat reads tensors of the shapes",
                ", ".join(str(static_shape(source)) for source in sources),
                f"2 to 4 axes and {2 * MOST_ELEMENTS} elements with the result are taken",
                "join them in parts",
            )
        )
    numbers: dict[relax.Expr, np.ndarray] = {}
    begin = 0
    for source in sources:
        count = math.prod(static_shape(source))
        numbers[source] = np.arange(begin, begin + count).reshape(static_shape(source))
        begin += count
    for binding in bindings[:-1]:
        numbers[binding.var] = moved_numbers(binding, numbers[binding.value.args[0]])
    whole = np.concatenate(
        [numbers[part] for part in parts_of(anchor.value)], int(anchor.value.attrs.axis)
    )
    return Parsed(gathered_by(known, whole.reshape(after), config), tuple(sources), {})


def plan_joined(parsed: Parsed, config: VTAConfig) -> Plan:
    """Copied by the GEMM core, each vector from where it was before all movements."""
    return simple_plan("move", parsed.work, {}, config, "movements joined in one copy")


ENTRIES = (
    PatternEntry(
        "vta.joined_moves", (*MOVES, CONCAT), match_joined, read_joined, plan_joined, moves=True
    ),
)
