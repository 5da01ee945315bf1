"""The pages of docs/, and the code in them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: Path) -> list[tuple[int, str]]:
    """(line, code) of each fenced Python block."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: m.start()].count("\n") + 2, m[1]) for m in found]
