"""What the convolutions on both cores have alike: costs, constants, and a bias beside borders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from tvm import te, tirx

from vta_byoc.cost.dma import with_alike_epilogue
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import LayerSchedule, SingleKernelStrategy
from vta_byoc.strategies.conv.borders import (
    BORDERS,
    BorderWriter,
    bordered,
    borders_operand,
    in_boxes,
    with_border_sums,
)
from vta_byoc.strategies.te.definition import with_epilogue
from vta_byoc.workload.borders import pack_borders
from vta_byoc.workload.memory import DRAM_ACC
from vta_byoc.workload.workloads import Conv2dWorkload


class Convolution(SingleKernelStrategy[Conv2dWorkload]):
    """A convolution: what its sums are and how they are scheduled, the kind of strategy says."""

    workload = Conv2dWorkload

    def costs_like(self, work: Conv2dWorkload, config: VTAConfig) -> Conv2dWorkload:
        """The same convolution, whatever the immediates behind it."""
        return with_alike_epilogue(work, config)

    def bias_forms(
        self, work: Conv2dWorkload, given: Mapping[str, np.ndarray], _config: VTAConfig
    ) -> list[tuple[Conv2dWorkload, dict[str, np.ndarray]]]:
        """In boxes."""
        found = bordered(work, given)
        return [] if found is None else [found]

    # ---------------------------------------------------------------- what is computed
    def definition(
        self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """Those of :meth:`sums`, what boxes add, the operands of the steps, the result."""
        work, (inputs, acc) = schedule.work, self.sums(schedule, config)
        if work.borders:
            inputs.append(borders_operand(work, config))
            acc = with_border_sums(acc, work, inputs[-1])
        return with_epilogue(inputs, acc, work, config)

    @abstractmethod
    def sums(
        self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig
    ) -> tuple[list[te.Tensor], te.Tensor]:
        """The packed data and weights, and the accumulators (N/b, O/k, OH, OW, b, k)."""

    def constants(
        self,
        schedule: LayerSchedule[Conv2dWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The packed constants; a bias by position is taken apart where that is in boxes."""
        work = schedule.work
        return super().constants(schedule, in_boxes(work, given) if work.borders else given, config)

    def weights(
        self,
        schedule: LayerSchedule[Conv2dWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """Those of :meth:`factors` and the packed "borders"."""
        borders = [pack_borders(given[BORDERS], config)] if schedule.work.borders else []
        return [*self.factors(schedule, given, config), *borders]

    @abstractmethod
    def factors(
        self,
        schedule: LayerSchedule[Conv2dWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The packed "weight" and what goes with it."""

    def weight_scopes(self, work: Conv2dWorkload) -> tuple[str, ...]:
        """Those of :meth:`factors` and of borders."""
        return (*self.factor_scopes(work), *(DRAM_ACC,) * work.borders)

    @abstractmethod
    def factor_scopes(self, work: Conv2dWorkload) -> tuple[str, ...]:
        """The DRAM scopes of :meth:`factors`."""

    # ---------------------------------------------------------------- how it is computed
    def scheduled(
        self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """Data, weights, what boxes add, operands, result."""
        work, func = schedule.work, self.tiled(schedule, config)
        if not work.borders:
            return func
        return BorderWriter(func, work, self.roles, self.steps(work)).func()

    @abstractmethod
    def tiled(self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig) -> tirx.PrimFunc:
        """What :meth:`scheduled` gives, without what boxes add."""

    @abstractmethod
    def steps(self, work: Conv2dWorkload) -> tuple[str, ...]:
        """The names of its nests before the store that compute steps."""
