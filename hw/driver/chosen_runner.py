"""A runner that each thread chooses for itself: one executable, several devices."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.protocol import AnyRunner, DeviceError

_CHOSEN = threading.local()


@contextlib.contextmanager
def chosen(runner: AnyRunner) -> Iterator[None]:
    """Within the block `runner` runs the programs of this thread's pooled executables."""
    _CHOSEN.runner = runner
    try:
        yield
    finally:
        del _CHOSEN.runner


class ChosenRunner:
    """Hands programs to the runner that the calling thread has chosen."""

    def run(
        self,
        config: VTAConfig,
        insns: np.ndarray,
        inputs: np.ndarray,
        image: np.ndarray,
        arena_bytes: int,
        out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, int]]:
        """As the chosen runner does.

        Raises:
            DeviceError: the thread has chosen none.
        """
        runner: AnyRunner | None = getattr(_CHOSEN, "runner", None)
        if runner is None:
            raise DeviceError(
                "an executable of a pool runs outside of one; its device is chosen by the pool; "
                "give it to DevicePool.map, or compile it for another device"
            )
        return runner.run(config, insns, inputs, image, arena_bytes, out)
