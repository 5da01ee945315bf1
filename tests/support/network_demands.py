"""Random legal demands of consumers, and what became of each."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from layer_runs import Run

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.passes.fuse_tiles import HINTED, SHARED, Sharing, sharing_record
from vta_byoc.strategy import DRAM_INP
from vta_byoc.workload.memory import ACC

OTHER, SAME = 90, 25
"""Percent of the consumers that demand an operand on chip: which they would not take from there,
which they would."""
OUT, THERE = 60, 25
"""Percent of the remaining tensors that are demanded in DRAM: those on chip, those in DRAM."""
SCARCE_INP, SCARCE_ACC = 6, 5
"""Logarithms of what SRAM is smaller by, where demands shall meet estimates that say no."""
LEAST_INP, LEAST_ACC = 6, 8
"""Logarithms of bytes that are left at the least."""
INJECTED, REFUSED = "injected", "refused"
AGAINST_COST, OTHER_OPERAND = "on chip against the cost", "on chip for the other operand"
TAKEN_OUT = "out of the tile"
Demands = dict[tuple[str, str], str]

REFUSAL = re.compile(
    r'tensor "([^"]+)": consumer "([^"]+)" is to take it in scope "local\.acc_buffer": '
    r"(?:need .+, have .+|no tile of .+ fits the SRAM .+\(the smallest needs .+\)); "
    r"demand global\.vta\.inp or drop the demand"
)
"""Of a demand that other demands made impossible."""


def scarce(config: VTAConfig) -> VTAConfig:
    """``config`` with so little SRAM that sharing a tile may cost more than it saves."""
    return dataclasses.replace(
        config,
        log_inp_buff_size=max(config.log_inp_buff_size - SCARCE_INP, LEAST_INP),
        log_acc_buff_size=max(config.log_acc_buff_size - SCARCE_ACC, LEAST_ACC),
    )


def legal_demands(record: Sequence[Sharing], seed: int) -> Demands:
    """Demands by (consumer, tensor): at most one on chip for each consumer, and only of what was
    estimated; any of the others may be in DRAM."""
    rng = np.random.default_rng(seed)
    found: Demands = {}
    for _, group in itertools.groupby(record, lambda item: item.consumer):
        items = list(group)
        taken = [item for item in items if item.scope == ACC]
        other = [item for item in items if item.scope != ACC and item.together > 0]
        possible, share = (other, OTHER) if other else (taken, SAME)
        chosen = None
        if possible and rng.integers(100) < share:
            chosen = possible[rng.integers(len(possible))]
            found[chosen.consumer, chosen.tensor] = ACC
        for item in items:
            share = OUT if item.scope == ACC else THERE
            if item is not chosen and rng.integers(100) < share:
                found[item.consumer, item.tensor] = DRAM_INP
    return found


def with_demands(
    run: Callable[[Demands], Run], record: Sequence[Sharing], demands: Demands
) -> tuple[Run, Counter[str]]:
    """``run`` with ``demands`` without those that it refuses, and how many came to what.

    Args:
        run: compiles with demands and runs.
        record: what was decided without any.

    Raises:
        VTAError: a refusal that no other demand explains, or anything else.
    """
    kept, count = dict(demands), Counter({INJECTED: len(demands)})
    while True:
        try:
            done = run(kept)
        except VTAError as error:
            del kept[_refused(error, record, kept)]
            count[REFUSED] += 1
        else:
            break
    without = {(item.consumer, item.tensor): item for item in record}
    after = {(item.consumer, item.tensor): item for item in sharing_record(done.module)}
    for key, scope in kept.items():
        rule = HINTED if scope == ACC else f"demanded in {scope}"
        assert (after[key].scope, after[key].rule) == (scope, rule), after[key]
        count[_change(without[key], scope)] += 1
    return done, count


def _refused(error: VTAError, record: Sequence[Sharing], demands: Demands) -> tuple[str, str]:
    """The demand that ``error`` refuses, which was legal before an earlier consumer's was met."""
    match = REFUSAL.fullmatch(str(error))
    if match is None:
        raise error
    tensor, consumer = match.groups()
    if demands.get((consumer, tensor)) != ACC:
        raise error
    earlier = itertools.takewhile(lambda item: item.consumer != consumer, record)
    changed = any(
        item.scope != demands.get((item.consumer, item.tensor), item.scope) for item in earlier
    )
    if not changed:
        raise error
    return consumer, tensor


def _change(item: Sharing, scope: str) -> str:
    """What a demand for ``scope`` changed."""
    if item.scope == scope:
        return "as it was"
    if scope != ACC:
        return TAKEN_OUT
    if item.rule.startswith("together "):
        return AGAINST_COST
    assert item.rule != SHARED
    return OTHER_OPERAND
