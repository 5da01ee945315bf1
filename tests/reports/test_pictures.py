"""The pictures of the report's page: timeline, occupancy, graph, changes, comparison, CSV."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from cli_runs import cli, refused, small_model
from report_cases import PLACEMENT, SHARING, SIM, facts, many, net

from vta_byoc.hw.isa import Queue
from vta_byoc.partitioning.placement import Placement
from vta_byoc.passes.fuse_tiles import READ_BY_OTHERS
from vta_byoc.reports.html.graph_svg import GraphDrawing
from vta_byoc.reports.html.layers_csv import csv_address, layers_csv
from vta_byoc.reports.html.report import html_report
from vta_byoc.reports.html.sections import section_data
from vta_byoc.reports.run.against import compare_reports
from vta_byoc.reports.run.buffers import Lifetimes, _Elements
from vta_byoc.reports.run.changes import ALONE, bounds, changes
from vta_byoc.reports.run.graph import nodes
from vta_byoc.reports.run.layers import ModelFacts
from vta_byoc.reports.run.timeline import BUCKETS, EXACT, timeline

EDGES = (("stem", "conv1"), ("conv1", "conv2"), ("conv2", "sum"), ("stem", "sum"))
HOSTILE = "=</text><script>alert('&')</script>"


@functools.cache
def line() -> Any:
    return timeline(facts())


def with_edges() -> ModelFacts:
    return dataclasses.replace(facts(), edges=EDGES)


# ---------------------------------------------------------------- the timeline
class TestTimeline:
    @pytest.mark.parametrize("buckets", [1, 7, BUCKETS])
    def test_aggregates_add_up_to_the_queues(self, buckets: int) -> None:
        found: Any = timeline(facts(), buckets=buckets)
        for queue in Queue:
            lane, spent = found["lanes"][queue.name.lower()], facts().queue(queue)
            sums = {found["kinds"][int(k)]: sum(cycles) for k, cycles in lane.items()}
            assert sums == {k: n for k, n in spent.items() if n and k != "drained"}
            columns = np.sum(list(lane.values()), axis=0)
            assert len(columns) <= buckets and columns.max() <= found["bucket"]

    def test_instructions_add_up_to_the_queues(self) -> None:
        assert len(line()["exact"]) == line()["instructions"] == 2 * len(net().insns)
        for queue in Queue:
            mine = [event for event in line()["exact"] if event[0] == queue]
            found = dict.fromkeys(line()["kinds"], 0)
            for _, _, _, _, kind, startup, port, work, *waits in mine:
                found["startup"] += startup
                found["memory port"] += port
                found[line()["kinds"][kind]] += work
                for reason, cycles in zip(waits[::2], waits[1::2], strict=True):
                    found[line()["kinds"][reason]] += cycles
            assert {**found, "drained": facts().queue(queue)["drained"]} == facts().queue(queue)

    def test_instructions_of_a_queue_follow_each_other(self) -> None:
        for queue in Queue:
            mine = [event for event in line()["exact"] if event[0] == queue]
            ends = [event[1] + sum(event[5:8]) + sum(event[9::2]) for event in mine]
            starts = {begin for _, begin, _ in line()["regions"]}
            for end, event in zip(ends, mine[1:], strict=False):
                assert event[1] == end or event[1] in starts

    def test_tokens_go_from_a_push_to_a_later_pop(self) -> None:
        events = line()["exact"]
        assert len(line()["tokens"]) > 50
        for source, target in line()["tokens"]:
            push, pop = events[source], events[target]
            assert abs(push[0] - pop[0]) == 1 and push[2] < pop[2]
            assert push[1] + sum(push[5:8]) <= pop[1] + sum(pop[5:8]) + sum(pop[9::2])

    def test_layers_and_regions_cover_the_time(self) -> None:
        assert [name for name, _, _ in line()["layers"]] == [x.name for x in facts().layers]
        first, second = line()["regions"]
        assert first[2] == second[1] and second[2] == facts().cycles == line()["cycles"]

    @pytest.mark.parametrize("limit", [0, 1, 40, 100])
    def test_a_limit_keeps_the_first_instructions_of_each_layer(self, limit: int) -> None:
        found: Any = timeline(facts(), exact=limit)
        assert len(found["exact"]) <= limit
        assert len(found["exact"]) > limit // 2 or limit < len(facts().layers)
        whole = {tuple(event[:3]) for event in line()["exact"]}
        assert {tuple(event[:3]) for event in found["exact"]} <= whole
        assert found["lanes"] == line()["lanes"]
        count = len(found["exact"])
        assert all(max(pair) < count for pair in found["tokens"])

    def test_a_full_timeline_is_small(self) -> None:
        """As many instructions and buckets as there may be, each as long as they come here."""
        text = functools.partial(json.dumps, separators=(",", ":"))
        each = len(text(line()["exact"])) / len(line()["exact"])
        token = len(text(line()["tokens"])) / len(line()["exact"])
        buckets = len(text([line()["lanes"], line()["sram"]])) * BUCKETS / 1901
        assert EXACT * 1.3 * (each + token) + buckets < 1_000_000


# ---------------------------------------------------------------- occupancy
class TestOccupancy:
    def test_counts_values_until_their_last_use(self) -> None:
        elements = _Elements(4, 6)
        elements.use(0, slice(0, 3), True)
        elements.use(1, np.array([0, 1]), False)
        elements.use(2, np.array([3]), False)  # never written: nothing is live
        elements.use(3, np.array([1, 2]), True)
        elements.use(5, slice(1, 2), False)
        found = elements.finish()
        assert isinstance(found, Lifetimes)
        assert found.born.tolist() == [3, 0, 0, 2, 0, 0]
        # Value 2 was never used, 1 was until instruction 1; 0 as well, to the end.
        assert found.died.tolist() == [1, 2, 0, 1, 0, 1]

    def test_every_value_dies(self) -> None:
        for live in facts().live.values():
            for found in live.values():
                assert found.born.sum() == found.died.sum() > 0

    @pytest.mark.parametrize("name", ["inp", "wgt", "acc", "uop"])
    def test_stays_within_what_layers_use(self, name: str) -> None:
        found = line()["sram"][name]
        used = max(layer.sram[name].high for layer in facts().layers)
        assert found["depth"] == SIM.depths[name]
        assert 0 < max(found["most"]) <= used and min(found["most"]) >= 0

    def test_the_peak_does_not_depend_on_the_buckets(self) -> None:
        one: Any = timeline(facts(), buckets=1)
        for name, found in line()["sram"].items():
            assert one["sram"][name]["most"] == [max(found["most"])]


# ---------------------------------------------------------------- the graph
class TestGraph:
    def test_an_operator_stands_below_what_it_reads(self) -> None:
        rows = {node.op.name: node.row for node in nodes(with_edges())}
        assert [rows[n] for n in ("stem", "conv1", "conv2", "sum", "cpu0")] == [0, 1, 2, 3, 0]
        assert all(rows[source] < rows[reader] for source, reader in EDGES)

    def test_device_region_and_scope(self) -> None:
        found = {node.op.name: node for node in nodes(with_edges())}
        assert (found["stem"].region, found["stem"].scope) == ("", "")
        assert found["conv1"].region == "region1" and found["conv1"].scope.startswith("global")
        assert found["conv2"].scope == "local.acc_buffer"
        legends = GraphDrawing(with_edges(), list(found.values())).legends
        assert list(dict(legends["device"])) == ["VTA", "CPU"]
        assert "local.acc_buffer" in dict(legends["scope"])

    def test_is_well_formed_with_a_box_each_and_hostile_names(self) -> None:
        placement = [dataclasses.replace(PLACEMENT[0], name=HOSTILE), *PLACEMENT[1:]]
        edges = ((HOSTILE, "conv1"), *EDGES[1:3])
        bad = dataclasses.replace(facts(), placement=placement, edges=edges)
        drawing = GraphDrawing(bad, nodes(bad))
        root = ElementTree.fromstring(str(drawing.svg()))
        groups = [g for g in root.iter("g") if g.get("class") == "node"]
        assert len(groups) == len(placement) == len(drawing.details())
        assert groups[0].find("title").text == f"{HOSTILE}: cpu"  # type: ignore[union-attr]
        assert len(list(root.iter("path"))) == len(edges) and not list(root.iter("script"))

    def test_boxes_do_not_overlap_and_stay_inside(self) -> None:
        placement = [
            Placement(f"op{i}", "relax.add", "cpu", PLACEMENT[0].why, 0) for i in range(120)
        ]
        edges = tuple((f"op{i // 9}", f"op{i}") for i in range(1, 120))
        wide = dataclasses.replace(facts(), placement=placement, edges=edges)
        drawing = GraphDrawing(wide, nodes(wide))
        assert len(set(drawing.at.values())) == 120
        for x, y in drawing.at.values():
            assert 0 < x < drawing.width - 168 + 1 and 0 < y < drawing.height


# ---------------------------------------------------------------- what to change
class TestChanges:
    def test_gain_is_what_is_beyond_the_bound(self) -> None:
        placement = [
            dataclasses.replace(op, bound=4_000) if op.name == "conv1" else op for op in PLACEMENT
        ]
        layers = [x for x in facts().layers if x.region == "region0"]
        known = dataclasses.replace(facts(), placement=placement, layers=layers)
        assert bounds(known) == [4_000, 0, 0]
        first = changes(known)[0]
        cycles = layers[0].cycles
        assert (first.name, first.gain) == ("conv1", cycles - 4_000)
        assert first.why.startswith(f"{cycles:,} cycles, {cycles / 4000:.2f} times its bound of")

    def test_a_bound_is_shared_by_the_layers_of_an_operator(self) -> None:
        placement = [dataclasses.replace(op, bound=999) for op in PLACEMENT]
        known = dataclasses.replace(facts(), placement=placement)
        assert sum(bounds(known)) == 3 * 999

    def test_tensors_and_the_cpu(self) -> None:
        found = {change.name: change for change in changes(facts())}
        tensor = next(item for item in SHARING if item.kind == READ_BY_OTHERS)
        assert found["conv1"].gain == 2 * tensor.nbytes // facts().timing.port_bytes == 512
        assert found["conv1"].step == ALONE
        assert found["stem"].gain is None
        assert found["stem"].why == (
            "1 operator on the CPU with 200,000 MACs, 782 cycles at VTA's peak, and 8,192 ALU "
            "operations: 3 of 16 input lanes would work"
        )
        assert "a" not in found  # together it would take more cycles than apart

    def test_most_to_gain_first(self) -> None:
        placement = [dataclasses.replace(op, bound=1_000) for op in PLACEMENT]
        gains = [c.gain for c in changes(dataclasses.replace(facts(), placement=placement))]
        counted = [gain for gain in gains if gain is not None]
        assert counted == sorted(counted, reverse=True) and gains[: len(counted)] == counted


# ---------------------------------------------------------------- two reports
class TestAgainst:
    def test_equal(self) -> None:
        found = compare_reports(facts().to_json(), facts().to_json(), "old.json")
        assert found.first == "No layer and no operator differs."
        assert not found.moved and not any(layer.differs for layer in found.layers)
        assert {total.change for total in found.totals} == {"="}

    def test_a_layer_that_differs(self) -> None:
        before = json.loads(json.dumps(facts().to_json()))
        before["layers"][1]["cycles"] += 10
        before["cycles"] *= 2
        del before["layers"][5]
        found = compare_reports(before, facts().to_json(), "old.json")
        cycles = facts().layers[1].cycles
        assert found.first == (
            f"conv2 is the first layer that differs: {cycles:,} cycles, before {cycles + 10:,}."
        )
        assert [x["name"] for x in found.to_json()["layers"]] == ["conv2", "sum #2"]
        assert found.totals[0].change == "-50.0 %"

    def test_an_operator_that_moved(self) -> None:
        before = json.loads(json.dumps(facts().to_json()))
        before["placement"]["ops"][1]["device"] = "cpu"
        found = compare_reports(before, facts().to_json(), "<old>.json")
        assert found.moved == (("conv1", "cpu", "vta"),)
        assert found.first == (
            "conv1 is the first operator that runs elsewhere: on vta, before on cpu."
        )
        html = html_report(facts(), "net.onnx", "pynq", found)
        assert '<section id="against">' in html and "&lt;old&gt;.json" in html


# ---------------------------------------------------------------- the page
def test_contents_lead_to_every_section() -> None:
    html = html_report(with_edges(), "net.onnx", "pynq")
    anchors = [part.split('"')[0] for part in html.split('<li><a href="#')[1:]]
    assert len(anchors) == 11
    places = [html.index(f'<section id="{anchor}">') for anchor in anchors]
    assert places == sorted(places) and html.count("<section") == len(anchors)


def test_csv_has_every_layer_and_no_formulas() -> None:
    text = layers_csv(many(3, "=cmd{},\n+x"))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["layer"] for row in rows] == [f"'=cmd{i},\n+x" for i in range(3)]
    for row, layer in zip(rows, facts().layers, strict=False):
        assert int(row["cycles"]) == layer.cycles
        assert sum(int(row[k]) for k in row if k.startswith("cycles ")) == layer.cycles
        assert sum(int(row[k]) for k in row if k.startswith("bytes ")) == layer.dram_bytes
    address = csv_address(text)
    assert unquote(address.split(",", 1)[1]) == text and '"' not in address


def test_data_of_the_scripts_is_deterministic() -> None:
    fresh = dataclasses.replace(facts())
    assert json.dumps(section_data(fresh)) == json.dumps(section_data(facts()))


# ---------------------------------------------------------------- commands
@pytest.mark.usefixtures("quantized_once")
def test_command_compares_and_writes_csv(tmp_path: Path) -> None:
    model, page, before = tmp_path / "m.onnx", tmp_path / "r.html", tmp_path / "old.json"
    small_model(model)
    table = tmp_path / "layers.csv"
    result = cli("report", model, "-o", page, "--json", "--csv", table)
    assert result.exit_code == 0, result.stderr
    numbers = json.loads(result.stdout)
    assert {change["name"] for change in numbers["changes"]} <= {"first", "second+join"}
    assert len(table.read_text().splitlines()) == 1 + len(numbers["layers"])
    nodes_of = page.read_text(encoding="utf-8").count('class="node"')
    assert nodes_of == len(numbers["placement"]["ops"])
    old = json.loads(result.stdout)
    old["layers"][0]["cycles"] += 1
    before.write_text(json.dumps(old))
    result = cli("report", model, "-o", page, "--json", "--against", before)
    assert result.exit_code == 0, result.stderr
    against = json.loads(result.stdout)["against"]
    assert against["first"].startswith("first is the first layer that differs: ")
    assert (against["report"], len(against["layers"])) == (str(before), 1)


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    step = "write one with `vta-byoc report MODEL -o FILE.html --json > BEFORE.json`"
    path, page = tmp_path / "b.json", tmp_path / "r.html"
    options = ("report", "x.onnx", "-o", page, "--against", path)
    assert refused(*options) == f'report "{path}" cannot be read: No such file or directory; {step}'
    path.write_text("{")
    assert refused(*options) == f'report "{path}" cannot be read: it is not JSON; {step}'
    path.write_text("{}")
    assert refused(*options) == f"report \"{path}\" has no 'cycles'; it is no report; {step}"
