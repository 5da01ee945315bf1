"""join: copies of boxes of vectors from operands of which the last one is constant."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import LayerSchedule
from vta_byoc.strategies.movement.move import Move
from vta_byoc.workload.packing import pack_activation
from vta_byoc.workload.workloads import MoveWorkload

JOINED = "joined"
"""The constant's name among the arrays of a group."""


class Join(Move):
    """A copy whose last operand is constant."""

    name = "join"

    def weights(
        self,
        schedule: LayerSchedule[MoveWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The constant operand, packed; then the movements of lanes."""
        return [pack_activation(given[JOINED], config), *super().weights(schedule, given, config)]


JOIN = Join()
