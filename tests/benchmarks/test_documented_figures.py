"""Figures in README and docs are those that benchmarks printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documented_figures import NETWORKS, claims

from benchmarks.record import all_recorded
from vta_byoc.hw.verify.rules import RULES

ROOT = Path(__file__).resolve().parents[2]


def recorded() -> dict[str, dict[str, float]]:
    """The recorded figures, and what the README sums up of them."""
    found = all_recorded()
    networks = found["networks"]
    over = [networks[f"{name}_over_bound"] for name in NETWORKS.values()]
    networks |= {
        "resnet18_cycles_millions": networks["resnet18_cycles"] / 1e6,
        "least_over_bound": min(over),
        "most_over_bound": max(over),
    }
    return found


def text_of(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", sorted({page for page, _ in claims()}))
def test_pages_quote_what_was_measured(page: str) -> None:
    figures, text = recorded(), text_of(page)
    wanted = [template.format(**figures) for where, template in claims() if where == page]
    missing = [claim for claim in wanted if claim not in text]
    assert not missing, f"{page} does not say:\n" + "\n".join(missing)


def test_the_rules_are_counted() -> None:
    assert f"({len(RULES)} rules" in text_of("README.md")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "docs/verifier.md").read_text(), re.M)
    assert sorted(rule for rule in rows if rule in RULES) == sorted(RULES)
