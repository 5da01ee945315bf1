"""What the user keeps on the CPU: operators that `exclude` selects, or `only` does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm

from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.selection import Operators
from vta_byoc.partitioning.placement import placements

EXCLUDED, NOT_SELECTED = "excluded by", "not selected by only"
"""`Refusal.what` of both."""


def left_out(
    mod: tvm.IRModule, only: Sequence[str], exclude: Sequence[str]
) -> Mapping[str, Refusal]:
    """The operators of ``main`` that stay on the CPU by the user's wish, each with the reason.

    Args:
        mod: of the integer dialect.
        only: selectors of what VTA may compute; everything where there are none.
        exclude: selectors of what it may not compute.

    Raises:
        VTAError: a selector that chooses nothing, or ``exclude`` takes all that ``only`` selects.
    """
    if not (only or exclude):
        return {}
    operators = Operators.of(mod)
    wanted = operators.select(only, "to compute on VTA") if only else operators.names
    unwanted = operators.select(exclude, "to exclude from VTA")
    if only and not set(wanted) - set(unwanted):
        raise VTAError(
            f"only {_quoted(only)} selects {len(wanted)} operators and exclude {_quoted(exclude)} "
            "all of them too; nothing is left for VTA; drop one of the two"
        )
    missed = Refusal(NOT_SELECTED, _quoted(only))
    found = {name: missed for name in operators.names if name not in wanted}
    return found | {name: Refusal(EXCLUDED, f'"{by}"') for name, by in unwanted.items()}


def names_left_out(mod: tvm.IRModule) -> set[str]:
    """The operators that the placement record of ``mod`` shows as left out."""
    found = {record.name: record.why for record in placements(mod)}
    return {
        name
        for name, why in found.items()
        if isinstance(why, Refusal) and why.what in (EXCLUDED, NOT_SELECTED)
    }


def _quoted(selectors: Sequence[str]) -> str:
    return ", ".join(f'"{each}"' for each in selectors)
