"""`vta-byoc place`: where operators run, why, what would change it, and the check for CI."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import cli, refused, small_model
from integer_models import IntegerNet
from rich.console import Console
from small_models import Net

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.names import operators_of
from vta_byoc.ir.operator_work import OperatorWork
from vta_byoc.partition import Placement
from vta_byoc.partitioning.entry import Candidate
from vta_byoc.partitioning.placement import VTA, Taken
from vta_byoc.pipeline import partition_for_vta
from vta_byoc.reports.placement.summary import (
    Copies,
    PlaceReport,
    Share,
    alu_share,
    host_copies,
    how,
    macs_share,
    next_step,
    of_any_kind,
    pattern,
    placement_json,
    refusal,
    regions_of,
    remark,
    shortfalls,
)
from vta_byoc.reports.placement.text import print_place

SIM, PYNQ = VTAConfig.preset("sim"), VTAConfig.preset("pynq")
FOLD = Candidate(
    "windows of 7x7 every 2x2 folded into 147 channels", 9, (Candidate("packed GEMM", 99),)
)
NO_PATTERN = "no pattern of the partition table takes"


def on_vta(name: str, macs: int = 0, alu_ops: int = 0, **fields: Any) -> Placement:
    fields = {"op": "relax.nn.conv2d", "why": Taken("vta.conv2d"), **fields}
    return Placement(name, fields.pop("op"), VTA, fields.pop("why"), macs, alu_ops, **fields)


def on_cpu(
    name: str,
    macs: int = 0,
    alu_ops: int = 0,
    *,
    op: str = "relax.sigmoid",
    why: Refusal | None = None,
) -> Placement:
    return Placement(name, op, "cpu", why or Refusal(NO_PATTERN, op), macs, alu_ops)


REFUSED = Refusal("the sum may reach", "5", "int32 holds 4", "use smaller weights or closer scales")
OPS = [
    on_cpu("data", op="relax.quantize"),
    on_vta(
        "stem",
        9_000_000,
        90_000,
        computed_by=(FOLD,),
        host_bytes=2_007_040,
        cycles=131_712,
        bound=9,
    ),
    on_vta(
        "pool",
        0,
        10_000,
        op="relax.nn.max_pool2d",
        computed_by=(Candidate("vector ALU"),),
        cycles=100,
        bound=1,
    ),
    on_vta(
        "lone", 400_000, 4_000, why=Taken("vta.dense", remarks=("75 % of the batch lanes idle",))
    ),
    on_vta("flat", op="relax.reshape", why=Taken()),
    on_cpu("wide", 600_000, 4_000, op="relax.nn.conv1d", why=REFUSED),
    on_cpu("gate"),
]
COPIES = {"packs": Copies(2, 1_500), "unpacks": Copies(), "folds": Copies(1, 2_007_040)}


REGIONS = {"region0": ["stem", "pool"], "region1": ["lone"]}


def report(ops: list[Placement], least: float | None = None) -> PlaceReport:
    return PlaceReport("net.onnx", "pynq", ops, REGIONS, COPIES, least)


# ---------------------------------------------------------------- reasons
class TestReasons:
    def test_a_refusal_has_its_parts(self) -> None:
        wide = on_cpu("x", why=Refusal("a", "3", "at most 2", "use less"))
        assert (wide.why.rule, next_step(wide), remark(wide)) == ("a 3; at most 2", "use less", "")
        assert wide.reason == "a 3; at most 2; use less"
        bare = on_cpu("x", why=Refusal("no tile fits", remedy="use larger buffers"))
        assert (bare.why.rule, next_step(bare)) == ("no tile fits", "use larger buffers")
        assert bare.reason == "no tile fits; use larger buffers"
        semicolons = on_cpu("x", why=Refusal("a; b", limit="c; d", remedy="e; f"))
        assert (semicolons.why.rule, next_step(semicolons)) == ("a; b; c; d", "e; f")

    @pytest.mark.parametrize(
        ("op", "why", "step"),
        [
            ("relax.exp", Refusal(NO_PATTERN, "relax.exp"), "an integer form of it and an entry"),
            ("relax.quantize", Refusal(NO_PATTERN, "relax.quantize"), "nothing: float values"),
            ("relax.dequantize", Refusal(NO_PATTERN, "relax.dequantize"), "nothing: float values"),
            ("relax.add", Refusal("not the whole pattern", "vta.binary"), "the whole pattern"),
        ],
    )
    def test_a_reason_without_next_step_gets_one(self, op: str, why: Refusal, step: str) -> None:
        found = on_cpu("x", op=op, why=why)
        assert found.why.rule == found.reason == why.text and next_step(found).startswith(step)
        whole = refusal(found)
        assert whole is not None and whole == dataclasses.replace(why, remedy=next_step(found))

    def test_on_vta(self) -> None:
        assert (OPS[3].why.rule, next_step(OPS[3])) == ("pattern vta.dense", "")
        assert (pattern(OPS[3]), remark(OPS[3])) == ("vta.dense", "75 % of the batch lanes idle")
        assert OPS[3].reason == "pattern vta.dense; 75 % of the batch lanes idle"
        assert refusal(OPS[3]) is None
        part = on_vta("x", why=Taken("vta.dense", remarks=("part of y",)))
        assert part.reason == "pattern vta.dense; part of y"
        assert on_vta("x", why=Taken(within="conv")).reason == "computed in conv"
        assert OPS[4].reason == "a view: the packed tensor stays as it is"

    def test_texts(self) -> None:
        assert of_any_kind(OPS[-1]).rule == NO_PATTERN + " this kind"
        assert of_any_kind(OPS[-2]).rule == "the sum may reach 5; int32 holds 4"
        assert how(OPS[1]) == "windows of 7x7 every 2x2 folded into 147 channels"
        assert OPS[1].note == f"{how(OPS[1])}: 9 cycles by estimate (packed GEMM 99)"
        assert [how(OPS[2]), how(OPS[3]), how(OPS[-1])] == ["vector ALU", "", ""]
        two = on_vta("x", computed_by=(FOLD, Candidate("packed GEMM")))
        assert (how(two), two.note) == (
            f"{how(OPS[1])}; packed GEMM",
            f"{OPS[1].note}; packed GEMM",
        )
        found = [operators_of(n) for n in ("sum", "sum__2", "a_b__13", "conv+add")]
        assert found == [["sum"], ["sum"], ["a_b"], ["conv", "add"]]

    @pytest.mark.parametrize("op", OPS, ids=lambda op: str(op.name))
    def test_the_record_is_read_as_it_was_written(self, op: Placement) -> None:
        assert Placement.from_json(json.loads(json.dumps(op.to_json()))) == op


# ---------------------------------------------------------------- totals
class TestShares:
    def test_of_macs_and_of_alu_operations(self) -> None:
        assert macs_share(OPS) == Share("MACs", 9_400_000, 10_000_000)
        assert alu_share(OPS) == Share("ALU operations", 104_000, 108_000)
        assert macs_share(OPS).percent == 94.0
        assert macs_share([]).percent is None

    def test_of_an_operator_that_both_compute(self) -> None:
        """The totals are sums over rows: what the other device does is in the row."""
        both = on_vta("both", 100, 30, other_macs=10, other_alu_ops=20)
        left = Placement(
            "left", "relax.matmul", "cpu", REFUSED, 50, 8, other_macs=20, other_alu_ops=8
        )
        assert (both.on_vta, both.on_cpu) == (OperatorWork(90, 10), OperatorWork(10, 20))
        assert (left.on_vta, left.on_cpu) == (OperatorWork(20, 8), OperatorWork(30, 0))
        assert macs_share([both, left]) == Share("MACs", 110, 150)
        assert alu_share([both, left]) == Share("ALU operations", 18, 38)
        (line,) = shortfalls([both, left], 47.5)
        assert line == (
            "47.3 % of the ALU operations run on VTA, 47.5 % must; on the CPU are 20 of 38: both 20"
        )

    def test_text_never_rounds_up_to_all(self) -> None:
        assert Share("MACs", 999_999, 1_000_000).text == "1,000,000, on VTA 999,999 (99.9 %)"
        assert Share("MACs", 10, 10).text == "10, on VTA 10 (100.0 %)"
        assert Share("MACs", 0, 0).text == "0, on VTA 0"

    @pytest.mark.parametrize(
        ("done", "total", "least", "reached"),
        [
            (99, 100, 99, True),
            (98, 100, 99, False),
            (999_999, 1_000_000, 100, False),
            (1_000_000, 1_000_000, 100, True),
            (10**15 - 1, 10**15, 100, False),
            (0, 0, 100, True),
            (0, 5, 0, True),
        ],
    )
    def test_reaches_is_exact(self, done: int, total: int, least: float, reached: bool) -> None:
        assert Share("MACs", done, total).reaches(least) is reached


class TestShortfalls:
    def test_says_which_and_what_is_missing(self) -> None:
        assert shortfalls(OPS, 99) == [
            "94.0 % of the MACs run on VTA, 99 % must; on the CPU are 600,000 of 10,000,000: "
            "wide 600,000",
            "96.2 % of the ALU operations run on VTA, 99 % must; on the CPU are 4,000 of 108,000: "
            "wide 4,000",
        ]

    def test_one_of_them_is_enough(self) -> None:
        (line,) = shortfalls(OPS, 95)
        assert line.startswith("94.0 % of the MACs")
        (line,) = shortfalls([on_vta("a", 5, 5), on_cpu("b", 0, 7)], 99)
        assert line.startswith("41.6 % of the ALU operations") and line.endswith("7 of 12: b 7")
        assert shortfalls(OPS, 94) == []

    def test_the_largest_are_named(self) -> None:
        ops = [on_vta("v", 10), *(on_cpu(f"c{i}", i) for i in range(8))]
        (line,) = shortfalls(ops, 50)
        assert line.endswith(": c7 7, c6 6, c5 5, c4 4 and 3 more operators")

    def test_nothing_on_vta_is_no_success(self) -> None:
        assert shortfalls([on_cpu("a"), on_cpu("b")], 1) == ["no operator runs on VTA"]
        assert shortfalls([], 99) == ["no operator runs on VTA"]
        assert shortfalls([on_cpu("a")], 0) == []
        assert shortfalls([on_vta("a")], 100) == []


# ---------------------------------------------------------------- output
class TestJson:
    def test_keys_of_an_operator(self) -> None:
        ops = {op["name"]: op for op in placement_json(OPS)["ops"]}
        assert list(ops) == [op.name for op in OPS]
        assert ops["stem"] == {
            "name": "stem",
            "op": "relax.nn.conv2d",
            "device": "vta",
            "reason": "pattern vta.conv2d",
            "rule": "pattern vta.conv2d",
            "next_step": "",
            "refusal": None,
            "macs": 9_000_000,
            "alu_ops": 90_000,
            "macs_offloaded": 9_000_000,
            "alu_ops_offloaded": 90_000,
            "cycles": 131_712,
            "bound": 9,
            "note": FOLD.text,
            "host_bytes": 2_007_040,
        }
        assert (ops["wide"]["cycles"], ops["wide"]["bound"]) == (None, None)
        assert ops["wide"]["next_step"] == "use smaller weights or closer scales"
        assert ops["wide"]["refusal"] == {
            "what": "the sum may reach",
            "value": "5",
            "limit": "int32 holds 4",
            "remedy": "use smaller weights or closer scales",
        }
        lacking = ops["gate"]["refusal"]
        assert (lacking["what"], lacking["value"]) == (NO_PATTERN, "relax.sigmoid")
        assert lacking["remedy"] == ops["gate"]["next_step"]

    def test_totals(self) -> None:
        totals = placement_json(OPS)
        del totals["ops"]
        assert totals == {
            "macs_total": 10_000_000,
            "macs_offloaded": 9_400_000,
            "macs_percent": 94.0,
            "alu_ops_total": 108_000,
            "alu_ops_offloaded": 104_000,
            "alu_ops_percent": 104 / 1.08,
            "cycles": 131_812,
            "bound": 10,
        }

    def test_the_whole_object(self) -> None:
        data = json.loads(json.dumps(report(OPS, 99).to_json()))
        assert list(data) == ["model", "config", "placement", "regions", "host", "fail_under"]
        assert data["regions"][1] == {"name": "region1", "ops": ["lone"]}
        assert data["host"]["folds"] == {"count": 1, "bytes": 2_007_040}
        assert data["fail_under"] == {"percent": 99, "ok": False, "missing": shortfalls(OPS, 99)}
        assert report(OPS).to_json()["fail_under"] is None
        assert report(OPS, 50).to_json()["fail_under"] == {
            "percent": 50,
            "ok": True,
            "missing": [],
        }


def printed(ops: list[Placement], width: int = 100, least: float | None = None) -> list[str]:
    out = io.StringIO()
    print_place(report(ops, least), "1x16", Console(file=out, width=width, highlight=False))
    return [line.rstrip() for line in out.getvalue().splitlines()]


class TestTable:
    def test_rows_in_the_models_order(self) -> None:
        lines = printed(OPS)
        assert lines[0] == "net.onnx on pynq (1x16)"
        assert lines[3].split("  ")[0] == "operator"
        assert [line.split() for line in lines[5:12]] == [
            ["data", "quantize", "cpu", "[1]"],
            ["stem", "conv2d", "vta.conv2d", "9.00", "0.09", "131,712", "folded"],
            ["pool", "max_pool2d", "vta.conv2d", "0.01", "100", "vector", "ALU"],
            ["lone", "conv2d", "vta.dense", "0.40", "<", "0.01", "[2]"],
            ["flat", "reshape", "vta", "[3]"],
            ["wide", "conv1d", "cpu", "[4]", "0.60", "<", "0.01"],
            ["gate", "sigmoid", "cpu", "[5]"],
        ]

    def test_next_steps_have_a_column(self) -> None:
        lines = printed(OPS, 140)
        head = next(line for line in lines if "why on the CPU" in line)
        at = head.index("what would let it in")
        row = next(line for line in lines if line.startswith("[4]"))
        assert row[6:].startswith("the sum may reach 5; int32 holds 4 ")
        assert row[at:].startswith("use smaller weights or closer scales ")
        assert row.split()[-4:] == ["1", "0.60", "<", "0.01"]
        same = [line for line in lines if NO_PATTERN + " this kind" in line]
        assert [line[:3] for line in same] == ["[1]", "[5]"]  # other next steps: other rows

    def test_remarks_and_totals(self) -> None:
        text = " ".join(" ".join(printed(OPS, 200, 95)).split())
        for part in (
            "[2] 75 % of the batch lanes idle",
            "[3] a view: the packed tensor stays as it is",
            f"folded stem: {how(OPS[1])}; the host writes 2.01 MB",
            "MACs 10,000,000, on VTA 9,400,000 (94.0 %)",
            "ALU operations 108,000, on VTA 104,000 (96.2 %)",
            "operators 7, on VTA 4 in 2 regions",
            "cycles 131,812 by estimate, host copies included; the roofline lower bound of these",
            "the host writes 2 packs of 1.5 kB, 1 fold of 2.01 MB",
            "at least 95 % 94.0 % of the MACs run on VTA, 95 % must; on the CPU are 600,000",
        ):
            assert part in text
        assert printed(OPS, least=90)[-1] == "at least 90 %    reached"

    @pytest.mark.parametrize("width", [80, 100, 160])
    def test_long_names_are_whole_and_lines_fit(self, width: int) -> None:
        names = [f"backbone_stage{i}_block_{i % 3}_depthwise_convolution" for i in range(150)]
        ops = [
            on_vta(n, 10**9, 10**9, computed_by=(Candidate("vector ALU"),), cycles=10**7)
            for n in names
        ]
        lines = printed([*ops, OPS[-2]], width)
        assert max(map(len, lines)) <= width
        words = [line.split("  ")[0] for line in lines[5:]]
        for name in names:
            at = next(i for i, word in enumerate(words) if word and name.startswith(word))
            while name != words[at]:
                words[at : at + 2] = [words[at] + words[at + 1]]
                assert name.startswith(words[at])
            words[at] = ""

    def test_without_operators(self) -> None:
        assert "operators        0, on VTA 0 in 2 regions" in printed([])

    def test_brackets_in_names_are_text(self) -> None:
        assert any(line.startswith("[bold]x") for line in printed([on_vta("[bold]x", 1)]))


# ---------------------------------------------------------------- of modules
class TestModules:
    def test_regions_and_copies_of_an_island(self) -> None:
        """An operator that VTA has no pattern for between two that it takes."""
        net = IntegerNet(x=(1, 16, 12, 12))
        first = net.conv(net.params[0], 32, name="first")
        turned = net.op("sort", first, axis=3, name="turn")
        mod = partition_for_vta(net.module(net.conv(turned, 16, name="second")), SIM)
        assert regions_of(mod) == {"region0": ["first"], "region1": ["second"]}
        copies = host_copies(mod)
        packed = 2 * 12 * 12 * 16  # bytes of 32 channels
        assert copies["packs"] == Copies(2, packed // 2 + packed)
        assert copies["unpacks"] == Copies(2, packed + packed // 2)
        assert copies["folds"] == Copies()
        found = PlaceReport.of(mod, "net", "sim")
        assert [(op.name, op.device) for op in found.placement] == [
            ("first", "vta"),
            ("turn", "cpu"),
            ("second", "vta"),
        ]

    def test_an_operator_of_several_groups_is_listed_once(self) -> None:
        """A sum of three tensors becomes two additions of one name."""
        net = IntegerNet(x=(1, 16, 4, 4), y=(1, 16, 4, 4), z=(1, 16, 4, 4))
        x, y, z = net.params
        half = net.residual(x, y, name="total__first")
        mod = partition_for_vta(net.module(net.residual(half, z, name="total")), SIM)
        assert regions_of(mod) == {"region0": ["total"]}
        (op,) = PlaceReport.of(mod, "net", "sim").placement
        assert (op.name, op.device) == ("total", "vta")

    def test_folds(self) -> None:
        """A stem of three channels: the host's bytes are those of the folded operand."""
        net = IntegerNet(x=(1, 3, 32, 32))
        stem = net.conv(net.params[0], 16, 7, stride=2, name="stem")
        mod = partition_for_vta(net.module(stem), PYNQ)
        found = PlaceReport.of(mod, "net", "pynq")
        (op,) = found.placement
        assert op.host_bytes > 0 and "folded into" in how(op)
        assert found.copies["folds"] == Copies(1, op.host_bytes)
        assert found.copies["packs"] == Copies()

    def test_nothing_on_vta(self) -> None:
        net = IntegerNet(x=(1, 16, 4, 4))
        turned = net.op("permute_dims", net.params[0], axes=[0, 1, 3, 2], name="turn")
        mod = partition_for_vta(net.module(turned), SIM)
        found = PlaceReport.of(mod, "net", "sim", 50)
        assert found.regions == {} and found.shortfalls == ["no operator runs on VTA"]
        assert all(copies == Copies() for copies in found.copies.values())


# ---------------------------------------------------------------- the command
@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small.onnx")


@pytest.mark.usefixtures("quantized_once")
class TestCommand:
    def test_json(self, model: Path) -> None:
        result = cli("place", model, "--config", "pynq", "--json")
        assert result.exit_code == 0, result.stderr
        data = json.loads(result.stdout)
        assert (data["model"], data["config"]) == (str(model), "pynq")
        ops = {op["name"]: op for op in data["placement"]["ops"]}
        on_vta = [name for name in ops if ops[name]["device"] == "vta"]
        assert on_vta == ["first", "second", "join", "join_relu"]
        assert ops["join_relu"]["op"] == "relax.nn.relu"
        assert ops["join_relu"]["reason"] == "computed in join"
        macs = 2 * 8 * 8 * 16 * 16 * 9
        assert data["placement"]["macs_total"] == data["placement"]["macs_offloaded"] == macs
        assert data["placement"]["alu_ops_percent"] == 100.0
        assert all(ops[name]["cycles"] > 0 for name in ("first", "second", "join"))
        assert ops["join"]["reason"] == "pattern vta.binary"
        assert ops["gate"]["cycles"] is None and ops["gate"]["next_step"]
        assert data["regions"] == [{"name": "region0", "ops": ["first", "second", "join"]}]
        assert data["host"]["packs"] == data["host"]["unpacks"] == {"count": 1, "bytes": 1024}
        again = cli("place", model, "--config", "pynq", "--json")
        assert again.stdout == result.stdout

    def test_table(self, model: Path) -> None:
        result = cli("place", model, "--fail-under", 100)
        assert result.exit_code == 0, result.stderr
        lines = [line.rstrip() for line in result.stdout.splitlines()]
        assert lines[0] == f"{model} on sim (1x16)"
        assert any(line.startswith("gate") and " sigmoid " in line for line in lines)
        assert lines[-1] == "at least 100 %   reached"
        assert result.stderr.splitlines()[-1] == "placing on VTA 1x16"

    def test_it_agrees_with_run(self, model: Path) -> None:
        placed = json.loads(cli("place", model, "--json").stdout)["placement"]
        assert json.loads(cli("run", model, "--json").stdout)["placement"] == placed

    def test_fail_under(self, tmp_path: Path) -> None:
        """A product of two inputs stays on the CPU of a machine with batch lanes."""
        net = Net(data=[1, 16, 8, 8], other=[8, 100])
        conv = net.conv("data", 16, 16, name="conv")
        flat = net.node("Reshape", conv, net.const([128, 8], "int64"), name="flat")
        path = net.save(tmp_path / "two.onnx", net.node("MatMul", flat, "other", name="product"))
        result = cli("place", path, "--config", "2x16", "--fail-under", 99)
        assert result.exit_code == 1, result.output
        text = " ".join(result.stdout.split())
        assert (
            "at least 99 % 59.0 % of the MACs run on VTA, 99 % must; on the CPU are 102,400 of "
            "249,856: product 102,400"
        ) in text
        result = cli("place", path, "--config", "2x16", "--fail-under", 99, "--json")
        assert result.exit_code == 1
        checked = json.loads(result.stdout)["fail_under"]
        assert checked["ok"] is False and checked["missing"][0] in result.stderr.splitlines()
        assert cli("place", path, "--config", "2x16", "--fail-under", 3).exit_code == 0

    @pytest.mark.parametrize("value", ["101", "-1", "nan"])
    def test_percentages(self, value: str) -> None:
        assert refused("place", "x.onnx", "--fail-under", value) == (
            f"--fail-under {value}; a share is 0 to 100 percent; for example 99"
        )

    def test_errors_are_those_of_the_others(self) -> None:
        assert refused("place", "no.onnx").startswith('model file "no.onnx" does not exist')
        assert refused("place", "x.onnx", "--config", "zynq").startswith("unknown preset 'zynq'")
        assert refused("place", "x.onnx", "--fail-under", "most").startswith(
            "Invalid value for '--fail-under'"
        )


def test_the_page_knows_every_key_and_option() -> None:
    text = (Path(__file__).parents[2] / "docs" / "placement.md").read_text(encoding="utf-8")
    data = report(OPS, 99).to_json()
    keys = {*data, *data["placement"], *data["placement"]["ops"][0], *data["fail_under"]}
    for key in keys:
        assert f"`{key}`" in text or f".{key}`" in text, key
    assert "--fail-under" in text
