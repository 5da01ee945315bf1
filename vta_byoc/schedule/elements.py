"""Loops over many lanes, cut into loops over whole elements of SRAM and the lanes of one."""

from __future__ import annotations

from tvm import s_tir, tirx

from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.hw.config import VTAConfig
from vta_byoc.schedule.nests import Nest, read_nests
from vta_byoc.workload.memory import element_scalars


def with_whole_elements(func: tirx.PrimFunc, config: VTAConfig) -> tirx.PrimFunc:
    """``func`` with every loop that runs over the lanes of several elements split in two.

    A nest of VTA has loops over elements and loops over the lanes of one. A copy of 64 channels
    in one loop is four elements of 16 lanes; splitting it changes nothing in what is computed.
    """
    nests = read_nests(func, config)
    found = {nest.name: loops for nest in nests if (loops := _long_loops(nest, config))}
    if not found:
        return func
    sch = s_tir.Schedule(func)
    for nest in nests:
        if nest.name in found:
            _split(sch, nest, found[nest.name])
    return sch.mod["main"].with_attrs(dict(func.attrs))


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
    """Lanes of an element by position of a loop that runs over those of several, the last first."""
    if nest.leaf is None:
        return {}
    long: dict[int, int] = {}
    for access in nest.leaf.on_chip:
        lanes = element_scalars(config, access.scope)
        for position, (var, extent) in enumerate(nest.leaf.loops):
            if access.flat.coef(var) == 1 and extent > lanes and extent % lanes == 0:
                long[position] = lanes
    return dict(sorted(long.items(), reverse=True))
