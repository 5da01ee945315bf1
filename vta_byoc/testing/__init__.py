"""Conformance suites for what users register: run them in the tests of your plug-in.

    from vta_byoc.testing import check_kernel

    def test_my_kernel():
        print(check_kernel(schedule, lambda rng, config: definition(int(rng.integers(1, 9)))))

Each draws cases by a seed, compares bit for bit, and returns what it has tried; the first case
that fails raises `ConformanceError`, whose message has the arguments that repeat it.
"""

from __future__ import annotations

from vta_byoc.testing.cases import Conformance, ConformanceError, machines
from vta_byoc.testing.devices import check_device
from vta_byoc.testing.integer_ops import check_integer_op
from vta_byoc.testing.kernels import check_kernel
from vta_byoc.testing.strategies import check_strategy

__all__ = [
    "Conformance",
    "ConformanceError",
    "check_device",
    "check_integer_op",
    "check_kernel",
    "check_strategy",
    "machines",
]
