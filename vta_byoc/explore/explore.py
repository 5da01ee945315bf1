"""Measure every machine of a space with every model, and find those that no other beats."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vta_byoc.base.jobs import run_all
from vta_byoc.explore.point import Job, Point, measure
from vta_byoc.explore.result_log import ResultLog
from vta_byoc.explore.space import Space
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl.mapping import NAMES

COSTS = ("cycles", "dram_bytes", "sram_bytes", "macs")
"""What is to be small."""
HARDWARE_COSTS = ("cycles", "dram_bytes", "lut", "dsp", "bram")
"""What is to be small where points say what machines take of an FPGA."""
AXES = (*COSTS, "milliseconds", *NAMES)
"""What can be asked to be small."""


def jobs_of(space: Space, models: Sequence[str]) -> list[Job]:
    """Every machine with every model, models outside.

    Raises:
        VTAError: a file cannot be read.
    """
    jobs = []
    for model in models:
        try:
            digest = hashlib.sha256(Path(model).read_bytes()).hexdigest()
        except OSError as err:
            raise VTAError(
                f"model {model} cannot be read ({err.strerror}); name an existing file"
            ) from err
        for machine in space.machines:
            jobs.append(Job(model, digest, machine.name, machine.config.to_dict()))
    return jobs


def explore(
    space: Space,
    models: Sequence[str],
    log: ResultLog,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Point]:
    """The points of all machines and models, in the order of `jobs_of`.

    Args:
        space: the machines.
        models: paths of model files.
        log: results that are there already are not measured again; new ones are added one by one.
        scheduler: as for `vta_byoc.base.jobs.run_all`.
        workers: likewise.
        progress: called with the number of points that are there.
    """
    jobs = jobs_of(space, models)
    missing = list({job.key: job for job in jobs if job.key not in log.points}.values())
    done = len(jobs) - len(missing)
    if progress is not None:
        progress(done)
    if missing:
        for point in run_all(measure, missing, scheduler, workers):
            log.add(point)
            done += 1
            if progress is not None:
                progress(done)
    # The log may know an equal machine by another space's name of it.
    return [dataclasses.replace(log.points[job.key], machine=job.machine) for job in jobs]


def costs_of(named: str | None, *, hardware: bool) -> tuple[str, ...]:
    """The axes of a comma-separated list, COSTS or HARDWARE_COSTS where None.

    Raises:
        VTAError: one is unknown or there twice, or needs what machines take of an FPGA.
    """
    if named is None:
        return HARDWARE_COSTS if hardware else COSTS
    axes = tuple(axis.strip() for axis in named.split(","))
    for axis in axes:
        if axis not in AXES:
            raise VTAError(f"unknown axis {axis!r}; known: {', '.join(AXES)}; choose of them")
        if axis in NAMES and not hardware:
            raise VTAError(
                f"axis {axis!r} is what a machine takes of an FPGA, which was not asked; name the "
                "part with --resources"
            )
        if axes.count(axis) > 1:
            raise VTAError(f"axis {axis!r} is there {axes.count(axis)} times; name it once")
    return axes


def pareto(points: Iterable[Point], axes: Sequence[str] | None = None) -> list[Point]:
    """The points of which no other one of the same model is as good in all axes and better in one.

    Points with `hardware` are among them where the machine fits the part.

    Args:
        points: of any models.
        axes: names of AXES; COSTS where None, HARDWARE_COSTS where points have `hardware`.
    """
    valid = [p for p in points if not p.error and (p.hardware is None or p.hardware.fits)]
    if axes is None:
        axes = costs_of(None, hardware=any(point.hardware for point in valid))
    costs = [[point.cost(axis) for axis in axes] for point in valid]
    return [
        a
        for a, mine in zip(valid, costs, strict=True)
        if not any(
            b.model == a.model and _beats(other, mine)
            for b, other in zip(valid, costs, strict=True)
        )
    ]


def _beats(a: Sequence[float], b: Sequence[float]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))
