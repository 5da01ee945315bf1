"""How the loops of the host's operators are lowered."""

from __future__ import annotations

import tvm

TIR_PIPELINE = "vta"
"""The name under which TVM knows it: ``relax.build(..., tir_pipeline="vta")``."""
KEEP_BUFFERS = "tirx.disable_storage_rewrite"
NO_ASSERTS = "tirx.disable_assert"


@tvm.transform.module_pass(opt_level=0, name="LowerHostLoops")
def lower_host_loops(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
    """TVM's own pipeline for loops on a CPU, every intermediate in memory of its own.

    TVM 0.27 gives intermediates of one fused operator the same bytes though their dtypes differ,
    and tells LLVM that accesses of different dtypes never meet.  LLVM may then move one over the
    other: a fused dequantize, sigmoid, quantize and multiply of 16 channels, optimized at level 3
    for AVX2, read a scale before it was written.
    """
    lower, _host, _device = tvm.tirx.get_tir_pipeline("default")
    with _context(KEEP_BUFFERS):
        return lower(mod)


def without_asserts() -> tvm.transform.PassContext:
    """The context in which what only this package calls is built.

    Every operator is a function of its own, which asserts rank, shape, strides, alignment, dtype
    and device of each argument: two thirds of the code, and of LLVM's time for a small model.  The
    Relax VM checks shape and dtype when ``main`` is called; the rest a user's tensor may lack, but
    none that was made from an array.
    """
    return _context(NO_ASSERTS)


def _context(switch: str) -> tvm.transform.PassContext:
    """The current context with one switch more.

    It is without the instruments of the current one, which another context would begin anew.
    """
    current = tvm.transform.PassContext.current()
    return tvm.transform.PassContext(
        opt_level=current.opt_level,
        required_pass=current.required_pass,
        disabled_pass=current.disabled_pass,
        config={**current.config, switch: True},
    )


def tir_pipeline() -> tuple[tvm.transform.Pass, tvm.transform.Pass, tvm.transform.Pass]:
    """The TIR pipeline "vta": :func:`lower_host_loops`, and what TVM's own ends with."""
    _lower, host, device = tvm.tirx.get_tir_pipeline("default")
    return lower_host_loops, host, device
