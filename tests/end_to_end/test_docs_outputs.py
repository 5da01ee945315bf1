"""Outputs that pages show are what their commands print, but for what differs from run to run."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_blocks
from blocks import Block, all_blocks
from outputs import difference

PRINTED = """\
operator  kind    cycles
────────────────────────
conv1     conv2d   1,204
pool      max        310
seconds   import 1.21, run 0.19
wrote /tmp/abc/model.so in 3.2 s
"""


@pytest.mark.parametrize(
    "shown",
    [
        "operator kind cycles\n------------\nconv1 conv2d 1,204",
        "conv1     conv2d   1,204\n...\nwrote /srv/model.so in 12.5 s",
        "\x1b[1mpool\x1b[0m\n   max   310",
    ],
)
def test_what_is_printed_is_no_difference(shown: str) -> None:
    assert difference(shown, PRINTED) == ""


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("conv1 conv2d 1,205\npool", "after 'conv1 conv2d' the page shows '1,205 pool'"),
        ("conv1 conv2d 1,204\nseconds", "the page shows 'seconds', printed is 'pool max 310"),
        ("pool\n...\nconv1", "after '' the page shows 'conv1', printed is 'max 310"),
        ("wrote /tmp/abc/model.so in 3.2 s now", "the page shows 'now', printed is 'its end'"),
    ],
)
def test_a_difference_says_where(shown: str, said: str) -> None:
    assert said in difference(shown, PRINTED)


def test_outputs_below_commands_are_compared_or_say_why_not() -> None:
    found, before = all_blocks(), Block("", 0, "", "")
    for block in found:
        below = block.page == before.page and before.kind == "shell"
        if below and block.kind == "text" and not block.info:
            assert block.printed_by or block.not_printed, block.where
        before = block
    assert sum(bool(block.printed_by) for block in found) >= 5
    assert sum(bool(block.not_printed) for block in found) <= 6


def test_a_page_with_a_wrong_output_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_blocks, "environment", lambda folder: dict(run_blocks.os.environ))
    monkeypatch.setattr(run_blocks, "installed", lambda: Path(__file__).parent)
    shell = Block("page.md", 3, "shell", "echo one 12 two    # says it\n")
    right = Block("page.md", 7, "text", "one 12\n", printed_by="echo one 12 two")
    wrong = Block("page.md", 9, "text", "one 13\n", printed_by="echo one 12 two")
    assert list(run_blocks.failures("page.md", [shell, right])) == []
    (said,) = run_blocks.failures("page.md", [shell, right, wrong])
    assert said.startswith("page.md:9: output of echo one 12 two\nafter 'one' the page shows '13'")
