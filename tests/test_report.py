"""The tables: aligned, short, readable for many operators."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from vta_byoc.check import TensorCheck, same_bits
from vta_byoc.partition import Placement
from vta_byoc.report import SHOWN_DIFFERENCES, Notes, check_text, placement_json, print_placement

LANES = "3 of 16 input lanes would work; at least a quarter must; fold space into channels"
OPS = [
    Placement("conv1", "relax.nn.conv2d", "cpu", LANES, 118013952),
    Placement("pool", "relax.nn.max_pool2d", "cpu", "no pattern takes relax.nn.max_pool2d", 0),
    Placement("conv2", "relax.nn.conv2d", "vta", "pattern vta.conv2d", 115605504),
    Placement("conv3", "relax.nn.conv2d", "vta", "pattern vta.conv2d; 75 % idle", 1600),
    Placement("flat", "relax.reshape", "cpu", "no pattern takes relax.reshape", 0),
]


def placement_text(ops: list[Placement], width: int = 100) -> list[str]:
    out = io.StringIO()
    print_placement(ops, {}, Console(file=out, width=width, highlight=False))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_every_reason_is_written_once() -> None:
    lines = placement_text(OPS)
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:7]}
    assert rows == {
        "conv1": ["conv2d", "cpu", "118.01", "[1]"],
        "pool": ["max_pool2d", "cpu", "[2]"],
        "conv2": ["conv2d", "vta", "115.61"],
        "conv3": ["conv2d", "vta", "<", "0.01", "[3]"],
        "flat": ["reshape", "cpu", "[2]"],
    }
    assert lines[8:11] == [f"[1]  {LANES}", "[2]  no pattern takes this kind", "[3]  75 % idle"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_gets_one_line_per_operator(width: int) -> None:
    names = [f"backbone_stage{i}_block_depthwise_convolution" for i in range(60)]
    ops = [Placement(name, "relax.nn.conv2d", "cpu", LANES, 10**9) for name in names]
    lines = placement_text(ops, width)
    assert sum(line.startswith("back") for line in lines) == 60
    assert max(map(len, lines)) <= width


def test_placement_totals() -> None:
    totals = placement_json(OPS)
    assert totals["macs_total"] == 118013952 + 115605504 + 1600
    assert totals["macs_offloaded"] == 115605504 + 1600
    assert totals["ops"][1] == {
        "name": "pool",
        "op": "relax.nn.max_pool2d",
        "device": "cpu",
        "reason": "no pattern takes relax.nn.max_pool2d",
        "macs": 0,
    }


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
