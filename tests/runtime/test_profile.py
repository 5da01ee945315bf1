"""What a run, a compiled model, a program and a machine look like in a shell and in a notebook."""

from __future__ import annotations

import functools
from html.parser import HTMLParser

import numpy as np
import pytest
from integer_models import residual_net

import vta_byoc as vta
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.html_table import SHOWN, first_rows, html_table
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.passes.compiled import Compiled
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.profile import Profile


@functools.cache
def compiled() -> Compiled:
    net = residual_net()
    return compile_module(net.module(net.result), VTAConfig(), "null")


@functools.cache
def profiled() -> Profile:
    return vta.profile(compiled(), inputs())


def inputs() -> list[np.ndarray]:
    return [np.zeros([int(s.value) for s in p.ty.shape.values], "int8") for p in params()]


def params() -> list[object]:
    net = residual_net()
    return list(net.params)


class Tables(HTMLParser):
    """Counts tags; every one that opens must close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


# ---------------------------------------------------------------- times and placement
def test_a_profile_of_a_compiled_model_has_times_and_placement() -> None:
    found = profiled()
    times = {name: simulate(program) for name, program in compiled().programs.items()}
    assert found.timing == times
    assert found.cycles == sum(time.cycles for time in times.values())
    assert found.milliseconds == sum(time.milliseconds for time in times.values())
    assert found.placement is compiled().placement


def test_a_profile_of_an_executable_has_counters_alone() -> None:
    found = vta.profile(compiled().exe, inputs())
    assert found.counters == profiled().counters
    assert found.placement is None
    with pytest.raises(VTAError) as error:
        found.timing  # noqa: B018
    assert str(error.value) == (
        "the profile of an executable has no timing; the timing model needs the programs; profile "
        "what vta_byoc.pipeline.compile_module returns"
    )


# ---------------------------------------------------------------- texts
def values() -> dict[str, object]:
    (program,) = compiled().programs.values()
    return {
        "program": program,
        "compiled": compiled(),
        "placement": compiled().placement,
        "profile": profiled(),
        "config": VTAConfig.preset("pynq"),
    }


@pytest.mark.parametrize("name", ["program", "compiled", "placement", "profile", "config"])
def test_a_value_is_a_line_in_a_shell_and_a_table_in_a_notebook(name: str) -> None:
    value = values()[name]
    text = repr(value)
    assert text.startswith("<") and text.endswith(">") and "\n" not in text and len(text) <= 250
    page = value._repr_html_()  # type: ignore[attr-defined]
    tables = Tables(page)
    assert tables.open == [] and tables.rows >= 3


def test_texts() -> None:
    (program,) = compiled().programs.values()
    assert repr(VTAConfig.preset("pynq")) == "<VTAConfig pynq (1x16) b0_k4_u15_i15_w18_a17>"
    assert repr(program) == (
        f"<Program for sim (1x16): layers: {len(program.layers)}, instructions: "
        f"{len(program.insns):,}, arena: {program.arena_bytes:,} bytes>"
    )
    summary = "operators on VTA: 3 of 3, 100.0 % of the MACs"
    assert repr(compiled().placement) == f"<Placements: {summary}>"
    assert repr(compiled()) == (
        f"<Compiled for sim (1x16), device null: regions: 1, instructions: {len(program.insns):,}; "
        f"{summary}>"
    )
    assert repr(profiled()).endswith(f"regions: 1, {profiled().cycles:,} cycles; {summary}>")
    (run,) = profiled().regions
    counters = run.counters
    assert repr(run) == (
        f"<RegionRun region0: GEMM {counters['gemm_counter']:,}, ALU {counters['alu_counter']:,}>"
    )


def test_names_in_tables_are_shown_not_obeyed() -> None:
    page = html_table("<b>", ("a",), [("<script>",), ("\x1b[31m",)])
    assert "&lt;b&gt;" in page and "&lt;script&gt;" in page and "\\x1b[31m" in page


def test_long_tables_are_cut() -> None:
    rows = [(str(i), "x") for i in range(SHOWN + 5)]
    cut = first_rows(rows)
    assert len(cut) == SHOWN + 1 and cut[-1] == ("and 5 more", "")
    assert first_rows(rows[:SHOWN]) == rows[:SHOWN]
