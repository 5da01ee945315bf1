"""The code in the documentation runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doc_pages import DOCS, blocks

from vta_byoc.registry.kernels import kernel_entries, remove_kernel


@pytest.fixture(autouse=True)
def own_kernels() -> Iterator[None]:
    """What a page registers is gone behind it."""
    before = set(kernel_entries())
    yield
    for entry in set(kernel_entries()) - before:
        remove_kernel(entry.name)


PAGES = [*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md")]


@pytest.mark.parametrize("page", sorted(str(p.relative_to(DOCS)) for p in PAGES if blocks(p)))
def test_python_blocks_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    session: dict[str, object] = {}
    for line, code in blocks(DOCS / page):
        source = "\n" * (line - 1) + code
        exec(compile(source, str(DOCS / page), "exec"), session)
    assert capsys.readouterr().out
