"""Programs placed together: constants once, states shared, windows moved."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest
from decoders import small

from vta_byoc.decoding.memory import PREFILL, STEP, placed
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.together import together


def test_equal_constants_lie_there_once() -> None:
    programs = {"a": small().programs.step.program, "b": small().programs.step.program}
    both, one = together(programs), together({"a": programs["a"]})
    assert both.constants == one.constants and both.unshared == 2 * one.unshared
    for symbol in programs["a"].of_kind("const"):
        assert both.offsets["a", symbol.name] == both.offsets["b", symbol.name]


def test_nothing_that_lasts_lies_over_anything() -> None:
    found = placed(small().programs)
    lasting = {first: octets.nbytes for first, octets in found.contents.items()}
    for (name, symbol), first in found.offsets.items():
        held = found.programs[name].symbol(symbol)
        if held.kind in ("state", "input"):
            lasting[first] = held.nbytes
    spans = sorted((first, first + size) for first, size in lasting.items())
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    assert spans[-1][1] <= found.nbytes


def test_a_cache_is_one_tensor_of_both_programs() -> None:
    found = placed(small().programs)
    for whole, state in small().programs.caches:
        assert found.offsets[PREFILL, whole] == found.offsets[STEP, state]


def test_a_window_moves_addresses_alone() -> None:
    found = placed(small().programs)
    first, third = found.stream(STEP, 0), found.stream(STEP, 2)
    moved = np.flatnonzero((first != third).any(axis=1))
    slid = {slide.symbol[1] for slide in found.slides}
    rows = {r.index for r in found.programs[STEP].relocations if r.symbol in slid}
    assert len(moved) and set(moved.tolist()) <= rows
    assert np.array_equal(found.stream(STEP, 0), first)
    assert np.array_equal(found.stream(PREFILL, 2), found.stream(PREFILL, 0))


def test_states_of_two_sizes_are_not_one() -> None:
    program = small().programs.step.program
    state = program.of_kind("state")[0]
    longer = dataclasses.replace(state, shape=(*state.shape[:-3], 2 * state.shape[-3], 1, 16))
    symbols = [longer if each.name == state.name else each for each in program.symbols]
    other = dataclasses.replace(program, symbols=tuple(symbols))
    text = (
        f"{state.name} and {state.name} have {state.nbytes}, {2 * state.nbytes} bytes; what is one "
        "state has one size; name symbols of equal tensors"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        together({"a": program, "b": other}, [[("a", state.name), ("b", state.name)]])
