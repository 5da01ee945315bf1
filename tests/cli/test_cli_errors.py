"""The command line refuses with one line that names value, limit and next step."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import SHAPE, cli, refused, save, small_model
from onnx import TensorProto, helper
from small_models import Net

from vta_byoc.base import arrays
from vta_byoc.hw.config import VTAConfig


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small.onnx")


@pytest.fixture(scope="module")
def two_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Net(a=(1, 4), b=(1, 4))
    return net.save(tmp_path_factory.mktemp("model") / "sum.onnx", net.node("Add", "a", "b"))


class TestModelFile:
    def test_missing(self) -> None:
        assert refused("run", "no.onnx") == (
            'model file "no.onnx" does not exist; only .onnx, .pt2, .tflite, .relay, .txt, '
            ".json, .tar (ONNX, PyTorch, TFLite, Relay) can be loaded; check the path"
        )

    def test_broken(self, tmp_path: Path) -> None:
        path = tmp_path / "broken.onnx"
        path.write_bytes(b"\x08\x07\x12 this is no protobuf")
        message = refused("run", path)
        assert message.startswith(f'model file "{path}" cannot be read: ')
        assert message.endswith("export or download the model again")

    def test_dtype(self, tmp_path: Path) -> None:
        net = Net()
        net.inputs = [helper.make_tensor_value_info("data", TensorProto.UINT32, SHAPE)]
        path = net.save(tmp_path / "net.onnx", net.node("Relu", "data"))
        assert refused("run", path) == (
            'input "data" has dtype uint32; inputs must be tensors of float, int8, uint8, int32, '
            "int64, bool; export the model with one of these"
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
        self, model: Path, tmp_path: Path, compiler_that_fails: Callable[[str], Path]
    ) -> None:
        path = tmp_path / "x.so"
        path.write_text("old")
        command = compiler_that_fails("no linker today")
        message = refused("compile", model, "-o", path, CXX=str(command))
        assert message.startswith(f'linking with "{command}" failed: ')
        assert "no linker today" in message
        assert os.listdir(tmp_path) == ["x.so"]
        assert path.read_text() == "old"

    @pytest.mark.usefixtures("quantized_once")
    def test_a_linker_without_room_names_the_folders(
        self, model: Path, tmp_path: Path, compiler_that_fails: Callable[[str], Path]
    ) -> None:
        command = compiler_that_fails("ld: final link failed: No space left on device")
        assert refused("compile", model, "-o", tmp_path / "x.so", CXX=str(command)) == (
            f'linking with "{command}" failed: No space left on device; nothing has been changed; '
            f'make room in "{tmp_path}" and in "{tempfile.gettempdir()}", or write elsewhere '
            "and set TMPDIR"
        )
        assert os.listdir(tmp_path) == []

    @pytest.mark.usefixtures("quantized_once")
    def test_a_folder_for_temporary_files_without_room_is_named(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The folder of the output is not the full one."""

        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device", "/elsewhere")

        path = tmp_path / "x.so"
        path.write_text("old")
        monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
        message = refused("compile", model, "-o", path)
        wanted = f'device; nothing has been changed; make room in "{tmp_path}" and in '
        assert f"No space left on {wanted}" in message
        assert os.listdir(tmp_path) == ["x.so"] and path.read_text() == "old"

    @pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="there are no files in memory")
    @pytest.mark.usefixtures("quantized_once")
    def test_objects_of_a_library_need_no_room(
        self, model: Path, tmp_path: Path, compiler_that_fails: Callable[[str], Path]
    ) -> None:
        """LLVM, which writes them, ends the process where a disk is full."""
        command = compiler_that_fails("no linker today")
        command.write_text(
            '#!/bin/sh\nfor each; do case "$each" in *.o) '
            'printf "%s %s " $(readlink "$each") $(wc -c <"$each");; esac; done >&2\nexit 1\n'
        )
        message = refused("compile", model, "-o", tmp_path / "x.so", CXX=str(command))
        sizes = re.findall(rf"/proc/{os.getpid()}/fd/\d+ (\d+)", message)
        assert len(sizes) >= 2 and all(int(size) > 1000 for size in sizes)

    @pytest.mark.usefixtures("quantized_once")
    def test_failed_save_leaves_nothing(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(arrays, "save_named", full)
        result = cli("run", model, "--output", tmp_path / "y.npz", "--json")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.splitlines()[-1] == (
            f'error: output "{tmp_path}/y.npz" cannot be written: No space left on device; nothing '
            f'has been changed; make room in "{tmp_path}" or write elsewhere'
        )
        assert os.listdir(tmp_path) == []


@pytest.fixture
def compiler_that_fails(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def make(says: str) -> Path:
        path = tmp_path_factory.mktemp("bin") / "cc"
        path.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
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
