"""examples/cpp_tvm: a library in a C++ program with TVM's runtime."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bundle_runs import compiler
from integer_models import IntegerNet

import vta_byoc as vta
from vta_byoc.hw.sim.target import export_target
from vta_byoc.pipeline import compile_module

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpp_tvm"


def has_headers() -> bool:
    spec = importlib.util.find_spec("tvm_ffi")
    found = Path(spec.origin).parent if spec and spec.origin else Path()
    return (found / "include" / "tvm" / "ffi" / "extra" / "module.h").is_file()


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def test_it_builds_and_computes_the_same(tmp_path: Path) -> None:
    if not has_headers():
        pytest.skip("apache-tvm-ffi is installed without headers")
    compiler("c++")
    build = tmp_path / "build"
    python = f"-DPython_EXECUTABLE={sys.executable}"
    for command in (("-S", EXAMPLE, "-B", build, python), ("--build", build)):
        done = run(compiler("cmake"), *command)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    net = IntegerNet(x=(1, 16, 4, 4))
    mod = net.module(net.conv(net.params[0], 16, name="conv"))
    compiled = compile_module(mod, target=export_target())
    compiled.exe.export_library(str(tmp_path / "net.so"))
    inputs = net.inputs()
    inputs[0].tofile(tmp_path / "in.bin")
    paths = [tmp_path / name for name in ("net.so", "in.bin", "out.bin")]
    done = run(build / "run_library", *paths)
    assert done.returncode == 0, done.stderr
    wanted = vta.profile(compiled.exe, inputs).outputs[0]
    found = np.fromfile(tmp_path / "out.bin", "int8").reshape(wanted.shape)
    np.testing.assert_array_equal(found, wanted)
    (tmp_path / "in.bin").write_bytes(b"short")
    done = run(build / "run_library", *paths)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: the input file has 5 bytes; the model takes 256: "
        '{"inputs": [{"name": "x", "shape": [1, 16, 4, 4], "dtype": "int8"}]}'
    )
