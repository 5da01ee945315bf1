"""Chosen tilings on disk: the same as searched ones, never wrong ones, and no entry of others."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from vta_byoc.base.rewrites import without
from vta_byoc.hw.cache import CACHE_VARIABLE, tell_unusable
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError, VTAWarning
from vta_byoc.strategies import base
from vta_byoc.strategies.base import LayerWork
from vta_byoc.strategies.conv.conv2d import CONV2D, Conv2d
from vta_byoc.strategies.te import kept_choices
from vta_byoc.strategies.te.kept_choices import KeptChoices, kept_choice
from vta_byoc.strategies.te.kernel import Kernels
from vta_byoc.workload.workloads import Conv2dWorkload

CONFIG = VTAConfig.preset("pynq")
OTHER = VTAConfig(log_uop_buff_size=14)
LAYER = LayerWork(Conv2dWorkload(1, 32, 32, 8, 8, (3, 3), padding=(1, 1, 1, 1)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "kept"
    monkeypatch.setenv(CACHE_VARIABLE, str(path))
    forget()
    yield path
    forget()


def forget() -> None:
    """What this process remembers, as if it were a new one."""
    tell_unusable.cache_clear()
    kept_choices._choices.cache_clear()
    base._cheapest.cache_clear()


@functools.cache
def searched() -> Kernels:
    return CONV2D.cheapest(LAYER, CONFIG)


def must_not_search() -> Kernels:
    raise AssertionError("searched for")


def file_of(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def chosen() -> Kernels:
    forget()
    return CONV2D.choose(LAYER, CONFIG).kernels


def test_a_kept_choice_is_the_searched_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen() == searched()
    assert stat.S_IMODE(file_of(folder).stat().st_mode) == 0o600
    monkeypatch.setattr(Conv2d, "cheapest", lambda *_: must_not_search())
    kept = chosen()
    assert kept == searched()
    assert [k.to_text() for k in kept] == [k.to_text() for k in searched()]
    assert [list(k.choice.tile) for k in kept] == [list(k.choice.tile) for k in searched()]


def test_another_layer_machine_or_rewrite_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen()
    calls = []
    monkeypatch.setattr(Conv2d, "cheapest", lambda *_: calls.append(1) or searched())
    forget()
    CONV2D.choose(LayerWork(LAYER.work, weight_batch=2), CONFIG)
    CONV2D.choose(LAYER, VTAConfig.preset("sim"))
    with without(["skip_padding"]):
        CONV2D.choose(LAYER, CONFIG)
    assert len(calls) == 3


def test_strategies_of_others_are_not_kept(folder: Path) -> None:
    class Theirs(Conv2d):
        """A strategy whose sources no digest holds."""

    assert Theirs().choose(LAYER, CONFIG).kernels == searched()
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["bit", "cut", "noise", "empty", "of_another"])
def test_a_damaged_line_is_passed_over(folder: Path, damage: str) -> None:
    kept_choice("a", CONFIG, searched)
    path = file_of(folder)
    text = path.read_bytes()
    place = text.index(b"cycles ") + len(b"cycles ")
    path.write_bytes(
        {
            "bit": text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :],
            "cut": text[: len(text) // 2],
            "noise": b"\xff\x00\n \n" + text[10:],
            "empty": b"",
            "of_another": b"\n" + text.split(b" ")[0] + b" " + b"0" * 64 + b" []\n",
        }[damage]
    )
    forget()
    calls = []
    for _ in range(2):  # searched for once, then read from behind the damage
        assert kept_choice("a", CONFIG, lambda: calls.append(1) or searched()) == searched()
        forget()
    assert len(calls) == 1


def test_lines_of_another_process_are_found(folder: Path) -> None:
    kept_choice("a", CONFIG, searched)
    key = hashlib.sha256(b"b").hexdigest()
    KeptChoices(file_of(folder)).add(key, searched())
    assert kept_choice("b", CONFIG, must_not_search) == searched()


def test_what_a_search_raises_is_not_kept(folder: Path) -> None:
    def refuse() -> Kernels:
        raise VTAError("none fits")

    with pytest.raises(VTAError, match="^none fits$"):
        kept_choice("a", CONFIG, refuse)
    assert not list(folder.iterdir())
    assert kept_choice("a", CONFIG, searched) == searched()


def test_off_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "off")
    assert chosen() == searched()
    assert not folder.exists()


def test_a_folder_that_others_may_write_is_not_read(folder: Path) -> None:
    kept_choice("a", CONFIG, lambda: ())
    folder.chmod(0o777)
    forget()
    message = (
        f"{CACHE_VARIABLE} '{folder}' is not used: others may write it (mode 777); interpreters "
        "are built and tilings searched for in every process; name a folder of your own, or 'off'"
    )
    with pytest.warns(VTAWarning) as caught:
        assert kept_choice("a", CONFIG, searched) == searched()
    assert [str(w.message) for w in caught] == [message]


def test_a_full_disk_is_said_and_harmless(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.warns(VTAWarning, match="is not used: No space left on device; interpreters are"):
        assert kept_choice("a", CONFIG, searched) == searched()
    assert not list(folder.iterdir())


def test_room_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_choices, "MOST_FILES", 2)
    for config in (CONFIG, VTAConfig.preset("sim"), OTHER):
        kept_choice("a", config, searched)
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(kept_choices, "MOST_BYTES", 10)
    before = {path: path.stat().st_size for path in folder.iterdir()}
    assert kept_choice("c", OTHER, searched) == searched()
    assert {path: path.stat().st_size for path in folder.iterdir()} == before


def test_each_room_has_a_digest_of_its_own() -> None:
    empty = hashlib.sha256().hexdigest()
    assert len({empty, *kept_choices._sources()}) == len(kept_choices.ROOMS) + 1
