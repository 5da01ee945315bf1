"""Loops over many lanes, cut into loops over whole elements of SRAM and the lanes of one."""

from __future__ import annotations

from tvm import s_tir, tirx

from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.hw.config import VTAConfig
from vta_byoc.schedule.nests import Nest, read_nests
from vta_byoc.workload.memory import element_scalars


def with_whole_elements(func: tirx.PrimFunc, config: VTAConfig) -> tirx.PrimFunc:
    """``func`` with every loop that runs on from the lanes of one element to the next split in two.

    A nest of VTA has loops over elements and loops over the lanes of one. A copy of 64 channels
    in one loop is four elements of 16 lanes, one of 8 rows of 8 pixels is four of two rows;
    splitting it changes nothing in what is computed.
    """
    nests = read_nests(func, config)
    found = {nest.name: loops for nest in nests if (loops := _long_loops(nest, config))}
    if not found:
        return func
    sch = s_tir.Schedule(func)
    for nest in nests:
        if nest.name in found:
            _split(sch, nest, found[nest.name])
    return sch.mod["main"].with_attrs(dict(func.attrs or {}))


def _split(sch: s_tir.Schedule, nest: Nest, lanes_of: dict[int, int]) -> None:
    """Split loops of ``nest`` by position, the last first; its pragmas go to the innermost."""
    loops = sch.get_loops(nest.name)[-len(nest.loops) :]
    for loop in loops:
        if PRAGMA_KEY in sch.get(loop).annotations:
            sch.unannotate(loop, PRAGMA_KEY)
    for position, lanes in lanes_of.items():
        sch.split(loops[position], [None, lanes])
    if nest.stated:
        innermost = sch.get_loops(nest.name)[-1]
        sch.annotate(innermost, PRAGMA_KEY, ",".join(sorted(nest.stated)))


def _long_loops(nest: Nest, config: VTAConfig) -> dict[int, int]:
    """What to split off a loop by its position, the last first: the rest of an element's lanes.

    Lanes are counted from the loop that steps by one scalar on; the loop that would go on into the
    next element is the one to split.
    """
    if nest.leaf is None:
        return {}
    long: dict[int, int] = {}
    for access in nest.leaf.on_chip:
        lanes, covered = element_scalars(config, access.scope), 1
        loops = [(access.flat.coef(v), n, at) for at, (v, n) in enumerate(nest.leaf.loops) if n > 1]
        for stride, extent, position in sorted(loops):
            if stride != covered or covered == lanes:
                continue
            rest, left = divmod(lanes, covered)
            if extent > rest and not left and extent % rest == 0:
                long[position] = rest
                break
            covered *= extent
    return dict(sorted(long.items(), reverse=True))
