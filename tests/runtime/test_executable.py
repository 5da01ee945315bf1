"""Inputs are checked against what an executable says it takes, also after export."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.target import export_target
from vta_byoc.ir.reference import build_reference
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.executable import InputType, input_types
from vta_byoc.runtime.execute import profile, run_vm

Example = tuple[object, dict[str, np.ndarray], np.ndarray]


@pytest.fixture(scope="module", params=["built", "loaded"])
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Example:
    """An executable of two inputs that cannot be swapped, its inputs, and its result."""
    net = IntegerNet(a=(1, 16, 4, 4), b=(1, 16, 4, 4))
    first = net.conv(net.params[0], 16, name="conv")
    net.result = net.residual(first, net.params[1], name="join")
    compiled = compile_module(net.module(net.result), target=export_target())
    inputs = dict(zip("ab", net.inputs(), strict=True))
    exe = compiled.exe
    if request.param == "loaded":
        path = tmp_path_factory.mktemp("library") / "net.so"
        exe.export_library(str(path))
        exe = tvm.runtime.load_module(str(path))
    return exe, inputs, profile(compiled.exe, net.inputs()).outputs[0]


def test_an_executable_says_what_it_takes(example: Example) -> None:
    machine = relax.VirtualMachine(example[0], tvm.cpu())
    shape = (1, 16, 4, 4)
    assert input_types(machine) == [InputType("a", shape, "int8"), InputType("b", shape, "int8")]


def test_the_order_of_a_mapping_does_not_matter(example: Example) -> None:
    exe, inputs, want = example
    for order in ("ab", "ba"):
        got = profile(exe, {name: inputs[name] for name in order}).outputs[0]
        np.testing.assert_array_equal(got, want)
    swapped = profile(exe, [inputs["b"], inputs["a"]]).outputs[0]
    assert not np.array_equal(swapped, want)


TAKES = "'a' int8 (1, 16, 4, 4), 'b' int8 (1, 16, 4, 4)"
X = np.zeros((1, 16, 4, 4), np.int8)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"wrong": X, "a": X},
            f"inputs 'wrong', 'a' given; the model takes {TAKES}; give an array under each of "
            "these names",
        ),
        (
            {},
            f"inputs none given; the model takes {TAKES}; give an array under each of these names",
        ),
        ([X], f"arrays given: 1; the model takes 2: {TAKES}; give one for each input"),
        (
            X,
            f"arrays given: 1; the model takes 2: {TAKES}; give one for each input",
        ),
        (
            [X, X[0]],
            "input 'b' has shape (16, 4, 4); the model takes (1, 16, 4, 4); reshape or crop the "
            "array",
        ),
        (
            {"b": X, "a": X.astype(np.float32)},
            "input 'a' has dtype float32; the model takes int8; convert it with .astype(\"int8\")",
        ),
    ],
)
def test_other_inputs_are_refused(example: Example, inputs: object, message: str) -> None:
    with pytest.raises(VTAError, match=f"^{re.escape(message)}$"):
        profile(example[0], inputs)  # type: ignore[arg-type]


def test_without_a_signature_names_and_their_number_are_checked() -> None:
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    machine = relax.VirtualMachine(build_reference(builder.get()), tvm.cpu())
    value = np.ones(2, np.float32)
    assert input_types(machine) == [InputType("x")]
    assert run_vm(machine, {"x": value})[0].tolist() == [2, 2]
    message = "inputs 'y' given; the model takes 'x'; give an array under each of these names"
    with pytest.raises(VTAError, match=f"^{re.escape(message)}$"):
        run_vm(machine, {"y": value})
