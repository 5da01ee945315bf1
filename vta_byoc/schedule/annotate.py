"""Stating what a nest is: `dma_copy`, `gemm` and `alu` for a block of a schedule."""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import SBlockRV

from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.hw.config import VTAConfig
from vta_byoc.schedule.nests import Nest, ScheduleError, function_of, last_line, read_nests


def dma_copy(sch: s_tir.Schedule, block: SBlockRV | str) -> None:
    """State that the nest of ``block`` copies between DRAM and SRAM.

    Call it last, when scopes are set and tiles are made. Of a block that computes and stores, this
    states the copy; `alu` states the rest.

    Args:
        sch: the schedule, changed in place.
        block: the block or its name.

    Raises:
        ScheduleError: the nest copies nothing, or is none; the message says what it really is.
    """
    _state(sch, block, "dma_copy")


def gemm(sch: s_tir.Schedule, block: SBlockRV | str) -> None:
    """State that the nest of ``block`` is a matrix product of the GEMM core, or its reset.

    The two nests that `decompose_reduction` makes of a sum are stated one by one.

    Args:
        sch: the schedule, changed in place.
        block: the block or its name.

    Raises:
        ScheduleError: the nest is no product of INP and WGT summed into ACC; the message says what
            it really is.
    """
    _state(sch, block, "gemm")


def alu(sch: s_tir.Schedule, block: SBlockRV | str) -> None:
    """State that the nest of ``block`` computes on the vector ALU.

    Args:
        sch: the schedule, changed in place.
        block: the block or its name.

    Raises:
        ScheduleError: the nest computes nothing that the ALU does; the message says what it
            really is.
    """
    _state(sch, block, "alu")


def _state(sch: s_tir.Schedule, block: SBlockRV | str, pragma: str) -> None:
    rv, name = _found(sch, block)
    nest = _nest(sch, name)
    if nest.leaf is None:
        raise ScheduleError(nest.refusal)
    if pragma not in nest.leaf.does:
        calls = " and ".join(f'{does}(sch, "{name}")' for does in sorted(nest.leaf.does))
        raise ScheduleError(
            f"block {name} is no {pragma}: it {nest.leaf.describe()}, which is {nest.is_what}; "
            f"call {calls} or change the nest"
        )
    stated = sorted(nest.stated | {pragma})
    loop = sch.get_loops(rv)[-1]
    if PRAGMA_KEY in sch.get(loop).annotations:
        sch.unannotate(loop, PRAGMA_KEY)
    sch.annotate(loop, PRAGMA_KEY, ",".join(stated))


def _found(sch: s_tir.Schedule, block: SBlockRV | str) -> tuple[SBlockRV, str]:
    """The block and its name."""
    try:
        rv = sch.get_sblock(block) if isinstance(block, str) else block
        return rv, str(sch.get(rv).name_hint)
    except (RuntimeError, TypeError, ValueError) as err:
        names = ", ".join(nest.name for nest in read_nests(function_of(sch), VTAConfig()))
        named = f'"{block}"' if isinstance(block, str) else "that was given"
        raise ScheduleError(
            f"block {named} is not in the schedule ({last_line(err)}); its blocks are {names}; "
            "give one of them, as sch.get_sblock returns it or by its name"
        ) from err


def _nest(sch: s_tir.Schedule, name: str) -> Nest:
    """The nest of block ``name`` as it is now, on a machine that has everything."""
    nests = read_nests(function_of(sch), VTAConfig())
    return next(nest for nest in nests if nest.name == name)
