"""The tables: aligned, short, readable for many operators."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Mapping

import numpy as np
import pytest
from integer_models import residual_net
from rich.console import Console

from vta_byoc.base.quantities import megabytes, millions, percent
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal
from vta_byoc.hw.program.program import Program
from vta_byoc.partition import Placement
from vta_byoc.partitioning.entry import Candidate
from vta_byoc.partitioning.placement import Taken
from vta_byoc.pipeline import compile_module
from vta_byoc.reports.placement.summary import placement_json
from vta_byoc.reports.placement.text import layer_counters, print_placement
from vta_byoc.reports.run.run import (
    SHOWN_DIFFERENCES,
    check_text,
    sqnr_lines,
    sqnr_text,
    summary_lines,
)
from vta_byoc.reports.tables import Notes
from vta_byoc.validation.bit_exact import TensorCheck, same_bits

LANES = Refusal(
    "3 of 16 input lanes would work", "", "at least a quarter must", "fold space into channels"
)
FOLD = Candidate(
    "windows of 7x7 every 2x2 folded into 147 channels", 9, (Candidate("packed GEMM", 99),)
)
OPS = [
    Placement("conv1", "relax.nn.conv2d", "cpu", LANES, 118013952, 1_200_000),
    Placement("pool", "relax.nn.lrn2d", "cpu", Refusal("no pattern takes", "relax.nn.lrn2d"), 0),
    Placement("conv2", "relax.nn.conv2d", "vta", Taken("vta.conv2d"), 115605504, 800_000),
    Placement("conv3", "relax.nn.conv2d", "vta", Taken("vta.conv2d", remarks=("75 % idle",)), 1600),
    Placement("flat", "relax.reshape", "cpu", Refusal("no pattern takes", "relax.reshape"), 0),
    Placement(
        "add",
        "relax.add",
        "vta",
        Taken("vta.binary"),
        0,
        9_000,
        (Candidate("vector ALU", 9, (Candidate("GEMM", 99),)),),
    ),
    Placement("stem", "relax.nn.conv2d", "vta", Taken("vta.conv2d"), 10**6, 0, (FOLD,), 2_007_040),
    Placement("view", "relax.reshape", "vta", Taken(), 0),
    Placement("sum", "relax.add", "vta", Taken("vta.binary"), 0, 9_000, (Candidate("vector ALU"),)),
]


def placement_text(
    ops: list[Placement], width: int = 100, programs: Mapping[str, Program] | None = None
) -> list[str]:
    out = io.StringIO()
    print_placement(ops, programs or {}, Console(file=out, width=width, highlight=False))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_every_reason_is_written_once() -> None:
    lines = placement_text(OPS)
    rows = {line.split()[0]: line.split()[1:] for line in lines[3:12]}
    assert rows == {
        "conv1": ["conv2d", "cpu", "118.01", "1.20", "[1]"],
        "pool": ["lrn2d", "cpu", "[2]"],
        "conv2": ["conv2d", "vta", "115.61", "0.80"],
        "conv3": ["conv2d", "vta", "<", "0.01", "[3]"],
        "flat": ["reshape", "cpu", "[2]"],
        "add": ["add", "vta", "0.01", "[4]"],
        "stem": ["conv2d", "vta", "1.00", "[5]"],
        "view": ["reshape", "vta", "[6]"],
        "sum": ["add", "vta", "0.01", "[4]"],
    }
    assert lines[13:20] == [
        f"[1]  {LANES.text}",
        "[2]  no pattern takes this kind",
        "[3]  75 % idle",
        "[4]  vector ALU",
        "[5]  windows of 7x7 every 2x2 folded into 147 channels; the host writes 2.01 MB",
        "[6]  a view: the packed tensor stays as it is",
        "",
    ]


def test_an_operator_of_several_layers_has_the_sum_of_their_counters() -> None:
    program = residual_program()
    one, two, _ = program.layers
    both = (dataclasses.replace(one, name="sum"), dataclasses.replace(two, name="sum__2"))
    split = dataclasses.replace(program, layers=both)
    whole = (dataclasses.replace(one, name="sum", end=two.end),)
    joined = dataclasses.replace(program, layers=whole)
    assert layer_counters({"a": split}) == layer_counters({"a": joined})
    assert layer_counters({"a": joined, "b": joined})["sum"] == {
        name: 2 * count for name, count in layer_counters({"a": joined})["sum"].items()
    }
    ops = [Placement("sum", "relax.add", "vta", Taken("vta.binary"), 5)]
    assert placement_text(ops, programs={"a": split}) == placement_text(ops, programs={"a": joined})


def residual_program() -> Program:
    """Three layers."""
    net = residual_net()
    module = net.module(net.result)
    (program,) = compile_module(module, VTAConfig(), "null", scopes="dram").programs.values()
    return program


def test_the_summary_says_what_stays_on_chip() -> None:
    net = residual_net()
    module = net.module(net.result)
    lines = dict(summary_lines(compile_module(module, VTAConfig(), "null")))
    assert lines["on chip"] == "1 tensor, 4.1 kB not moved"
    assert lines["DRAM peak"] == "4.1 kB of stored tensors"
    lines = dict(summary_lines(compile_module(module, VTAConfig(), "null", scopes="dram")))
    assert "on chip" not in lines
    assert lines["DRAM peak"] == "4.1 kB of stored tensors, 6.1 kB with a place for each"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_gets_one_line_per_operator(width: int) -> None:
    names = [f"backbone_stage{i}_block_depthwise_convolution" for i in range(60)]
    ops = [Placement(name, "relax.nn.conv2d", "cpu", LANES, 10**9) for name in names]
    lines = placement_text(ops, width)
    assert sum(line.startswith("back") for line in lines) == 60
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 100, 160])
def test_numbers_are_never_cut(width: int) -> None:
    ops = [dataclasses.replace(op, name=f"layer{i}_conv") for i, op in enumerate(OPS)]
    text = "\n".join(placement_text(ops, width))
    assert "118.01" in text and "115.61" in text and "[4]" in text and "micro-ops" in text
    assert all(f"layer{i}_conv" in text for i in range(len(ops)))


def test_placement_totals() -> None:
    totals = placement_json(OPS)
    assert totals["macs_total"] == 118013952 + 115605504 + 1600 + 10**6
    assert totals["macs_offloaded"] == 115605504 + 1600 + 10**6
    assert totals["alu_ops_total"] == 2_018_000
    assert totals["alu_ops_offloaded"] == 818_000


def test_numbers() -> None:
    assert [millions(n) for n in (0, 4_999, 5_000, 118_013_952)] == ["", "< 0.01", "0.01", "118.01"]
    assert [megabytes(n) for n in (20, 999_999, 2_007_040)] == ["0.0 kB", "1,000.0 kB", "2.01 MB"]
    assert [percent(n, 2000) for n in (0, 1, 1999, 2000)] == ["0.0 %", "0.0 %", "99.9 %", "100.0 %"]


def test_notes_are_numbered_in_order_of_appearance() -> None:
    notes = Notes()
    assert [notes.number(text) for text in ("b", "", "a", "b")] == ["[1]", "", "[2]", "[1]"]
    assert notes == ["b", "a"]


class TestCheckText:
    def test_equal(self) -> None:
        checks = [TensorCheck("conv", "region0", 8, 0), TensorCheck("y", "output", 8, 0)]
        assert check_text(checks) == (
            "bit-exact: 1 output and 1 tensor stored by regions equal the integer reference"
        )

    def test_many_differences_are_cut(self) -> None:
        wrong = [TensorCheck(f"c{i}", "region0", 8, 2, (0, i), 1, 2) for i in range(10)]
        lines = check_text(wrong).splitlines()
        assert lines[0] == (
            "NOT bit-exact: of 0 outputs and 10 tensors stored by regions, 10 differ from the "
            "integer reference"
        )
        assert lines[1] == "  region0 c0: 2 of 8 values differ, first at [0, 0]: 1, reference 2"
        assert len(lines) == SHOWN_DIFFERENCES + 2
        assert lines[-1] == "  and 2 more"


class TestSqnrText:
    def test_good_fair_poor_and_bad(self) -> None:
        near = "y: {} dB against the float model on these inputs, {} % of the signal"
        assert sqnr_text("y", 34.0) == near.format("34.0", "good: the error is 2.0")
        assert sqnr_text("y", 20.0) == near.format("20.0", "fair: the error is 10")
        advice = "; vta-byoc quantize-report shows which layers lose it and what helps"
        assert sqnr_text("y", 19.94) == near.format("19.9", "poor: the error is 10") + advice
        assert sqnr_text("y", -3.0) == near.format("-3.0", "bad: the error is 141") + advice

    def test_nothing_to_measure(self) -> None:
        assert sqnr_text("y", math.inf) == "y: equal to the float model's on these inputs"
        assert sqnr_text("y", math.nan) == "y: the float model gives zeros on these inputs"
        assert sqnr_text("y", -math.inf) == (
            "y: NaN or infinite elsewhere than the float model's on these inputs; "
            "vta-byoc quantize-report shows which layers lose it and what helps"
        )


    def test_where_to_look_is_said_once(self) -> None:
        lines = [text for _, text in sqnr_lines({"a": 3.0, "b": math.nan, "c": 19.0, "d": 40.0})]
        assert [text.partition(":")[0] for text in lines] == ["a", "b", "c", "d"]
        assert ["quantize-report" in text for text in lines] == [False, False, True, False]
        assert not any("quantize-report" in text for _, text in sqnr_lines({"d": 20.0}))


class TestSameBits:
    def test_equal_even_nan(self) -> None:
        x = np.array([[1.0, np.nan]], np.float32)
        assert same_bits("x", "output", x, x.copy()).equal

    def test_sign_of_zero_counts(self) -> None:
        check = same_bits("x", "output", np.float32([0.0, 1.0]), np.float32([-0.0, 1.0]))
        assert (check.n_different, check.first) == (1, (0,))

    def test_first_difference(self) -> None:
        x, y = np.zeros((2, 3), np.int8), np.zeros((2, 3), np.int8)
        x[1, 0], x[1, 2] = 5, -7
        check = same_bits("x", "region1", x, y)
        assert str(check) == "region1 x: 2 of 6 values differ, first at [1, 0]: 5, reference 0"
        assert not check.equal

    def test_scalar(self) -> None:
        assert same_bits("x", "output", np.float32(1).reshape(()), np.float32(1).reshape(())).equal
