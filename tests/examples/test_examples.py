"""Every example runs, says what it promises and is as short as it promises."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import io
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from doc_pages import DOCS

from vta_byoc.extend import registered
from vta_byoc.hw.errors import VTAWarning

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
USER_LINES = 60
"""A kernel of one's own takes fewer lines than this: definition, schedule, call."""
COUNTERS = {
    "matmul_blocked": [4096, 1048576, 0, 20, 1024, 4096, 192],
    "conv2d_optimisation": [114688, 1179648, 0, 1144, 50176, 451584, 9408],
    "nhwc_bias": [287232, 516096, 512, 408, 100352, 225792, 25088],
}
"""By example: bytes loaded for inp, wgt, acc and uop, bytes stored, GEMM and ALU micro-ops.

Those of the first two are the published ones."""
FACTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "hardswish_operator": lambda found: (
        found["counters"] == [0, 0, 2048, 24, 1024, 0, 512]
        and found["error"] < 0.07  # a step is 0.0625
        and (found["cases"], found["regions"]) == (3, 3)
    ),
    "custom_machine": lambda found: (
        found["small sums"]["estimated_cycles"] > found["pynq"]["estimated_cycles"]
        and found["a port of 16 bytes"]["estimated_cycles"] < found["pynq"]["estimated_cycles"]
        # eight blocks of weights; nine taps inside of 14x14, along each axis 3 * 14 - 2
        and min(row["gemm_steps"] for row in found.values()) >= 8 * (3 * 14 - 2) ** 2
    ),
    "custom_device": lambda found: (
        (found["cases"], found["machines"]) == (3, ["pynq"])
        # four tiles of 8x8 positions and nine taps, and what a bias adds
        and found["gemm_counter"] >= 2 * (22 * 22)
        and found["out_store_nbytes"] == 4 * 32 * 64
    ),
    "texture_scopes": lambda found: (
        found["first"] == {"scope": "global", "copies": ["global.texture"]}
        and found["second"] == {"scope": "global.texture", "copies": []}
    ),
}
"""Of an example that is no schedule alone: what must hold of its JSON."""
NOT_SCHEDULES = 70
"""They take fewer lines than this."""
PUBLIC = {f"vta_byoc.{name}" for name in ("extend", "partition", "schedule", "scopes", "testing")}
PUBLIC.add("vta_byoc.hw.sim.devices")


@dataclasses.dataclass(frozen=True)
class Shown:
    """What an example prints: the JSON of `--json`, and the text without it."""

    json: dict[str, Any]
    text: str


@functools.cache
def shown(name: str) -> Shown:
    """Runs an example, which compares its result with LLVM's itself.

    Its last statement prints, and is all that looks for options: it is run with each.
    """
    path = EXAMPLES / f"{name}.py"
    *steps, last = ast.parse(path.read_text(encoding="utf-8")).body
    assert "--json" in ast.unparse(last) and "argv" not in ast.unparse(ast.Module(steps, []))
    names = {"__name__": "__main__", "__file__": str(path)}
    with registered(), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()) as err:
        warnings.simplefilter("error", VTAWarning)
        printed = printed_by(path, steps, names)
        assert not printed
        found = [printed_by(path, [last], names, *options) for options in (["--json"], [])]
    assert not err.getvalue()
    return Shown(json.loads(found[0]), found[1])


def printed_by(path: Path, statements: list[ast.stmt], names: dict[str, Any], *options: str) -> str:
    """What statements of an example print as a program that gets options."""
    code = compile(ast.Module(statements, []), str(path), "exec")
    with (
        mock.patch.object(sys, "argv", [str(path), *options]),
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        exec(code, names)
    return out.getvalue()


def test_every_example_has_a_row_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*COUNTERS, *FACTS}


def test_every_example_is_listed() -> None:
    page = (DOCS / "examples.md").read_text(encoding="utf-8")
    assert {name for name in {*COUNTERS, *FACTS} if f"`{name}.py`" not in page} == set()


@pytest.mark.parametrize("name", FACTS)
def test_facts(name: str) -> None:
    assert FACTS[name](shown(name).json)
    assert shown(name).text.count("\n") > 2


@pytest.mark.parametrize("name", COUNTERS)
def test_counters(name: str) -> None:
    assert shown(name).json["counters"] == COUNTERS[name]


@pytest.mark.parametrize("name", COUNTERS)
def test_explained(name: str) -> None:
    text = shown(name).text
    assert "problem" not in text
    assert "same: the schedule computes what its definition does" in text
    assert "same: VTA computes what the host does" in text


@pytest.mark.parametrize("name", COUNTERS)
def test_short_and_through_the_public_package_alone(name: str) -> None:
    assert lines_of(name) < USER_LINES
    assert imported_by(name) == {"vta_byoc", "vta_byoc.schedule"}


@pytest.mark.parametrize("name", FACTS)
def test_short_and_through_public_packages_alone(name: str) -> None:
    assert lines_of(name) < NOT_SCHEDULES
    assert imported_by(name) - {"vta_byoc"} <= PUBLIC


def lines_of(name: str) -> int:
    """Lines of an example that are neither empty nor a comment."""
    lines = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()
    return len([line for line in lines if line.strip() and not line.strip().startswith("#")])


def imported_by(name: str) -> set[str]:
    """Our modules that an example imports, all of them by `import`."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert "from vta_byoc" not in source
    imported = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import)]
    return {a.name for n in imported for a in n.names if a.name.startswith("vta_byoc")}
