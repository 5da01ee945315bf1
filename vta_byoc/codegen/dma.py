"""Nests that load and store to 2-D transfers between a DRAM tensor and SRAM."""

from __future__ import annotations

from collections.abc import Mapping

from vta_byoc.codegen.alu import Access
from vta_byoc.codegen.execution import Execution
from vta_byoc.codegen.linear import CodegenError, Domain
from vta_byoc.codegen.transfer import NOTHING, UNIT, Dim, Piece, plan_transfer

MOST_ROWS = 128
"""Rows of a LOAD or STORE that are told apart; of more, the gaps between them count as touched."""


def load_pieces(run: Execution, data: Domain | None, room: int | None) -> list[Piece]:
    """The transfers of a load whose part ``data`` comes from DRAM; the rest is zero.

    Pieces count DRAM from the first datum, SRAM from where the destination begins.  ``room``: the
    elements of the SRAM buffer from there on, if none of it is in use yet, so that zeros may be
    written between the rows of the tile.
    """
    nest = run.nest
    run.check_lanes(nest.dst)
    if data is None or nest.src is None:
        dims = [Dim(d.extent, 0, 0, 0, d.strides[0]) for d in run.dims(nest.dst)]
        return plan_transfer([*dims, NOTHING])
    dims = _plan(run, data, nest.dst, nest.src)
    if room is not None:
        pieces = plan_transfer(dims, fill=True)
        if max(p.sram + p.sram_elems for p in pieces) <= room:
            return pieces
    return plan_transfer(dims)


def store_pieces(run: Execution) -> list[Piece]:
    """As :func:`load_pieces`, from SRAM to DRAM."""
    nest = run.nest
    assert nest.src is not None
    return plan_transfer(_plan(run, run.domain, nest.src, nest.dst), store=True)


def _plan(run: Execution, data: Domain, chip: Access, dram: Access) -> list[Dim]:
    """The loops of the copy."""
    unit, name = run.unit(chip), run.nest.name
    dims = []
    for (var, low, high), (first, last) in zip(run.ranges(), data, strict=True):
        step, outside = chip.flat.coef(var), dram.flat.coef(var)
        whole = (first, last) == (low, high)
        if high - low == 1 and whole:
            continue
        if 0 < step < unit:
            _check_lane(name, step, outside, whole)
            continue
        if step % unit or outside % unit or (step == 0 and high - low > 1):
            raise CodegenError(
                f"block {name}: a loop steps {step} scalars in SRAM and {outside} in DRAM; "
                f"elements hold {unit}; copy whole elements once"
            )
        dims.append(Dim(high - low, first - low, last - low, outside // unit, step // unit))
    return dims or [UNIT]


def _check_lane(name: str, step: int, outside: int, whole: bool) -> None:
    if step != outside:
        raise CodegenError(
            f"block {name}: lanes step {step} in SRAM and {outside} in DRAM; a DMA moves whole "
            "elements; pack the tensor so"
        )
    if not whole:
        raise CodegenError(
            f"block {name} pads inside an element; the DMA pads whole elements; pack the tensor "
            "with zeros in the lanes that do not exist"
        )


def dram_spans(fields: Mapping[str, int], first: int, elem: int) -> list[tuple[int, int]]:
    """The bytes of DRAM that a LOAD or STORE touches, as (first, one past the last).

    Args:
        fields: of the instruction.
        first: the element of the tensor that it begins with.
        elem: bytes of an element.
    """
    rows, size, stride = (fields[name] for name in ("y_size", "x_size", "x_stride"))
    if not 1 < rows <= MOST_ROWS or stride <= size:
        rows, size = 1, (rows - 1) * stride + size
    begins = (first + row * stride for row in range(rows))
    return [(at * elem, (at + size) * elem) for at in begins]
