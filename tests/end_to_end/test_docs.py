"""The code in the documentation runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: Path) -> list[tuple[int, str]]:
    """(line, code) of each fenced Python block."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: m.start()].count("\n") + 2, m[1]) for m in found]


@pytest.mark.parametrize("page", sorted(p.name for p in DOCS.glob("*.md") if blocks(p)))
def test_python_blocks_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    session: dict[str, object] = {}
    for line, code in blocks(DOCS / page):
        source = "\n" * (line - 1) + code
        exec(compile(source, str(DOCS / page), "exec"), session)
    assert capsys.readouterr().out
