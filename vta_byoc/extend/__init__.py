"""Registering what the compiler does not have: kernels of your own schedules, by name.

    from vta_byoc.extend import register_kernel

    register_kernel("hardswish", schedule)    # (definition, config) -> TensorIR schedule
    function = builder.add_func(with_kernel(definition, "hardswish"), "activation")

A `call_tir` of that function then runs on VTA inside a network, under that schedule.
docs/own-schedules.md shows it.
"""

from __future__ import annotations

from vta_byoc.extend.kernels import register_kernel, registered, table, with_kernel

__all__ = ["register_kernel", "registered", "table", "with_kernel"]
