"""Keys and values of a few tokens written into a cache that stays in DRAM."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.chains import Binding, Graph, dtype_of
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.workload.copy_region import CopyRegion, Source
from vta_byoc.workload.layout import canonical, tokens
from vta_byoc.workload.workloads import MoveWorkload

APPEND = "relax.scatter_elements"
APPENDED = "vta.append"
"""The composite whose result is a state of the program."""
_KEPT: ContextVar[bool] = ContextVar("vta_byoc.partitioning.appended.kept", default=False)


@contextlib.contextmanager
def kept_caches() -> Iterator[None]:
    """Meanwhile what a scatter writes into is a state of the program, which a session keeps."""
    token = _KEPT.set(True)
    try:
        yield
    finally:
        _KEPT.reset(token)


def match_append(_graph: Graph, anchor: Binding) -> list[Binding] | None:
    """An int8 scatter into a cache of the caller, where a session keeps it."""
    if not _KEPT.get() or dtype_of(anchor.var) != "int8" or window_axis(anchor) is None:
        return None
    return [anchor]


def window_axis(append: Binding) -> int | None:
    """The one axis of which a part is written: one of the last two."""
    cache, _places, part = (static_shape(arg) for arg in append.value.args)
    rank = len(cache)
    axes = [i for i in range(rank) if cache[i] != part[i]]
    axis = int(append.value.attrs.axis) % rank
    return axis if rank >= 2 and axes == [axis] and axis >= rank - 2 else None


def read_append(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """The first window of (..., T, C), of tokens or of channels."""
    (append,) = bindings
    cache, _places, part = append.value.args
    layout, k = tokens(config.block), config.block
    whole, window = (canonical(static_shape(x), layout) for x in (cache, part))
    sizes = static_shape(cache), static_shape(part)
    assert whole is not None and window is not None
    if config.batch != 1 or any(size % k for shape in sizes for size in shape[-2:]):
        raise VTAError(
            Refusal(
                "a cache of shape",
                f"{sizes[0]}, written {sizes[1]} at a time",
                f"blocks of {k} on a machine with BATCH 1 are appended in place",
                "give the decoder heads and lengths in whole blocks",
            )
        )
    *leading, rows, channels = sizes[1]
    by_channel = window_axis(append) == len(sizes[0]) - 1
    inner = rows * (channels // k) if by_channel else rows
    count = math.prod(leading) * (1 if by_channel else channels // k)
    pitch = inner * (sizes[0][-1] // channels if by_channel else sizes[0][-2] // rows)
    size = (count, inner)
    source = Source(0, 0, (inner, 1), (0, 0), size)
    box = CopyRegion(size, 0, (pitch, 1), (source,))
    return Parsed(MoveWorkload((window,), whole, (box,)), (part,), {}, layout)


def plan_append(parsed: Parsed, config: VTAConfig) -> Plan:
    """Copied by the GEMM core."""
    return simple_plan("move", parsed.work, {}, config, "stored in place")


ENTRIES = (PatternEntry(APPENDED, (APPEND,), match_append, read_append, plan_append),)
