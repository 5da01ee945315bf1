"""The command line: what it prints, what it writes, and every refusal with its text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import tvm
from click.testing import CliRunner, Result
from onnx import TensorProto, helper
from small_models import Net

import vta_byoc
from vta_byoc.cli import app, commands
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES

SHAPE = (1, 16, 8, 8)


def cli(*args: Any, **env: str) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], env=env)


def refused(*args: Any, **env: str) -> str:
    """The one line that a command ends with, which must be an error of the user's."""
    result = cli(*args, **env)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    line = result.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions and a residual add on VTA, then a sigmoid on the CPU."""
    net = Net(data=SHAPE)
    a = net.node("Relu", net.conv("data", 16, 16, name="first"), name="first_relu")
    b = net.conv(a, 16, 16, name="second")
    joined = net.node("Relu", net.node("Add", b, a, name="join"), name="join_relu")
    result = net.node("Sigmoid", joined, name="gate")
    return net.save(tmp_path_factory.mktemp("model") / "small.onnx", result)


@pytest.fixture(scope="module")
def two_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Net(a=(1, 4), b=(1, 4))
    return net.save(tmp_path_factory.mktemp("model") / "sum.onnx", net.node("Add", "a", "b"))


@pytest.fixture
def quantized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantize each model once: most tests ask about something else."""
    monkeypatch.setattr(commands, "_quantize", _quantized)


_DONE: dict[str, Any] = {}
_quantize = commands._quantize


def _quantized(mod: tvm.IRModule, calibration: str | None, steps: Any) -> tvm.IRModule:
    key = str(mod.script())
    if calibration or key not in _DONE:
        _DONE[key] = _quantize(mod, calibration, steps)
    steps.seconds.setdefault("quantize", 0.0)
    return _DONE[key]


def save(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


# ---------------------------------------------------------------- run
class TestRun:
    def test_json_is_one_object_with_the_promised_keys(self, model: Path) -> None:
        result = cli("run", model, "--check", "--json")
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout)
        assert set(report) == {
            *("model", "config", "device", "inputs", "bit_exact"),
            *("counters", "placement", "seconds"),
        }
        assert report["model"] == str(model)
        assert (report["config"], report["device"]) == ("sim", "sim")
        assert report["bit_exact"] is True
        assert report["inputs"] == {
            "data": {"shape": list(SHAPE), "dtype": "float32", "source": "random, seed 0"}
        }
        assert list(report["counters"]) == list(COUNTER_NAMES)
        assert report["counters"]["gemm_counter"] == 2 * 8 * 8 * 9
        assert set(report["seconds"]) == {"import", "quantize", "compile", "run", "reference"}
        assert all(seconds > 0 for seconds in report["seconds"].values())
        placement = report["placement"]
        assert set(placement) == {"macs_total", "macs_offloaded", "ops"}
        macs = 2 * 8 * 8 * 16 * 16 * 9
        assert (placement["macs_total"], placement["macs_offloaded"]) == (macs, macs)
        assert all(set(op) == {"name", "op", "device", "reason", "macs"} for op in placement["ops"])
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
        assert re.search(r"^second +conv2d +vta +0\.15 +576 ", text, re.MULTILINE)
        assert re.search(r"^gate +sigmoid +cpu +\[1\]", text, re.MULTILINE)
        assert "[1]  no pattern of the partition table takes this kind\n" in text
        assert "on VTA 294,912 (100.0 %)" in text
        assert "bit-exact: 1 output and 3 tensors stored by regions equal" in text
        assert result.stderr.splitlines()[0] == f"importing {model}"
        with np.load(tmp_path / "y.npz") as saved:
            (name,) = saved.files
            assert saved[name].shape == SHAPE
            assert f"output     {name} (1, 16, 8, 8) float32: from " in text
        named = cli("run", model, "--input", f"data={x}", "--output", tmp_path / "z.npz")
        assert named.exit_code == 0, named.stderr
        assert (tmp_path / "y.npz").read_bytes() == (tmp_path / "z.npz").read_bytes()
        assert "bit-exact" not in named.stdout

    @pytest.mark.usefixtures("quantized_once")
    def test_a_difference_is_shown_and_exits_with_1(
        self, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from vta_byoc import check

        honest = check.run_reference

        def lying(*args: Any) -> check.Reference:
            reference = honest(*args)
            reference.tensors["second"][0, 3, 1, 2] ^= 1
            return reference

        monkeypatch.setattr(check, "run_reference", lying)
        result = cli("run", model, "--check")
        assert result.exit_code == 1
        text = " ".join(result.stdout.split())
        assert "check NOT bit-exact: of 1 output and 3 tensors stored by regions, 1 differ" in text
        assert "region0 second: 1 of 1024 values differ, first at [0, 3, 1, 2]: " in text
        result = cli("run", model, "--check", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["bit_exact"] is False
        assert "region0 second: 1 of 1024 values differ" in result.stderr

    @pytest.mark.usefixtures("quantized_once")
    def test_null_device_is_a_dry_run(self, model: Path) -> None:
        result = cli("run", model, "--device", "null", "--config", "2x16", "--json")
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout)
        assert (report["device"], report["config"]) == ("null", "2x16")
        assert report["bit_exact"] is None
        assert report["seconds"]["reference"] is None
        assert report["counters"]["gemm_counter"] == 2 * 8 * 8 * 9
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
    assert "region0    3 layers, " in result.stdout
    assert os.listdir(tmp_path) == ["small.so"]
    x = save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal(SHAPE, np.float32))
    subprocess.run(
        [sys.executable, "-c", LOAD, path, x, tmp_path / "y.npy"],
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
    assert layers == ["first:", "second:", "join:"]
    assert lines[-1].split()[1] == "FINISH"
    written = cli("disasm", model, "-o", tmp_path / "all.txt")
    assert (written.exit_code, written.stdout) == (0, "")
    assert (tmp_path / "all.txt").read_text() == result.stdout
    one = cli("disasm", model, "--layer", "join").stdout.splitlines()
    begin = lines.index("join:")
    assert one[one.index("join:") :] == lines[begin : begin + len(one) - one.index("join:")]
    assert any("STORE" in line for line in one)
    symbols = {line.split()[2] for line in one if line.startswith("; ") and len(line.split()) > 4}
    assert {"first", "second", "join"} <= symbols
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
        for args in ([], ["--help"], ["run", "--help"], ["compile", "--help"], ["--version"]):
            done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True)
            assert done.returncode == 0, (args, done.stderr)

    def test_version(self) -> None:
        text = cli("--version").stdout
        assert re.fullmatch(
            rf"vta-byoc {vta_byoc.__version__} \(apache-tvm 0\.27\S*, Python 3\.\d+\.\d+\)\n", text
        )

    @pytest.mark.parametrize("command", ["run", "compile", "disasm"])
    def test_every_help_has_examples(self, command: str) -> None:
        assert f"  vta-byoc {command} " in cli(command, "--help").stdout

    @pytest.mark.parametrize("command", ["run", "compile", "disasm", "configs"])
    def test_docs_know_every_option(self, command: str) -> None:
        text = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
        assert f"    vta-byoc {command} " in text
        for option in app.commands[command].params:
            assert isinstance(option, click.Argument) or option.opts[0] in text, option.opts

    def test_usage_errors(self) -> None:
        assert refused("nonsense") == "No such command 'nonsense'; see vta-byoc --help"
        assert refused("run") == "Missing argument 'MODEL'; see vta-byoc run --help"
        assert refused("compile", "x.onnx") == (
            "Missing option '-o' / '--output'; see vta-byoc compile --help"
        )
        assert "'--device': 'fpga' is not one of 'sim', 'null'" in refused(
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
        monkeypatch.setattr(commands, "_quantize", _broken)
        result = cli("run", model)
        assert result.exit_code == 3
        assert result.stderr.splitlines()[-1] == (
            "error: this is a bug in vta-byoc: KeyError: 'first line'; please report the traceback "
            "that --debug shows"
        )
        assert "Traceback" not in result.stderr

    def test_interrupt(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commands, "_quantize", _interrupted)
        result = cli("run", model)
        assert result.exit_code == 130
        assert result.stderr.splitlines()[-1] == "error: interrupted"


def _broken(*_: Any) -> None:
    raise KeyError("first line")


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


# ---------------------------------------------------------------- bad input
class TestModelFile:
    def test_missing(self) -> None:
        assert refused("run", "no.onnx") == (
            'model file "no.onnx" does not exist; only .onnx (ONNX, float32) can be loaded; '
            "check the path"
        )

    def test_broken(self, tmp_path: Path) -> None:
        path = tmp_path / "broken.onnx"
        path.write_bytes(b"\x08\x07\x12 this is no protobuf")
        message = refused("run", path)
        assert message.startswith(f'model file "{path}" cannot be read: ')
        assert message.endswith("export or download the model again")

    def test_dtype(self, tmp_path: Path) -> None:
        net = Net()
        net.inputs = [helper.make_tensor_value_info("data", TensorProto.DOUBLE, SHAPE)]
        path = net.save(tmp_path / "double.onnx", net.node("Relu", "data"))
        assert refused("run", path) == (
            'input "data" has dtype double; inputs must be float tensors (float32); '
            "export the model in float32"
        )

    def test_dynamic_shape(self, tmp_path: Path) -> None:
        net = Net(data=("N", 4))
        path = net.save(tmp_path / "dynamic.onnx", net.node("Relu", "data"))
        assert refused("run", path) == (
            'input "data" has the dynamic shape (N, 4); every dimension must be known; '
            "give it, for example --shape data=1,4"
        )
        result = cli("run", path, "--shape", "data=1,4", "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["inputs"]["data"]["shape"] == [1, 4]

    @pytest.mark.parametrize("value", ["data", "data=", "=1,4", "data=1,x", "data=1.5"])
    def test_shape_syntax(self, value: str) -> None:
        assert refused("run", "x.onnx", "--shape", value) == (
            f'--shape "{value}" is not NAME=SIZE,SIZE,...; sizes are positive integers; '
            "write for example --shape data=1,3,224,224"
        )


class TestInputs:
    def test_not_npy(self, model: Path, tmp_path: Path) -> None:
        missing = tmp_path / "no.npy"
        assert refused("run", model, "--input", missing) == (
            f'input file "{missing}" does not exist; a .npy file is needed; check the path'
        )
        assert refused("run", model, "--input", model) == (
            f'input file "{model}" is not a .npy file of numbers; save it with '
            "numpy.save(path, array)"
        )
        np.savez(tmp_path / "x.npz", data=np.zeros(3))
        assert "is an .npz archive; --input takes one array per file" in refused(
            "run", model, "--input", tmp_path / "x.npz"
        )

    def test_name_shape_dtype_value(self, model: Path, tmp_path: Path) -> None:
        path = save(tmp_path / "x.npy", np.zeros((1, 8, 8, 16), np.float32))
        assert refused("run", model, "--input", f"image={path}") == (
            '--input names "image"; the inputs of the model are "data"; use one of these names'
        )
        assert refused("run", model, "--input", path) == (
            f'input "data" from "{path}" has shape (1, 8, 8, 16); the model takes {SHAPE}; '
            "reshape or crop the array"
        )
        save(path, np.zeros(SHAPE))
        assert refused("run", model, "--input", path) == (
            f'input "data" from "{path}" has dtype float64; the model takes float32; '
            'convert it with .astype("float32")'
        )
        save(path, np.full(SHAPE, np.nan, np.float32))
        assert refused("run", model, "--input", path) == (
            f'input "data" from "{path}" has 1024 values that are NaN or infinite; every value '
            "must be finite; repair the array"
        )

    def test_number_of_inputs(self, model: Path, two_inputs: Path, tmp_path: Path) -> None:
        path = save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
        assert refused("run", model, "--input", path, "--input", path) == (
            f'input file "{path}" is one too many; the model has 1 inputs: "data"; '
            "give one file for each"
        )
        assert refused("run", two_inputs, "--input", f"b={path}") == (
            'no array for the inputs "a"; the inputs of the model are "a", "b"; '
            "give --input NAME=FILE.npy for each, or none for random ones"
        )
        assert refused("run", two_inputs, "--input", f"b={path}", "--input", f"b={path}") == (
            '--input names "b" twice; give one file for each input'
        )


class TestCalibration:
    def test_shape_nan_and_file(self, model: Path, tmp_path: Path) -> None:
        path = tmp_path / "samples.npz"
        np.savez(path, data=np.zeros((3, 16, 9, 9), np.float32))
        assert refused("run", model, "--calibration", path) == (
            'calibration array "data" has shape (3, 16, 9, 9); n samples of the input take '
            "(n, 16, 8, 8); stack the samples along the first axis"
        )
        samples = np.zeros((3, *SHAPE[1:]), np.float32)
        samples[1, 0, 0, 0] = np.nan
        np.savez(path, data=samples)
        assert refused("run", model, "--calibration", path) == (
            'calibration sample 1, input "data" has 1 values that are NaN or infinite; every '
            "value must be finite; remove or repair the sample"
        )
        assert refused("run", model, "--calibration", model).endswith(
            "is not an .npz archive of numeric arrays; save it with numpy.savez(path, "
            "**{input name: samples})"
        )


class TestConfig:
    def test_unknown_preset(self) -> None:
        known = ", ".join(VTAConfig.presets())
        assert refused("run", "x.onnx", "--config", "zynq") == (
            f"unknown preset 'zynq'; known: {known}; choose one or give a JSON file"
        )

    def test_impossible_machine(self, tmp_path: Path) -> None:
        path = tmp_path / "machine.json"
        path.write_text('{"LOG_BLOCK": 3}')
        assert refused("run", "x.onnx", "--config", path) == (
            "configuration 1x8 cannot be encoded: micro-op needs 36 bits of 32, GEMM word 1 needs "
            "72 bits of 64, ALU word 1 needs 68 bits of 64; index widths are log2 of the buffer "
            "depths: lower LOG_*_BUFF_SIZE"
        )
        path.write_text('{"LOG_BLOCK": ')
        assert refused("compile", "x.onnx", "-o", "x.so", "--config", path).startswith(
            f"configuration file {path} is not JSON ("
        )

    def test_missing_file(self, tmp_path: Path) -> None:
        path = tmp_path / "none.json"
        assert refused("disasm", "x.onnx", "--config", path).startswith(
            f"configuration file {path} cannot be read (No such file or directory); name a preset"
        )

    def test_check_needs_a_device_that_computes(self) -> None:
        assert refused("run", "x.onnx", "--check", "--device", "null") == (
            '--check with --device null; it computes nothing; use "--device sim"'
        )


COMMANDS: list[tuple[str, str, str]] = [
    ("run", "--output", ".npz"),
    ("compile", "-o", ".so"),
    ("disasm", "-o", ".txt"),
]


class TestOutput:
    """The model does not exist: what cannot be written is found out before it is read."""

    @pytest.mark.parametrize(("command", "option", "suffix"), COMMANDS)
    def test_path(self, command: str, option: str, suffix: str, tmp_path: Path) -> None:
        def message(path: Path) -> str:
            return refused(command, "x.onnx", option, path)

        nowhere = tmp_path / "no" / f"y{suffix}"
        assert message(nowhere) == (
            f'output "{nowhere}": the directory "{nowhere.parent}" does not exist; create it or '
            "choose another path"
        )
        assert message(tmp_path) == (
            f'output "{tmp_path}" is a directory; a file name is needed; add one to it'
        )
        pipe = tmp_path / f"pipe{suffix}"
        os.mkfifo(pipe)
        assert message(pipe) == f'output "{pipe}" is not a regular file; choose another path'

    @pytest.mark.parametrize(("command", "option", "suffix"), COMMANDS)
    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system of no files")
    def test_no_permission(self, command: str, option: str, suffix: str) -> None:
        path = f"/proc/self/y{suffix}"  # not even root creates files there
        message = refused(command, "x.onnx", option, path)
        assert message.startswith(f'output "{path}" cannot be written: ')
        assert message.endswith(' in "/proc/self"; choose a directory you may write to')

    def test_extension(self, tmp_path: Path) -> None:
        assert refused("run", "x.onnx", "--output", tmp_path / "y.csv") == (
            f'output "{tmp_path}/y.csv" has the extension ".csv"; .npz is written; '
            f'name it "{tmp_path}/y.npz"'
        )

    def test_no_compiler(self, tmp_path: Path) -> None:
        env = {"PATH": str(tmp_path), "CC": "", "CXX": ""}
        assert refused("compile", "x.onnx", "-o", tmp_path / "x.so", **env) == (
            "no C compiler on PATH (g++, gcc, clang++, clang, c++, cc); exporting a library needs "
            "one to link it; install gcc or clang (Debian, Ubuntu: apt-get install g++) or set CC"
        )
        env["CC"] = "no-such-cc"
        assert refused("compile", "x.onnx", "-o", tmp_path / "x.so", **env) == (
            'CC is "no-such-cc"; it names no program; exporting a library needs a C compiler to '
            "link it; correct CC or unset it"
        )
        assert os.listdir(tmp_path) == []

    @pytest.mark.usefixtures("quantized_once")
    def test_failed_link_leaves_the_old_file(
        self, model: Path, tmp_path: Path, compiler_that_fails: Callable[[], Path]
    ) -> None:
        path = tmp_path / "x.so"
        path.write_text("old")
        command = compiler_that_fails()
        message = refused("compile", model, "-o", path, CXX=str(command))
        assert message.startswith(f'linking with "{command}" failed: ')
        assert "no linker today" in message
        assert os.listdir(tmp_path) == ["x.so"]
        assert path.read_text() == "old"

    @pytest.mark.usefixtures("quantized_once")
    def test_failed_save_leaves_nothing(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "savez", full)
        result = cli("run", model, "--output", tmp_path / "y.npz", "--json")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.splitlines()[-1] == "error: No space left on device"
        assert os.listdir(tmp_path) == []


@pytest.fixture
def compiler_that_fails(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    def make() -> Path:
        path = tmp_path_factory.mktemp("bin") / "cc"
        path.write_text("#!/bin/sh\necho no linker today >&2\nexit 1\n")
        path.chmod(0o755)
        return path

    return make


def test_saved_library_is_readable_by_everyone_the_umask_allows(tmp_path: Path) -> None:
    from vta_byoc.cli import files

    with files.replacing(tmp_path / "a.so") as temporary:
        temporary.write_text("x")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "a.so").stat().st_mode & 0o777 == 0o666 & ~mask
