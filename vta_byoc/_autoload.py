"""Entry point of group `tvm.backends`: `import tvm` calls `autoload` as its last step.

It makes `relax.get_pipeline("vta")`, `tir_pipeline="vta"` and `Target("vta/pynq")` work for those
who never import this package. Because every `import tvm` pays for it, and TVM is still being
imported meanwhile, it only writes down names: the compiler is imported when a pipeline is called.
"""

from __future__ import annotations

from typing import Any

PIPELINE = "vta"
MACHINE = {"kind": "ext_dev", "keys": ["vta"], "device": "vta"}
"""The target of a preset, but for its model; no kind of its own can be added from Python."""


def autoload() -> None:
    """Register pipelines "vta" and target tags "vta/PRESET"; a second call changes nothing.

    With `TVM_DEVICE_BACKEND_AUTOLOAD=0` TVM does not call this; call it by hand then.
    """
    from tvm import _RUNTIME_ONLY

    if _RUNTIME_ONLY:
        return  # a TVM without its compiler has no relax pipelines

    from tvm.relax.pipeline import PIPELINE_MAP, register_pipeline
    from tvm.target import register_tag
    from tvm.tirx.compilation_pipeline import register_tir_pipeline

    from vta_byoc.hw.preset_files import preset_names

    if PIPELINE not in PIPELINE_MAP:
        register_pipeline(PIPELINE)(vta_pipeline)
        register_tir_pipeline(PIPELINE, tir_pipeline)
        for preset in preset_names():
            register_tag(f"{PIPELINE}/{preset}", {**MACHINE, "model": preset})


def vta_pipeline(**options: Any) -> Any:
    """The pass `relax.get_pipeline("vta", **options)` returns; see `vta_byoc.pipeline`."""
    from vta_byoc.pipeline import vta_pipeline as pipeline

    return pipeline(**options)


def tir_pipeline() -> Any:
    """What `tvm.tirx.get_tir_pipeline("vta")` returns; see `vta_byoc.ir.host_loops`."""
    from vta_byoc.ir.host_loops import tir_pipeline as pipeline

    return pipeline()
