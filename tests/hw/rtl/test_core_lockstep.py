"""The core's commit log beside the functional simulator's, and waveforms of a layer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from cli_runs import cli, refused
from core_extra import needs_core
from core_machines import SMALL

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.file import save
from vta_byoc.hw.program.program import Layer
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.trace import implementations
from vta_byoc.hw.trace.commit_log import first_difference
from vta_byoc.hw.trace.implementations import CoreLog, implementation


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of two layers."""
    path = tmp_path_factory.mktemp("program") / "mine.vta"
    program, _ = random_safe_program(SMALL, np.random.default_rng(3))
    count = len(program.insns)
    layers = [Layer("first", 0, count // 2), Layer("second", count // 2, count)]
    save(dataclasses.replace(program, layers=tuple(layers)), path)
    return path


@needs_core
def test_the_core_writes_the_log_of_the_simulator() -> None:
    for seed in range(8):
        program, inputs = random_safe_program(SMALL, np.random.default_rng(seed))
        until = len(program.insns) * seed // 8 if seed else None
        core, sim = (implementation(name).run(program, inputs, until) for name in ("rtl", "sim"))
        assert first_difference(core.log, sim.log) is None
        assert core.log.executed.all() and not core.log.stopped
        for name, memory in sim.result.sram.items():
            np.testing.assert_array_equal(core.result.sram[name], memory)


@needs_core
def test_a_core_that_stops_is_a_log_that_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    program, inputs = random_safe_program(SMALL, np.random.default_rng(1))

    def stuck(*_: object, **__: object) -> None:
        raise VTAError("the core makes no progress")

    monkeypatch.setattr(implementations, "run_core", stuck)
    log = CoreLog().run(program, inputs).log
    assert log.stopped == "the core makes no progress" and not log.executed.any()
    found = first_difference(log, implementation("sim").run(program, inputs).log)
    assert found is not None and found.index == 0
    assert "rtl did not execute it: the core makes no progress" in found.cause


@needs_core
def test_the_command_compares_a_device_with_the_simulator(saved: Path) -> None:
    done = cli("diff", saved, "--device", "rtl")
    assert (done.exit_code, done.stdout) == (0, "no difference\n"), done.output


@needs_core
def test_waveforms_are_of_the_layer_that_was_asked_for(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, int]] = []
    real = implementations.run_core

    def noted(config: object, *given: object, wave: object = None, **more: object) -> object:
        if wave is None:
            return real(config, *given, **more)  # type: ignore[arg-type]
        asked.append(dataclasses.astuple(wave))  # type: ignore[call-overload]
        return None

    monkeypatch.setattr(implementations, "run_core", noted)
    path = tmp_path / "second.vcd"
    done = cli("diff", saved, "--device", "rtl", "--wave", f"second={path}")
    assert done.exit_code == 0, done.output
    ((file, begin, end),) = asked
    assert file == str(path) and 0 < begin < end


def test_what_diff_refuses_of_devices_and_waves(saved: Path, tmp_path: Path) -> None:
    assert refused("diff", saved, "--device", "rtl", "--right", "numpy") == (
        "--device rtl with --right; it names both sides; leave one of them out"
    )
    assert refused("diff", saved, "--wave", "first") == (
        "--wave with --left sim; waveforms are of the core; add --device rtl"
    )
    assert refused("diff", saved, "--device", "rtl", "--wave", "third") == (
        '--wave "third" is no layer of the program; layers are first, second; choose one'
    )
