"""Normalizations as exporters write them become one operator, and compute the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from vta_byoc import load_model
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.reference import build_reference

SHAPE = (2, 5, 24)
RNG = np.random.default_rng(5)
CONSTANTS = {
    "weight": RNG.normal(1, 0.3, SHAPE[-1:]).astype("float32"),
    "bias": RNG.normal(0, 0.3, SHAPE[-1:]).astype("float32"),
    "two": np.float32(2.0),
    "one": np.float32(1.0),
    "epsilon": np.float32(1e-5),
}
Nodes = list[tuple[str, list[str], str]]
AVERAGE: Nodes = [("ReduceMean", ["square"], "variance"), ("Add", ["variance", "epsilon"], "sum")]
CENTRED: Nodes = [("ReduceMean", ["x"], "mean"), ("Sub", ["x", "mean"], "apart")]
POWER: Nodes = [
    *CENTRED,
    ("Pow", ["apart", "two"], "square"),
    *AVERAGE,
    ("Sqrt", ["sum"], "root"),
]
ENDED: Nodes = [("Mul", ["quotient", "weight"], "scaled"), ("Add", ["scaled", "bias"], "y")]
FORMS: dict[str, tuple[Nodes, str]] = {
    "power": (
        [*POWER, ("Div", ["apart", "root"], "quotient"), *ENDED],
        "relax.nn.layer_norm",
    ),
    "deviations computed twice": (
        [*POWER, ("Sub", ["x", "mean"], "again"), ("Div", ["again", "root"], "quotient"), *ENDED],
        "relax.nn.layer_norm",
    ),
    "product, constants first": (
        [
            *CENTRED,
            ("Mul", ["apart", "apart"], "square"),
            *AVERAGE,
            ("Sqrt", ["sum"], "root"),
            ("Div", ["apart", "root"], "quotient"),
            ("Mul", ["weight", "quotient"], "scaled"),
            ("Add", ["bias", "scaled"], "y"),
        ],
        "relax.nn.layer_norm",
    ),
    "root mean square": (
        [
            ("Pow", ["x", "two"], "square"),
            *AVERAGE,
            ("Sqrt", ["sum"], "root"),
            ("Div", ["x", "root"], "quotient"),
            ("Mul", ["quotient", "weight"], "y"),
        ],
        "relax.nn.rms_norm",
    ),
    "reciprocal": (
        [
            ("Pow", ["x", "two"], "square"),
            *AVERAGE,
            ("Sqrt", ["sum"], "root"),
            ("Div", ["one", "root"], "inverse"),
            ("Mul", ["x", "inverse"], "quotient"),
            ("Mul", ["weight", "quotient"], "y"),
        ],
        "relax.nn.rms_norm",
    ),
}


def model(nodes: Nodes) -> bytes:
    """An ONNX model of one input, x, and one output, y."""
    made = [
        helper.make_node(op, inputs, [name], name, **({"axes": [-1]} if "Mean" in op else {}))
        for op, inputs, name in nodes
    ]
    used = {name for _, inputs, _ in nodes for name in inputs}
    constants = [numpy_helper.from_array(v, n) for n, v in CONSTANTS.items() if n in used]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE)] for n in "xy"]
    graph = helper.make_graph(made, "norm", ends[0], ends[1], constants)
    opset = [helper.make_opsetid("", 13)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


def wanted(x: np.ndarray, *, centred: bool) -> np.ndarray:
    """In float64."""
    x = x.astype(np.float64)
    x = x - x.mean(-1, keepdims=True) if centred else x
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * CONSTANTS["weight"]
    return x + CONSTANTS["bias"] if centred else x


@pytest.mark.parametrize("form", FORMS)
def test_written_out(form: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One operator is left."""
    nodes, operator = FORMS[form]
    path = tmp_path_factory.mktemp("norm") / "norm.onnx"
    path.write_bytes(model(nodes))
    mod = load_model(str(path))
    assert [op_name(b.value) for b in straight_bindings(mod["main"])] == [operator]
    x = np.random.default_rng(1).normal(1, 2, SHAPE).astype("float32")
    run = relax.VirtualMachine(build_reference(mod), tvm.cpu())["main"]
    found = run(tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(found, wanted(x, centred="layer" in operator), atol=1e-5)


CHANGES: dict[str, Callable[[Nodes], Nodes]] = {
    "another mean": lambda nodes: [
        (op, ["two" if op == "Sub" and name == "mean" else name for name in inputs], out)
        for op, inputs, out in nodes
    ],
    "another power": lambda nodes: [
        (op, ["one" if name == "two" else name for name in inputs], out)
        for op, inputs, out in nodes
    ],
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_norm_stays(change: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A difference from something else, or another power, is none."""
    path = tmp_path_factory.mktemp("norm") / "norm.onnx"
    path.write_bytes(model(CHANGES[change](FORMS["power"][0])))
    names = [op_name(b.value) for b in straight_bindings(load_model(str(path))["main"])]
    assert "relax.nn.layer_norm" not in names
