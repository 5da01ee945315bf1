"""The builder of programs as networks have them: with the rewrites of instructions that are on."""

from __future__ import annotations

from vta_byoc.base.rewrites import is_on
from vta_byoc.codegen import BEST, LoopCompression, ProgramBuilder
from vta_byoc.codegen.kernel_streams import KernelStreams
from vta_byoc.hw.config import VTAConfig


def program_builder(
    config: VTAConfig,
    compression: LoopCompression = BEST,
    *,
    weights_ahead: bool = False,
    streams: KernelStreams | None = None,
) -> ProgramBuilder:
    """A builder that leaves out loads of what is in its place, and does what `is_on` says.

    Args:
        config: the machine.
        compression: of micro-ops, that of the builder.
        weights_ahead: that of the builder.
        streams: those of other builders of the same kernels.
    """
    return ProgramBuilder(
        config,
        compression,
        reuse_resident=True,
        join_uops=is_on("joined_uops"),
        load_early=is_on("early_loads"),
        weights_ahead=weights_ahead,
        streams=streams,
    )
