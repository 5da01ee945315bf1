"""Variables of TFLite files are inputs and outputs: many calls equal those of the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="the TFLite interpreter is not installed")

from ai_edge_litert.interpreter import Interpreter, OpResolverType
from cli_runs import cli
from importer_tflite_graph import Lite
from small_models import plain_machine
from tflite_streaming import NEW, WIDTH, read, streaming

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import initial_states, load_model, output_names
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.runtime.library import load_library
from vta_byoc.validation.runtimes import runtime


@pytest.mark.parametrize("rank", [2, 4])
def test_calls_equal_the_interpreters(rank: int, tmp_path: Path) -> None:
    g = streaming(rank, initial=True)
    path = tmp_path / "stream.tflite"
    path.write_bytes(g.file())
    mod = load_model(path)
    assert output_names(mod)[2:] == ["seen_next", "total_next"]
    assert [p.name for p in mod["main"].params][1:] == ["seen", "total"]
    states, machine = initial_states(mod), plain_machine(mod)
    interpreter = Interpreter(
        model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    for _ in range(5):
        x = g.floats(g.feed[0].shape)
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
        interpreter.invoke()
        wanted = [
            interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()
        ]
        found = [array.numpy() for array in machine["main"](x, *states.values())]
        for got, want in zip(found, wanted, strict=False):
            np.testing.assert_allclose(got, want, rtol=1e-6)
        states = dict(zip(states, found[2:], strict=True))


def test_variables_that_nothing_initializes_begin_with_zeros(tmp_path: Path) -> None:
    path = tmp_path / "stream.tflite"
    path.write_bytes(streaming(4, initial=False).file())
    states = initial_states(load_model(path))
    assert {name: (state.shape, state.any()) for name, state in states.items()} == {
        "seen": ((1, 1, 1, WIDTH), False),
        "total": ((1, 1, 1, NEW), False),
    }


def test_no_operator_on_variables_is_left(tmp_path: Path) -> None:
    path = tmp_path / "stream.tflite"
    path.write_bytes(streaming(2, True).file())
    names = {op_name(binding.value) for binding in straight_bindings(load_model(path)["main"])}
    assert names <= {
        "relax.concat", "relax.strided_slice", "relax.multiply", "relax.add"
    }  # fmt: skip


def test_a_model_without_variables_has_no_states(tmp_path: Path) -> None:
    g = Lite("plain")
    g.operator = "RELU"
    g.test(g.tensor((1, 4)))
    path = tmp_path / "plain.tflite"
    path.write_bytes(g.file({g.outputs[0]: (1, 4)}))
    assert initial_states(load_model(path)) == {}


def test_a_variable_that_nothing_names(tmp_path: Path) -> None:
    g = Lite("stream")
    x, y = g.tensor((1, 4)), g.made_tensor((1, 4))
    value = read(g, g.made_tensor((), "resource"), (1, 4))
    g.node("ADD", [x, value], [y], "AddOptions", fusedActivationFunction=0)
    g.outputs = [y]
    path = tmp_path / "stream.tflite"
    path.write_bytes(g.file())
    with pytest.raises(VTAError) as caught:
        load_model(path)
    assert str(caught.value) == (
        'operator "t3" (READ_VARIABLE) reads a variable that no VAR_HANDLE before it names; '
        "convert the model again"
    )


def test_the_interpreter_cannot_be_given_states_to_compare_with(tmp_path: Path) -> None:
    path = tmp_path / "stream.tflite"
    path.write_bytes(streaming(2, initial=True).file())
    with pytest.raises(VTAError) as caught:
        runtime("tflite", str(path), load_model(path), [])
    assert str(caught.value) == (
        f'--against tflite with "{path}", which has 2 variables, as "seen"; tflite takes no values '
        "for them; compare with float"
    )


def test_a_streaming_model_the_whole_way(tmp_path: Path) -> None:
    """Both states of a TFLite file are in the library that `compile` writes of it."""
    (tmp_path / "stream.tflite").write_bytes(streaming(4, initial=True).file())
    made = cli("compile", tmp_path / "stream.tflite", "-o", tmp_path / "stream.so")
    assert made.exit_code == 0, made.output
    states = load_library(tmp_path / "stream.so").states
    assert {name: state.ravel().tolist() for name, state in states.items()} == {
        "seen": [0, 1, 2, 3, 4, 5],
        "total": [0.5, 0.5],
    }
