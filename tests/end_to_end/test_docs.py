"""The code in the documentation: every block runs or says why not; `make docs` runs them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import blocks as doc_blocks
import pytest
from blocks import Block, all_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGE = """\
---
file_format: mystnb
---
# A page

```{code-cell}
1 + 1
```

    vta-byoc configs     # a command

<!-- not run: it takes
minutes -->

    make demo

Text between:

    name   cycles
    conv1  12

- in a list:

  ```python
  print(1)
  ```

<!-- not run: of the block below -->

    1 row

    vta-byoc configs

<!-- beside it: vta-byoc device-server
--port 1 -->

    vta-byoc run
"""


@pytest.fixture(scope="module")
def found() -> list[Block]:
    return all_blocks()


def test_every_block_runs_or_says_why(found: list[Block]) -> None:
    count = Counter(block.kind for block in found)
    unmarked = [block.where for block in found if block.kind == "unmarked Python"]
    assert unmarked == [], "write Python as ```python, or say above it why it does not run"
    print(dict(count))
    assert count["cells"] >= 100 and count["python"] >= 40 and count["shell"] >= 20
    assert not count["stated"]


def test_what_is_run_elsewhere_exists(found: list[Block]) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for block in found:
        if block.kind == "stated":
            assert set(re.findall(r"`make (\w+)`", block.reason)) <= targets, block.where
            files = re.findall(r"`(\.ci/\w+|tests/\w+)`", block.reason)
            assert all((ROOT / name).exists() for name in files), block.where


def test_blocks_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doc_blocks, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    seen = [(b.where, b.kind, b.reason) for b in doc_blocks.blocks(page)]
    assert seen == [
        ("page.md:7", "cells", ""),
        ("page.md:10", "shell", ""),
        ("page.md:15", "stated", "it takes minutes"),
        ("page.md:19", "text", ""),
        ("page.md:25", "python", ""),
        ("page.md:30", "stated", "of the block below"),
        ("page.md:37", "shell", ""),
    ]
    assert [b.beside for b in doc_blocks.blocks(page) if b.beside] == [
        "vta-byoc device-server --port 1"
    ]


def test_unmarked_python_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doc_blocks, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("Text:\n\n    import numpy as np\n    print(np.pi)\n\nand\n\n    one two = 3\n")
    assert [b.kind for b in doc_blocks.blocks(page)] == ["unmarked Python", "text"]
