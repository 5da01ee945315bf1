"""The time of what was compiled, region by region."""

from __future__ import annotations

from collections.abc import Mapping

from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing.result import TimingResult
from vta_byoc.hw.timing_parameters import Timing


def time_programs(
    programs: Mapping[str, Program], timing: Timing | None = None
) -> dict[str, TimingResult]:
    """Cycles and stalls of each region of ``Compiled.programs``, in order.

    ``timing`` replaces the parameters of the programs' configuration. A region that would wait
    for ever raises VTAError.
    """
    return {name: simulate(program, timing) for name, program in programs.items()}
