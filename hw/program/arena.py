"""The arena's plan: tensors that are never alive together share bytes.

A tensor is alive from the step that writes it first to the step that reads it last.  The plan is
greedy: one tensor after the other goes into the smallest gap that holds it between those alive at
the same time.  Two orders are tried, the largest first and as defined; the smaller peak wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ARENA_ALIGN = 64
"""Every tensor begins at a multiple of this many bytes."""


def aligned(offset: int, align: int) -> int:
    """The first multiple of ``align`` from ``offset`` on."""
    return -(-offset // align) * align


@dataclass(frozen=True)
class Lifetime:
    """Steps ``first`` to ``last``, both included."""

    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether a step belongs to both."""
        return self.first <= other.last and other.first <= self.last

    def union(self, other: Lifetime) -> Lifetime:
        """From the earlier beginning to the later end."""
        return Lifetime(min(self.first, other.first), max(self.last, other.last))


@dataclass(frozen=True)
class Tenant:
    """A tensor to place: ``nbytes`` at a multiple of ``align`` bytes while it is alive."""

    name: str
    nbytes: int
    align: int
    alive: Lifetime


@dataclass(frozen=True)
class ArenaPlan:
    """Where tensors lie: byte offsets by name from a base that is a multiple of `align`.

    `nbytes` is the end of the last one.
    """

    offsets: Mapping[str, int]
    nbytes: int
    align: int


def plan_arena(tenants: Sequence[Tenant]) -> ArenaPlan:
    """Place tensors, given in order of definition, so that those alive together lie apart.

    Raises:
        ValueError: a lifetime ends before it begins, or two tensors have one name.
    """
    for tenant in tenants:
        if tenant.alive.last < tenant.alive.first:
            raise ValueError(
                f"{tenant.name} is alive from step {tenant.alive.first} to {tenant.alive.last}; a "
                "lifetime ends where it begins or later; correct it"
            )
    if len({t.name for t in tenants}) < len(tenants):
        raise ValueError("two tensors have one name; a plan is by name; rename one")
    by_size = sorted(tenants, key=lambda t: -t.nbytes)  # stable: of equals as defined
    plans = [_placed(order) for order in (by_size, tenants)]
    return min(plans, key=lambda plan: plan.nbytes)


def _placed(order: Sequence[Tenant]) -> ArenaPlan:
    placed: list[tuple[int, Tenant]] = []
    for tenant in order:
        near = [(at, other) for at, other in placed if other.alive.meets(tenant.alive)]
        taken = sorted((at, at + other.nbytes) for at, other in near if other.nbytes)
        placed.append((_best_fit(tenant, taken), tenant))
    return ArenaPlan(
        {tenant.name: at for at, tenant in placed},
        max((at + tenant.nbytes for at, tenant in placed), default=0),
        max((_align_of(tenant) for tenant in order), default=ARENA_ALIGN),
    )


def _align_of(tenant: Tenant) -> int:
    return max(tenant.align, ARENA_ALIGN)


def _best_fit(tenant: Tenant, taken: Sequence[tuple[int, int]]) -> int:
    """Where the tensor leaves the least of a gap between `taken` ranges, or their end.

    The ranges rise.
    """
    end, gaps = 0, []
    for low, high in taken:
        at = aligned(end, _align_of(tenant))
        if at + tenant.nbytes <= low:
            gaps.append((low - end, at))
        end = max(end, high)
    return min(gaps)[1] if gaps else aligned(end, _align_of(tenant))
