"""The command line: what it prints and what it writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from cli_runs import SHAPE, cli, refused, save, small_model
from without_torch import WITHOUT_TORCH

import vta_byoc
from vta_byoc.cli import app, commands
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small.onnx")


# ---------------------------------------------------------------- run
class TestRun:
    def test_json_is_one_object_with_the_promised_keys(self, model: Path) -> None:
        result = cli("run", model, "--check", "--json")
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout)
        assert set(report) == {
            *("model", "config", "device", "inputs", "bit_exact", "sqnr"),
            *("counters", "placement", "seconds"),
        }
        assert report["model"] == str(model)
        assert (report["config"], report["device"]) == ("sim", "sim")
        assert report["bit_exact"] is True
        (near,) = report["sqnr"].values()
        assert 20 < near < 80
        assert report["inputs"] == {
            "data": {"shape": list(SHAPE), "dtype": "float32", "source": "random, seed 0"}
        }
        assert list(report["counters"]) == list(COUNTER_NAMES)
        assert report["counters"]["gemm_counter"] >= 2 * 8 * 8 * 9
        steps = {"import", "quantize", "compile", "run", "reference", "float"}
        assert set(report["seconds"]) == steps
        assert all(seconds > 0 for seconds in report["seconds"].values())
        placement = report["placement"]
        assert set(placement) == {
            *("macs_total", "macs_offloaded", "macs_percent"),
            *("alu_ops_total", "alu_ops_offloaded", "alu_ops_percent", "cycles", "bound", "ops"),
        }
        macs = 2 * 8 * 8 * 16 * 16 * 9
        assert (placement["macs_total"], placement["macs_offloaded"]) == (macs, macs)
        alu_ops = (placement["alu_ops_total"], placement["alu_ops_offloaded"])
        assert alu_ops[0] == alu_ops[1] >= 8 * 8 * 16 * (4 + 4 + 3)  # bias, shift, bounds; a sum
        keys = {"name", "op", "device", "reason", "macs"}
        assert all(keys < set(op) for op in placement["ops"])
        devices = {op["name"]: op["device"] for op in placement["ops"]}
        assert devices["first"] == devices["second"] == devices["join"] == "vta"
        assert devices["gate"] == "cpu"

    @pytest.mark.usefixtures("quantized_once")
    def test_table_outputs_and_inputs(self, model: Path, tmp_path: Path) -> None:
        noise = np.random.default_rng(3).standard_normal(SHAPE, np.float32)
        x = save(tmp_path / "x.npy", noise)
        result = cli("run", model, "--input", x, "--output", tmp_path / "y.npz", "--check")
        assert result.exit_code == 0, result.stderr
        text = result.stdout
        assert text.startswith(f"{model} on sim (1x16), device sim\n")
        assert f"input data (1, 16, 8, 8) float32: {x}\n" in text
        assert re.search(r"^first +conv2d +vta +0\.15 +< 0.01 +640 ", text, re.MULTILINE)
        assert re.search(r"^second +conv2d +vta +0\.15 +< 0.01 +704 ", text, re.MULTILINE)
        assert re.search(r"^join +add +vta +< 0.01 +\[2\]", text, re.MULTILINE)
        assert re.search(r"^gate +sigmoid +cpu +\[1\]", text, re.MULTILINE)
        assert "[1]  no pattern of the partition table takes this kind\n" in text
        assert "[2]  fused into second\n" in text
        assert "on VTA 294,912 (100.0 %)" in text
        assert "bit-exact: 1 output and 2 tensors stored by regions equal" in text
        near = r"^SQNR +\w+: \d\d\.\d dB against the float model on these inputs, \w+: "
        assert re.search(near, text, re.MULTILINE)
        assert result.stderr.splitlines()[0] == f"importing {model}"
        with np.load(tmp_path / "y.npz") as saved:
            (name,) = saved.files
            assert saved[name].shape == SHAPE
            assert f"output          {name} (1, 16, 8, 8) float32: from " in text
        named = cli("run", model, "--input", f"data={x}", "--output", tmp_path / "z.npz")
        assert named.exit_code == 0, named.stderr
        assert (tmp_path / "y.npz").read_bytes() == (tmp_path / "z.npz").read_bytes()
        assert "bit-exact" not in named.stdout and "SQNR" not in named.stdout

    @pytest.mark.usefixtures("quantized_once")
    def test_a_difference_is_shown_and_exits_with_1(
        self, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from vta_byoc.validation import bit_exact as check

        honest = check.reference_runner

        def lying(*args: Any) -> Any:
            def run(inputs: Any) -> check.Reference:
                reference = honest(*args)(inputs)
                reference.tensors["first"][0, 3, 1, 2] ^= 1
                return reference

            return run

        monkeypatch.setattr(check, "reference_runner", lying)
        result = cli("run", model, "--check")
        assert result.exit_code == 1
        text = " ".join(result.stdout.split())
        assert "check NOT bit-exact: of 1 output and 2 tensors stored by regions, 1 differ" in text
        assert "region0 first: 1 of 1024 values differ, first at [0, 3, 1, 2]: " in text
        result = cli("run", model, "--check", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["bit_exact"] is False
        assert "region0 first: 1 of 1024 values differ" in result.stderr

    @pytest.mark.usefixtures("quantized_once")
    def test_tsim_adds_cycles(self, model: Path) -> None:
        plain = json.loads(cli("run", model, "--json").stdout)
        timed = json.loads(cli("run", model, "--device", "tsim", "--json").stdout)
        timing = timed.pop("timing")
        assert set(timed) == set(plain)
        assert timed["counters"] == plain["counters"]
        (region,) = timing["regions"].values()
        assert timing["cycles"] == region["cycles"] >= sum(region["layers"].values()) > 0
        assert set(region["queues"]) == {"load", "compute", "store"}
        assert timing["milliseconds"] == timing["cycles"] / 1e5
        text = cli("run", model, "--device", "tsim").stdout
        assert f"cycles          region0: {timing['cycles']:,}, " in text
        assert "cycles" in text.splitlines()[4]

    @pytest.mark.usefixtures("quantized_once")
    def test_null_device_is_a_dry_run(self, model: Path) -> None:
        result = cli("run", model, "--device", "null", "--config", "2x16", "--json")
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout)
        assert (report["device"], report["config"]) == ("null", "2x16")
        assert report["bit_exact"] is None
        assert report["seconds"]["reference"] is None
        run = json.loads(cli("run", model, "--config", "2x16", "--json").stdout)
        assert report["counters"] == run["counters"]
        assert "50 % of the batch lanes idle" in str(report["placement"]["ops"])


# ---------------------------------------------------------------- compile, disasm, configs
LOAD = """
import sys, numpy as np, tvm
from tvm import relax
machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
y = machine["main"](tvm.runtime.tensor(np.load(sys.argv[2])))
np.save(sys.argv[3], y.numpy())
assert not any(name.startswith("vta_byoc") for name in sys.modules)
"""


@pytest.mark.usefixtures("quantized_once")
def test_compile_writes_a_library_that_another_process_loads(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.so"
    path.write_text("what was there before")
    result = cli("compile", model, "-o", path)
    assert result.exit_code == 0, result.stderr
    assert f"{path} written: " in result.stdout
    assert "region0         2 layers, " in result.stdout
    assert os.listdir(tmp_path) == ["small.so"]
    x = save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal(SHAPE, np.float32))
    subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + LOAD, path, x, tmp_path / "y.npy"],
        env={**os.environ, "TVM_DEVICE_BACKEND_AUTOLOAD": "0"},
        check=True,
    )
    assert cli("run", model, "--output", tmp_path / "y.npz").exit_code == 0
    with np.load(tmp_path / "y.npz") as here:
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), here[here.files[0]])


@pytest.mark.usefixtures("quantized_once")
def test_disasm(model: Path, tmp_path: Path) -> None:
    result = cli("disasm", model)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[:2] == ["; region0", f"; vta 1x16 {VTAConfig().key}"]
    layers = [line for line in lines if not line.startswith((";", " "))]
    assert layers == ["first:", "second+join:"]
    assert lines[-1].split()[1] == "FINISH"
    written = cli("disasm", model, "-o", tmp_path / "all.txt")
    assert (written.exit_code, written.stdout) == (0, "")
    assert (tmp_path / "all.txt").read_text() == result.stdout
    one = cli("disasm", model, "--layer", "join").stdout.splitlines()
    begin = lines.index("second+join:")
    body = one.index("second+join:")
    assert one[body:] == lines[begin : begin + len(one) - body]
    for name in ("second", "second+join"):
        assert cli("disasm", model, "--layer", name).stdout.splitlines() == one
    assert any("STORE" in line for line in one)
    symbols = {line.split()[2] for line in one if line.startswith("; ") and len(line.split()) > 4}
    assert {"first", "join"} <= symbols
    message = refused("disasm", model, "--layer", "secnd")
    assert message == (
        'no layer "secnd" on VTA; 3 operators are, for example second; `vta-byoc run` lists all'
    )


def test_configs() -> None:
    result = cli("configs")
    assert result.exit_code == 0
    for preset in VTAConfig.presets():
        assert re.search(rf"^{preset} ", result.stdout, re.MULTILINE)
    assert re.search(r"^pynq +1 x 16 +32 KiB +256 KiB +128 KiB +32 KiB +100 MHz", result.stdout, 8)


# ---------------------------------------------------------------- front door
class TestFrontDoor:
    def test_help_does_not_import_tvm(self) -> None:
        code = (
            "import sys; from vta_byoc.cli import app; "
            "app.main(sys.argv[1:], standalone_mode=False); "
            "sys.exit('tvm' in sys.modules or 'numpy' in sys.modules)"
        )
        for args in ([], ["--help"], ["run", "--help"], ["generate", "--help"], ["--version"]):
            done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True)
            assert done.returncode == 0, (args, done.stderr)

    def test_version(self) -> None:
        text = cli("--version").stdout
        assert re.fullmatch(
            rf"vta-byoc {vta_byoc.__version__} \(apache-tvm 0\.27\S*, Python 3\.\d+\.\d+\)\n", text
        )

    @pytest.mark.parametrize("command", ["run", "compile", "place", "disasm", "generate"])
    def test_every_help_has_examples(self, command: str) -> None:
        assert f"  vta-byoc {command} " in cli(command, "--help").stdout

    @pytest.mark.parametrize(
        "command", ["run", "compile", "place", "disasm", "generate", "configs"]
    )
    def test_docs_know_every_option(self, command: str) -> None:
        text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
        assert f"    vta-byoc {command} " in text
        for option in app.commands[command].params:
            assert isinstance(option, click.Argument) or option.opts[0] in text, option.opts

    def test_usage_errors(self) -> None:
        assert refused("nonsense") == "No such command 'nonsense'; see vta-byoc --help"
        assert refused("run") == "Missing argument 'MODEL'; see vta-byoc run --help"
        assert refused("compile", "x.onnx") == (
            "Missing option '-o' / '--output'; see vta-byoc compile --help"
        )
        assert "'--device': 'fpga' is not one of 'sim', 'tsim', 'null', 'rtl'" in refused(
            "run", "x.onnx", "--device", "fpga"
        )

    def test_debug_shows_the_traceback(self) -> None:
        for args in (["--debug", "run", "no.onnx"], ["run", "no.onnx", "--debug"]):
            result = cli(*args)
            assert result.exit_code == 2
            assert "Traceback" in result.stderr
            assert result.stderr.splitlines()[-1].startswith('error: model file "no.onnx" does')

    def test_our_own_mistake_is_called_a_bug(
        self, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(commands, "quantize", _broken)
        result = cli("run", model)
        assert result.exit_code == 3
        assert result.stderr.splitlines()[-1] == (
            "error: this is a bug in vta-byoc: KeyError: 'first line'; please report the traceback "
            "that --debug shows"
        )
        assert "Traceback" not in result.stderr

    def test_interrupt(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commands, "quantize", _interrupted)
        result = cli("run", model)
        assert result.exit_code == 130
        assert result.stderr.splitlines()[-1] == "error: interrupted"


def _broken(*_: Any) -> None:
    raise KeyError("first line")


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt
