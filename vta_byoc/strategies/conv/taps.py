"""Products with zero: which of them a tile's GEMM leaves out.

Products with zero padding, and with blocks of zero weights (`filled`), add nothing.  The GEMM nest
of a step may leave them out: it is then one instruction for each box of taps and outputs that see
the input, and for each rectangle of blocks, instead of one for all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_walk

from vta_byoc.base.rewrites import is_on
from vta_byoc.codegen.narrowing import with_where
from vta_byoc.cost.search import Array
from vta_byoc.strategies.conv.filled import Rectangle, conditions_of
from vta_byoc.strategies.conv.window import Window, windows
from vta_byoc.workload.memory import WGT
from vta_byoc.workload.receptive import outputs_inside, products_inside
from vta_byoc.workload.workloads import Conv2dWorkload

SKIP_PADDING = "skip_padding"
UPDATE = "acc_update"
"""The block of the products."""
WEIGHTS = f"weight_{WGT}"
"""The block that loads the weights."""
Skips = tuple[bool, bool]
"""Whether products with padding are left out: above and below, left and right of the input."""
Span = tuple[int, int]
"""[first, end) of outputs or taps."""
NONE: Skips = (False, False)


class LeftOut(NamedTuple):
    """What a tile does not multiply: products with padding, and with blocks of zero weights."""

    padding: Skips = NONE
    blocks: bool = False


NOTHING = LeftOut()


@dataclass(frozen=True)
class Boxes:
    """What the GEMM nests of all tiles do along one axis, over all steps of their taps.

    Attributes:
        products: pairs of an output and a tap that are computed.
        boxes: of taps and outputs, of all nests.
        kinds: nests whose boxes differ.
        different: boxes that differ.
        shortest: outputs of the smallest box.
    """

    products: Array
    boxes: Array
    kinds: Array
    different: Array
    shortest: Array


@functools.lru_cache(maxsize=1 << 16)
def boxes_of(
    window: Window, outs: int, taps: int, planes: int = 1
) -> tuple[int, int, int, int, int]:
    """:class:`Boxes` of tiles of ``outs`` outputs, in ``planes``, in steps of ``taps`` taps."""
    products = total = 0
    kinds: set[tuple[TapBox, ...]] = set()
    for first, count in window.tiles(outs):
        for first_tap in range(0, window.taps, taps):
            origin = first * window.step + first_tap * window.dilation - window.before
            kind = _boxes_in_planes(window, count, taps, origin, planes)
            products += sum(box.outputs * box.taps for box in kind)
            total += len(kind)
            kinds.add(kind)
    different = {box for kind in kinds for box in kind}
    shortest = min((box.outputs for box in different), default=1)
    return products, total, len(kinds), len(different), shortest


class TapBox(NamedTuple):
    """Outputs of some planes, and taps, of which each sees the input: [first, end) of both."""

    first: int
    end: int
    first_tap: int
    end_tap: int
    planes: int = 1

    @property
    def outputs(self) -> int:
        """How many outputs it has."""
        return (self.end - self.first) * self.planes

    @property
    def taps(self) -> int:
        """How many taps it has."""
        return self.end_tap - self.first_tap


def _boxes_in_planes(
    window: Window, outs: int, taps: int, origin: int, planes: int
) -> tuple[TapBox, ...]:
    """:func:`_boxes` where every ``planes``-th output is in one plane; whole planes are one box."""
    if planes == 1:
        return _boxes(window, outs, taps, origin)
    apart = dataclasses.replace(window, step=window.step * planes)
    found: list[TapBox] = []
    for plane in range(min(outs, planes)):
        count = -(-(outs - plane) // planes)
        kind = _boxes(apart, count, taps, origin + plane * window.step)
        whole = TapBox(0, count, 0, taps)
        if kind == (whole,) and found and found[-1]._replace(planes=1) == whole:
            found[-1] = whole._replace(planes=found[-1].planes + 1)
        else:
            found += kind
    return tuple(found)


def _boxes(window: Window, outs: int, taps: int, origin: int) -> tuple[TapBox, ...]:
    """The boxes of one nest, whose output 0 sees position ``origin`` by its tap 0.

    The shorter loop is cut into runs that see the same of the other, as code generation does
    (`codegen.linear.Clip`).
    """
    size, step, dilation = window.size, window.step, window.dilation
    if origin >= 0 and origin + (outs - 1) * step + (taps - 1) * dilation < size:
        return (TapBox(0, outs, 0, taps),)
    if outs < taps:
        seen = [outputs_inside(taps, size, dilation, origin + step * o) for o in range(outs)]
        return tuple(TapBox(*run, *there) for run, there in _runs(seen))
    seen = [outputs_inside(outs, size, step, origin + dilation * tap) for tap in range(taps)]
    return tuple(TapBox(*there, *run) for run, there in _runs(seen))


def _runs(seen: Sequence[Span]) -> list[tuple[Span, Span]]:
    """Neighbours that see the same: [first, end) of them, and what they see, if anything."""
    begins = [k for k in range(len(seen)) if not k or seen[k] != seen[k - 1]]
    ends = [*begins[1:], len(seen)]
    runs = [((begin, end), seen[begin]) for begin, end in zip(begins, ends, strict=True)]
    return [(run, there) for run, there in runs if there[0] < there[1]]


def all_products(work: Conv2dWorkload) -> int:
    """Pairs of an output position and a tap, over one plane, that some tile computes at least."""
    if len(skips_of(work)) == 1:
        return work.out_height * work.out_width * work.kernel[0] * work.kernel[1]
    rows, cols = (
        products_inside(w.out, w.size, w.taps, w.step, w.dilation, w.before)
        for w in windows(work, gather=False)
    )
    return rows * cols


def boxes_by_size(
    window: Window, outs: Array, taps: Array, skip: bool, planes: Array = 1
) -> Boxes:
    """:class:`Boxes` of an axis for tiles of any sizes; all in one where nothing is skipped.

    ``planes``: into how many the outputs of each tile are sorted.
    """
    outs, taps = np.asarray(outs), np.asarray(taps)
    if not skip:
        nests = window.count(outs) * (window.taps // taps)
        return Boxes(window.computed(outs) * window.taps, nests, 1, 1, outs)
    each = np.broadcast_arrays(outs, taps, planes)
    shape = each[0].shape
    tiles = zip(*(sizes.reshape(-1) for sizes in each), strict=True)
    counts = np.array([boxes_of(window, int(o), int(t), int(p)) for o, t, p in tiles], float)
    return Boxes(*(counts[:, k].reshape(shape) for k in range(5)))


def left_out_of(work: Conv2dWorkload, filled: Sequence[Rectangle]) -> list[LeftOut]:
    """What tiles may leave out; nothing first."""
    zeros = (False, True) if filled else (False,)
    return [LeftOut(*each) for each in itertools.product(skips_of(work), zeros)]


def skips_of(work: Conv2dWorkload) -> list[Skips]:
    """Which products with padding tiles may leave out; none first."""
    if not is_on(SKIP_PADDING) or min(work.kernel) < 1:
        return [NONE]
    above, left = (any(window.bounds) for window in windows(work, gather=False))
    rows, cols = ((False, True) if there else (False,) for there in (above, left))
    return list(itertools.product(rows, cols))


def without_zeros(
    func: tirx.PrimFunc, work: Conv2dWorkload, left_out: LeftOut, filled: Sequence[Rectangle]
) -> tirx.PrimFunc:
    """``func``, a scheduled convolution, whose products with zero are left out as chosen.

    ``filled``: where the weights of a block-diagonal group are.
    """
    if left_out == NOTHING:
        return func
    values = _iter_values(func)
    *_, output, h, w, _b, _o, block, kh, kw, _rk = values[UPDATE]
    conditions = []
    for skip, window, out, tap in zip(
        left_out.padding, windows(work, gather=False), (h, w), (kh, kw), strict=True
    ):
        position = out * window.step + tap * window.dilation - window.before
        before, behind = window.bounds
        conditions += [position >= 0] * (skip and before)
        conditions += [position < window.size] * (skip and behind)
    if not left_out.blocks:
        return with_where(func, {UPDATE: [tirx.all(*conditions)]})
    apart = conditions_of(filled, output, block)
    _group, output, *_, block, _kh, _kw, _lane, _rk = values[WEIGHTS]
    return with_where(
        func,
        {
            UPDATE: [tirx.all(*conditions, *own) for own in apart],
            WEIGHTS: [tirx.all(*own) for own in conditions_of(filled, output, block)],
        },
    )


def _iter_values(func: tirx.PrimFunc) -> dict[str, Sequence[Expr]]:
    """Of each block by its name: where it is along its axes."""
    found: dict[str, Sequence[Expr]] = {}

    def note(real: SBlockRealize) -> None:
        found[str(real.block.name_hint)] = real.iter_values

    structural_walk(func.body, (SBlockRealize, note))
    return found
