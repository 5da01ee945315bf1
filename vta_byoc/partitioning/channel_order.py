"""Convolutions that compute a range of their filters, or read channels in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.partitioning.entry import Match, Parsed
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
    return _planned(match, dataclasses.replace(work, in_channels=count), given, config)


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
    return dataclasses.replace(match, parsed=parsed, plan=match.entry.plan(parsed, config))
