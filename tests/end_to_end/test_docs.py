"""The code in the documentation runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doc_pages import DOCS, blocks

from vta_byoc.extend import registered

PAGES = [
    page.relative_to(DOCS).as_posix()
    for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md")])
    if blocks(page)
]


@pytest.fixture(autouse=True)
def registrations() -> Iterator[None]:
    """What a page registers is gone behind it."""
    with registered():
        yield


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    session: dict[str, object] = {}
    for line, code in blocks(DOCS / page):
        source = "\n" * (line - 1) + code
        exec(compile(source, str(DOCS / page), "exec"), session)
    assert capsys.readouterr().out
