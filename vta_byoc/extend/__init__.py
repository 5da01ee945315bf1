"""Registering what the compiler does not have, by call or from a plug-in.

    from vta_byoc.extend import register_kernel

    register_kernel("hardswish", schedule)    # (definition, config) -> TensorIR schedule
    function = builder.add_func(with_kernel(definition, "hardswish"), "activation")

A plug-in is a module that calls these functions. The entry-point group `vta_byoc.plugins` lists
those that are installed; `--plugin` names others. `vta_byoc.extend.rules` and
`vta_byoc.extend.composites` have what rules, patterns and strategies are written with.
docs/how-to/plug-ins.md shows every kind, docs/own-schedules.md kernels.
"""

from __future__ import annotations

from vta_byoc.extend.kernels import register_kernel, with_kernel
from vta_byoc.extend.machines import register_device, register_preset
from vta_byoc.extend.models import register_calibrator, register_importer, register_integer_op
from vta_byoc.extend.placement import register_pattern, register_strategy
from vta_byoc.extend.tables import load_plugin, registered, table

__all__ = [
    "load_plugin",
    "register_calibrator",
    "register_device",
    "register_importer",
    "register_integer_op",
    "register_kernel",
    "register_pattern",
    "register_preset",
    "register_strategy",
    "registered",
    "table",
    "with_kernel",
]
