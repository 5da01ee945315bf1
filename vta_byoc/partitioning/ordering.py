"""Channels between convolutions in the order that leaves the fewest blocks of weights.

Behind a convolution with groups, or behind one whose filters have the order of a shuffle, a channel
comes from some blocks of inputs and is read for some blocks of outputs.  Between both, convolutions
of each channel work in any order.  Filters, weights, biases and all constants by channel move with
their channel.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from tvm import relax

from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import straight_bindings, users_of
from vta_byoc.partitioning.block_order import Side, cheapest_order
from vta_byoc.partitioning.channel_order import (
    computed_in_order,
    is_by_channel,
    reading,
    without_groups,
)
from vta_byoc.partitioning.entry import Match
from vta_byoc.partitioning.kept_match import match_of
from vta_byoc.partitioning.region import called_composite
from vta_byoc.partitioning.routes import Routes
from vta_byoc.workload.layout import NCHW
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import Conv2dWorkload

LOG = logging.getLogger(__name__)
CONVS = ("vta.conv2d", "vta.conv2d_shuffled")


@dataclass
class _Between:
    """What works on the channels of a tensor.

    Attributes:
        by_channel: results of convolutions of each channel.
        readers: results of the other convolutions, which read them or the tensor.
    """

    by_channel: list[relax.Var] = field(default_factory=list)
    readers: list[relax.Var] = field(default_factory=list)


def find_orders(
    main: relax.Function,
    groups: Mapping[str, relax.Function],
    routes: Routes,
    config: VTAConfig,
) -> Routes:
    """The orders that cost less by estimate, of tensors that ``routes`` leaves as they are."""
    found = Routes()
    if is_on("zero_blocks") and is_on("ordered_channels"):
        finder = _Finder(main, groups, routes, config)
        for var in finder.convolutions:
            try:
                finder.order(var, found)
            except VTAError as err:
                LOG.debug("channels of %s stay as they are: %s", var.name, err)
    return found


class _Finder:
    """The convolutions of a function, and what they become in other orders."""

    def __init__(
        self,
        main: relax.Function,
        groups: Mapping[str, relax.Function],
        routes: Routes,
        config: VTAConfig,
    ):
        self._config = config
        self._users = users_of(main)
        taken = {*routes.parts, *routes.orders, *routes.readers, *routes.moves}
        self.convolutions: dict[relax.Var, Match] = {}
        for binding in straight_bindings(main):
            group = called_composite(binding, groups)
            if group is None or binding.var in taken:
                continue
            if str(group.attrs["Composite"]) in CONVS:
                match = match_of(group)
                if match.parsed.layout == NCHW:
                    self.convolutions[binding.var] = match

    def order(self, var: relax.Var, found: Routes) -> None:
        """Add to ``found`` the order of the channels of ``var``, where it costs less.

        Raises:
            VTAError: no tile of a convolution in that order fits.
        """
        match, between = self._match(var, found), self._between(var)
        if between is None or not between.readers or is_by_channel(match.parsed.work):
            return
        convs = [match, *(self._match(reader, found) for reader in between.readers)]
        whole = [dataclasses.replace(m, parsed=without_groups(m.parsed)) for m in convs]
        sides = [self._side(each, int(at > 0)) for at, each in enumerate(whole)]
        lanes = cheapest_order(sides, self._config.block)
        if lanes == sorted(lanes):
            return
        made = {var: _noted(computed_in_order(whole[0], lanes, self._config))}
        for result in between.by_channel:
            made[result] = reading(self._match(result, found), lanes, self._config)
        for reader, each in zip(between.readers, whole[1:], strict=True):
            made[reader] = _noted(reading(each, lanes, self._config))
        before = sum(self._match(each, found).plan.cycles for each in made)
        if sum(each.plan.cycles for each in made.values()) < before:
            found.readers |= made
            found.reordered |= {var, *between.by_channel}

    def _match(self, var: relax.Var, found: Routes) -> Match:
        """The convolution as it is by now."""
        return found.readers.get(var) or self.convolutions[var]

    def _between(self, var: relax.Var) -> _Between | None:
        """What reads ``var``; None where anything else than convolutions does."""
        between, waiting = _Between(), [var]
        for each in waiting:
            for user in self._users.get(each, []):
                if user is None or user.var not in self.convolutions:
                    return None
                if is_by_channel(self.convolutions[user.var].parsed.work):
                    between.by_channel.append(user.var)
                    waiting.append(user.var)
                else:
                    between.readers.append(user.var)
        return between

    def _side(self, match: Match, axis: int) -> Side:
        """The weights of a convolution whose ``axis`` are the channels, 0 of those it computes."""
        work: Conv2dWorkload = match.parsed.work
        plane = blocks(work.batch, self._config.batch) * work.out_height * work.out_width
        weight: np.ndarray = match.parsed.constants["weight"]
        cycles = plane * work.kernel[0] * work.kernel[1] * work.digits
        return Side.of(weight, axis, cycles, self._config.block)


def _noted(match: Match) -> Match:
    """``match``, whose plan says that its weights are in another order."""
    plan = match.plan
    how = f"channels in an order of fewer blocks, {plan.candidate.how}"
    candidate = dataclasses.replace(plan.candidate, how=how)
    return dataclasses.replace(match, plan=dataclasses.replace(plan, candidate=candidate))
