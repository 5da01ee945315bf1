"""Habits of the shell: which machine is found, -v, python -m, program files everywhere."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_runs import cli, refused
from integer_models import residual_net

from vta_byoc.cli.machines import FILE, VARIABLE, FoundConfig, chosen_config, read_config
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.file import save
from vta_byoc.hw.program.program import Program
from vta_byoc.pipeline import compile_module

PYNQ = VTAConfig.preset("pynq")


@pytest.fixture(scope="module")
def program() -> Program:
    net = residual_net()
    (program,) = compile_module(net.module(net.result), PYNQ, "null").programs.values()
    return program


@pytest.fixture(scope="module")
def saved(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "mine.vta"
    save(program, path)
    return path


# ---------------------------------------------------------------- which machine
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the test; no variable is set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def machine_file(path: Path, **keys: object) -> Path:
    path.write_text(json.dumps({**PYNQ.to_dict(), **keys}), encoding="utf-8")
    return path


def taken(option: str | None = None) -> str:
    context: object = None
    return chosen_config(context, context, option)  # type: ignore[arg-type]


def test_the_order_of_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert taken() == "sim"
    machine_file(folder / FILE)
    assert taken() == FILE
    monkeypatch.setenv(VARIABLE, "de10nano")
    assert taken() == "de10nano"
    assert taken("pynq") == "pynq"
    assert not isinstance(taken("pynq"), FoundConfig)
    monkeypatch.setenv(VARIABLE, "")
    assert taken() == FILE


def test_a_machine_that_was_found_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_file(folder / FILE, TARGET="mine")
    assert read_config(taken()).target == "mine"
    assert capsys.readouterr().err == f"machine: {FILE} of the working folder: mine (1x16)\n"
    monkeypatch.setenv(VARIABLE, "pynq")
    assert read_config(taken()) == PYNQ
    told = f"machine: pynq of the variable {VARIABLE}: pynq (1x16)\n"
    assert capsys.readouterr().err == told
    assert read_config(taken("sim")) == VTAConfig()
    assert read_config("sim") == VTAConfig()
    assert capsys.readouterr().err == ""


def test_a_command_takes_the_machine_of_the_folder(folder: Path) -> None:
    machine_file(folder / FILE, LOG_BLOCK=1)
    message = refused("place", "missing.onnx")
    assert message == (
        "the machine of the working folder: configuration key LOG_BLOCK is 1; it must be an "
        "integer from 2 to 7; correct it in the configuration file; or remove vta_config.json, or "
        "give --config"
    )


@pytest.mark.parametrize("name", ["missing.json", "nopreset"])
def test_a_variable_that_names_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(VARIABLE, name)
    with pytest.raises(VTAError) as error:
        read_config(taken())
    message = str(error.value)
    assert message.startswith(f"the machine of the variable {VARIABLE}: ") and name in message
    assert message.endswith(f"; or correct or unset {VARIABLE}, or give --config")


def test_a_damaged_file_of_the_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "half.json").write_text('{"TARGET": ', encoding="utf-8")
    monkeypatch.setenv(VARIABLE, "half.json")
    message = refused("place", "missing.onnx")
    assert message.startswith(f"the machine of the variable {VARIABLE}: configuration file half")
    assert message.endswith(f"; or correct or unset {VARIABLE}, or give --config")


# ---------------------------------------------------------------- -v
def test_stages_and_decisions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    net = residual_net()
    with caplog.at_level(logging.DEBUG, "vta_byoc"):
        compile_module(net.module(net.result), PYNQ, "null")
    info = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert [line.split()[1] for line in info if line.startswith("stage Mark:")] == ["Mark:"]
    assert any(line.startswith("region0: <Program for pynq (1x16): layers: ") for line in info)
    decided = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    assert "conv_a (relax.nn.conv2d) runs on vta: pattern vta.conv2d" in decided


def test_records_go_nowhere_unless_asked_for() -> None:
    handlers = logging.getLogger("vta_byoc").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


@pytest.mark.parametrize(
    ("options", "level"), [([], None), (["-v"], logging.INFO), (["-vv"], logging.DEBUG)]
)
def test_verbose(
    options: list[str], level: int | None, monkeypatch: pytest.MonkeyPatch, saved: Path
) -> None:
    seen: list[int] = []
    logger = logging.getLogger("vta_byoc")

    def run(*_: object) -> bool:
        seen.append(logger.level)
        logging.getLogger("vta_byoc.ir.stage").info("stage %s", "X")
        return True

    monkeypatch.setattr("vta_byoc.cli.run_program.run_program", run)
    before, handlers = logger.level, list(logger.handlers)
    done = cli("run", saved, *options)
    assert done.exit_code == 0, done.stderr
    assert seen == [before if level is None else level]
    assert done.stderr == ("" if level is None else "ir.stage: stage X\n")
    assert (logger.level, logger.handlers) == (before, handlers)


# ---------------------------------------------------------------- python -m
def test_the_module_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vta_byoc", "configs", "--nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such option")
    assert done.stderr.endswith("; see vta-byoc configs --help\n")


# ---------------------------------------------------------------- program files
def test_disasm_of_a_program_file(saved: Path, program: Program) -> None:
    done = cli("disasm", saved)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"; mine\n{program.disassemble()}"
    layer = program.layers[0].name
    assert f"{layer}:" in cli("disasm", saved, "--layer", layer).stdout


def test_trace_of_a_program_file(saved: Path, tmp_path: Path) -> None:
    done = cli("trace", saved, "-o", tmp_path / "t.json")
    assert done.exit_code == 0, done.stderr
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]


def test_report_of_a_program_file(saved: Path, program: Program, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    done = cli("report", saved, "-o", page, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [layer["name"] for layer in found["layers"]] == [each.name for each in program.layers]
    macs = program.counters()["gemm_counter"] * PYNQ.batch * PYNQ.block**2
    assert sum(layer["macs"] for layer in found["layers"]) == macs
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_run_of_a_program_file(saved: Path, program: Program, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    done = cli("run", saved, "--check", "--device", "tsim", "--output", out, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bit_exact"] is True and found["cycles"] > 0
    assert found["counters"] == program.counters()
    assert set(np.load(out)) == set(found["outputs"])
    plain = cli("run", saved, "--check")
    assert plain.stdout.splitlines()[0] == f"{saved}: {program!r}"
    assert plain.stdout.splitlines()[-1] == "check: bit-exact with the model in NumPy"


def test_run_of_a_program_file_takes_its_inputs(
    saved: Path, program: Program, tmp_path: Path
) -> None:
    first = program.of_kind("input")[0]
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(first.shape, first.dtype))
    assert cli("run", saved, "--input", f"{first.name}={path}").exit_code == 0
    names = ", ".join(symbol.name for symbol in program.of_kind("input"))
    assert refused("run", saved, "--input", f"nobody={path}") == (
        f'input file "{path}" is for "nobody"; the program takes {names}; name one of them'
    )


@pytest.mark.parametrize("command", ["disasm", "trace", "report", "run", "verify"])
def test_options_of_models_are_refused_for_program_files(
    command: str, saved: Path, tmp_path: Path
) -> None:
    needed = {"trace": ["-o", tmp_path / "t.json"], "report": ["-o", tmp_path / "r.html"]}
    assert refused(command, saved, "--config", "pynq", *needed.get(command, [])) == (
        "--config with a program file; it holds the machine and the compiled program; leave "
        "--config out, or give the model"
    )


@pytest.mark.parametrize("command", ["disasm", "run"])
def test_a_damaged_program_file(command: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.vta"
    path.write_bytes(b"no program")
    assert "bad.vta" in refused(command, path)


# ---------------------------------------------------------------- completion
def test_the_shell_completes_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "vta-byoc pl")
    monkeypatch.setenv("COMP_CWORD", "1")
    done = cli(_VTA_BYOC_COMPLETE="bash_complete")
    assert done.stdout == "plain,place\nplain,plugins\n"
