"""Convolutions that compute some of their filters, or compute or read channels in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.partitioning.entry import Match, Parsed
from vta_byoc.partitioning.layers import plan_conv
from vta_byoc.strategies.conv.filled import filled_by
from vta_byoc.workload.workloads import MAP, Conv2dWorkload

NONE = -1
"""Stands for no channel in an order of lanes."""


def is_dense(work: object) -> bool:
    """Whether every filter sees every channel."""
    return isinstance(work, Conv2dWorkload) and work.groups == 1


def is_by_channel(work: object) -> bool:
    """Whether each channel of the result comes from the same one of the data (depthwise)."""
    if not isinstance(work, Conv2dWorkload):
        return False
    return work.groups == work.in_channels == work.out_channels > 1


def with_filters(match: Match, first: int, last: int, config: VTAConfig) -> Match:
    """The convolution ``match`` without its filters before ``first`` and from ``last`` on.

    Raises:
        VTAError: no tile of it fits.
    """
    parsed, work = match.parsed, match.parsed.work
    constants = in_order(parsed, range(first, last))
    constants["weight"] = parsed.constants["weight"][first:last]
    return _planned(match, dataclasses.replace(work, out_channels=last - first), constants, config)


def reading(match: Match, lanes: Sequence[int], config: VTAConfig) -> Match:
    """The convolution ``match`` of data whose channel number i is channel ``lanes[i]`` of its own.

    A lane without a channel, NONE, may hold anything: it is multiplied by zero.  The result of a
    depthwise convolution has the order of ``lanes``, zeros where there is no channel; that of a
    dense one its own.

    Raises:
        VTAError: no tile of it fits.
    """
    parsed, work = match.parsed, match.parsed.work
    weight, count = parsed.constants["weight"], len(lanes)
    if is_by_channel(work):
        constants = in_order(parsed, lanes)
        constants["weight"] = _taken(weight, lanes)
        whole = dataclasses.replace(work, in_channels=count, out_channels=count, groups=count)
        return _planned(match, whole, constants, config)
    ordered = np.moveaxis(_taken(np.moveaxis(weight, 1, 0), lanes), 0, 1)
    given = {**parsed.constants, "weight": np.ascontiguousarray(ordered)}
    filled = filled_by(ordered, config)
    whole = dataclasses.replace(work, in_channels=count, filled=filled)
    return _planned(match, whole, given, config)


def computed_in_order(match: Match, channels: Sequence[int], config: VTAConfig) -> Match:
    """The convolution ``match``, which has no groups, with its filters in the order ``channels``.

    Raises:
        VTAError: no tile of it fits.
    """
    parsed, work = match.parsed, match.parsed.work
    constants = in_order(parsed, channels)
    constants["weight"] = _taken(parsed.constants["weight"], channels)
    filled = filled_by(constants["weight"], config)
    return _planned(match, dataclasses.replace(work, filled=filled), constants, config)


def without_groups(parsed: Parsed) -> Parsed:
    """A convolution whose weights are zero between groups of channels."""
    work: Conv2dWorkload = parsed.work
    if work.groups == 1:
        return parsed
    constants = {**parsed.constants, "weight": ungrouped(parsed.constants["weight"], work)}
    whole = dataclasses.replace(work, groups=1)
    return dataclasses.replace(parsed, work=whole, constants=constants)


def ungrouped(weight: np.ndarray, work: Conv2dWorkload) -> np.ndarray:
    """Weights (O, I / groups, KH, KW) as (O, I, KH, KW), zero between groups."""
    own, filters = weight.shape[1], len(weight) // work.groups
    whole = np.zeros((len(weight), work.in_channels, *weight.shape[2:]), weight.dtype)
    for group in range(work.groups):
        rows = slice(group * filters, (group + 1) * filters)
        whole[rows, group * own : (group + 1) * own] = weight[rows]
    return whole


def in_order(parsed: Parsed, channels: Sequence[int]) -> dict[str, np.ndarray]:
    """The constants of the epilogue for the results ``channels``."""
    found = dict(parsed.constants)
    for number, kind in enumerate(parsed.work.epilogue.tensors):
        if kind != MAP:
            found[f"operand{number}"] = _taken(found[f"operand{number}"], channels)
    return found


def _taken(values: np.ndarray, channels: Sequence[int]) -> np.ndarray:
    """``values`` by channel, zeros for none."""
    wanted = np.asarray(channels)
    taken = values[np.maximum(wanted, 0)]
    taken[wanted == NONE] = 0
    return taken


def _planned(
    match: Match, work: Conv2dWorkload, constants: dict[str, np.ndarray], config: VTAConfig
) -> Match:
    parsed = dataclasses.replace(match.parsed, work=work, constants=constants)
    return dataclasses.replace(match, parsed=parsed, plan=plan_conv(parsed, config))
