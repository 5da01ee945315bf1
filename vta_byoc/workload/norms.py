"""The programs of a normalization, as strategies compute them."""

from __future__ import annotations

from vta_byoc.ir.norms import elements, statistics
from vta_byoc.ir.programs import Instructions
from vta_byoc.workload.workloads import NormWorkload


def token_steps(work: NormWorkload) -> Instructions:
    """From the sums of a token to its statistics."""
    return statistics(work.summed, work.epsilon, centred=work.centred)


def element_steps(work: NormWorkload) -> Instructions:
    """From an element and the statistics of its token to the result."""
    return elements(work.shift, work.low, work.high, centred=work.centred)
