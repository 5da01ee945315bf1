"""Demands of users: selectors of consumers and tensors to the results of composites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import tvm

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.names import operators_of
from vta_byoc.ir.selection import is_plain
from vta_byoc.partitioning.placement import placed_operators
from vta_byoc.workload.memory import ACC

Demands: TypeAlias = Mapping[tuple[str, str], str]
"""(consumer, tensor) -> scope, both named by their results, or selected (`ir.selection`)."""
Reads: TypeAlias = Mapping[tuple[str, str], str]
"""(consumer, tensor), results of composites -> the DRAM scope that the consumer reads it in."""


def resolved(demands: Demands, reads: Reads, mod: tvm.IRModule) -> dict[tuple[str, str], str]:
    """``demands`` by the names of two results; what is demanded by name overrules selectors.

    Raises:
        VTAError: a demand that cannot be met, of a consumer that does not read the tensor, or two
            that select the same operand.
    """
    found: dict[tuple[str, str], str] = {}
    for (consumer, tensor), scope in demands.items():
        if is_plain(consumer) and is_plain(tensor):
            _check_names(consumer, tensor, scope, reads)
            found[consumer, tensor] = scope
    by: dict[tuple[str, str], tuple[str, str]] = {}
    for pattern, scope in demands.items():
        if pattern in found:
            continue
        for pair in _selected(pattern, scope, reads, mod):
            before = by.setdefault(pair, pattern)
            if demands[before] != scope:
                raise VTAError(
                    f'"{pair[0]}" is to have "{pair[1]}" in {demands[before]} by '
                    f'"{":".join(before)}" and in {scope} by "{":".join(pattern)}"; need one '
                    "scope, have two; drop one of the demands or name the two results"
                )
            found.setdefault(pair, scope)
    return found


def _selected(
    pattern: tuple[str, str], scope: str, reads: Reads, mod: tvm.IRModule
) -> list[tuple[str, str]]:
    """The operands that a demand selects, which can all be read in ``scope``."""
    operators = placed_operators(mod)
    names = [*dict.fromkeys(name for pair in reads for name in pair)]
    ends = []
    for selector in pattern:
        if selector in names:
            ends.append({selector})
        else:
            chosen = operators.select([selector], f"of a demand for {scope}")
            ends.append({name for name in names if chosen.keys() >= {*operators_of(name)}})
    found = [pair for pair in reads if pair[0] in ends[0] and pair[1] in ends[1]]
    asked = f'tensors "{pattern[1]}": consumers "{pattern[0]}" are to take them in "{scope}"'
    if not found:
        raise VTAError(
            f"{asked}: none of these consumers on VTA reads such a tensor; `vta-byoc scopes` lists "
            "who reads what; select others"
        )
    able = [pair for pair in found if scope in (ACC, reads[pair])]
    if not able:
        can = ", ".join(sorted({reads[pair] for pair in found}))
        raise VTAError(f"{asked}: their instructions load {can}; name one of these or {ACC}")
    return able


def _check_names(consumer: str, tensor: str, scope: str, reads: Reads) -> None:
    """That a demand is of a consumer that reads the tensor, in a scope that it can read."""
    asked = f'tensor "{tensor}": consumer "{consumer}" is to take it in scope "{scope}"'
    if (consumer, tensor) not in reads:
        readers = sorted(who for who, what in reads if what == tensor)
        known = ", ".join(readers) or "none on VTA"
        raise VTAError(
            f"{asked}: need a consumer on VTA that reads it, have {known}; name the results "
            "of two operators as `vta-byoc scopes` lists them"
        )
    if scope not in (ACC, reads[consumer, tensor]):
        raise VTAError(
            f"{asked}: need {reads[consumer, tensor]}, which its instructions load, or "
            f"{ACC}, have {scope}; name one of the two"
        )
