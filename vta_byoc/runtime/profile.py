"""What one run leaves behind: results, counters, and times and placement where they are known."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from tvm import relax

from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.html_table import first_rows, html_table
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing.result import TimingResult


class Record(Protocol):
    """The placement record: a sequence that has a text and a table."""

    @property
    def summary(self) -> str:
        """What it says in one line."""

    def _repr_html_(self) -> str: ...


class Compilation(Protocol):
    """What `vta_byoc.pipeline.compile_module` returns, as far as a run needs it."""

    @property
    def exe(self) -> relax.VMExecutable:
        """What the virtual machine runs."""

    @property
    def programs(self) -> Mapping[str, Program]:
        """The programs of its regions by name."""

    @property
    def placement(self) -> Record:
        """Where its operators run."""


@dataclass(repr=False)
class RegionRun:
    """One execution of a region: its counters and (when asked for) its arena."""

    name: str
    counters: dict[str, int]
    arena: np.ndarray | None = None

    def __repr__(self) -> str:
        kept = "" if self.arena is None else f", arena {self.arena.size:,} bytes"
        gemm, alu = self.counters["gemm_counter"], self.counters["alu_counter"]
        return f"<RegionRun {self.name}: GEMM {gemm:,}, ALU {alu:,}{kept}>"


@dataclass(repr=False)
class Profile:
    """Outputs and counters of one run.

    Attributes:
        outputs: the arrays that `main` returned.
        regions: the runs in the order in which they happened, which need not be that of the
            regions' numbers.
        programs: the program of each region by name; none for a run of an executable alone.
        placement: where every operator runs; None for a run of an executable alone.
    """

    outputs: list[np.ndarray]
    regions: list[RegionRun] = field(default_factory=list)
    programs: Mapping[str, Program] = field(default_factory=dict)
    placement: Record | None = None

    @property
    def counters(self) -> dict[str, int]:
        """The seven published counters, summed over regions; byte counters are true DRAM bytes."""
        return {n: sum(r.counters[n] for r in self.regions) for n in COUNTER_NAMES}

    @property
    def by_region(self) -> dict[str, RegionRun]:
        """The runs by the name of their region."""
        return {run.name: run for run in self.regions}

    @functools.cached_property
    def timing(self) -> dict[str, TimingResult]:
        """The cycles of each region by the timing model, in the order in which they ran.

        Raises:
            VTAError: regions ran whose programs are not known.
        """
        if self.regions and not self.programs:
            raise VTAError(
                "the profile of an executable has no timing; the timing model needs the programs; "
                "profile what vta_byoc.pipeline.compile_module returns"
            )
        return {run.name: simulate(self.programs[run.name]) for run in self.regions}

    @property
    def cycles(self) -> int:
        """The cycles of all regions, one after the other."""
        return sum(result.cycles for result in self.timing.values())

    @property
    def milliseconds(self) -> float:
        """The cycles as time at the machine's clock."""
        return sum(result.milliseconds for result in self.timing.values())

    def __repr__(self) -> str:
        shapes = ", ".join(f"{array.dtype} {array.shape}" for array in self.outputs)
        timed = f", {self.cycles:,} cycles" if self.programs else ""
        placed = "" if self.placement is None else f"; {self.placement.summary}"
        return f"<Profile of {shapes}: regions: {len(self.regions)}{timed}{placed}>"

    def _repr_html_(self) -> str:
        titles, rows = ["region", *COUNTER_NAMES], []
        if self.programs:
            titles += ["cycles", "ms"]
        for run in self.regions:
            row = [run.name, *(f"{run.counters[name]:,}" for name in COUNTER_NAMES)]
            if self.programs:
                time = self.timing[run.name]
                row += [f"{time.cycles:,}", f"{time.milliseconds:,.3f}"]
            rows.append(row)
        table = html_table(repr(self)[1:-1], titles, first_rows(rows))
        return table if self.placement is None else table + self.placement._repr_html_()
