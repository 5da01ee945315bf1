"""Tests that need the extra rtl, which builds the core with Verilator."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from vta_byoc.hw.rtl import build

needs_core = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in build.PACKAGES),
    reason="needs the extra rtl",
)


def with_core_marked(devices: Iterable[str]) -> list[Any]:
    """Names of devices as parameters of a test; the core is skipped where it cannot be built."""
    return [
        pytest.param(name, marks=needs_core) if name == "rtl" else pytest.param(name)
        for name in devices
    ]


def verilog_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the Verilog of a core that was made before in this process, if one was."""
    for name in ("core_verilog", "axi_verilog"):
        monkeypatch.setattr(f"vta_byoc.hw.rtl.verilog.{name}", _kept(name))


@functools.cache
def _kept(name: str) -> Callable[..., str]:
    """A function of `vta_byoc.hw.rtl.verilog` that keeps what it gave."""
    make: Callable[..., str] = getattr(importlib.import_module("vta_byoc.hw.rtl.verilog"), name)
    return functools.cache(make)
