"""The C runtime built by make and CMake, and used from C++ and Rust."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
from bundle_runs import C_FOLDER, compiler, drawn_inputs, reference, results_of


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(C_FOLDER, tmp_path_factory.mktemp("sources") / "c"))


@pytest.fixture(scope="module")
def made(sources: Path) -> Path:
    run(compiler("make"), "-C", sources, "CFLAGS=-O1")
    return sources / "build"


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def check(program: Path, bundle: Path, mod: tvm.IRModule, folder: Path, *between: str) -> None:
    inputs = drawn_inputs(mod, 3)
    (wanted,) = results_of(reference(mod), inputs)
    inputs[0].tofile(folder / "in.bin")
    run(program, bundle, folder / "in.bin", *between, folder / "out.bin")
    found = np.fromfile(folder / "out.bin", wanted.dtype).reshape(wanted.shape)
    np.testing.assert_array_equal(found, wanted)


def test_make(made: Path, small_bundle: Path, small_module: tvm.IRModule, tmp_path: Path) -> None:
    check(made / "example", small_bundle, small_module, tmp_path, "-o")


def test_it_says_what_a_model_takes(made: Path, small_bundle: Path) -> None:
    assert run(made / "example", small_bundle) == (
        'input "x" float32 1x3x4x5, 240 bytes\noutput "softmax" float32 1x7x4x5, 560 bytes\n'
    )


def test_cmake_and_cpp(
    sources: Path, small_bundle: Path, small_module: tvm.IRModule, tmp_path: Path
) -> None:
    cmake = compiler("cmake")
    compiler("c++")
    run(cmake, "-S", sources, "-B", tmp_path / "build")
    run(cmake, "--build", tmp_path / "build")
    for name, between in (("example", ["-o"]), ("example_cpp", [])):
        check(tmp_path / "build" / name, small_bundle, small_module, tmp_path, *between)


def test_rust(made: Path, small_bundle: Path, small_module: tvm.IRModule, tmp_path: Path) -> None:
    target = tmp_path / "example_rs"
    links = ("-L", made, "-l", "static=vta", "-l", "m")
    run(compiler("rustc"), "-D", "warnings", C_FOLDER / "example.rs", *links, "-o", target)
    check(target, small_bundle, small_module, tmp_path)
