"""Accuracy over a large data set: parts of it on processes of this computer, or a Dask cluster.

A worker gets the modules as text and the paths of the files, which it must see as well.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from vta_byoc.base.jobs import run_in_order
from vta_byoc.base.progress import Progress
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.fixed_inputs import fixed_inputs
from vta_byoc.validation.accuracy import (
    LISTED,
    Change,
    Evaluation,
    Runner,
    check_device,
    host_runner,
    measure,
    onnxruntime_runner,
    runner,
    signature,
)
from vta_byoc.validation.labelled_dataset import LabelledData

LEAST_SAMPLES = 64
"""Of a part: below that a worker compiles for longer than it runs."""
MOST_PARTS = 64


@dataclass(frozen=True)
class _Part:
    """What a worker measures: all that the counts depend on.

    Attributes:
        quantized: the quantized module as JSON.
        against: the float module as JSON, or the path of an ONNX file.
        config: the machine, as `VTAConfig.to_dict` gives it.
        device: where the quantized module runs.
        data: the path of the samples.
        first: the number of the part's first sample.
        count: how many samples it has.
    """

    quantized: str
    against: str | Path
    config: dict[str, Any]
    device: str
    data: str
    first: int
    count: int

    def measured(self) -> Evaluation:
        """The counts of the part; changes have the numbers of the whole data set."""
        qmod = tvm.ir.load_json(self.quantized)
        data = LabelledData(self.data, signature(qmod), self.count, self.first)
        config, against = VTAConfig.from_dict(self.config), self.against
        if isinstance(against, Path):
            other = onnxruntime_runner(against, fixed_inputs(qmod))
        else:
            other = _host(_Text(against))
        return measure(_device(_Text(self.quantized), config, self.device), other, data)


class _Text(str):
    """A module's text that is compared and kept by its digest."""

    @functools.cached_property
    def _digest(self) -> bytes:
        return hashlib.sha256(self.encode()).digest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Text) and self._digest == other._digest


@functools.lru_cache(maxsize=1)
def _device(text: _Text, config: VTAConfig, device: str) -> Runner:
    """The quantized module on its device: compiled once a worker."""
    return runner(tvm.ir.load_json(str(text)), config, device)


@functools.lru_cache(maxsize=1)
def _host(text: _Text) -> Runner:
    """The float module on the host: compiled once a worker."""
    return host_runner(tvm.ir.load_json(str(text)))


def in_workers(
    qmod: tvm.IRModule,
    against: tvm.IRModule | Path,
    config: VTAConfig,
    device: str = "sim",
    scheduler: str | None = None,
    workers: int | None = None,
) -> Callable[[LabelledData, Progress | None], Evaluation]:
    """What counts as `vta_byoc.evaluate` does, parts of the samples side by side.

    Args:
        qmod: the quantized classifier.
        against: the float module, or an ONNX file for ONNX Runtime.
        config: the machine.
        device: as of `vta_byoc.evaluate`, one for each worker.
        scheduler: the address of a Dask scheduler; processes of this computer where None.
        workers: how many of them; one a processor where None.

    Returns:
        A function of the samples and the progress to the counts; seconds are those of all workers
        together.

    Raises:
        VTAError: a device that accuracy is not measured on; from the function that too, or no such
            scheduler.
    """
    check_device(device)
    quantized = tvm.ir.save_json(qmod)
    other = against.absolute() if isinstance(against, Path) else tvm.ir.save_json(against)
    machine = config.to_dict()

    def run(data: LabelledData, progress: Progress | None) -> Evaluation:
        path, result = str(data.path.absolute()), Evaluation()
        parts = [_Part(quantized, other, machine, device, path, *part) for part in _ranges(data)]
        for found in run_in_order(_Part.measured, parts, scheduler, workers):
            result = joined(result, found)
            if progress is not None:
                progress(result.samples, len(data))
        return result

    return run


def _ranges(data: LabelledData) -> Iterator[tuple[int, int]]:
    """First sample and number of samples of the parts, which are whole batches."""
    rows, total = data.signature.rows, len(data)
    wanted = max(LEAST_SAMPLES, -(-total // MOST_PARTS))
    size = -(-wanted // rows) * rows
    for begin in range(0, total, size):
        yield data.first + begin, min(size, total - begin)


def joined(one: Evaluation, behind: Evaluation) -> Evaluation:
    """The counts of two parts of a data set, of which the second comes behind the first."""
    moved = [
        Change(one.samples + c.sample, c.label, c.quantized, c.against) for c in behind.changes
    ]
    return Evaluation(
        samples=one.samples + behind.samples,
        correct=one.correct + behind.correct,
        against_correct=one.against_correct + behind.against_correct,
        agreeing=one.agreeing + behind.agreeing,
        lost=one.lost + behind.lost,
        gained=one.gained + behind.gained,
        seconds=one.seconds + behind.seconds,
        against_seconds=one.against_seconds + behind.against_seconds,
        changes=(one.changes + moved)[:LISTED],
    )
