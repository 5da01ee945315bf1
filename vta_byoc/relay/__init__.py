"""The old flow's names: scripts that were written for TVM's Relay run with their imports changed.

    from vta_byoc.relay import GraphModule, build, fromtext, graph_pack

The names are those of the modules `text`, `build`, `pack` and `executor` of this package; they are
loaded on first use, so that importing the package does not import TVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "GraphModule": "vta_byoc.relay.executor",
    "Library": "vta_byoc.relay.executor",
    "Module": "vta_byoc.relay.module",
    "build": "vta_byoc.relay.building",
    "fromtext": "vta_byoc.relay.module",
    "graph_pack": "vta_byoc.relay.module",
    "load_param_dict": "vta_byoc.relay.module",
}
__all__ = ["GraphModule", "Library", "Module", "build", "fromtext", "graph_pack", "load_param_dict"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
