"""The page of `vta-byoc report` and the timeline of `vta-byoc trace`."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as plotly
import pytest
from cli_runs import cli, refused, small_model
from report_cases import FOLD, LANES, PLACEMENT, SHARING, SIM, WORK, facts, many, net

from vta_byoc.hw.isa import Queue
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.reports.chart_text import distinct, quantity, short
from vta_byoc.reports.html.chart_style import DRAM_TITLES
from vta_byoc.reports.html.charts import charts
from vta_byoc.reports.html.report import html_report
from vta_byoc.reports.html.roofline_chart import LABELS
from vta_byoc.reports.run.buffers import SRAMS
from vta_byoc.reports.run.layers import model_facts
from vta_byoc.reports.run.trace import chrome_trace
from vta_byoc.reports.run.trace_layer import trace_layer

LIMIT = 6_000_000
HOSTILE = "</script><script>alert('<b>&amp;')</script>"


# ---------------------------------------------------------------- the charts
class TestFigures:
    def test_are_valid(self) -> None:
        made = charts(facts())
        assert list(made) == ["placement", "queues", "layers", "roofline"]
        for chart in made.values():
            plotly.Figure(chart["data"], chart["layout"])  # refuses what Plotly does not know

    def test_placement(self) -> None:
        chart = charts(facts())["placement"]
        vta, cpu, vta_alu, cpu_alu = chart["data"]
        assert (vta["x"], vta["base"]) == ([WORK.macs] * 2, [0, WORK.macs])
        assert (cpu["x"], cpu["base"]) == ([200_000], [2 * WORK.macs])
        assert (vta_alu["x"], vta_alu["base"]) == ([8_192, 8_192, 4_099], [0, 8_192, 16_384])
        assert (cpu_alu["x"], cpu_alu["base"]) == ([8_192], [20_483])
        layout = chart["layout"]
        assert layout["xaxis"]["range"] == [0, 2 * WORK.macs + 200_000]
        assert layout["xaxis2"]["range"] == [0, 28_675]
        assert layout["yaxis"]["ticktext"] == ["MACs ", "ALU operations "]

    def test_placement_without_macs(self) -> None:
        only = dataclasses.replace(facts(), placement=[PLACEMENT[3]])
        chart = charts(only)["placement"]
        assert [bar["x"] for bar in chart["data"]] == [[4_099], []]
        assert chart["layout"]["yaxis"]["ticktext"] == ["ALU operations "]

    def test_queues(self) -> None:
        for bar in charts(facts())["queues"]["data"]:
            assert bar["x"] == [facts().queue(queue)[bar["name"]] for queue in Queue]

    def test_layers(self) -> None:
        chart, layers = charts(facts())["layers"], facts().layers
        by_title = {title: kind for kind, title in DRAM_TITLES.items()}
        seen = 0
        for bar in (trace for trace in chart["data"] if trace["type"] == "bar"):
            assert bar["y"] == list(range(len(layers)))
            if bar["meta"]["total"] == "dram":
                assert bar["x"] == [layer.dram[by_title[bar["name"]]] for layer in layers]
                seen += sum(bar["x"])
            else:
                queue = Queue[bar["meta"]["queue"].upper()]
                assert bar["x"] == [layer.breakdown[queue][bar["name"]] for layer in layers]
                assert bar["visible"] == (queue == Queue.COMPUTE)
                seen += sum(bar["x"])
        breakdown = (sum(layer.breakdown[queue].values()) for layer in layers for queue in Queue)
        assert seen == sum(facts().dram.values()) + sum(breakdown)  # nothing left out
        (heat,) = (trace for trace in chart["data"] if trace["type"] == "heatmap")
        assert heat["z"] == [[x.sram[name].share for name in SRAMS] for x in layers]
        assert [line["y0"] for line in chart["layout"]["shapes"]] == [2.5]  # region1 begins

    def test_roofline(self) -> None:
        chart = charts(facts())["roofline"]
        roof, points = chart["data"]
        assert (roof["x"][1], roof["y"][1:]) == (256 / 8, [256, 256])
        assert roof["y"][0] == 8 * roof["x"][0]
        layers = [layer for layer in facts().layers if layer.macs]
        assert points["x"] == [layer.intensity for layer in layers]
        assert points["y"] == [layer.achieved for layer in layers]
        assert all(y <= min(256, 8 * x) for x, y in zip(points["x"], points["y"], strict=True))
        names = [note["text"] for note in chart["layout"]["annotations"][2:]]
        assert names == ["conv1 and 1 more", "conv2 and 1 more"]

    @pytest.mark.parametrize("count", [1, 3, 30, 150])
    def test_rows_have_room(self, count: int) -> None:
        made = charts(many(count))
        layout = made["layers"]["layout"]
        assert 16 <= (layout["height"] - 46) / count <= 32
        assert len(layout["yaxis"]["ticktext"]) == count
        assert max(map(len, layout["yaxis"]["ticktext"])) * 7 < layout["margin"]["l"] < 300
        assert len(made["roofline"]["layout"]["annotations"]) <= LABELS + 2

    def test_equal_names_have_a_row_each(self) -> None:
        chart = charts(many(6, "conv"))["layers"]
        assert chart["layout"]["yaxis"]["tickvals"] == list(range(6))


def test_texts() -> None:
    assert [quantity(n, "B") for n in (0, 7, 999, 1000, 534502, 83145, 999_990, 2_493_392)] == [
        "0 B",
        "7 B",
        "999 B",
        "1.00 kB",
        "535 kB",
        "83.1 kB",
        "1.00 MB",
        "2.49 MB",
    ]
    assert short("layer1_0_conv1", 14) == "layer1_0_conv1"
    assert short("layer1_0_downsample_conv", 11) == "layer…_conv"


@pytest.mark.parametrize("length", [14, 24, 38])
def test_short_names_stay_different(length: int) -> None:
    """Numbers may be near the end or near the beginning."""
    for pattern in ("features_features_{}_conv_conv_0_conv_0_0_Conv", "backbone_of_the_net_b_{}_c"):
        names = [pattern.format(i) for i in range(100)]
        texts = distinct(names, length)
        assert max(map(len, texts)) <= length
        if length >= 24:
            assert len(set(texts)) == 100
    assert distinct(["a", "bc"], 8) == ["a", "bc"] and distinct([], 8) == []


# ---------------------------------------------------------------- the page
class Page(HTMLParser):
    """What a browser would read: tags with attributes, text outside of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[str] = []
        self.text: list[str] = []
        self.feed(html.replace("<wbr>", ""))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        inside = self.tags[-1][0] if self.tags else ""
        if data.strip():
            (self.raw if inside in ("script", "style") else self.text).append(data.strip())

    def data(self) -> Any:
        """What the page's scripts draw."""
        return json.loads(next(raw for raw in self.raw if raw.startswith('{"charts"')))


@functools.cache
def page() -> Page:
    return Page(html_report(facts(), "models/net.onnx", "pynq"))


class TestPage:
    def test_holds_every_layer_and_operator(self) -> None:
        for name in (*(x.name for x in facts().layers), *(op.name for op in PLACEMENT)):
            assert name in page().text

    def test_numbers(self) -> None:
        text = page().text
        assert f"{facts().cycles:,}" in text
        for layer in facts().layers:
            assert f"{layer.cycles:,}" in text and f"{layer.dram_bytes:,}" in text
        for number in facts().counters.values():
            assert f"{number:,}" in text

    def test_states_machine_and_timing(self) -> None:
        text = page().text
        for name, value in dataclasses.asdict(facts().timing).items():
            shown = value if isinstance(value, str) else f"{value:,}"
            assert text[text.index(name) + 1] == shown
        assert "2,048 elements, 32 KiB" in text

    def test_says_each_reason_once(self) -> None:
        assert page().text.count("no pattern takes this kind") == 1
        assert page().text.count("no pattern takes relax.exp") == 8  # in the list of all
        step = "an integer form of it and an entry of the partition table with a strategy"
        assert page().text.count(step) == 1 + 8
        assert "at least a quarter must" in page().text
        assert "cpu0, cpu1, cpu2, cpu3, cpu4, cpu5 and 2 more" in page().text

    def test_work_on_the_alu_and_of_the_host(self) -> None:
        text = " ".join(page().text)
        assert "of the MACs on VTA 85.5 % of the ALU operations on VTA 71.4 %" in text
        assert "20,483 of 28,675 ALU operations. The host folds 1 operand" in text
        assert "writes 2.01 MB for it." in text
        row = page().text[page().text.index("All operators (12)") :]
        at = row.index("conv1")
        assert row[at : at + 9] == [
            "conv1",
            "conv2d",
            "vta",
            f"{WORK.macs:,}",
            "8,192",
            "131,712",
            "pattern vta.conv2d",
            FOLD.text,
            "2.01 MB",
        ]
        assert "pattern vta.binary; 75 % idle" in row

    def test_memory(self) -> None:
        text, peak = page().text, net().peak_bytes
        assert 3 * 2_048 <= peak < 3 * 2_048 + 256  # three tensors, aligned
        at = text.index("Memory", text.index("Layer by layer") + 20)  # not the contents
        sentence = " ".join(text[at + 1 : text.index("stays on chip", at)])
        assert sentence == (
            "Of 5 demands for a consumer fused into its producer 2 are met: 8.19 kB are not moved. "
            f"At the most, stored tensors take {quantity(peak, 'B')} of DRAM."
        )
        row = text.index("conv2", text.index("together", at))
        assert text[row : row + 7] == [
            "conv2",
            "sum",
            "fused into its producer: stays on chip",
            "2,048",
            "4,096",
            "30,000",
            "29,000",
        ]
        why = text.index("why not on chip")
        assert text[why + 3 : why + 9] == [
            "together they take more cycles by estimate than apart",
            "a for b, c for d",
            "3,000",
            "others read the tensor too, or it is a result",
            "conv1 for sum",
            "2,048",
        ]
        arenas = text.index("bytes in DRAM")
        for offset in (6, 12):
            assert text[arenas + offset + 4 : arenas + offset + 6] == [f"{peak:,}"] * 2
        for number in (net().input_bytes, net().image.size):
            assert f"{number:,}" in text[arenas + 6 : arenas + 12]

    def test_memory_without_demands(self) -> None:
        plain = model_facts(SIM, {"region0": net()}, PLACEMENT)
        text = Page(html_report(plain, "net.onnx", "pynq")).text
        assert "why not on chip" not in text and "stays on chip" not in text
        assert "kept on chip" not in text
        assert (
            text[text.index("Memory", text.index("Layer by layer") + 20) + 1]
            == "At the most, stored tensors take"
        )

    def test_a_long_name_may_be_broken_between_operators(self) -> None:
        html = html_report(many(3, "<conv>{}+sum"), "net.onnx", "pynq")
        assert '<td class="name">&lt;conv&gt;0+<wbr>sum</td>' in html

    def test_loads_nothing(self) -> None:
        for tag, attrs in page().tags:
            assert tag not in ("link", "img", "iframe", "base", "object")
            assert not {"src", "srcset", "action"} & set(attrs), tag
            address = attrs.get("href") or "#"
            assert address.startswith(("#", "data:text/csv;")), address
        style = next(raw for raw in page().raw if ":root" in raw)
        assert "@import" not in style and "url(" not in style

    def test_holds_the_charts(self) -> None:
        data = page().data()
        assert list(data) == ["charts", "nodes", "timeline", "colors"]
        assert data["charts"] == json.loads(json.dumps(charts(facts())))
        places = [attrs["id"] for _, attrs in page().tags if attrs.get("class") == "plot"]
        assert places == list(charts(facts()))

    def test_is_deterministic(self) -> None:
        again = model_facts(SIM, {"region0": net(), "region1": net()}, PLACEMENT, SHARING)
        first, second = (html_report(f, "net.onnx", "pynq") for f in (facts(), again))
        assert first == second

    def test_size_with_150_layers(self) -> None:
        html = html_report(many(150), "net.onnx", "pynq")
        assert len(html.encode()) < LIMIT

    def test_names_are_text(self) -> None:
        placement = [dataclasses.replace(op, name=HOSTILE) for op in PLACEMENT[:1]]
        bad = dataclasses.replace(many(3, HOSTILE), placement=placement)
        found = Page(html_report(bad, HOSTILE, HOSTILE))
        assert [tag for tag, _ in found.tags].count("script") == 3
        assert {attrs.get("type") for tag, attrs in found.tags if tag == "script"} == {
            None,
            "application/json",
        }
        assert HOSTILE in found.text

    def test_without_vta(self) -> None:
        nothing = model_facts(SIM, {}, PLACEMENT[:1])
        found = Page(html_report(nothing, "net.onnx", "pynq"))
        assert "Layer by layer" not in found.text and LANES.remedy in found.text
        assert any("There is no time on VTA to show." in text for text in found.text)

    def test_without_operators(self) -> None:
        empty = model_facts(SIM, {}, ())
        assert charts(empty) == {}
        assert "What runs where" in Page(html_report(empty, "net.onnx", "pynq")).text


# ---------------------------------------------------------------- timelines
class TestTraceLayer:
    def test_is_a_part_of_the_whole(self) -> None:
        whole = chrome_trace(net(), simulate(net()), "region0, conv2")["traceEvents"]
        part = trace_layer({"region0": net()}, "conv2")["traceEvents"]
        layer = net().layers[1]
        assert all(event in whole for event in part)
        insns = [e["args"]["insn"] for e in part if e["ph"] == "X" and "text" in e["args"]]
        assert sorted(insns) == list(range(layer.begin, layer.end))
        assert {e["args"]["layer"] for e in part if "layer" in e.get("args", {})} == {"conv2"}
        assert "conv2" in [e["name"] for e in part if e["ph"] == "X"]

    def test_arrows_have_two_ends(self) -> None:
        part = trace_layer({"region0": net()}, "conv1")["traceEvents"]
        starts = [e["id"] for e in part if e["ph"] == "s"]
        assert sorted(starts) == sorted(e["id"] for e in part if e["ph"] == "f")
        assert len(starts) > 5


# ---------------------------------------------------------------- commands
@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small.onnx")


@pytest.mark.usefixtures("quantized_once")
class TestCommands:
    def test_report(self, model: Path, tmp_path: Path) -> None:
        path = tmp_path / "report.html"
        result = cli("report", model, "-o", path, "--config", "pynq", "--json")
        assert result.exit_code == 0, result.stderr
        numbers = json.loads(result.stdout)
        assert (numbers["model"], numbers["report"]) == (str(model), str(path))
        assert [layer["name"] for layer in numbers["layers"]] == ["first", "second+join"]
        memory = numbers["memory"]
        assert memory["saved_bytes"] == 2 * 16 * 8 * 8
        assert [(x["tensor"], x["consumer"], x["met"]) for x in memory["on_chip"]] == [
            ("second", "join", True),
            ("first", "join", False),
        ]
        assert memory["arenas"]["region0"]["inputs"] == 16 * 8 * 8
        for queue in ("load", "compute", "store"):
            assert sum(numbers["queues"][queue].values()) == numbers["cycles"]
        text = Page(path.read_text(encoding="utf-8")).text
        for layer in numbers["layers"]:
            assert layer["name"] in text and f"{layer['cycles']:,}" in text
        first = path.read_bytes()
        result = cli("report", model, "-o", path, "--config", "pynq")
        assert result.exit_code == 0 and path.read_bytes() == first
        assert result.stdout == (
            f"{numbers['cycles']:,} cycles on VTA, {numbers['milliseconds']:,.3f} ms\n"
            f"{path} written: {quantity(len(first), 'B')}\n"
        )
        assert os.listdir(tmp_path) == ["report.html"]

    def test_trace(self, model: Path, tmp_path: Path) -> None:
        path = tmp_path / "trace.json"
        result = cli("trace", model, "-o", path)
        assert result.exit_code == 0, result.stderr
        whole = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        assert {"first", "second+join"} <= {event["name"] for event in whole}
        result = cli("trace", model, "-o", path, "--layer", "second")
        assert result.exit_code == 0, result.stderr
        part = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        assert 0 < len(part) < len(whole)
        names = {e["name"] for e in part}
        assert "second+join" in names and "first" not in names

    def test_unknown_layer(self, model: Path, tmp_path: Path) -> None:
        assert refused("trace", model, "-o", tmp_path / "t.json", "--layer", "secund") == (
            'no layer "secund" on VTA; 3 operators are, for example second; `vta-byoc run` lists '
            "all"
        )
        assert os.listdir(tmp_path) == []

    def test_a_failed_write_keeps_the_old_page(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        path = tmp_path / "report.html"
        path.write_text("old")
        monkeypatch.setattr(Path, "write_text", full)
        assert refused("report", model, "-o", path) == (
            f'output "{path}" cannot be written: No space left on device; nothing has been '
            f'changed; make room in "{tmp_path}" or write elsewhere'
        )
        assert os.listdir(tmp_path) == ["report.html"] and path.read_bytes() == b"old"


OUTPUTS = [("report", ".html"), ("trace", ".json")]


@pytest.mark.parametrize(("command", "suffix"), OUTPUTS)
class TestOutput:
    """The model does not exist: what cannot be written is found out before it is read."""

    def test_path(self, command: str, suffix: str, tmp_path: Path) -> None:
        nowhere = tmp_path / "no" / f"y{suffix}"
        assert refused(command, "x.onnx", "-o", nowhere) == (
            f'output "{nowhere}": the directory "{nowhere.parent}" does not exist; create it or '
            "choose another path"
        )
        assert refused(command, "x.onnx", "-o", tmp_path) == (
            f'output "{tmp_path}" is a directory; a file name is needed; add one to it'
        )
        assert refused(command, "x.onnx", "-o", tmp_path / "y.pdf") == (
            f'output "{tmp_path}/y.pdf" has the extension ".pdf"; {suffix} is written; '
            f'name it "{tmp_path}/y{suffix}"'
        )

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system of no files")
    def test_no_permission(self, command: str, suffix: str) -> None:
        message = refused(command, "x.onnx", "-o", f"/proc/self/y{suffix}")
        assert message.startswith(f'output "/proc/self/y{suffix}" cannot be written: ')
        assert message.endswith(' in "/proc/self"; choose a directory you may write to')

    def test_is_required(self, command: str, suffix: str) -> None:
        assert refused(command, "x.onnx") == (
            f"Missing option '-o' / '--output'; see vta-byoc {command} --help"
        )

    def test_help_has_examples(self, command: str, suffix: str) -> None:
        result = cli(command, "--help")
        assert result.exit_code == 0
        assert f"vta-byoc {command} resnet18.onnx -o resnet18{suffix}" in result.stdout
