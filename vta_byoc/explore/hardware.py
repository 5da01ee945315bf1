"""What the machines of a space take of an FPGA, by the synthesis of their cores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from vta_byoc.base.jobs import run_all
from vta_byoc.explore.point import Hardware, Point
from vta_byoc.explore.space import Machine
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl.build import need_packages
from vta_byoc.hw.rtl.mapping import NAMES
from vta_byoc.hw.rtl.parameters import TOP
from vta_byoc.hw.rtl.parts import Part, part_named
from vta_byoc.hw.rtl.resources import PACKAGES, core_cells, core_key, keep_cells, kept_cells
from vta_byoc.hw.rtl.synthesis import Cells, report_of

Task = tuple[str, dict[str, Any], str]
"""The key of a core, a machine as `VTAConfig.to_dict` gives it, and the name of a part."""
Answer = tuple[str, Cells, str]
"""The key, the cells of the core, and why there are none."""


def hardware_of(
    machines: Sequence[Machine],
    part: str,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Hardware]:
    """What the core of each machine takes of a part, by the machines' names.

    Cores that were synthesized before are not synthesized again, and equal cores once: what is
    found is kept in the folder of VTA_BYOC_CACHE one by one, so that a call that was interrupted
    goes on where it was. A machine that the core cannot be built for has the reason.

    Args:
        machines: as `Space.machines` has them.
        part: a name of `hw.rtl.parts.PARTS`, or one of its other names.
        scheduler: as for `vta_byoc.base.jobs.run_all`.
        workers: likewise.
        progress: called with the number of machines that are done.

    Raises:
        VTAError: no such part, the extra `rtl` is not installed, or the folder cannot be written.
    """
    chosen = part_named(part)
    need_packages(PACKAGES, "what machines take of an FPGA")
    found: dict[str, Hardware] = {}
    waiting: dict[str, list[Machine]] = {}
    for machine in machines:
        try:
            cells = kept_cells(machine.config, chosen)
        except VTAError as err:
            found[machine.name] = Hardware(chosen.name, error=str(err))
            continue
        if cells is not None:
            found[machine.name] = _taken(cells, chosen)
        else:
            waiting.setdefault(core_key(machine.config, chosen), []).append(machine)
    _tell(progress, found)
    tasks = [(key, same[0].config.to_dict(), chosen.name) for key, same in waiting.items()]
    for key, cells, error in run_all(synthesized, tasks, scheduler, workers) if tasks else ():
        same = waiting[key]
        if not error and kept_cells(same[0].config, chosen) is None:  # made on another computer
            keep_cells(same[0].config, chosen, cells)
        made = Hardware(chosen.name, error=error) if error else _taken(cells, chosen)
        found |= {machine.name: made for machine in same}
        _tell(progress, found)
    return {machine.name: found[machine.name] for machine in machines}


def with_hardware(points: Sequence[Point], found: dict[str, Hardware]) -> list[Point]:
    """The points, each with what its machine takes, by `hardware_of`."""
    return [dataclasses.replace(point, hardware=found[point.machine]) for point in points]


def synthesized(task: Task) -> Answer:
    """What a worker does for one core; a refusal of the tools is an answer too."""
    key, config, part = task
    try:
        return key, core_cells(VTAConfig.from_dict(config), part_named(part)), ""
    except VTAError as err:
        return key, {}, " ".join(str(err).split())


def _taken(cells: Cells, part: Part) -> Hardware:
    report = report_of(cells, TOP, part)
    counts = ((name, getattr(report.total, name)) for name in NAMES)
    # Half a BRAM is a number of its own.
    total: dict[str, Any] = {name: int(n) if n == int(n) else n for name, n in counts}
    return Hardware(part.name, **total, fits=report.fits)


def _tell(progress: Callable[[int], None] | None, found: dict[str, Hardware]) -> None:
    if progress is not None:
        progress(len(found))
