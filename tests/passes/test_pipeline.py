"""The pipeline as a table of stages: names for instruments, printing, options as one value."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from cli_runs import cli, quantize_once, refused, small_model
from stage_runs import DRY, bordered_net
from tvm import relax
from tvm.ir.instrument import PassTimingInstrument, pass_instrument
from tvm_ffi import structural_equal

from vta_byoc import pipeline
from vta_byoc.cli import commands
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.target import export_target
from vta_byoc.ir.legality import PACKED, check_form
from vta_byoc.options import build_options
from vta_byoc.passes.lower_regions import LoweredRegions
from vta_byoc.pipeline import (
    DRAM_ONLY,
    OFF,
    STAGES,
    BuildOptions,
    build,
    compile_module,
    partition_for_vta,
    partition_passes,
    vta_pipeline,
)
from vta_byoc.tuning.schedules import Schedules

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"
PYNQ = VTAConfig.preset("pynq")
PARTITIONING = (
    *("TellOfFloats", "DropUnread", "Mark", "GraphPack"),
    *("FuseTiles", "MergeRegions", "AnnotateScopes", "PlaceKernels"),
)
BUILDING = ("LowerRegions", "LowerKernels", "FuseHost", "BuildHost", "LinkDriver")
GIVEN = "CheckSchedules"
"""Runs where schedules are given."""
KNOWN = ", ".join((*PARTITIONING, GIVEN, *BUILDING))
UNKNOWN = (
    f"print after 'mark': no stage has this name; known: {KNOWN}; `vta-byoc passes` says what each "
    "one does"
)
ENDED = (
    f"print after 'LowerRegions': this stage does not run here; those that run: "
    f"{', '.join(PARTITIONING)}; choose one of them"
)


def network() -> tvm.IRModule:
    net = bordered_net()
    return net.module(net.result)


# ---------------------------------------------------------------- stages and instruments
def test_stages_have_the_names_of_their_passes() -> None:
    options = dataclasses.replace(DRY, schedules=Schedules())
    made = [planned.make(options, LoweredRegions()).info.name for planned in STAGES]
    assert made == [f"vta.{name}" for name in (*PARTITIONING, GIVEN, *BUILDING)]


@pass_instrument
class Names:
    """The stages that ran, in order of their ends."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def run_after_pass(self, _mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        if info.name.startswith("vta."):
            self.seen.append(info.name.removeprefix("vta."))


@pytest.mark.parametrize("scopes", ["on", DRAM_ONLY, OFF])
def test_instruments_see_every_stage_in_order(scopes: str) -> None:
    names = Names()
    with tvm.transform.PassContext(instruments=[names]):
        compile_module(network(), device="null", scopes=scopes)
    partitioning = [n for n in PARTITIONING if n != "FuseTiles" or scopes == "on"]
    assert names.seen == [*partitioning, *BUILDING, "Pipeline"]


def test_a_partitioned_module_is_not_partitioned_again() -> None:
    mod, names = partition_for_vta(network()), Names()
    with tvm.transform.PassContext(instruments=[names]):
        compile_module(mod, device="null")
    assert names.seen == [*BUILDING, "Pipeline"]


def test_the_relax_pipeline_runs_all_stages() -> None:
    names = Names()
    options = BuildOptions(device="null", print_after=("Mark",))
    with tvm.transform.PassContext(instruments=[names]), tvm.target.Target({"kind": "llvm"}):
        relax.get_pipeline("vta", options=options)(network())
    before, after = PARTITIONING[:3], PARTITIONING[3:]
    assert names.seen == [*before, "PrintMark", *after, *BUILDING, "Pipeline"]


def test_time_of_every_stage() -> None:
    timing = PassTimingInstrument()
    with tvm.transform.PassContext(instruments=[timing]):
        partition_for_vta(network())
        text = timing.render()
    assert [name for name in PARTITIONING if f"vta.{name}:" not in text] == []


# ---------------------------------------------------------------- printing
def test_print_after_writes_the_module_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    partition_for_vta(network(), options=BuildOptions(print_after=("GraphPack", "Mark")))
    first, marked, packed = capsys.readouterr().err.split("# after ")
    assert first == ""
    assert marked.startswith("Mark: MARKED\n# from tvm.script import ir as I\n")
    assert '"Composite": "vta.binary", "Primitive": True, "vta.constants": {' in marked
    assert re.search(r'"vta.match": metadata\["ffi.Tensor"\]\[\d\], "vta.result": "join"', marked)
    assert "vta_pack_1x16x6x6" not in marked
    assert packed.startswith("GraphPack: PACKED\n# from tvm.script import ir as I\n")
    assert "R.call_tir(cls.vta_pack_1x16x6x6" in packed


def test_print_after_into_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed, lowered = tmp_path / "packed=1.py", tmp_path / "lowered.py"
    wanted = (f"GraphPack={packed}", f"LowerRegions={lowered}", "BuildHost")
    compile_module(network(), options=dataclasses.replace(DRY, print_after=wanted))
    assert "R.call_dps_packed(" in lowered.read_text(encoding="utf-8")
    assert capsys.readouterr().err.startswith("# after BuildHost: VM\n")
    head, _, script = packed.read_text(encoding="utf-8").partition("\n")
    assert head == "# after GraphPack: PACKED"
    assert "vta.sharing" not in script  # of the stage behind it


def test_printing_changes_nothing() -> None:
    options = dataclasses.replace(DRY, print_after=(*PARTITIONING, *BUILDING))
    quiet, told = (compile_module(network(), options=o).programs for o in (DRY, options))
    assert {n: p.digest() for n, p in quiet.items()} == {n: p.digest() for n, p in told.items()}


@pytest.mark.parametrize(
    ("call", "options", "message"),
    [
        (compile_module, {"print_after": ("Mark", "mark")}, UNKNOWN),
        (build, {"print_after": ("mark=file.py",)}, UNKNOWN),
        (partition_for_vta, {"print_after": ("LowerRegions",)}, ENDED),
        (
            compile_module,
            {"print_after": ("FuseTiles",), "scopes": OFF},
            "print after 'FuseTiles': this stage does not run here; those that run: "
            f"{', '.join((*PARTITIONING, *BUILDING)).replace('FuseTiles, ', '')}; choose one of "
            "them",
        ),
    ],
)
def test_print_after_what_never_runs(
    call: Callable[..., object], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(VTAError) as err:
        call(network(), options=BuildOptions(device="sim", **options))
    assert str(err.value) == message


def test_print_after_what_ran_before() -> None:
    mod = partition_for_vta(network())
    with pytest.raises(VTAError) as err:
        compile_module(mod, options=BuildOptions(print_after=("Mark",)))
    assert str(err.value) == (
        "print after 'Mark': this stage does not run here; those that run: "
        f"{', '.join(BUILDING)}; choose one of them"
    )


@pytest.mark.parametrize("make", [partition_passes, vta_pipeline])
def test_pipelines_refuse_unknown_stages_at_once(make: Callable[..., object]) -> None:
    with pytest.raises(VTAError) as err:
        make(options=BuildOptions(print_after=("mark",)))
    assert str(err.value) == UNKNOWN


# ---------------------------------------------------------------- options
DEMANDS = {("join", "conv"): "global.vta.inp"}
PAIRS = VTAConfig.preset("2x16")
STYLES = (
    {"config": PAIRS},
    {"scopes": DRAM_ONLY},
    {"config": PAIRS, "demands": DEMANDS},
)


@pytest.mark.parametrize("given", STYLES)
def test_partitioning_is_the_same_by_keywords_and_by_options(given: dict[str, Any]) -> None:
    old = partition_for_vta(network(), **given)
    new = partition_for_vta(network(), options=BuildOptions(**given))
    tvm.ir.assert_structural_equal(old, new)
    plain = partition_for_vta(network())
    assert not structural_equal(old, plain)  # the options were read


@pytest.mark.parametrize("given", STYLES)
def test_programs_are_the_same_by_keywords_and_by_options(given: dict[str, Any]) -> None:
    old = compile_module(network(), device="null", **given)
    new = compile_module(network(), options=BuildOptions(device="null", **given))
    assert (old.config, old.device) == (new.config, new.device)
    assert [p.digest() for p in old.programs.values()] == [
        p.digest() for p in new.programs.values()
    ]


@pytest.mark.parametrize(
    ("function", "keywords"),
    [
        (partition_passes, {"config": PYNQ, "demands": DEMANDS}),
        (vta_pipeline, {"config": PYNQ, "device": "null", "simulator": export_target()}),
    ],
)
def test_keywords_become_options_at_once(
    function: Callable[..., object], keywords: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[BuildOptions] = []
    for name in ("_passes", "_pipeline"):
        kept = lambda *args: seen.extend(a for a in args if isinstance(a, BuildOptions))  # noqa: E731
        monkeypatch.setattr(pipeline, name, kept)
    function(**keywords)
    fields = {{"simulator": "target"}.get(name, name): value for name, value in keywords.items()}
    assert seen == [BuildOptions(**fields)]


@pytest.mark.parametrize(
    "function", [partition_passes, partition_for_vta, vta_pipeline, compile_module, build]
)
def test_keywords_of_public_functions_stay(function: Callable[..., object]) -> None:
    known = {field.name for field in dataclasses.fields(BuildOptions)}
    taken = set(inspect.signature(function).parameters) - {"mod", "record", "simulator", "options"}
    assert {"config", "scopes", "demands"} <= taken <= known


@pytest.mark.parametrize("device", ["sim", "null"])
def test_the_device_decides_the_driver(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, known = [], pipeline.driver_of
    monkeypatch.setattr(pipeline, "driver_of", lambda name: (seen.append(name), known(name))[1])
    compile_module(network(), options=BuildOptions(device=device))
    assert set(seen) == {device}


def test_options_are_given_once() -> None:
    with pytest.raises(VTAError) as err:
        compile_module(network(), PYNQ, "null", options=DRY)
    assert str(err.value) == (
        "options and config, device are given; need one of the two; put them into BuildOptions"
    )
    with pytest.raises(VTAError) as err:
        partition_for_vta(network(), scopes=OFF, options=DRY)
    assert str(err.value) == (
        "options and scopes are given; need one of the two; put it into BuildOptions"
    )


def test_defaults_may_stand_beside_options() -> None:
    assert build_options(DRY, {"config": None, "scopes": "on", "demands": None}) is DRY
    assert build_options(None, {"config": None, "device": "sim"}) == BuildOptions()


def test_options_are_a_value() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DRY.scopes = OFF  # type: ignore[misc]
    assert BuildOptions(config=PYNQ) == BuildOptions(config=VTAConfig.preset("pynq"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "fpga"}, "unknown device 'fpga'; known: "),
        ({"scopes": "chip"}, "scopes 'chip' is no scope mode; known: on, dram, off; choose one"),
        ({"scopes": OFF, "demands": DEMANDS}, "a demand of 'join' for 'conv' with scopes 'off'; "),
    ],
)
def test_options_refuse_what_does_not_exist(given: dict[str, Any], message: str) -> None:
    with pytest.raises(VTAError) as err:
        BuildOptions(**given)
    assert str(err.value).startswith(message)


# ---------------------------------------------------------------- the command line
@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(commands, "quantize", quantize_once)
    return small_model(tmp_path / "small.onnx")


def test_the_table(golden: Callable[[str, str], None]) -> None:
    result = cli("passes", COLUMNS="120")
    assert result.exit_code == 0
    golden("passes.txt", result.stdout)
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[2 : 2 + len(STAGES)]] == [s.name for s in STAGES]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert {f"    {line}".rstrip() for line in lines} <= set(page)


def test_the_table_as_json() -> None:
    found = json.loads(cli("passes", "--json").stdout)
    assert set(found) == {"stages", "forms"}
    assert [stage["name"] for stage in found["stages"]] == [*PARTITIONING, GIVEN, *BUILDING]
    assert found["stages"][4] == {
        "name": "FuseTiles",
        "pass": "vta.FuseTiles",
        "from": "PACKED",
        "to": "PACKED",
        "does": "fuses consumers into their producers",
        "when": 'scopes "on"',
    }
    assert {s[key] for s in found["stages"] for key in ("from", "to")} == {
        form["name"] for form in found["forms"]
    }


@pytest.mark.parametrize("command", ["place", "scopes", "disasm"])
def test_commands_print_after_a_stage(command: str, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "packed.py"
    stages = ("--print-after", "Mark", "--print-after", f"GraphPack={file}")
    result = cli(command, model, *stages)
    assert result.exit_code == 0, result.stderr
    assert "# after Mark: MARKED\n# from tvm.script import ir as I" in result.stderr
    assert "# after" not in result.stdout and "GraphPack" not in result.stderr
    assert file.read_text(encoding="utf-8").startswith("# after GraphPack: PACKED\n")


def test_unknown_stages_are_refused_before_the_model_is_read() -> None:
    assert refused("run", "missing.onnx", "--print-after", "mark") == UNKNOWN
    ended = ENDED.replace("PlaceKernels", f"PlaceKernels, {GIVEN}")
    for command in ("place", "scopes"):
        assert refused(command, "missing.onnx", "--print-after", "LowerRegions") == ended


def test_files_that_cannot_be_written_are_refused_first(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    assert refused("place", "missing.onnx", "--print-after", f"Mark={folder / 'a.py'}") == (
        f'output "{folder / "a.py"}": the directory "{folder}" does not exist; create it or choose '
        "another path"
    )
    before = model.read_bytes()
    assert "is the model file" in refused("place", model, "--print-after", f"Mark={model}")
    assert model.read_bytes() == before


@pytest.mark.parametrize("wanted", [False, True])
def test_check_forms_is_an_option(
    wanted: bool, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    checked = pipeline.checked_forms
    monkeypatch.setattr(pipeline, "checked_forms", lambda on: (seen.append(on), checked(on))[1])
    result = cli("place", model, *["--check-forms"][: int(wanted)])
    assert result.exit_code == 0, result.stderr
    assert seen == [wanted]


def test_packed_until_regions() -> None:
    """The list of passes can be cut where a form is wanted."""
    *before, _merge, _annotate, _place = partition_passes(PYNQ)
    check_form(tvm.transform.Sequential(before)(network()), PACKED)
    assert len(PARTITIONING) == len(before) + 3
