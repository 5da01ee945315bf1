"""Netlists that are the same: the proof that a mutant of the core changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks._core_netlist import same

Wires = dict[str, list[int | str]]


def cell(kind: str, reads: Wires, drives: Wires, **parameters: str) -> dict[str, Any]:
    """A cell as yosys writes it."""
    directions = dict.fromkeys(reads, "input") | dict.fromkeys(drives, "output")
    return {
        "type": kind,
        "parameters": parameters,
        "port_directions": directions,
        "connections": reads | drives,
    }


def module(
    cells: dict[str, dict[str, Any]], shown: list[int | str], starts: dict[int, str]
) -> dict[str, Any]:
    """A module of two inputs of a bit, nets 2 and 3, and an output `y`."""
    return {
        "ports": {
            "a": {"direction": "input", "bits": [2]},
            "b": {"direction": "input", "bits": [3]},
            "y": {"direction": "output", "bits": shown},
        },
        "cells": cells,
        "netnames": {
            f"n{net}": {"bits": [net], "attributes": {"init": value}}
            for net, value in starts.items()
        },
    }


def toggling(gate: str = "$xor", start: str = "0", other: int = 3, shown: int = 4) -> Any:
    """A register that takes what a gate makes of itself and an input; net 4 is its value."""
    cells = {
        "gate": cell(gate, {"A": [4], "B": [other]}, {"Y": [5]}),
        "kept": cell("$dff", {"D": [5], "CLK": [2]}, {"Q": [4]}),
    }
    return module(cells, [shown], {4: start})


def test_names_and_numbers_of_nets_are_nothing() -> None:
    cells = {
        "x": cell("$dff", {"D": [90], "CLK": [2]}, {"Q": [80]}, MEMID="other"),
        "a": cell("$xor", {"A": [80], "B": [3]}, {"Y": [90]}),
    }
    assert same(toggling(), module(cells, [80], {80: "0"}))


def test_a_register_that_is_there_twice_is_there_once() -> None:
    twice = toggling()
    twice["cells"] |= {
        "gate2": cell("$xor", {"A": [14], "B": [3]}, {"Y": [15]}),
        "kept2": cell("$dff", {"D": [15], "CLK": [2]}, {"Q": [14]}),
    }
    twice["netnames"]["n14"] = {"bits": [14], "attributes": {"init": "0"}}
    assert same(toggling(), twice)
    twice["ports"]["y"]["bits"] = [14]
    assert same(toggling(), twice)


@pytest.mark.parametrize(
    "other",
    (
        toggling(gate="$and"),
        toggling(start="1"),
        toggling(start="x"),
        toggling(other=2),
        toggling(shown=5),
        toggling(shown=3),
    ),
    ids=("gate", "start", "no-start", "input", "output", "wire"),
)
def test_what_may_show_another_value_is_not_the_same(other: Any) -> None:
    assert not same(toggling(), other) and not same(other, toggling())


def test_a_difference_behind_many_cells_is_found() -> None:
    def chain(last: str) -> Any:
        cells = {
            f"c{n}": cell("$not" if n else last, {"A": [n + 10]}, {"Y": [n + 11]})
            for n in range(40)
        }
        cells["c0"]["connections"]["A"] = [2]
        return module(cells, [50], {})

    assert same(chain("$not"), chain("$not")) and not same(chain("$not"), chain("$pos"))


def test_constants_count() -> None:
    def tied(value: str) -> Any:
        return module({"g": cell("$or", {"A": [2], "B": [value]}, {"Y": [4]})}, [4], {})

    assert same(tied("0"), tied("0")) and not same(tied("0"), tied("1"))
