"""ONNX's If: the branch that runs is imported where constants and shapes tell which one does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import tvm
from onnx import helper, numpy_helper
from quantized_runs import operators
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.importers.onnx.branches import take_branches
from vta_byoc.ir.bindings import static_shape

HEAD = '<ir_version: 8, opset_import: ["": 16, "com.microsoft": 1]>'
EXPORT = "export the model without it or cut the model before it"


def saved(folder: Path, text: str) -> Path:
    """A graph in ONNX's own text as a file."""
    path = folder / "net.onnx"
    onnx.save(onnx.parser.parse_model(f"{HEAD} net {text}"), str(path))
    return path


def imported(path: Path, **shapes: tuple[int, ...]) -> tvm.IRModule:
    """The model, which computes what ONNX Runtime does."""
    mod = load_model(path, shapes=shapes)
    rng = np.random.default_rng(7)
    params = mod["main"].params
    feed = {p.name: rng.standard_normal(static_shape(p)).astype("float32") for p in params}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for got, want in zip(call(mod, *feed.values()), session.run(None, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return mod


def refused(text: str, path: Path) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(path)
    assert str(caught.value) == text


# ---------------------------------------------------------------- what is known
RANK = """(float[N, M] x) => (float[?] y) {
    shape = Shape(x)
    rank = Size(shape)
    two = Constant<value_int: int = 2>()
    flat = Equal(rank, two)
    r = If(flat)<
        then_branch = row () => (float[?] a) { a = Relu(x) },
        else_branch = all () => (float[?] b) { axes = Constant<value_ints: ints = [0]>()
                                               c = Squeeze(x, axes) b = Neg(c) }>
    y = Exp(r)
}"""


def test_a_rank_that_is_asked_for_leaves_nothing_behind(tmp_path: Path) -> None:
    path = saved(tmp_path, RANK)
    assert operators(imported(path, x=(2, 3))) == ["nn.relu", "exp"]
    path = saved(tmp_path, RANK.replace("Equal(rank, two)", "Less(rank, two)"))
    assert operators(imported(path, x=(1, 3))) == ["squeeze", "negative", "exp"]


def test_a_constant_chooses(tmp_path: Path) -> None:
    for value, expected in ((1, ["nn.relu"]), (0, ["tanh"])):
        path = saved(
            tmp_path,
            f"""(float[2] x) => (float[2] y) <bool on = {{{value}}}> {{
                y = If(on)<then_branch = g () => (float[2] a) {{ a = Relu(x) }},
                           else_branch = h () => (float[2] a) {{ a = Tanh(x) }}>
            }}""",
        )
        assert operators(imported(path)) == expected


def test_a_shape_that_follows_from_arithmetic(tmp_path: Path) -> None:
    """ONNX's shape inference alone does not divide, and knows no shape behind the Reshape."""
    path = saved(
        tmp_path,
        """(float[1, N] x) => (float[?] y) {
            shape = Shape(x)
            parts = Constant<value_ints: ints = [-1, 2]>()
            one = Constant<value_int: int = 1>()
            length = Gather(shape, one)
            two = Constant<value_ints: ints = [2]>()
            half = Div(length, two)
            whole = Concat<axis: int = 0>(two, half)
            pair = Reshape(x, whole)
            back = Shape<start: int = 1>(pair)
            three = Constant<value_ints: ints = [3]>()
            odd = Equal(back, three)
            y = If(odd)<then_branch = g () => (float[?] a) { a = Relu(pair) },
                        else_branch = h () => (float[?] b) { b = Tanh(pair) }>
        }""",
    )
    assert operators(imported(path, x=(1, 6))) == ["reshape", "nn.relu"]
    assert operators(imported(path, x=(1, 8))) == ["reshape", "tanh"]


# ---------------------------------------------------------------- how it is inlined
def test_branches_in_branches_with_names_that_recur(tmp_path: Path) -> None:
    """`w`, `t` and `s` are of several branches; the inner ones read all outer scopes."""
    path = saved(
        tmp_path,
        """(float[2, 3] x) => (float[?] y, float[?] z) <bool on = {1}, float[3] t_2 = {5, 6, 7}> {
            y, u = If(on)<
                then_branch = g () => (float[?] p, float[?] q) <float[3] w = {1, 2, 3}> {
                    t = Mul(x, w)
                    n = Shape<start: int = 0, end: int = 1>(t)
                    two = Constant<value_ints: ints = [2]>()
                    is = Equal(n, two)
                    q = If(is)<
                        then_branch = gg () => (float[?] b) <float[1] v = {4}> {
                            s = Add(t, x) r = Mul(s, v) b = Add(r, t_2) },
                        else_branch = gh () => (float[?] b) { b = Neg(t) }>
                    p = Tanh(t) },
                else_branch = h () => (float[?] p, float[?] q) {
                    p = Relu(x) q = Relu(x) }>
            z = If(on)<
                then_branch = g2 () => (float[?] p) <float[3] w = {7, 8, 9}> {
                    t = Mul(u, w)
                    p = If(on)<
                        then_branch = gi () => (float[?] b) <float[3] w_2 = {3, 2, 1}> {
                            s = Sub(t, w) b = Div(s, w_2) },
                        else_branch = hi () => (float[?] b) { b = Neg(t) }> },
                else_branch = h2 () => (float[?] p) { p = Neg(u) }>
        }""",
    )
    assert operators(imported(path)) == [
        *("multiply", "add", "multiply", "add", "tanh", "multiply", "subtract", "divide")
    ]


def test_inputs_and_outputs_that_are_left_out(tmp_path: Path) -> None:
    """ONNX Runtime crashes at a Split of which one part is left out."""
    path = saved(
        tmp_path,
        """(float[2] x) => (float[?] y) <float[2] c = {9, 2}, float high = {3}, float two = {2}> {
            left, part = Split(c)
            low = Clip(part, left, high)
            is = Equal(low, two)
            y = If(is)<then_branch = g () => (float[?] a) { a = Relu(x) },
                       else_branch = h () => (float[?] b) { b = Tanh(x) }>
        }""",
    )
    model = onnx.load(str(path))
    model.graph.node[0].output[0] = model.graph.node[1].input[1] = ""
    onnx.save(model, str(path))
    assert operators(load_model(path)) == ["nn.relu"]


def test_outputs_that_are_listed_twice_left_out_or_weights(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        """(float[2] x) => (float[?] y, float[?] z, float[?] w) <bool on = {1}> {
            y, z, c, w = If(on)<
                then_branch = g () => (float[?] a, float[?] a, float[?] c, float[?] d)
                    <float[2] d = {1, 2}> { a = Relu(x) c = Exp(a) },
                else_branch = h () => (float[?] a, float[?] b, float[?] c, float[?] d) {
                    a = Relu(x) b = Neg(x) c = Tanh(x) d = Sqrt(x) }>
        }""",
    )
    model = onnx.load(str(path))
    model.graph.node[0].output[2] = ""
    onnx.save(model, str(path))
    mod = load_model(path)
    assert take_branches(model.graph, 16, {"x": [2]}) and not take_branches(model.graph, 16, {})
    ends = ["y", "z", "w"]
    assert [node.output[0] for node in model.graph.node] == ["a", "c", *ends]
    onnx.checker.check_model(model)
    assert operators(mod) == ["nn.relu"]
    for got, want in zip(call(mod, np.float32([-1, 3])), ([0, 3], [0, 3], [1, 2]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_a_branch_holds_is_checked_where_it_runs(tmp_path: Path) -> None:
    text = """(float[2, 3] x) => (float[?] y) <bool on = {ON}> {
        y = If(on)<then_branch = g () => (float[?] a) { a = Relu(x) },
                   else_branch = h () => (float[?] b) { b = Unique(x) }>
    }"""
    assert operators(load_model(saved(tmp_path, text.replace("ON", "1")))) == ["nn.relu"]
    refused(
        'node "b" has the operator Unique; the shape of its result depends on the data, and every '
        f"shape must be known; {EXPORT}",
        saved(tmp_path, text.replace("ON", "0")),
    )


def test_an_operator_of_onnx_runtime_in_a_branch(tmp_path: Path) -> None:
    """LayerNormalization, which its optimizer writes into ONNX's domain below opset 17."""
    path = saved(
        tmp_path,
        """(float[2, 3] x) => (float[2, 3] y) <bool on = {1}> {
            y = If(on)<
                then_branch = g () => (float[?] a) <float[3] w = {1, 2, 3}> {
                    a = com.microsoft.LayerNormalization(x, w) },
                else_branch = h () => (float[?] b) { b = Relu(x) }>
        }""",
    )
    model = onnx.load(str(path))
    model.graph.node[0].attribute[0].g.node[0].domain = ""
    onnx.save(model, str(path))
    (got,) = call(load_model(path), np.array([[1, 2, 3], [3, 2, 1]], "float32"))
    np.testing.assert_allclose(got, np.array([[-1, 0, 3], [1, 0, -3]]) * 1.5**0.5, atol=1e-4)


# ---------------------------------------------------------------- what is refused
RATE = """(float[2] x, int64 sr) => (float[?] y) {
    rate = Constant<value_int: int = 16000>()
    fast = Equal(sr, rate)
    y = If(fast)<then_branch = g () => (float[?] a) { a = Relu(x) },
                 else_branch = h () => (float[?] b) { b = Tanh(x) }>
}"""


def test_an_option_that_is_an_input(tmp_path: Path) -> None:
    path = saved(tmp_path, RATE)
    refused(
        'node "y" (If) chooses a branch by "fast", which is computed from the values of "sr", and '
        "an option decides before the model is compiled; fix it, for example --fix sr=16000, or "
        "export the model without it",
        path,
    )
    for value, expected in ((16000, "nn.relu"), (8000, "tanh")):
        model = onnx.load(str(path))
        model.graph.initializer.append(numpy_helper.from_array(np.array(value), "sr"))
        onnx.save(model, str(tmp_path / "fixed.onnx"))
        mod = load_model(tmp_path / "fixed.onnx")
        assert operators(mod) == [expected] and [p.name for p in mod["main"].params] == ["x"]


def test_options_that_are_compared_with_nothing(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        """(float[2] x, int32[1] mode, bool on) => (float[?] y) {
            some = Cast<to: int = 9>(mode)
            both = And(some, on)
            y = If(both)<then_branch = g () => (float[?] a) { a = Relu(x) },
                         else_branch = h () => (float[?] b) { b = Tanh(x) }>
        }""",
    )
    refused(
        'node "y" (If) chooses a branch by "both", which is computed from the values of "mode", '
        '"on", and an option decides before the model is compiled; fix them, for example '
        "--fix mode=1 --fix on=true, or export the model without it",
        path,
    )
    assert operators(load_model(path, fixed={"mode": 1, "on": True})) == ["nn.relu"]


# ---------------------------------------------------------------- both branches run
BOTH = """(float[1, 3] x) => (float[?] y, float[?] z) <float one = {1}> {
    top = ReduceMax<keepdims: int = 0>(x)
    more = GreaterOrEqual(top, one)
    y, z = If(more)<
        then_branch = g () => (float[?] a, float[?] c) <float[3] w = {1, 2, 3}> {
            a = Mul(x, w) c = Relu(a) },
        else_branch = h () => (float[?] b, float[?] d) <float[3] w = {3, 2, 1}> {
            low = ReduceMin<keepdims: int = 1>(x)
            less = Less(low, one)
            b = If(less)<then_branch = gi () => (float[?] e) { e = Add(x, w) },
                         else_branch = hi () => (float[?] e) { e = Neg(x) }>
            d = Tanh(x) }>
}"""


def test_where_data_decides_both_branches_run(tmp_path: Path) -> None:
    path = saved(tmp_path, BOTH)
    mod = load_model(path)
    assert operators(mod).count("where") == 3
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for x in ([[0.5, -1, 2]], [[0.5, -1, 0]], [[0.5, 0, 1]], [[-3, -2, -1]]):
        data = np.array(x, "float32")
        for got, want in zip(call(mod, data), session.run(None, {"x": data}), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float", "float[1]", "int64[2]"])
def test_a_condition_that_passes_through_an_if(tmp_path: Path, kind: str) -> None:
    """The shape of `z` is asked for, not its elements; an If in between passes them on."""
    path = saved(
        tmp_path,
        f"""({kind} x, float[1] z) => (float[?] y) <bool on = {{1}}, int64 one = {{1}}> {{
            top = ReduceMax<keepdims: int = 0>(x)
            long = Cast<to: int = 9>(top)
            r = If(on)<then_branch = g () => (bool[?] a) {{
                           s = Shape(z) n = Equal(s, one) a = And(long, n) }},
                       else_branch = h () => (bool[?] b) {{ b = Not(long) }}>
            y = If(r)<then_branch = g2 () => (float[?] a) {{ a = Relu(z) }},
                      else_branch = h2 () => (float[?] b) {{ b = Tanh(z) }}>
            k = If(long)<then_branch = g3 () => (float[?] a) {{ a = Relu(z) }},
                         else_branch = h3 () => (float[?] b) {{ b = Tanh(z) }}>
        }}""",
    )
    mod = load_model(path)
    shape = static_shape(mod["main"].params[0])
    dtype = kind.split("[")[0].replace("float", "float32")
    for value in (0, 2):
        (got,) = call(mod, np.full(shape, value, dtype), np.array([0.5], "float32"))
        assert got == pytest.approx([0.5 if value else np.tanh(0.5)])


@pytest.mark.parametrize("some, count", [("Erf", 1), ("Neg", 1025), ("Identity", 1025)])
def test_a_condition_of_weights_that_is_not_computed(
    tmp_path: Path, some: str, count: int
) -> None:
    """An operator that is not computed, and weights of more elements than a shape has.

    Files of old versions list weights among the inputs.
    """
    zeros = ", ".join("0" * count)
    path = saved(
        tmp_path,
        f"""(float[1] x) => (float[?] y) <float[{count}] c = {{{zeros}}}, float one = {{1}}> {{
            some = {some}(c)
            top = ReduceMax<keepdims: int = 0>(some)
            more = Greater(one, top)
            y = If(more)<then_branch = g2 () => (float[?] a) {{ a = Relu(x) }},
                         else_branch = h2 () => (float[?] b) {{ b = Tanh(x) }}>
        }}""",
    )
    assert "where" in operators(imported(path))
    model = onnx.load(str(path))
    model.graph.input.append(helper.make_tensor_value_info("c", 1, [count]))
    onnx.save(model, str(path))
    assert call(load_model(path), np.array([0.5], "float32"))[0] == [0.5]


# ---------------------------------------------------------------- what data may not decide
BY_DATA = """(float[1, 3] x) => (float[?] y) <float one = {1}> {
    top = ReduceMax<keepdims: int = 0>(x)
    more = GreaterOrEqual(top, one)
    y = If(more)<then_branch = g () => (float[?] a) { a = Relu(x) },
                 else_branch = h () => (OTHER }>
}"""


@pytest.mark.parametrize(
    ("other", "shapes"),
    [
        ("float[?] b) { b = ReduceSum(x)", "(1, 3) float and (1, 1) float"),
        ("int64[?] b) { b = Cast<to: int = 7>(x)", "(1, 3) float and (1, 3) int64"),
    ],
)
def test_branches_of_other_shapes_by_data(tmp_path: Path, other: str, shapes: str) -> None:
    refused(
        f'node "y" (If) chooses by data, and its branches give "y" as {shapes}; they must '
        f"have one shape and type before the model runs; {EXPORT}",
        saved(tmp_path, BY_DATA.replace("OTHER", other)),
    )


GATHERED = """(float[1] x) => (float[?] y) <bool[2] c = {1, 1}, AT> {
    more = Gather(c, at)
    y = If(more)<then_branch = g2 () => (float[?] a) { a = Relu(x) },
                 else_branch = h2 () => (float[?] b) { b = Tanh(x) }>
}"""


def test_two_conditions(tmp_path: Path) -> None:
    path = saved(tmp_path, GATHERED.replace("AT", "int64[2] at = {0, 0}"))
    refused(
        'node "y" (If) chooses by "more" of more than one element; it must be one truth value; '
        f"{EXPORT}",
        path,
    )


def test_a_condition_outside_of_its_axis(tmp_path: Path) -> None:
    path = saved(tmp_path, GATHERED.replace("AT", "int64 at = {5}"))
    with pytest.raises(VTAError, match="out of bounds"):
        load_model(path)
