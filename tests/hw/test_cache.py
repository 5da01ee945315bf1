"""The folder of what is kept, while other processes use it too."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from vta_byoc.hw.cache import (
    CACHE_VARIABLE,
    is_whole_library,
    read_entry,
    write_entry,
    write_library,
)

MOST = 2


def test_the_oldest_entries_go(tmp_path: Path) -> None:
    for name in "abcd":
        write_entry(tmp_path / f"{name}.kind", name.encode(), MOST)
    write_entry(tmp_path / "a.other", b"x", MOST)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.other", "c.kind", "d.kind"]
    assert read_entry(tmp_path / "d.kind") == b"d" and read_entry(tmp_path / "a.kind") is None


def test_entries_that_another_process_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are listed and then gone: no reason to say that the folder cannot be used."""
    for name in "abc":
        (tmp_path / f"{name}.kind").write_bytes(b"")
    listed = Path.glob

    def glob(self: Path, pattern: str) -> Iterator[Path]:
        for entry in listed(self, pattern):
            if entry.name in ("a.kind", "b.kind"):
                entry.unlink()
            yield entry

    monkeypatch.setattr(Path, "glob", glob)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_entry(tmp_path / "d.kind", b"d", 1)
    assert read_entry(tmp_path / "d.kind") == b"d"


@pytest.mark.parametrize("data", [b"", b"library", b"librarY"])
def test_a_library_of_other_bytes_is_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "some.so"
    assert not is_whole_library(path)
    assert write_library(path, b"library", MOST) and is_whole_library(path)
    digest = path.read_bytes().removeprefix(b"library")
    path.write_bytes(data + digest)
    assert is_whole_library(path) == (data == b"library")
    path.write_bytes(data)
    assert not is_whole_library(path)
