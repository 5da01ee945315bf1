"""`vta-byoc programs` and `vta-byoc verify`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import cli, refused
from click.testing import Result
from integer_models import residual_net
from small_models import Net

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA
from vta_byoc.hw.program.file import load, save
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.verify.rules import RULES
from vta_byoc.pipeline import compile_module


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Net(data=[1, 16, 8, 8])
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    path.write_bytes(net.model(net.conv("data", 16, 16, name="only")).SerializeToString())
    return path


@pytest.fixture(scope="module")
def program() -> Program:
    net = residual_net()
    (program,) = compile_module(net.module(net.result), VTAConfig()).programs.values()
    return program


def without_tokens(program: Program) -> Program:
    """The program with the token flags of its instructions cleared."""
    isa, insns = ISA.of(program.config), program.insns.copy()
    for i, words in enumerate(program.insns.tolist()):
        insn = isa.decode(*words)
        fields = {k: v for k, v in insn.fields.items() if k != "opcode"}
        fields |= dict.fromkeys(("pop_prev", "pop_next", "push_prev", "push_next"), 0)
        insns[i] = isa.encode(insn.opcode, **fields)
    return dataclasses.replace(program, insns=insns)


def test_programs_of_a_model_are_saved_and_verified(model: Path, tmp_path: Path) -> None:
    result = cli("programs", model, "-o", tmp_path)
    assert result.exit_code == 0, result.stderr
    path = tmp_path / "region0.vta"
    saved = load(path)
    assert result.stdout == f"{path}: 1 layer, {len(saved.insns)} instructions\n"
    done = cli("verify", path)
    assert done.exit_code == 0
    count = f"{len(saved.insns)} instructions"
    assert done.stdout == f"{path}: {count}, no violation of {len(RULES)} rules\n"


def test_a_model_is_verified_without_a_file(model: Path) -> None:
    done = cli("verify", model, "--json", "--config", "2x16")
    assert done.exit_code == 0, done.stderr
    (region,) = json.loads(done.stdout)["programs"].values()
    assert region["instructions"] > 0 and region["violations"] == []


def broken(program: Program, tmp_path: Path, *options: str) -> Result:
    path = tmp_path / "broken.vta"
    save(without_tokens(program), path)
    return cli("verify", path, *options)


def test_violations_are_listed_and_exit_with_1(program: Program, tmp_path: Path) -> None:
    result = broken(program, tmp_path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert any(": race: " in line and "(LOAD INP" in line for line in lines)
    assert lines[-1].startswith(f"{tmp_path / 'broken.vta'}: ")
    assert " violations" in lines[-1]
    report = json.loads(broken(program, tmp_path, "--json").stdout)
    (found,) = report["programs"].values()
    assert {"race", "finish"} <= {v["rule"] for v in found["violations"]}


def test_bad_files(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "short.vta"
    save(program, path)
    path.write_bytes(path.read_bytes()[:-7])
    assert "short.vta" in refused("verify", path) and "truncated" in refused("verify", path)
    assert "missing.vta" in refused("verify", tmp_path / "missing.vta")
    assert refused("programs", "x.onnx", "-o", tmp_path / "none") == (
        f'"{tmp_path / "none"}" is not a directory; program files are written into one; make it'
    )
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert "x.npy" in refused("verify", tmp_path / "x.npy")
