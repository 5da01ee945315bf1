"""A stored tensor beside the reference's, byte by byte, and the STORE that put it elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vta_byoc.validation.machine_run import MachineRun
from vta_byoc.workload.layout import read_packed
from vta_byoc.workload.packing import PLANES

UNKNOWN = -1000
"""Stands for a byte that holds no element of the tensor."""
LEAST_VALUES = 3
"""So many different values must match before a STORE is said to be in the wrong place."""


@dataclass(frozen=True)
class StoredTensor:
    """A stored tensor and the reference's.

    Attributes:
        places: bytes in the arena, (planes, *shape of the tensor).
        wanted: what the reference has there, int8, as ``places``.
        found: what is there.
        expected: by byte of the arena, int16; UNKNOWN where no element is.
    """

    places: np.ndarray
    wanted: np.ndarray
    found: np.ndarray
    expected: np.ndarray

    @classmethod
    def of(cls, machine: MachineRun, name: str, reference: np.ndarray) -> StoredTensor:
        """The tensor ``name`` as a run left it, beside ``reference`` (int8 or int32).

        Of the layouts in which a region may store it, the one with the fewest differences counts.
        """
        symbol, arena = machine.program.symbol(name), machine.arena
        count = PLANES if reference.dtype == np.int32 else 1
        wanted = np.stack([(reference >> 8 * p).astype(np.int8) for p in range(count)])
        packed = symbol.offset + np.arange(symbol.nbytes).reshape(symbol.shape)
        planes = packed.reshape(count, *packed.shape[-6:])
        forms = zip(*(read_packed(plane, reference.shape) for plane in planes), strict=True)
        places = min(
            (np.stack(form) for form in forms),
            key=lambda form: np.count_nonzero(arena[form] != wanted),
        )
        expected = np.full(arena.size, UNKNOWN, np.int16)
        expected[places] = wanted
        return cls(places, wanted, arena[places], expected)

    def wrong_plane(self, at: tuple[int, ...]) -> int:
        """The lowest byte of element ``at`` that is wrong."""
        wrong = [found[at] != want[at] for found, want in zip(self.found, self.wanted, strict=True)]
        return wrong.index(True)


def misplaced(machine: MachineRun, tensor: StoredTensor, store: int) -> str:
    """How another address would make all that a STORE writes right; "" where none does."""
    lanes = machine.config.out_elem_bytes
    wanted = tensor.expected[: tensor.expected.size // lanes * lanes].reshape(-1, lanes)
    acc = machine.acc(store - 1).astype(np.int8)
    there, base = machine.elements(store), int(machine.insns[store]["sram_base"])
    data = acc[base : base + there.size]
    if _fit(data, wanted[there]).all():
        return ""
    known = (wanted != UNKNOWN).any(axis=1)
    if len(np.unique(data)) >= LEAST_VALUES:
        starts = np.flatnonzero(_fit(data[0], wanted) & known) - there[0]
        right = [
            d
            for d in starts.tolist()
            if there.min() + d >= 0
            and there.max() + d < len(wanted)
            and known[there + d].all()
            and _fit(data, wanted[there + d]).all()
        ]
        if len(right) == 1:
            first = int(there[0]) + right[0] - machine.distance(store)
            return f"all that it stores would be right if it began at DRAM element {first:#x}"
    if len(np.unique(wanted[there][wanted[there] != UNKNOWN])) >= LEAST_VALUES:
        firsts = np.flatnonzero(_fit(acc, wanted[there[0]]))
        right = [e for e in firsts.tolist() if _fit(acc[e : e + there.size], wanted[there]).all()]
        if len(right) == 1:
            return f"all that it stores would be right if it began at ACC element {right[0]}"
    return ""


def _fit(data: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which vectors (last axis) hold what is wanted; False for other numbers of vectors."""
    if data.ndim == wanted.ndim and data.shape != wanted.shape:
        return np.zeros(1, bool)
    return np.asarray(((data == wanted) | (wanted == UNKNOWN)).all(axis=-1))
