"""Relay text: its grammar in the forms that TVM 0.6 to 0.14 printed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import relay_files
from relay_numpy import evaluate
from relay_texts import FUSED, SMALL, error, floats, run, write

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model, output_names
from vta_byoc.importers.relay import graph
from vta_byoc.importers.relay.read import read_text
from vta_byoc.ir.bindings import straight_bindings

OLD = """v0.0.4
def @main(%input.1: Tensor[(2, 2), float32]) -> Tensor[(2, 2), float32] {
  %0 = add(%input.1, meta[relay.Constant][0] /* ty=Tensor[(2, 2), float32] */) /* bias_1 */;
  %1 = (%0, %input.1);
  %1.0
}
"""


class TestGrammar:
    def test_parameters_types_and_source_names(self, tmp_path: Path) -> None:
        params = {"w": floats(4, 3, 3, 3)}
        file = write(tmp_path / "net.params", relay_files.params(params))
        mod = load_model(write(tmp_path / "net.relay", SMALL), params=file)
        assert [b.var.name for b in straight_bindings(mod["main"])] == ["conv2d", "features_act"]
        assert [p.name for p in mod["main"].params] == ["data"]
        assert output_names(mod) == ["features_act"]

    def test_closures_lets_tuples_and_global_functions(self, tmp_path: Path) -> None:
        x = floats(2, 6)
        (found,) = run(write(tmp_path / "net.txt", FUSED), x)
        left, right = np.split(x + 1, 2, 1)
        np.testing.assert_array_equal(found, np.maximum(2 * (left * -2), right))

    def test_version_4_has_its_own_header_and_metadata(self, tmp_path: Path) -> None:
        constant = floats(2, 2)
        section = relay_files.metadata([constant]).replace("\n#[metadata]\n", "")
        text = f'{OLD}\n# meta data\nr"""\n{section}\n"""'
        (found,) = run(write(tmp_path / "old.relay", text), floats(2, 2))
        np.testing.assert_array_equal(found, floats(2, 2) + constant)

    def test_a_single_function_and_a_bare_expression(self) -> None:
        whole = read_text("fn (%x: Tensor[(2), float32]) { nn.relu(%x) }", "the text")
        bare = read_text("free_var %x: Tensor[(2), float32];\n%0 = nn.relu(%x);\n%0", "the text")
        for module in (whole, bare):
            (found,) = evaluate(module, {"x": np.float32([-1, 2])})
            np.testing.assert_array_equal(found, np.float32([0, 2]))

    @pytest.mark.parametrize(
        ("literal", "value", "dtype"),
        [
            ("16f", 16, "float32"),
            ("1e-05f /* ty=float32 */", 1e-5, "float32"),
            ("-3.40282e+38f", -3.40282e38, "float32"),
            ("128 /* ty=int32 */", 128, "int32"),
            ("3 /* ty=int8 */", 3, "int8"),
            ("-7i64", -7, "int64"),
            ("5u8", 5, "uint8"),
            ("0.5f64", 0.5, "float64"),
            ("2 /* ty=int64 span=a:1:2 */", 2, "int64"),
            ("True /* ty=bool */", True, "bool"),
            ("inff", np.inf, "float32"),
        ],
    )
    def test_literals(self, literal: str, value: float, dtype: str) -> None:
        module = read_text(f"def @main() {{ copy({literal}) }}", "the text")
        body = module.functions["main"].body
        assert isinstance(body, graph.Call)
        constant = body.args[0]
        assert isinstance(constant, graph.Constant)
        assert constant.array is not None
        assert (str(constant.array.dtype), constant.array) == (dtype, np.array(value, dtype))

    def test_attributes(self) -> None:
        text = """def @main(%x: float32) {
          f(%x, a=[1, -2], b=[[0, 0], [1, 1]], c="NCHW", d=1e-05f, e=True, f=None, g=[], h=-1,
            i=meta[runtime.String][0], j={"k"=1}, k=int8, l=2i64, m=[None, 3])
        }"""
        body = read_text(text, "the text").functions["main"].body
        assert isinstance(body, graph.Call)
        assert dict(body.attrs) == {
            **{"a": [1, -2], "b": [[0, 0], [1, 1]], "c": "NCHW", "d": 1e-05, "e": True},
            **{"f": None, "g": [], "h": -1, "i": None, "j": None, "k": "int8", "l": 2},
            "m": [None, 3],
        }

    def test_signs_between_operands_bind_as_in_python(self) -> None:
        text = "def @main(%a: int32, %b: int32) { (%a + %b * %a - %b, %a < %b,) }"
        a, b = np.int32([3]), np.int32([4])
        found = evaluate(read_text(text, "the text"), {"a": a, "b": b})
        assert [x.tolist() for x in found] == [[11], [True]]

    def test_comments_and_omitted_metadata(self) -> None:
        text = """#[version = "0.0.5"]
        // a line
        def @main(%x: Tensor[(1), float32] /* the input */) { /* the body */ nn.relu(%x) }
        /* For debugging purposes the metadata section has been omitted.
         * If you would like to see the full metadata section you can set the
         * option to `True` when invoking `astext`.
         */"""
        assert list(read_text(text, "the text").functions) == ["main"]

    def test_where_values_live_is_not_read(self) -> None:
        text = """def @main(%x {virtual_device=meta[VirtualDevice][0]}: Tensor[(1), float32],
                            virtual_device=meta[VirtualDevice][0]) {
          %0 = nn.relu(%x);;
          on_device(%0, virtual_device=meta[VirtualDevice][0], constrain_result=True)
        }"""
        (found,) = evaluate(read_text(text, "the text"), {"x": np.float32([-1])})
        assert found.tolist() == [0]

    def test_names_of_graph_variables_belong_to_their_function(self) -> None:
        text = """def @main(%x: Tensor[(1), float32]) {
          %0 = nn.relu(%x);
          %2 = fn (%y) { %0 = negative(%y); %1 = abs(%0); %1 };
          %3 = %2(%0);
          add(%3, %0)
        }"""
        (found,) = evaluate(read_text(text, "the text"), {"x": np.float32([2])})
        assert found.tolist() == [4]


HEAD = "def @main(%x: Tensor[(2), float32]) {\n"


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (HEAD + "  nn.relu(%x", 'line 2, column 13: the text ends; "," or ")" was expected'),
            (HEAD + "  %0 = nn.relu(%x);", 'line 2, column 20: the text ends; an expression'),
            (HEAD + "  %0 = nn.relu(%x)\n}", 'line 3, column 1: "}" stands there; ";" was'),
            (HEAD + "  %0 = ;\n}", 'line 2, column 8: ";" stands there; an expression was'),
            (HEAD + "  nn.relu(%y)\n}", 'line 2, column 11: "%y" is used before it is defined'),
            (HEAD + "  nn.relu(%3)\n}", 'line 2, column 11: "%3" is used before it is defined'),
            (HEAD + '  f(%x, a="b)\n}', "line 2, column 11: a string that does not end"),
            (HEAD + "  f(%x, a=)\n}", 'line 2, column 11: ")" stands there; the value of an attr'),
            (HEAD + "  if (%x) { %x } else { %x }\n}", 'column 3: "if" is control flow'),
            (HEAD + "  `%x`\n}", "line 2, column 3: the character '`', which Relay text does not"),
            ("def main() {}", 'line 1, column 5: "main" stands there; the name of a function'),
            ("", "line 1, column 1: the text ends; an expression was expected"),
            (HEAD + "  %x\n}\n}", 'line 4, column 1: "}" stands there; "def" or the end was'),
        ],
    )  # fmt: skip
    def test_wrong_text_says_where_and_what(self, tmp_path: Path, text: str, expected: str) -> None:
        message = error(tmp_path, text)
        assert message.startswith('model file "net.relay", line ')
        assert expected in message
        assert message.endswith("; save the text again with mod.astext()")

    def test_every_truncation_is_one_line(self, tmp_path: Path) -> None:
        for cut in range(0, len(FUSED) - 3, 7):
            error(tmp_path, FUSED[:cut])

    def test_other_versions(self, tmp_path: Path) -> None:
        assert error(tmp_path, '#[version = "0.1.0"]\n' + HEAD + "%x }") == (
            'model file "net.relay" is Relay text of version 0.1.0; 0.0.4 and 0.0.5 are read; save '
            "it again with TVM 0.6 to 0.14"
        )

    def test_unknown_operators_are_all_named(self, tmp_path: Path) -> None:
        text = HEAD + "  %0 = vision.nms(%x); %1 = vision.nms(%0); nn.odd(%1)\n}"
        assert error(tmp_path, text).startswith(
            'model file "net.relay" has operators that are not read: nn.odd (1), vision.nms (2); '
        )

    def test_attributes_of_other_versions(self, tmp_path: Path) -> None:
        assert error(tmp_path, HEAD + "  nn.softmax(%x, axes=1)\n}") == (
            'operator "softmax" (nn.softmax, line 2, column 3) has the attribute "axes", which the '
            "versions that are read do not have; known are axis; save the module with TVM 0.6 to "
            "0.14"
        )

    def test_values_of_another_kind(self, tmp_path: Path) -> None:
        assert error(tmp_path, HEAD + '  nn.softmax(%x, axis="x")\n}') == (
            'operator "softmax" (nn.softmax, line 2, column 3) has axis = x; a whole number is '
            "taken; save the module with TVM 0.6 to 0.14"
        )

    def test_operands_that_are_too_many(self, tmp_path: Path) -> None:
        assert error(tmp_path, HEAD + "  nn.relu(%x, %x)\n}") == (
            'operator "relu" (nn.relu, line 2, column 3) has 2 operands; 1 are taken; save the '
            "module with TVM 0.6 to 0.14"
        )

    def test_packed_layouts(self, tmp_path: Path) -> None:
        text = (
            "def @main(%x: Tensor[(1, 1, 4, 4, 16), float32], %w: Tensor[(1, 1, 1, 1, 16, 16), "
            'float32]) {\n  nn.conv2d(%x, %w, data_layout="NCHW16c", kernel_layout="OIHW16i16o")\n}'
        )
        assert error(tmp_path, text, random_params=0) == (
            'operator "conv2d" (nn.conv2d, line 2, column 3) has the layouts NCHW16c and OIHW16i16o'
            "; NCHW and NHWC with plain weights are taken; save the module before it is packed or "
            "altered"
        )

    def test_missing_values_are_named_with_their_types(self, tmp_path: Path) -> None:
        text = HEAD + "  add(%x, meta[relay.Constant][1] /* ty=Tensor[(2), float32] */)\n}"
        assert error(tmp_path, text) == (
            'model file "net.relay" has no values for 1 tensor: "constant_1" Tensor[(2), float32]; '
            "give them with params= (--params FILE), save the text with its metadata, or draw them "
            "with random_params= (--random-params SEED)"
        )
        assert error(tmp_path, SMALL).startswith(
            'model file "net.relay" has no values for 1 tensor: "w" Tensor[(4, 3, 3, 3), float32]; '
        )

    def test_parameters_of_another_shape(self, tmp_path: Path) -> None:
        assert error(tmp_path, SMALL, params={"w": floats(4, 3, 1, 1)}) == (
            'parameter "w" is Tensor[(4, 3, 3, 3), float32]; the parameter file has Tensor[(4, 3, '
            "1, 1), float32]; give the file that was saved with this module"
        )

    def test_parameters_of_another_model(self, tmp_path: Path) -> None:
        assert error(tmp_path, SMALL, params={"v": floats(1)}) == (
            'the parameter file has "v"; model file "net.relay" has the parameters "data", "w"; '
            "give the file that was saved with this module"
        )

    def test_open_dimensions(self, tmp_path: Path) -> None:
        text = "def @main(%x: Tensor[(?, 2), float32]) { nn.relu(%x) }"
        assert error(tmp_path, text) == (
            'input "x" has the type Tensor[(?, 2), float32]; every dimension must be known; give '
            "its shape (shapes= or --shape x=...)"
        )
        mod = load_model(tmp_path / "net.relay", shapes={"x": (3, 2)})
        assert [int(dim) for dim in mod["main"].params[0].ty.shape] == [3, 2]

    def test_recursion(self, tmp_path: Path) -> None:
        text = HEAD + "  @f(%x)\n}\ndef @f(%x: Tensor[(2), float32]) { @f(%x) }"
        assert error(tmp_path, text) == (
            "functions call each other 100 deep; recursion is not taken; unroll the module first"
        )


class TestRandomParams:
    def test_equal_seeds_draw_equal_weights(self, tmp_path: Path) -> None:
        path = write(tmp_path / "net.relay", SMALL)
        first, second, third = (
            load_model(path, random_params=seed)["main"].body.blocks[0].bindings[0].value.args[1]
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first.value.numpy(), second.value.numpy())
        assert not np.array_equal(first.value.numpy(), third.value.numpy())
        assert 0 < float(np.abs(first.value.numpy()).max()) < 1

    def test_only_relay_takes_them(self, tmp_path: Path) -> None:
        path = write(tmp_path / "net.onnx", b"")
        with pytest.raises(VTAError, match="only Relay models"):
            load_model(path, random_params=0)
