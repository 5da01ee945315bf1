"""TFLite's IF: both branches run, and the results are those of the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="the TFLite interpreter is not installed")

from ai_edge_litert.interpreter import Interpreter, OpResolverType
from importer_tflite_graph import Lite
from quantized_runs import operators
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model

SHAPE = (1, 4)
STEP = "export the model without it or cut the model before it"


def unary(g: Lite, code: str, x: int, shape: tuple[int, ...] = SHAPE) -> int:
    made = g.made_tensor(shape)
    g.node(code, [x], [made])
    return made


def is_above(g: Lite, x: int, limit: float, rank: int) -> int:
    """Whether the largest element is above `limit`, as one truth value of `rank` axes, 0 or 2."""
    ones = (1,) * rank
    top, made = g.made_tensor(ones), g.made_tensor(ones, "bool")
    g.node("REDUCE_MAX", [x, g.const([0, 1])], [top], "ReducerOptions", keepDims=rank > 0)
    g.node("GREATER", [top, g.const(limit, "float32")], [made], "GreaterOptions")
    return made


def branch(g: Lite, code: str, shape: tuple[int, ...] = SHAPE, nested: float | None = None) -> int:
    """A graph of one operator, or of an IF on its operand."""
    with g.called() as number:
        x = g.made_tensor(SHAPE)
        if nested is None:
            result = unary(g, code, x, shape)
        else:
            result = choice(g, x, nested, branch(g, code), branch(g, "ABS"))
        g.takes([x], [result])
    return number


def choice(g: Lite, x: int, limit: float, then: int, other: int, rank: int = 0) -> int:
    made = g.made_tensor(SHAPE)
    options = {"thenSubgraphIndex": then, "elseSubgraphIndex": other}
    g.node("IF", [is_above(g, x, limit, rank), x], [made], "IfOptions", **options)
    return made


def saved(g: Lite, result: int, folder: Path) -> Path:
    g.outputs = [result]
    path = folder / "net.tflite"
    path.write_bytes(g.file())
    return path


@pytest.mark.parametrize("rank", [0, 2])
def test_both_branches_run(rank: int, tmp_path: Path) -> None:
    g = Lite("if", 0)
    x = g.tensor(SHAPE)
    inner = branch(g, "TANH", nested=-1.0)
    chosen = choice(g, x, 0.5, branch(g, "LOGISTIC"), inner, rank)
    path = saved(g, unary(g, "NEG", chosen), tmp_path)
    mod = load_model(path)
    assert operators(mod).count("where") == 2
    interpreter = Interpreter(
        model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    for largest in (2.0, 0.25, -0.5, -2.0):
        data = np.array([[-3, largest, -2.5, -4]], "float32")
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], data)
        interpreter.invoke()
        want = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        np.testing.assert_allclose(call(mod, data)[0], want, rtol=1e-5)


def test_branches_of_other_shapes(tmp_path: Path) -> None:
    g = Lite("if", 1)
    x = g.tensor(SHAPE)
    path = saved(g, choice(g, x, 0.5, branch(g, "TANH"), branch(g, "ABS", (1, 2))), tmp_path)
    with pytest.raises(VTAError) as caught:
        load_model(path)
    name = str(caught.value).split('"')[1]
    assert str(caught.value) == (
        f'operator "{name}" (IF) has branches that give "{name}" as (1, 4) float32 and (1, 2) '
        f"float32; {STEP}"
    )


def test_a_branch_of_other_operands(tmp_path: Path) -> None:
    g = Lite("if", 2)
    x = g.tensor(SHAPE)
    with g.called() as none:
        g.takes([], [g.const(np.zeros(SHAPE), "float32")])
    path = saved(g, choice(g, x, 0.5, branch(g, "TANH"), none), tmp_path)
    with pytest.raises(VTAError, match=r"\(IF\) hands 1 operands to a branch of 0 inputs; export"):
        load_model(path)


def test_variables_in_a_branch(tmp_path: Path) -> None:
    g = Lite("if", 3)
    x = g.tensor(SHAPE)
    with g.called() as keeps:
        inner, handle = g.made_tensor(SHAPE), g.made_tensor((), "resource")
        g.node("VAR_HANDLE", [], [handle], "VarHandleOptions", container="", sharedName="v")
        g.node("ASSIGN_VARIABLE", [handle, inner], [], "AssignVariableOptions")
        g.takes([inner], [unary(g, "ABS", inner)])
    path = saved(g, choice(g, x, 0.5, branch(g, "TANH"), keeps), tmp_path)
    with pytest.raises(VTAError, match=r"has VAR_HANDLE in a branch, which would run always; exp"):
        load_model(path)


def test_several_conditions(tmp_path: Path) -> None:
    g = Lite("if", 4)
    x = g.tensor(SHAPE)
    above, made = g.made_tensor(SHAPE, "bool"), g.made_tensor(SHAPE)
    g.node("GREATER", [x, g.const(0.5, "float32")], [above], "GreaterOptions")
    numbers = {"thenSubgraphIndex": branch(g, "TANH"), "elseSubgraphIndex": branch(g, "ABS")}
    g.node("IF", [above, x], [made], "IfOptions", **numbers)
    with pytest.raises(VTAError, match=r"\(IF\) has no condition of one element; export the model"):
        load_model(saved(g, made, tmp_path))


@pytest.mark.parametrize(
    ("number", "reason"), [(1, "it is nested too deep"), (99, "the file is damaged")]
)
def test_a_branch_that_is_itself_or_nowhere(number: int, reason: str, tmp_path: Path) -> None:
    """A damaged file: the branch runs itself, or there is no such graph."""
    g = Lite("if", 5)
    x = g.tensor(SHAPE)
    with g.called():
        inner = g.made_tensor(SHAPE)
        g.takes([inner], [choice(g, inner, 0.5, number, number)])
    path = saved(g, choice(g, x, 0.5, 1, 1), tmp_path)
    with pytest.raises(VTAError, match=reason):
        load_model(path)
