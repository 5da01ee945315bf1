"""The program of a token in registers."""

from __future__ import annotations

from vta_byoc.ir.norms import MEAN, RATE, SQUARES, SUM
from vta_byoc.strategies.te.registers import Allocated, allocated
from vta_byoc.workload.norms import token_steps
from vta_byoc.workload.workloads import NormWorkload


def program_of(work: NormWorkload) -> Allocated:
    """From the sums of a token to its statistics, in registers."""
    given = [SQUARES, *([SUM] if work.centred else [])]
    wanted = [RATE, *([MEAN] if work.centred else [])]
    return allocated(token_steps(work), given, wanted)
