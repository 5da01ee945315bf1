"""A convolution and the channel shuffle behind it, as one convolution with its filters reordered.

The filters of a group see that group's channels only. In another order, a block of results has
filters of several groups, so all input channels are multiplied, most of them by zero. That is taken
where it costs less than the grouped convolution and the copy of the shuffle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.chains import Binding, Graph, dtype_of
from vta_byoc.partitioning.channel_order import in_order, ungrouped
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import (
    CONV2D,
    match_layer,
    plan_conv,
    plan_hosted_conv,
    read_conv,
)
from vta_byoc.partitioning.movement import match_shuffle, plan_move, read_shuffle, shuffle_order
from vta_byoc.strategies.conv.filled import filled_by

MOVES = 3
"""Operators of a shuffle: it is seen as groups, two axes are swapped, and it is seen as before."""


def match_shuffled(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """A convolution that ends in int8, and a channel shuffle that alone reads it."""
    found = match_layer(graph, anchor)
    if found is None or dtype_of(found[-1].var) != "int8" or not is_on("folded_shuffles"):
        return None
    seen = graph.only_user(found[-1].var)
    swapped = None if seen is None else graph.only_user(seen.var)
    moved = None if swapped is None else match_shuffle(graph, swapped)
    return None if seen is None or moved is None or moved[0].var != seen.var else [*found, *moved]


def read_shuffled(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """The convolution without groups whose filters have the order of the shuffle."""
    layer = read_conv(bindings[:-MOVES], config)
    moved = read_shuffle(bindings[-MOVES:], config)
    order, work = shuffle_order(bindings[-MOVES:]), layer.work
    weight = ungrouped(layer.constants["weight"], work)[order]
    constants = {**in_order(layer, order), "weight": weight}
    whole = dataclasses.replace(work, groups=1, filled=filled_by(weight, config))
    return Parsed(whole, layer.operands, constants, apart=(layer, moved))


def plan_shuffled(parsed: Parsed, config: VTAConfig) -> Plan:
    """As any convolution, where that costs no more than the convolution and a copy."""
    layer, moved = parsed.apart
    plan = plan_conv(parsed, config)
    apart = plan_conv(layer, config).cycles + plan_move(moved, config).cycles
    if plan.cycles > apart:
        raise VTAError(
            Refusal(
                "a convolution and the shuffle behind it take",
                f"{plan.cycles:,.0f} cycles as one by estimate",
                f"apart they take {apart:,.0f}",
            )
        )
    how = f"filters in the order of the shuffle, {plan.candidate.how}"
    return dataclasses.replace(plan, candidate=dataclasses.replace(plan.candidate, how=how))


ENTRIES = (
    PatternEntry(
        "vta.conv2d_shuffled",
        (CONV2D,),
        match_shuffled,
        read_shuffled,
        plan_shuffled,
        plan_hosted_conv,
    ),
)
