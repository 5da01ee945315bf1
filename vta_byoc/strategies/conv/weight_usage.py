"""What a convolution loads of its weights."""

from __future__ import annotations

import dataclasses

import numpy as np

from vta_byoc.cost.dma import CopyAxis, transfers
from vta_byoc.cost.search import Array, Mask, Staged, ceil_div
from vta_byoc.strategies.conv.filled import pieces_of
from vta_byoc.strategies.conv.gemm_usage import GemmUsage
from vta_byoc.strategies.conv.schedule import WEIGHT_STATIONARY
from vta_byoc.workload.memory import WGT


class WeightUsage(GemmUsage):
    """The weights of one variant, for all tiles at once."""

    def wgt(self) -> Staged:
        """The weights of a tile, or those of its blocks that are not zero."""
        one = self.once(f"wgt {self.keeps_wgt}", self.wgt_of_any_order)
        row = self.steps * (1 if self.variant.order == WEIGHT_STATIONARY else self.n_co)
        once = (self.positions == 1) | self.keeps_wgt
        turns = np.where(once, 1, self.positions)
        period = np.where(once, one.fills, row)
        return dataclasses.replace(one, period=period, turns=turns, ends=self.last_step())

    def wgt_of_any_order(self) -> Staged:
        """The same, as far as the order of the loops has no part in it."""
        tile, work, co = self.tile, self.work, self.tile["co"]
        ci = self.ci if self.keeps_wgt else tile["ci"]
        kh, kw = work.kernel if self.keeps_wgt else (tile["kh"], tile["kw"])
        fills = self.n_g * self.n_co if self.keeps_wgt else self.tiles * self.steps
        total = float(self.digits * self.groups * self.co * self.ci * self.taps)
        nbytes = total * self.config.wgt_elem_bytes * (1 if self.keeps_wgt else self.positions)
        axes: tuple[CopyAxis, ...] = (
            CopyAxis(kw, 1),
            CopyAxis(kh, work.kernel[1]),
            CopyAxis(ci, self.taps),
            CopyAxis(self.digits, self.ci * self.taps),
            CopyAxis(co, self.digits * self.ci * self.taps),
            CopyAxis(tile["g"], self.co * self.digits * self.ci * self.taps),
        )
        if work.weight_by_input:
            axes = (CopyAxis(co, 1), CopyAxis(ci, self.co), CopyAxis(tile["g"], self.co * self.ci))
        size = self.digits * tile["g"] * co * ci * kh * kw
        dmas, apart = fills * transfers(axes), self.apart()
        if np.any(apart):
            pieces = pieces_of(self.filled, co, ci)
            nbytes = np.where(apart, nbytes * pieces.pairs / (self.co * self.ci), nbytes)
            tiles = self.n_co * ceil_div(self.ci, ci)
            row = transfers((*axes[:2], CopyAxis(pieces.cols, self.taps)))
            rows = self.digits * pieces.rows * pieces.count * row
            dmas = np.where(apart, fills / tiles * tile["g"] * rows, dmas)
        return Staged(WGT, size, fills, nbytes, dmas)

    def apart(self) -> Mask:
        """Whether a tile leaves out blocks of zero weights."""
        leaves = np.array([each.blocks for each in self.choices])
        found: np.ndarray = leaves[np.asarray(self.left_out())]
        return found

    def last_step(self) -> Array:
        """How long the last step of the loops is to that of an average one."""
        tile, (height, width) = self.out_tile, self.out_size
        size: Array = np.float64(1)
        axes = (
            ("co", self.co, self.n_co),
            ("n", self.images, self.n_n),
            ("oh", height, self.n_h),
            ("ow", width, self.n_w),
        )
        inner = axes[1:] if self.variant.order == WEIGHT_STATIONARY else axes[:1]
        for name, total, count in inner:
            size = size * (total - (count - 1) * tile[name]) * count / total
        return size
