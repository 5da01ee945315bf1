"""A bundle's model as values: tensors of the host, programs, and the steps between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vta_byoc.hw.program.program import Program

PLAIN, PACKED, PLANES = LAYOUTS = ("plain", "packed", "planes")
"""Rows first as the model has it; packed int8; packed int32 as four planes of bytes."""
DTYPES = ("int8", "uint8", "int32", "int64", "float32")
"""Types of the host's tensors."""
RUN = "run"


@dataclass(frozen=True)
class HostTensor:
    """A tensor of the host.

    Tensors of one `storage` are views of the same bytes: storage is the number of the first.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    storage: int

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class HostStep:
    """A step of the CPU: from tensor number `source` to tensor number `result`.

    `values` are what the operator needs besides, as the manifest has them.
    """

    op: str
    source: int
    result: int
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunStep:
    """A run of program number `program`: inputs and outputs are (tensor, symbol's name)."""

    program: int
    inputs: tuple[tuple[int, str], ...]
    outputs: tuple[tuple[int, str], ...]


@dataclass
class BundleModel:
    """All of a bundle but its bytes; the programs by name, in the order of their numbers."""

    programs: dict[str, Program] = field(default_factory=dict)
    tensors: list[HostTensor] = field(default_factory=list)
    steps: list[HostStep | RunStep] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def uses(self) -> list[tuple[list[int], list[int]]]:
        """The tensors that each step reads, and those that it writes."""
        found = []
        for step in self.steps:
            if isinstance(step, HostStep):
                found.append(([step.source], [step.result]))
            else:
                found.append(([i for i, _ in step.inputs], [o for o, _ in step.outputs]))
        return found
