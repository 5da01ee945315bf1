"""The kernels of a region's layers, each made once for all layers and orders that have it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from vta_byoc.codegen.kernel_streams import KernelStreams
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import KernelFunction
from vta_byoc.strategy import Computation


class KernelsOnce:
    """What `Computation.functions` gives, asked once for computations that are equal.

    Equal layers have the very same PrimFuncs then, by which `streams` knows them.
    """

    def __init__(self, config: VTAConfig) -> None:
        self._config = config
        self.streams = KernelStreams()
        self._known: dict[Hashable, Sequence[KernelFunction]] = {}

    def of(self, computation: Computation) -> Sequence[KernelFunction]:
        """The scheduled PrimFuncs of ``computation``, in order.

        Raises:
            VTAError: no kernel fits.
        """
        own, chosen = computation, computation.chosen
        text = None if chosen is None else chosen.to_text()  # with the tile's axes in their order
        key = own.strategy, own.work, own.fused, own.weight_batch, text
        if key not in self._known:
            self._known[key] = own.functions(self._config)
        return self._known[key]
