"""Interpreters kept on disk: built once, never a wrong one."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from vta_byoc.hw.cache import CACHE_VARIABLE, cache_folder, tell_unusable
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAWarning
from vta_byoc.hw.sim import interpreter, kept_code, machine_code
from vta_byoc.hw.sim.kept_code import kept, kept_library
from vta_byoc.hw.sim.target import unoptimized_target

FACTS: dict[str, object] = {"machine": "a", "dot": "portable"}
needs_linker = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("ld") is None, reason="there is no linker"
)


class Builder:
    """Compiles a function that answers ``answer``, and counts how often."""

    def __init__(self, answer: int = 7) -> None:
        self.answer, self.times = answer, 0

    def __call__(self) -> tvm.runtime.Module:
        self.times += 1
        answer = self.answer

        @T.prim_func(private=True, s_tir=True)
        def tell(out: T.Buffer((1,), "int32")):  # type: ignore[no-untyped-def]
            out[0] = answer

        module = tvm.IRModule({"tell": tell.with_attr("global_symbol", "tell")})
        return tvm.tirx.build(module, target=unoptimized_target())


def answer_of(module: tvm.runtime.Module) -> int:
    out = tvm.runtime.empty((1,), "int32")
    module["tell"](out)
    return int(out.numpy()[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, whose warnings are errors."""
    path = tmp_path / "deep" / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(path))
    tell_unusable.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", VTAWarning)
        yield path


def entry_of(folder: Path) -> Path:
    (entry,) = folder.iterdir()
    return entry


def test_built_once_and_right_again(folder: Path) -> None:
    build = Builder()
    assert [answer_of(kept(FACTS, build)) for _ in range(3)] == [7, 7, 7]
    assert build.times == 1
    assert folder.stat().st_mode & 0o777 == 0o700


def test_other_facts_are_other_code(folder: Path) -> None:
    for number, facts in enumerate([FACTS, {**FACTS, "machine": "b"}, {**FACTS, "lanes": 4}]):
        assert answer_of(kept(facts, Builder(number))) == number
    assert len(list(folder.iterdir())) == 3


def test_other_sources_are_other_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(FACTS, Builder(1))
    changed = {**kept_code._surroundings(), "sources": "edited"}
    monkeypatch.setattr(kept_code, "_surroundings", lambda: changed)
    assert answer_of(kept(FACTS, Builder(2))) == 2


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "headless", "swapped", "noise"])
def test_damaged_entries_are_built_again(folder: Path, damage: str) -> None:
    kept(FACTS, Builder())
    entry = entry_of(folder)
    text = entry.read_bytes()
    at = text.index(b"define")
    entry.write_bytes(
        {
            "empty": b"",
            "cut": text[: len(text) // 2],
            "flipped": text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :],
            "headless": text.partition(b"\n")[2],
            # What another function would be, under the first line of this one.
            "swapped": text.replace(b"i32 7", b"i32 8"),
            "noise": np.random.default_rng(0).bytes(4096),
        }[damage]
    )
    assert entry.read_bytes() != text
    build = Builder()
    assert answer_of(kept(FACTS, build)) == 7
    assert build.times == 1 and entry.read_bytes() == text


def test_code_that_others_may_write_is_not_run(folder: Path) -> None:
    kept(FACTS, Builder(1))
    folder.chmod(0o777)
    message = (
        f"{CACHE_VARIABLE} '{folder}' is not used: others may write it (mode 777); interpreters "
        "are built and tilings searched for in every process; name a folder of your own, or 'off'"
    )
    with pytest.warns(VTAWarning) as caught:
        assert answer_of(kept(FACTS, Builder(2))) == 2
    assert [str(w.message) for w in caught] == [message]
    folder.chmod(0o700)


def test_a_foreign_folder_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.warns(VTAWarning, match=f"it belongs to user {owner}, not to {owner + 1};"):
        kept(FACTS, Builder())
    assert not list(folder.iterdir())


def test_a_file_is_no_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    monkeypatch.setenv(CACHE_VARIABLE, str(file))
    with pytest.warns(VTAWarning, match="File exists; interpreters are built and tilings "):
        assert answer_of(kept(FACTS, Builder())) == 7
    assert file.read_text() == "kept"


def test_a_full_disk_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(VTAWarning, match="No space left on device; interpreters are built"):
        assert answer_of(kept(FACTS, Builder())) == 7
    assert not list(folder.iterdir())


def test_a_disk_that_takes_no_more_does_not_end_the_process(folder: Path) -> None:
    """Whoever writes, Python or LLVM: the system refuses what is beyond 64 bytes of a file."""
    kept(FACTS, Builder())
    (entry,) = folder.iterdir()
    entry.unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.warns(VTAWarning, match="File too large; interpreters are built"):
            assert answer_of(kept(FACTS, Builder())) == 7
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(folder.iterdir())


def test_old_entries_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "MOST_ENTRIES", 2)
    for number in range(2):
        kept({"number": number}, Builder(number))
        for age, path in enumerate(sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime)):
            os.utime(path, (1000 + age, 1000 + age))
    kept({"number": 0}, Builder(0))  # read: the youngest now
    kept({"number": 2}, Builder(2))
    builds = [Builder(number) for number in range(3)]
    for number in (0, 2, 1):
        kept({"number": number}, builds[number])
    assert [build.times for build in builds] == [0, 1, 0]


def test_where_entries_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vta_byoc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "vta_byoc"
    monkeypatch.setenv(CACHE_VARIABLE, "off")
    assert cache_folder() is None
    build = Builder()
    kept(FACTS, build)
    kept(FACTS, build)
    assert build.times == 2 and not list(tmp_path.iterdir())


def test_a_kept_interpreter_computes_and_exports(folder: Path, tmp_path: Path) -> None:
    config, target = VTAConfig(), str(unoptimized_target())
    interpreter._build.__wrapped__(config, target, "portable", False)
    before = entry_of(folder).stat().st_ino
    again = interpreter._build.__wrapped__(config, target, "portable", False)
    assert entry_of(folder).stat().st_ino == before
    assert interpreter.multiplies(config, again)
    again.export_library(str(tmp_path / "interpreter.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "interpreter.so"))
    assert interpreter.multiplies(config, loaded)


@needs_linker
def test_a_library_is_built_once_and_right_again(folder: Path) -> None:
    build = Builder()
    found = [kept_library(FACTS, build) for _ in range(3)]
    assert [answer_of(module) for module in found] == [7, 7, 7]
    assert {module.kind for module in found} == {"library"}
    assert build.times == 1 and entry_of(folder).suffix == ".so"


@needs_linker
def test_other_libraries_of_the_folder_are_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of cores, which are counted apart."""
    monkeypatch.setattr(kept_code, "MOST_ENTRIES", 2)
    folder.mkdir(parents=True, mode=0o700)
    core = folder / "core.rtl.so"
    core.write_bytes(b"core")
    os.utime(core, (1000, 1000))
    for number in range(3):
        assert answer_of(kept_library({"number": number}, Builder(number))) == number
    assert core.read_bytes() == b"core"
    assert len(list(folder.glob(f"*{kept_code.LIBRARY}"))) == 2


@needs_linker
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "headless", "noise"])
def test_damaged_libraries_are_built_again(folder: Path, damage: str) -> None:
    facts = {**FACTS, "damage": damage}  # a loader knows a library by its path
    kept_library(facts, Builder())
    entry = entry_of(folder)
    text = entry.read_bytes()
    at = len(text) // 2
    entry.unlink()  # what is loaded is not to be written
    entry.write_bytes(
        {
            "empty": b"",
            "cut": text[:at],
            "flipped": text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :],
            "headless": text[64:],
            "noise": np.random.default_rng(0).bytes(4096),
        }[damage]
    )
    build = Builder()
    assert answer_of(kept_library(facts, build)) == 7
    assert build.times == 1 and entry.read_bytes() == text


@needs_linker
def test_a_damaged_library_is_not_loaded_where_nothing_can_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_library(FACTS, Builder(1))
    entry = entry_of(folder)
    text = entry.read_bytes()
    entry.unlink()
    entry.write_bytes(text[:-1])
    monkeypatch.setattr(kept_code, "write_library", lambda *_: False)
    assert answer_of(kept_library(FACTS, Builder(2))) == 2
    assert entry.read_bytes() == text[:-1]


@needs_linker
def test_where_libraries_are_not_loaded_there_is_the_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder of a file system that executes nothing."""
    load = tvm.runtime.load_module

    def refused(path: str) -> tvm.runtime.Module:
        if path.endswith(".so"):
            raise RuntimeError(f"Failed to load dynamic shared library {path}")
        return load(path)

    monkeypatch.setattr(tvm.runtime, "load_module", refused)
    build = Builder()
    assert [answer_of(kept_library(FACTS, build)) for _ in range(3)] == [7, 7, 7]
    assert build.times == 2  # for the library, and for the module
    assert {path.suffix for path in folder.iterdir()} == {".so", ".ll"}


def test_without_a_linker_the_module_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "linker", lambda: None)
    build = Builder()
    assert [answer_of(kept_library(FACTS, build)) for _ in range(2)] == [7, 7]
    assert build.times == 1 and entry_of(folder).suffix == ".ll"


@needs_linker
def test_what_does_not_link_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "linker", lambda: "/bin/false")
    assert answer_of(kept_library(FACTS, Builder())) == 7
    assert not list(folder.iterdir())


@needs_linker
def test_probes_are_libraries_and_parts_of_executables_are_not(folder: Path) -> None:
    config, target = VTAConfig(), unoptimized_target()
    kinds = {
        probe: interpreter._compile(config, target, "portable", probe).kind
        for probe in (True, False)
    }
    assert kinds == {True: "library", False: "llvm"}


def test_machines_that_behave_differently_have_code_of_their_own() -> None:
    target = unoptimized_target()
    machines = [
        VTAConfig(),
        VTAConfig.preset("pynq"),
        VTAConfig(capabilities=Capabilities(mul=False)),
        VTAConfig(capabilities=Capabilities(shift_modulo=True)),
        VTAConfig(capabilities=Capabilities(out_sram=True)),
    ]
    seen = [interpreter.seen_by_programs(machine) for machine in machines]
    facts = [json.dumps(interpreter.code_facts(each, target, "portable")) for each in seen]
    assert len(set(facts)) == len(machines)
