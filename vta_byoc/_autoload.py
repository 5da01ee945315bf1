"""Entry point of group `tvm.backends`: `import tvm` calls `autoload` as its last step.

It makes `relax.get_pipeline("vta")` and `tir_pipeline="vta"` work for those who never import this
package. Because every `import tvm` pays for it, and TVM is still being imported meanwhile, it only
writes down a name: the compiler is imported when a pipeline is asked for.
"""

from __future__ import annotations

from typing import Any

PIPELINE = "vta"


def autoload() -> None:
    """Register the Relax and the TIR pipeline "vta" with TVM; a second call changes nothing.

    With `TVM_DEVICE_BACKEND_AUTOLOAD=0` TVM does not call this; call it by hand then.
    """
    from tvm import _RUNTIME_ONLY

    if _RUNTIME_ONLY:
        return  # a TVM without its compiler has no relax pipelines

    from tvm.relax.pipeline import PIPELINE_MAP, register_pipeline
    from tvm.tirx.compilation_pipeline import register_tir_pipeline

    if PIPELINE not in PIPELINE_MAP:
        register_pipeline(PIPELINE)(vta_pipeline)
        register_tir_pipeline(PIPELINE, tir_pipeline)


def vta_pipeline(**options: Any) -> Any:
    """The pass `relax.get_pipeline("vta", **options)` returns; see `vta_byoc.pipeline`."""
    from vta_byoc.pipeline import vta_pipeline as pipeline

    return pipeline(**options)


def tir_pipeline() -> Any:
    """What `tvm.tirx.get_tir_pipeline("vta")` returns; see `vta_byoc.ir.host_loops`."""
    from vta_byoc.ir.host_loops import tir_pipeline as pipeline

    return pipeline()
