"""vta_byoc: compile ONNX, TFLite and PyTorch models for the VTA accelerator with stock TVM.

    import vta_byoc as vta

    cfg = vta.VTAConfig.preset("pynq")
    mod = vta.load_model("resnet18.onnx")
    qmod = vta.quantize(mod, calibration=batches, config=cfg)
    pmod = vta.partition_for_vta(qmod, config=cfg)
    exe = vta.build(pmod, config=cfg, device="sim")
    prof = vta.profile(exe, inputs)

The names in `__all__` are loaded on first use: importing this package does not import TVM,
which itself imports this package while it looks for backends (see `_autoload.py`).

Raises:
    ImportError: the installed apache-tvm or apache-tvm-ffi does not work with this package;
        the message holds the pip command that repairs it.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vta_byoc._interrupt import install_for_script, is_command
from vta_byoc.base.pins import check_pins

install_for_script()
try:
    check_pins()
except ImportError as error:
    if not is_command():
        raise
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
# Who wants to hear of stages and decisions adds a handler (docs/how-to/notebooks-and-shell.md).
logging.getLogger(__name__).addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from vta_byoc.bundle.write import write_bundle
    from vta_byoc.decoding.decoder import decoder
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.hw.errors import VTAError, VTAWarning
    from vta_byoc.hw.program.program import Program
    from vta_byoc.importers.load import load_model
    from vta_byoc.pipeline import build, partition_for_vta
    from vta_byoc.quantize import quantize
    from vta_byoc.runtime.execute import profile
    from vta_byoc.validation.accuracy import evaluate

__version__ = "0.1.0"

__all__ = [
    "Program",
    "VTAConfig",
    "VTAError",
    "VTAWarning",
    "build",
    "decoder",
    "evaluate",
    "load_model",
    "partition_for_vta",
    "profile",
    "quantize",
    "write_bundle",
]

_HOME = {
    "Program": "vta_byoc.hw.program.program",
    "VTAConfig": "vta_byoc.hw.config",
    "VTAError": "vta_byoc.hw.errors",
    "VTAWarning": "vta_byoc.hw.errors",
    "build": "vta_byoc.pipeline",
    "decoder": "vta_byoc.decoding.decoder",
    "evaluate": "vta_byoc.validation.accuracy",
    "load_model": "vta_byoc.importers.load",
    "partition_for_vta": "vta_byoc.pipeline",
    "profile": "vta_byoc.runtime.execute",
    "quantize": "vta_byoc.quantize",
    "write_bundle": "vta_byoc.bundle.write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """This package's module type: a submodule never hides a public name.

    `vta_byoc.quantize` is a submodule and a function. After importing a submodule, Python binds
    it as an attribute of its package, so `vta.quantize(...)` would depend on who imported what
    before. Here that one binding is dropped: the attribute is always the function, and the
    submodule's other names come from `from vta_byoc.quantize import ...`.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOME and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
