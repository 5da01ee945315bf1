"""Independent jobs on processes of this computer, or on a Dask cluster."""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from vta_byoc.base.torch_later import import_torch_later
from vta_byoc.hw.errors import VTAError

Task = TypeVar("Task")
Result = TypeVar("Result")
CONNECT_SECONDS = 15.0


def run_all(
    work: Callable[[Task], Result],
    jobs: Sequence[Task],
    scheduler: str | None = None,
    workers: int | None = None,
) -> Iterator[Result]:
    """What `work` returns of each job, as they are done, in any order.

    Args:
        work: a function of a module that workers can import.
        jobs: what it is called with, each once.
        scheduler: the address of a Dask scheduler, such as `tcp://10.0.0.1:8786`; processes of
            this computer where None.
        workers: processes of this computer; one a processor where None.

    Raises:
        VTAError: no such scheduler, or Dask is not installed.
    """
    if scheduler is not None:
        yield from _on_dask(work, jobs, scheduler)
        return
    count = min(workers or os.cpu_count() or 1, max(len(jobs), 1))
    # A new interpreter each: a copy of this one would share the locks of TVM's threads.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(count, context, import_torch_later) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def run_in_order(
    work: Callable[[Task], Result],
    jobs: Sequence[Task],
    scheduler: str | None = None,
    workers: int | None = None,
) -> Iterator[Result]:
    """As `run_all`, but in the order of the jobs: what is done early waits for its turn."""
    numbered, early = functools.partial(_numbered, work), dict[int, Result]()
    turn = 0
    for number, result in run_all(numbered, list(enumerate(jobs)), scheduler, workers):
        early[number] = result
        while turn in early:
            yield early.pop(turn)
            turn += 1


def _numbered(work: Callable[[Task], Result], job: tuple[int, Task]) -> tuple[int, Result]:
    return job[0], work(job[1])


def _on_dask(
    work: Callable[[Task], Result], jobs: Sequence[Task], scheduler: str
) -> Iterator[Result]:
    try:
        import distributed
    except ImportError as err:
        raise VTAError(
            'the package "distributed" is not installed; --scheduler needs it; run: python -m pip '
            'install "vta_byoc[dask]"'
        ) from err
    try:
        client: Any = distributed.Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as err:
        raise VTAError(
            f"no Dask scheduler at {scheduler} within {CONNECT_SECONDS:g} s ({err}); one must "
            "listen there; start it (dask scheduler), or leave --scheduler out"
        ) from err
    with client:
        futures = client.map(work, jobs, pure=False)
        try:
            for future in distributed.as_completed(futures):
                yield future.result()
        finally:
            client.cancel(futures)
