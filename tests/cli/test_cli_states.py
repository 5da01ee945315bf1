"""Inputs of a command that stand for variables of a model: they begin as the model does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vta_byoc.cli.inputs import bind_inputs, read_arrays
from vta_byoc.hw.errors import VTAError

SHAPES = {"frame": (1, 4), "seen": (1, 6), "total": (1, 2)}
STATES = {"seen": np.arange(6, dtype="float32").reshape(1, 6), "total": np.full((1, 2), 0.5, "f4")}


def test_without_arrays(tmp_path: Path) -> None:
    bound = bind_inputs(SHAPES, [], seed=3, states=STATES)
    assert list(bound) == list(SHAPES)
    assert [value.source for value in bound.values()] == [
        "random, seed 3",
        "as the model begins",
        "as the model begins",
    ]
    np.testing.assert_array_equal(bound["seen"].array, STATES["seen"])
    alone = bind_inputs({"frame": (1, 4)}, [], seed=3)
    np.testing.assert_array_equal(bound["frame"].array, alone["frame"].array)


def test_arrays_for_some(tmp_path: Path) -> None:
    """Without a name they fill the inputs in order; a state that is given is taken."""
    for name, shape in SHAPES.items():
        np.save(tmp_path / f"{name}.npy", np.full(shape, 7, "float32"))
    given = read_arrays([str(tmp_path / "frame.npy"), f"total={tmp_path / 'total.npy'}"])
    bound = bind_inputs(SHAPES, given, seed=0, states=STATES)
    assert [value.array.flat[0] for value in bound.values()] == [7, 0, 7]
    assert bound["seen"].source == "as the model begins"


def test_other_inputs_are_still_needed(tmp_path: Path) -> None:
    np.save(tmp_path / "seen.npy", STATES["seen"])
    given = read_arrays([f"seen={tmp_path / 'seen.npy'}"])
    with pytest.raises(VTAError, match='no array for the inputs "frame"'):
        bind_inputs(SHAPES, given, seed=0, states=STATES)
