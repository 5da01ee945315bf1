"""Constants with a row a token: their windows, their extremes, and how programs hold them."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from decoders import small

from vta_byoc.decoding import programs as decoding
from vta_byoc.decoding.sliding import COLUMNS, MASK, ROWS, Held, Place, Sliding, layouts
from vta_byoc.hw.errors import VTAError

TOKENS, WINDOW, LANES = 48, 16, 16


def drawn(*shape: int, axis: int, inner: int = 1) -> Sliding:
    values = np.random.default_rng(len(shape)).integers(-99, 99, shape).astype(np.int32)
    return Sliding(values, Place(axis, inner), TOKENS, WINDOW)


@pytest.mark.parametrize("block", range(3))
def test_a_window_is_the_rows_of_its_tokens(block: int) -> None:
    here = slice(block * WINDOW, (block + 1) * WINDOW)
    assert np.array_equal(drawn(TOKENS, 8, axis=0).at(block), drawn(TOKENS, 8, axis=0).values[here])
    wide = drawn(2, 3 * TOKENS, 8, axis=1)
    parts = [wide.values[:, n * TOKENS :][:, here] for n in range(3)]
    assert np.array_equal(wide.at(block), np.concatenate(parts, 1))


def test_the_widest_window_reaches_as_far_as_all() -> None:
    sliding = drawn(2, TOKENS, 8, axis=1)
    before = sliding.values.copy()
    for block in range(3):
        wide, plain = sliding.widest(block), sliding.at(block)
        assert np.array_equal(wide[:, 2:], plain[:, 2:])
        for other in range(3):
            assert (np.abs(sliding.at(other)).max(1) <= wide[:, 0]).all()
            assert (sliding.at(other).min(1) >= wide[:, 1]).all()
    assert np.array_equal(sliding.values, before)
    positive = dataclasses.replace(sliding, values=np.abs(sliding.values))
    assert positive.widest(1).min() >= 0
    parted = drawn(2 * TOKENS, 8, axis=0, inner=2)
    assert np.array_equal(parted.widest(1), parted.at(1))


def test_columns_have_a_vector_of_channels_for_each_token() -> None:
    for sliding in (drawn(TOKENS, 32, axis=0), drawn(1, TOKENS, 2, 16, axis=1)):
        rows = sliding.at(1)
        flat = rows.reshape(WINDOW, 2, LANES)
        wanted = [flat[token, part] for part in range(2) for token in range(WINDOW)]
        got = Held("x", COLUMNS, 3).packed(sliding, rows, LANES)
        assert np.array_equal(got, np.tile(np.concatenate(wanted), 3))
        assert np.array_equal(Held("x", ROWS).packed(sliding, rows, LANES), rows.reshape(-1))


def test_layouts() -> None:
    assert layouts(drawn(TOKENS, 32, axis=0), True, LANES) == (MASK,)
    assert layouts(drawn(TOKENS, 32, axis=0), False, LANES) == (ROWS, COLUMNS)
    assert layouts(drawn(TOKENS, 24, axis=0), False, LANES) == (ROWS,)
    assert layouts(drawn(2 * TOKENS, 16, axis=0), False, LANES) == (ROWS,)


def test_a_constant_that_no_program_holds() -> None:
    windows, program = small().programs.windows, small().programs.step.program
    name, sliding = next(iter(windows.sliding.items()))
    other = dataclasses.replace(sliding, values=sliding.values + 1)
    odd = dataclasses.replace(windows, sliding={name: other}, masks=frozenset())
    text = (
        f'the constant "{name}" has a row a token and lies in no layout that slides; give the '
        "model positions in its embedding"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        decoding.sliding_constants(odd, program, {name: other.at(0)})


def test_a_constant_that_slides_and_was_not_found() -> None:
    windows, program = small().programs.windows, small().programs.step.program
    symbol = program.of_kind("const")[0]
    image = program.image.copy()
    image[symbol.offset - program.input_bytes] ^= 1
    other = dataclasses.replace(program, image=image)
    text = (
        f"a constant of shape {symbol.shape} has a row a token and lies in no layout that slides; "
        "give the model positions in its embedding"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        decoding.check_slides(windows, program, other, {}, {})
