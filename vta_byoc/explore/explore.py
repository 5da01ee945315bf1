"""Measure every machine of a space with every model, and find those that no other beats."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vta_byoc.base.jobs import run_all
from vta_byoc.explore.point import Job, Point, measure
from vta_byoc.explore.result_log import ResultLog
from vta_byoc.explore.space import Space
from vta_byoc.hw.errors import VTAError

COSTS = ("cycles", "dram_bytes", "sram_bytes", "macs")
"""What is to be small."""


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
    return [log.points[job.key] for job in jobs]


def pareto(points: Iterable[Point]) -> list[Point]:
    """The points of which no other one of the same model is as good in COSTS and better in one."""
    valid = [point for point in points if not point.error]
    return [a for a in valid if not any(_beats(b, a) for b in valid if b.model == a.model)]


def _beats(a: Point, b: Point) -> bool:
    pairs = [(getattr(a, cost), getattr(b, cost)) for cost in COSTS]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)
