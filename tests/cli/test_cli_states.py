"""Inputs of a command that stand for variables of a model: they begin as the model does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from cli_runs import cli
from integer_models import IntegerNet
from tvm import relax

from vta_byoc.cli.inputs import bind_inputs, read_arrays
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.target import export_target
from vta_byoc.ir.states import INITIAL_STATES
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile

SHAPES = {"frame": (1, 4), "seen": (1, 6), "total": (1, 2)}
STATES = {"seen": np.arange(6, dtype="float32").reshape(1, 6), "total": np.full((1, 2), 0.5, "f4")}
SHAPE = (1, 16, 4, 4)
SEEN = (np.arange(256) % 100 - 50).astype("int8").reshape(SHAPE)


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


# ---------------------------------------------------------------- libraries
def library(folder: Path) -> Path:
    """The library of a sum of two inputs, of which "seen" stands for a variable."""
    net = IntegerNet(x=SHAPE, seen=SHAPE)
    mod = net.module(net.residual(*net.params, name="join"))
    states = {"seen": tvm.runtime.tensor(SEEN)}
    compiled = compile_module(mod.with_attr(INITIAL_STATES, states), target=export_target())
    compiled.exe.export_library(str(folder / "net.so"))
    return folder / "net.so"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("library"))


def test_a_library_begins_as_the_model(net: Path, tmp_path: Path) -> None:
    x, output = np.ones(SHAPE, "int8"), tmp_path / "out.npz"
    np.save(tmp_path / "x.npy", x)
    result = cli("run", net, "--input", tmp_path / "x.npy", "--output", output)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1:3] == [
        f"input x (1, 16, 4, 4) int8: {tmp_path / 'x.npy'}",
        "input seen (1, 16, 4, 4) int8: as the model begins",
    ]
    wanted = profile(tvm.runtime.load_module(str(net)), [x, SEEN]).outputs[0]
    np.testing.assert_array_equal(np.load(output)["output0"], wanted)


def test_noise_is_for_the_other_inputs_of_a_library(net: Path) -> None:
    result = cli("run", net, "--json", "--seed", 3)
    assert result.exit_code == 0, result.output
    facts = {"shape": list(SHAPE), "dtype": "int8"}
    assert json.loads(result.stdout)["inputs"] == {
        "x": {**facts, "source": "random, seed 3"},
        "seen": {**facts, "source": "as the model begins"},
    }


def test_a_state_that_is_given_to_a_library_is_taken(net: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "seen.npy", SEEN + 1)
    result = cli("run", net, "--input", f"seen={tmp_path / 'seen.npy'}")
    assert f"input seen (1, 16, 4, 4) int8: {tmp_path / 'seen.npy'}\n" in result.stdout


def test_what_a_library_says_of_its_states(net: Path, tmp_path: Path) -> None:
    """An application reads them without this package."""
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(net)), tvm.cpu())
    text = machine["vta_signature"]().numpy().tobytes()
    assert json.loads(text)["states"] == ["seen"]
    (state,) = machine["vta_initial_states"]()
    np.testing.assert_array_equal(state.numpy(), SEEN)
