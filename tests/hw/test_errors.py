"""Refusals: the parts of what a person reads, and the errors that carry them."""

from __future__ import annotations

import pytest

from vta_byoc.hw.errors import Refusal, VTAError

WHOLE = Refusal("the sum may reach", "5", "int32 holds 4", "use smaller weights")


@pytest.mark.parametrize(
    ("refusal", "rule", "text"),
    [
        (
            WHOLE,
            "the sum may reach 5; int32 holds 4",
            "the sum may reach 5; int32 holds 4; use smaller weights",
        ),
        (Refusal("no pattern takes", "relax.abs"), *["no pattern takes relax.abs"] * 2),
        (Refusal("a sum", limit="a mean is taken"), *["a sum; a mean is taken"] * 2),
        (Refusal("a sum", remedy="end it"), "a sum", "a sum; end it"),
        (Refusal("no MUL"), "no MUL", "no MUL"),
    ],
)
def test_texts_of_a_refusal(refusal: Refusal, rule: str, text: str) -> None:
    assert (refusal.rule, refusal.text) == (rule, text)


def test_an_error_carries_its_refusal() -> None:
    error = VTAError(WHOLE)
    assert (str(error), error.refusal) == (WHOLE.text, WHOLE)


def test_an_error_of_a_line_has_all_of_it_as_what_was_found() -> None:
    error = VTAError("no file; give one")
    assert (str(error), error.refusal) == ("no file; give one", Refusal("no file; give one"))
