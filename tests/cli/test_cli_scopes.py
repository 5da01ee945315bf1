"""`vta-byoc scopes`: every tensor with demands, scope, rule and bytes; the copies at borders."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_runs import cli, quantize_once, refused, small_model
from integer_models import IntegerNet, island_net
from rich.console import Console
from tvm import relax

from vta_byoc.cli import commands
from vta_byoc.hw.config import VTAConfig
from vta_byoc.partitioning.region import Region, region_functions
from vta_byoc.pipeline import compile_module, partition_for_vta
from vta_byoc.quantization.scales import Rescale
from vta_byoc.reports.placement.scopes import ScopeReport, print_scopes
from vta_byoc.reports.placement.summary import host_copies
from vta_byoc.workload.memory import ACC

CONFIG = VTAConfig()


def report_of(net: IntegerNet, *results: object) -> ScopeReport:
    mod = partition_for_vta(net.module(*results), CONFIG)
    return ScopeReport.of(mod, "net.onnx", "sim", CONFIG)


def text_of(report: ScopeReport) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_scopes(report, "1x16", console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(commands, "quantize", quantize_once)
    return small_model(tmp_path / "small.onnx")


def test_json_of_a_model(model: Path) -> None:
    result = cli("scopes", model, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found) == {"model", "config", "tensors", "copies", "totals"}
    tensors = {(t["part"], t["tensor"]): t for t in found["tensors"]}
    first = tensors["region0", "first"]
    assert first == {
        "tensor": "first",
        "part": "region0",
        "kind": "value",
        "dtype": "int8",
        "demands": [
            {"consumer": "second", "scope": "global.vta.inp"},
            {"consumer": "join", "scope": "global.vta.inp"},
        ],
        "scope": "global.vta.inp",
        "rule": "consumers agree",
        "bytes": 16 * 8 * 8,
        "loaded": 2 * 16 * 8 * 8,
        "stored": 16 * 8 * 8,
        "saved": 0,
        "on_chip": [
            {
                "consumer": "join",
                "met": False,
                "rule": 'need "join" as its only reader, have second too',
                "cycles_apart": 0.0,
                "cycles_together": 0.0,
            }
        ],
        "calls": 1,
    }
    second = tensors["region0", "second"]
    assert (second["scope"], second["saved"]) == ("local.acc_buffer", 2 * 16 * 8 * 8)
    assert second["demands"] == [{"consumer": "join", "scope": "local.acc_buffer"}]
    assert second["loaded"] == second["stored"] == 0
    (met,) = second["on_chip"]
    assert met["met"] and 0 < met["cycles_together"] <= 1.01 * met["cycles_apart"]
    assert tensors["host", "data"]["rule"] == "graph input: stays in global"
    assert tensors["host", "gate"]["rule"] == "graph output: global at the border"
    weights = [t for t in found["tensors"] if t["scope"] == "global.vta.wgt"]
    # Of each convolution the weights and the bias; what adds the fused operand.
    conv = [16 * 16 * 9, 16 * 16]
    assert [t["bytes"] for t in weights] == [*conv, *conv, 16 * 16]
    assert [t["loaded"] for t in weights] == [t["bytes"] for t in weights]
    assert {t["kind"] for t in weights} == {"constant"}
    assert [(c["kind"], c["source"], c["tensor"]) for c in found["copies"]] == [
        ("pack", "data__int8", "data__int8__packed"),
        ("unpack", "join", "join__unpacked"),
    ]
    placed = json.loads(cli("place", model, "--json").stdout)
    assert found["totals"]["host"] == placed["host"]
    in_dram = [t for t in found["tensors"] if t["scope"] != "local.acc_buffer"]
    assert found["totals"]["bytes"] == sum(t["bytes"] for t in in_dram)
    assert found["totals"]["moved"] == sum(t["loaded"] + t["stored"] for t in in_dram)
    assert found["totals"]["saved"] == second["saved"]
    assert found["totals"]["arenas"] == {"region0": {"peak": 2048, "apart": 2048}}
    assert sum(found["totals"]["scopes"].values()) == sum(t["bytes"] for t in found["tensors"])


def test_text_of_a_model(model: Path) -> None:
    result = cli("scopes", model)
    assert result.exit_code == 0, result.output
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "first value int8 inp by second, join inp 1,024 3,072 - [4] [5]" in rows
    assert "second value int8 on chip by join on chip 1,024 - 2,048 [6]" in rows
    assert "pack data__int8 data__int8__packed 1,024" in rows
    assert "[4] consumers agree" in rows
    assert "region0 values between layers and results share 2.0 kB" in rows
    assert "host copies 1 pack 1.0 kB, 1 unpack 1.0 kB, 0 folds 0.0 kB" in rows


def test_a_demand_changes_what_is_moved(model: Path) -> None:
    own, apart = (
        json.loads(cli("scopes", model, *demand, "--json").stdout)["totals"]
        for demand in ([], ["--demand", "join:second=global.vta.inp"])
    )
    assert apart["saved"] == 0 and own["saved"] == 2048
    assert apart["moved"] - own["moved"] >= 2048
    ran = cli("run", model, "--demand", "join:second=global.vta.inp", "--check", "--json")
    assert json.loads(ran.stdout)["bit_exact"] is True


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["join=global.vta.inp"], "'join=global.vta.inp' is not CONSUMER:TENSOR=SCOPE"),
        (["join:second"], "as in add:conv2=global.vta.inp"),
        (
            ["join:second=local.acc_buffer", "join:second=global.vta.inp"],
            '"join" is to have "second" in local.acc_buffer and in global.vta.inp; need one scope, '
            "have two; drop one of the demands",
        ),
        (["join:third=global"], 'tensor "third": consumer "join" is to take it in scope "global"'),
        (["join:first=local.acc_buffer"], 'need "join" as its only reader, have second too'),
        (["join:second=global.vta.wgt"], "need global.vta.inp, which its instructions load, or"),
    ],
)
def test_demands_that_cannot_be_met(model: Path, given: list[str], message: str) -> None:
    options = [text for demand in given for text in ("--demand", demand)]
    assert message in refused("scopes", model, *options)


def test_a_demand_without_the_mode_that_reads_it(model: Path) -> None:
    line = refused("scopes", model, "--scopes", "dram", "--demand", "join:second=global.vta.inp")
    assert "demands are read with scopes 'on'" in line


def test_only_and_exclude(model: Path) -> None:
    result = cli("place", model, "--only", "first..join", "--exclude", "second", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["placement"]["ops"]
    found = {row["name"]: row["reason"] for row in rows}
    assert found["first"] == "pattern vta.conv2d"
    assert found["second"] == 'excluded by "second"'
    assert 'operator "frist" to compute on VTA' in refused("place", model, "--only", "frist")
    assert "'--exclude': ', ' selects no operator; give names" in refused(
        "place", model, "--exclude", ", "
    )


def test_errors_are_one_line(model: Path) -> None:
    assert "nowhere" in refused("scopes", model, "--config", "nowhere")


def test_an_island_separates_regions_and_moves_what_crosses_it() -> None:
    net = island_net()
    report = report_of(net, net.result)
    parts = dict.fromkeys(row.part for row in report.rows)
    assert list(parts) == ["host", "region0", "region1"]
    copies = [copy.kind for copy in report.copies]
    assert sorted(set(copies)) == ["pack", "unpack"]
    assert sum(c.nbytes for c in report.copies) == sum(c.nbytes for c in report.host.values())
    host = {r.decision.tensor: r.decision for r in report.rows if r.part == "host"}
    assert all(decision.scope == "global" for decision in host.values())


def test_bytes_are_those_of_the_program() -> None:
    """Each tensor of a region has its symbol's scope and bytes."""
    net = island_net()
    mod = partition_for_vta(net.module(net.result), CONFIG)
    report = ScopeReport.of(mod, "net", "sim", CONFIG)
    programs = compile_module(mod, CONFIG, "null").programs
    seen = 0
    for row in report.rows:
        if row.part != "host":
            if row.decision.scope == ACC:
                assert all(s.name != row.decision.tensor for s in programs[row.part].symbols)
                continue
            symbol = programs[row.part].symbol(row.decision.tensor)
            assert (symbol.scope, symbol.nbytes) == (row.decision.scope, row.decision.nbytes)
            seen += 1
    assert seen == sum(len(Region.of(f).tensors) for f in region_functions(mod).values())
    assert host_copies(mod) == report.host


def test_weights_that_calls_share_are_loaded_once() -> None:
    net = IntegerNet(x=(1, 16, 14, 14))
    weight = net.rng.integers(-127, 128, (16, 16, 3, 3)).astype("int8")
    bias = np.zeros(16, "int32")
    attrs = SimpleNamespace(strides=[1, 1], padding=[1] * 4, dilation=[1, 1], groups=1)
    value: relax.Expr = net.params[0]
    for name in ("one", "two", "three"):
        value = net.conv2d(value, weight, bias, attrs, Rescale(9, -128), name)
    report = report_of(net, value)
    (kept,) = (row for row in report.rows if row.calls > 1)
    assert (kept.calls, kept.decision.scope) == (3, "global.vta.wgt")
    assert kept.traffic.loaded == kept.decision.nbytes == 9 * 16 * 16
    assert "resident: loaded once for 3 calls in a row" in text_of(report)


def test_long_lists_of_consumers_are_counted() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    a = net.conv(net.params[0], 16, name="a")
    others = [net.conv(a, 16, name=name) for name in ("b", "c", "d", "e")]
    text = text_of(report_of(net, *others))
    assert "inp by b, c and 2 more" in text
    report = report_of(net, *others)
    assert [c.source for c in report.copies if c.kind == "unpack"] == ["b", "c", "d", "e"]


class TestObjectives:
    @pytest.mark.parametrize(
        "options",
        [
            ("--objective", "dram-bytes", "--cycles-limit", "5"),
            ("--bytes-weight", "0.2", "--cycles-limit", "1"),
            ("--exact-choice", "1"),
        ],
    )
    def test_of_a_compilation(self, model: Path, options: tuple[str, ...]) -> None:
        result = cli("place", model, *options)
        assert result.exit_code == 0, result.output

    def test_what_is_refused(self, model: Path) -> None:
        assert "'energy' is not one of 'cycles', 'dram-bytes', 'both'" in refused(
            "place", model, "--objective", "energy"
        )
        assert refused("place", model, "--objective", "cycles", "--bytes-weight", "0.2") == (
            "--bytes-weight 0.2 with --objective cycles; it is read with --objective both; give "
            "that or leave the weight out; see vta-byoc place --help"
        )
        assert refused("place", model, "--objective", "cycles", "--cycles-limit", "2") == (
            "--cycles-limit 2.0 with --objective cycles; it is read with another one; give that or "
            "leave the limit out; see vta-byoc place --help"
        )
