"""Names and patterns of operators that stay float."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from small_models import Graph, Net

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.ir.selection import parse_selectors
from vta_byoc.quantization.keep_float import keep_float


def model() -> tvm.IRModule:
    g = Graph((1, 4, 8, 8))
    x = g.conv(g.params[0], 4, name="stem")
    for block in (1, 2):
        x = g.op("nn.relu", g.conv(x, 4, name=f"block{block}_conv"), name=f"block{block}_relu")
    return g.module(g.dense(g.op("nn.batch_flatten", x, name="flat"), 3, name="fc"))


def kept(*names: str) -> list[str]:
    return sorted(var.name for var in keep_float(model(), names))


def refused(text: str, *names: str) -> None:
    with pytest.raises(VTAError) as caught:
        keep_float(model(), names)
    assert str(caught.value) == text


def test_a_name_stands_for_all_variables_of_its_operator() -> None:
    assert kept("stem") == ["stem", "stem__conv2d"]
    assert kept("block1_relu") == ["block1_relu"]
    assert kept() == []


def test_variables_are_those_of_the_module() -> None:
    mod = model()
    bound = {binding.var for block in mod["main"].body.blocks for binding in block.bindings}
    assert keep_float(mod, ["*"]) == bound


def test_patterns() -> None:
    assert kept("block?_relu") == ["block1_relu", "block2_relu"]
    assert kept("block[2]*") == ["block2_conv", "block2_conv__conv2d", "block2_relu"]
    assert kept("block*", "block1_relu", "fc") == sorted({*kept("block*"), *kept("fc")})
    assert "stem" not in kept("[!s]*")


def test_ranges_and_kinds() -> None:
    assert kept("block2_relu..fc") == kept("block2_relu", "flat", "fc")
    assert kept("@relu") == ["block1_relu", "block2_relu"]
    assert keep_float(model(), "stem,fc") and kept("..stem") == kept("stem")


def test_names_of_the_model_file(tmp_path: Path) -> None:
    net = Net(data=(1, 4, 8, 8))
    path = net.save(tmp_path / "m.onnx", net.conv("data", 4, 4, name="/features/0/conv"))
    names = {var.name for var in keep_float(load_model(path), ["/features/0/conv"])}
    assert names == {var.name for var in keep_float(load_model(path), ["features_0_conv"])}
    assert names


def test_unknown_names() -> None:
    refused(
        'operator "block1_con" to keep in float is not in the model; it has 7 operators; similar '
        'names are "block1_conv", "block2_conv", "block1_relu"',
        "stem",
        "block1_con",
    )
    refused(
        'operator "conv" to keep in float is not in the model; it has 7 operators; similar names '
        'are "block1_conv", "block2_conv"',
        "conv",
    )
    refused(
        'operator "zzz*" to keep in float is not in the model; it has 7 operators; '
        "`vta-byoc place MODEL` lists their names",
        "zzz*",
    )


def test_an_input_is_no_operator() -> None:
    refused(
        'operator "x0" to keep in float is an input of the model; only operators are named; name '
        "those that read it",
        "x0",
    )


def test_lists_of_the_command_line() -> None:
    assert parse_selectors("stem, block*,fc") == ("stem", "block*", "fc")
    assert parse_selectors(" , ") == ()
