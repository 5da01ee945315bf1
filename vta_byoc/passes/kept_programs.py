"""Programs of regions kept on disk, so that only the first process compiles a network's layers.

Instructions and micro-ops depend on shapes, schedules and steps of the layers, and on which
constants are equal, but on no constant's bytes: an entry holds the program with zeros in their
place, and finds its network again after other weights were trained. Its name is a digest of all
that was asked for, of the sources and of the versions beneath, and is in its contents too; what is
damaged or of another name is compiled again. What is read equals what is compiled, byte for byte.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm

import vta_byoc.hw
from vta_byoc.base.rewrites import switched_off
from vta_byoc.cost.objective import current
from vta_byoc.hw.cache import cache_folder, digest_of_sources, read_entry, usable, write_entry
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.constants import with_constants, without_constants
from vta_byoc.hw.program.file import from_file_bytes, to_file_bytes
from vta_byoc.hw.program.program import Program
from vta_byoc.partitioning.region import Region, RegionStep
from vta_byoc.strategies.base import OWN
from vta_byoc.strategy import STRATEGIES, Strategy

WORTH_SECONDS = 0.5
"""Of CPU: what takes less is not kept, so that the folder holds networks."""
MOST_ENTRIES = 64
"""Programs that are kept, some 100 kB each; those that were used longest ago make room."""
SUFFIX = ".program"
_LOG = logging.getLogger("vta_byoc")


def kept_program(
    asked: str | None,
    constants: Mapping[str, np.ndarray],
    config: VTAConfig,
    build: Callable[[], Program],
) -> Program:
    """The program that ``build`` compiles, from disk where it was compiled before.

    Args:
        asked: all that its instructions depend on beside the machine and the sources, as text; None
            where no text holds it, and nothing is kept.
        constants: the contents of its constants, by name.
        config: the machine.
        build: compiles it; what it raises is not kept.
    """
    folder = None if asked is None else usable(cache_folder())
    if asked is None or folder is None:
        return build()
    facts = {"asked": asked, "machine": config.to_dict(), **_surroundings()}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    path = folder / f"{key}{SUFFIX}"
    found = _read(path, key, constants)
    if found is not None:
        return found
    start = time.process_time()
    program = build()
    if time.process_time() - start >= WORTH_SECONDS:
        bare = to_file_bytes(without_constants(program, constants))
        write_entry(path, zlib.compress(key.encode() + bare, 1), MOST_ENTRIES)
    return program


def _read(path: Path, key: str, constants: Mapping[str, np.ndarray]) -> Program | None:
    """The program in ``path``; None where there is none, or it is not what was written."""
    data = read_entry(path)
    if data is None:
        return None
    wrong: object = "it is the entry of another name"
    try:
        text = zlib.decompress(data)
        if text.startswith(key.encode()):
            return with_constants(from_file_bytes(text[len(key) :]), constants)
    except (VTAError, zlib.error) as err:
        wrong = err
    _LOG.info("%s is damaged; the region is compiled again (%s)", path, wrong)
    return None


# ---------------------------------------------------------------- what an entry is of
def asked_of(
    mod: tvm.IRModule,
    region: Region,
    same: Mapping[str, str],
    places: Mapping[str, tuple[str, int]],
) -> str | None:
    """What the instructions of a region depend on, as text.

    Args:
        mod: holds the PrimFuncs of its steps.
        region: the region.
        same: for each constant the first that is equal to it.
        places: scope and alignment of each tensor.

    Returns:
        None where a step is of a strategy that a plug-in brought: no digest holds its sources.
    """
    steps = [_step(mod, step) for step in region.steps]
    if not all(steps):
        return None
    tensors = dict(region.tensors), region.params, region.outputs
    return repr((steps, tensors, dict(same), dict(places), switched_off(), current()))


def _step(mod: tvm.IRModule, step: RegionStep) -> object:
    computation = step.computation(mod)
    fused = [STRATEGIES[consumer.strategy] for consumer in computation.fused]
    strategies = [computation.strategy, *fused]
    if not all(map(_is_own, strategies)):
        return None
    names = step.composite, step.inside, step.args, step.output, step.source, step.carried
    return names, _names(strategies), computation.work, computation.fused, computation.chosen


def _is_own(strategy: Strategy) -> bool:
    return type(strategy).__module__.startswith(OWN) and not STRATEGIES.is_replaced(strategy.name)


def _names(strategies: Sequence[Strategy]) -> list[str]:
    return [f"{type(s).__module__}.{type(s).__qualname__} {s.name}" for s in strategies]


@functools.cache
def _surroundings() -> dict[str, object]:
    """Versions, and digests of every source file of the compiler and of the machine."""
    roots = Path(__file__).resolve().parents[1], Path(str(vta_byoc.hw.__file__)).resolve().parent
    return {
        "sources": [digest_of_sources(root) for root in roots],
        "tvm": tvm.__version__,
        "numpy": np.__version__,
    }
