"""Modules between the stages as text: short lines, names that are identifiers, and back again."""

from __future__ import annotations

import functools
import re

import pytest
import tvm
from integer_models import IntegerNet
from script_texts import parsed
from stage_runs import after_stages, bordered_net
from tvm import relax

from vta_byoc.ir.bindings import sanitized
from vta_byoc.ir.records import as_record, records, text_of
from vta_byoc.ir.stage import PREFIX
from vta_byoc.pipeline import STAGES

LONGEST_LINE, LONGEST_ATTRIBUTE = 800, 250
"""Characters; what TVM itself prints of the nest of a folded image is a line of 751."""
STRING = re.compile(r'"vta\.[a-z]*": ("(?:\\.|[^"\\])*")')
NAMES = [planned.name for planned in STAGES if planned.name != "CheckSchedules"]
TEXTLESS = "LinkDriver"
"""The stage behind which a module holds machine code."""


def image_net() -> IntegerNet:
    """A folded image, pooling, a wide layer with a residual, the CPU between two regions."""
    net = IntegerNet(image=(1, 3, 12, 12))
    (x,) = net.params
    first = net.conv(x, 16, name="first")
    wide = net.conv(first, 32, name="wide")
    joined = net.residual(net.conv(wide, 32, name="next"), wide, name="join")
    size = net.op("abs", joined, name="size")
    net.result = net.conv(size, 16, name="last")
    return net


@functools.cache
def modules(net: str) -> dict[str, tvm.IRModule]:
    """Stage -> the module that it gives."""
    made = {"bordered": bordered_net, "image": image_net}[net]()
    return {planned.name: mod for planned, mod in after_stages(made.module(made.result))}


@pytest.fixture(params=["bordered", "image"])
def net(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_every_stage_is_looked_at(net: str) -> None:
    assert list(modules(net)) == NAMES


@pytest.mark.parametrize("stage", NAMES)
def test_lines_and_attributes_are_short(net: str, stage: str) -> None:
    text = modules(net)[stage].script()
    assert max(map(len, text.splitlines())) <= LONGEST_LINE
    strings = STRING.findall(text)
    assert all(len(each) <= LONGEST_ATTRIBUTE and "\\" not in each for each in strings)


@pytest.mark.parametrize("stage", NAMES)
def test_names_are_identifiers(net: str, stage: str) -> None:
    mod = modules(net)[stage]
    assert all(gv.name_hint.isidentifier() for gv in mod.functions)
    inner = [name for function, _ in records(mod) for name in function.split(".") if name]
    assert all(name.isidentifier() for name in inner)


@pytest.mark.parametrize("stage", [name for name in NAMES if name != TEXTLESS])
def test_text_parses_back(net: str, stage: str) -> None:
    mod = modules(net)[stage]
    tvm.ir.assert_structural_equal(parsed(mod.script(show_meta=True)), mod)


def test_machine_code_comes_last(net: str) -> None:
    """It is in an attribute that has no text, so only the last stage may write it."""
    found = [stage for stage, mod in modules(net).items() if "external_mods" in (mod.attrs or {})]
    assert found == [TEXTLESS]
    assert "external_mods" in modules(net)[TEXTLESS].script()


# ---------------------------------------------------------------- records
def test_records_of_a_module() -> None:
    found = records(modules("bordered")["AnnotateScopes"])
    region = next(function for function, name in found if name == "vta.scopes")
    assert region == "fused_vta_conv2d_binary_vta"
    placed = found["", "vta.placement"]
    assert isinstance(placed, list)
    assert [each["name"] for each in placed] == ["conv", "join", "size"]
    assert {name for function, name in found if function.endswith("_compute")} == {"vta.workload"}


def test_a_record_is_text_of_any_signs() -> None:
    text = '["é", "\\u0000", "\U0001f600"]'
    assert text_of(as_record(text)) == text
    assert text_of(text) == text


def test_the_schedule_of_a_composite_can_be_read() -> None:
    text = modules("bordered")["FuseTiles"].script()
    assert (
        '"vta.schedule": "estimate | inputs held; tile n=1 g=1 co=1 oh=6 ow=6 ci=1 kh=1 kw=3; '
        'slots inp=2 wgt=2 acc=2; cycles 1685.0; grouping join=1 sets=1 ci=1 co=1"'
    ) in text


# ---------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("given", "name"),
    [("class", "op_class"), ("None", "op_None"), ("classes", "classes"), ("match", "match")],
)
def test_keywords_are_no_names(given: str, name: str) -> None:
    assert sanitized(given) == name


# ---------------------------------------------------------------- what TVM lets one register
def test_pass_contexts_take_no_keys_from_python() -> None:
    """Keys of `config` are registered in C++; docs/from-tvm-vta.md says so."""
    with pytest.raises(AttributeError, match=r"vta\.scopes"):
        tvm.transform.PassContext(config={"vta.scopes": "dram"})


def test_a_pass_context_leaves_a_stage_out() -> None:
    net = bordered_net()
    mod = net.module(net.result)
    with tvm.transform.PassContext(disabled_pass=[f"{PREFIX}FuseTiles"]):
        plain = relax.get_pipeline("vta", device="null")(mod)
    fused = relax.get_pipeline("vta", device="null")(mod)
    assert "vta.sharing" in fused.attrs and "vta.sharing" not in plain.attrs
