"""Load and store leaves to 2-D transfers between a DRAM tensor and SRAM."""

from __future__ import annotations

from .alu import Access
from .execution import Box, Execution
from .linear import CodegenError, clip_box
from .transfer import NOTHING, UNIT, Dim, Piece, plan_transfer


def load_pieces(run: Execution, fill: bool) -> tuple[int, list[Piece]]:
    """(SRAM base, transfers): pieces count DRAM from the tensor's start, SRAM from the base.

    ``fill``: nothing of the SRAM buffer is in use yet, so zeros may be written between the rows of
    the tile.
    """
    leaf = run.leaf
    run.check_lanes(leaf.dst)
    base = run.at(leaf.dst)
    data = _data_box(run)
    if data is None or leaf.src is None:
        dims = [Dim(d.extent, 0, 0, 0, d.strides[0]) for d in run.dims(leaf.dst)]
        return base, plan_transfer([*dims, NOTHING])
    start, dims = _plan(run, data, leaf.dst, leaf.src)
    return base, [p if p.zero else p.moved(start) for p in _filled(run, dims, base, fill)]


def store_pieces(run: Execution) -> tuple[int, list[Piece]]:
    """As :func:`load_pieces`, from SRAM to DRAM."""
    leaf = run.leaf
    assert leaf.src is not None
    start, dims = _plan(run, run.box, leaf.src, leaf.dst)
    return run.at(leaf.src), [p.moved(start) for p in plan_transfer(dims, store=True)]


def _data_box(run: Execution) -> Box | None:
    """The part of the box that comes from DRAM, or None where all of it is padding."""
    data = clip_box(run.leaf.pad, run.env, run.leaf.loops)
    if data is None:
        return None
    box = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(run.box, data, strict=True)]
    return None if any(first >= last for first, last in box) else box


def _filled(run: Execution, dims: list[Dim], base: int, fill: bool) -> list[Piece]:
    """Gaps between rows become zeros only as far as the buffer reaches."""
    buffer = run.leaf.dst.buffer
    if fill and base == run.sram.base(buffer):
        pieces = plan_transfer(dims, fill=True)
        if max(p.sram + p.sram_elems for p in pieces) <= run.sram.size(buffer):
            return pieces
    return plan_transfer(dims)


def _plan(run: Execution, data: Box, chip: Access, dram: Access) -> tuple[int, list[Dim]]:
    """First DRAM element of the data, and the loops of the copy."""
    unit, name = run.unit(chip), run.leaf.name
    dims, corner = [], dict(run.env)
    for (var, low, high), (first, last) in zip(run.ranges(), data, strict=True):
        step, outside = chip.flat.coef(var), dram.flat.coef(var)
        corner[var] = first
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
    offset = dram.flat.at(corner)
    start, lane = divmod(offset, unit)
    if lane:
        raise CodegenError(
            f"block {name}: DRAM offset {offset} scalars is not a multiple of {unit}; "
            "tiles start at whole elements"
        )
    return start, dims or [UNIT]


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
