"""`inspect` of a library, a bundle and a program file; `run` of a library."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
from cli_runs import cli, refused
from integer_models import IntegerNet

import vta_byoc as vta
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.program.file import save
from vta_byoc.hw.sim.target import export_target
from vta_byoc.pipeline import Compiled, compile_module
from vta_byoc.runtime.library import load_library

TYPE = {"shape": [1, 16, 4, 4], "dtype": "int8"}
INPUT = {"name": "x", **TYPE}


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    net = IntegerNet(x=(1, 16, 4, 4))
    mod = net.module(net.conv(net.params[0], 16, name="conv"))
    return compile_module(mod, target=export_target())


@pytest.fixture(scope="module")
def folder(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model in three forms: net.so, bundle, region0.vta."""
    made = tmp_path_factory.mktemp("forms")
    compiled.exe.export_library(str(made / "net.so"))
    save(compiled.programs["region0"], made / "region0.vta")
    net = IntegerNet(x=(1, 16, 4, 4))
    vta.write_bundle(net.module(net.conv(net.params[0], 16, name="conv")), made / "bundle")
    return made


def facts(path: Path) -> dict[str, object]:
    result = cli("inspect", path, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


@pytest.mark.parametrize(
    ("name", "kind"), [("net.so", "library"), ("bundle", "bundle"), ("region0.vta", "program")]
)
def test_what_each_form_says(name: str, kind: str, folder: Path, compiled: Compiled) -> None:
    found = facts(folder / name)
    (program,) = compiled.programs.values()
    assert found["kind"] == kind
    assert isinstance(found["programs"], dict)
    assert found["programs"]["region0"]["counters"] == program.counters()
    assert found["programs"]["region0"]["instructions"] == len(program.insns)
    if kind == "program":
        assert [tensor["shape"] for tensor in found["inputs"]] == [[1, 1, 4, 4, 1, 16]]
    else:
        assert found["inputs"] == [INPUT]
        assert found["version"] == f"vta_byoc {vta.__version__}"
    text = cli("inspect", folder / name).stdout
    assert "1x16; buffers in bytes: uop 2^15, inp 2^15, wgt 2^18, acc 2^17\n" in text
    assert all(f"{name} " in text for name in COUNTER_NAMES)


def test_the_machine_can_be_made_again(folder: Path, compiled: Compiled) -> None:
    about = load_library(folder / "net.so").about
    assert vta.VTAConfig.from_dict(about["machine"]) == compiled.config


def test_a_library_runs(folder: Path, compiled: Compiled, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-128, 128, TYPE["shape"]).astype("int8")
    np.save(tmp_path / "x.npy", x)
    wanted = vta.profile(compiled.exe, [x])
    for given in ("", "x="):
        output = tmp_path / "out.npz"
        command = ("run", folder / "net.so", "--input", f"{given}{tmp_path / 'x.npy'}", "--json")
        result = cli(*command, "--output", output)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout) == {
            "library": str(folder / "net.so"),
            "regions": 1,
            "counters": wanted.counters,
            "inputs": {"x": {**TYPE, "source": str(tmp_path / "x.npy")}},
            "outputs": {"output0": {"shape": [1, 16, 4, 4], "dtype": "int8"}},
        }
        np.testing.assert_array_equal(np.load(output)["output0"], wanted.outputs[0])


def test_a_library_runs_on_noise(folder: Path) -> None:
    result = cli("run", folder / "net.so")
    assert result.exit_code == 0, result.output
    assert f"{folder / 'net.so'}: regions that ran: 1\n" in result.stdout


# ---------------------------------------------------------------- bad input
def test_options_of_models(folder: Path) -> None:
    assert refused("run", folder / "net.so", "--config", "pynq") == (
        "--config with a library; machine, device and shapes are compiled into it; leave --config "
        "out, or give the model"
    )


def test_a_bundle_is_for_the_c_runtime(folder: Path) -> None:
    assert refused("run", folder / "bundle") == (
        f'"{folder / "bundle"}" is a bundle; run takes models, libraries and program files; run it '
        'with the C runtime: cp -r "$(python -m vta_byoc.bundle.runtime_source)" runtime && make '
        "-C runtime"
    )


def test_an_input_it_does_not_take(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 16, 4, 4), "int8"))
    file = tmp_path / "x.npy"
    assert refused("run", folder / "net.so", "--input", f"y={file}") == (
        f'input file "{file}" is for "y"; the library takes x; name one of them'
    )


def test_a_truncated_library(folder: Path, tmp_path: Path) -> None:
    data = (folder / "net.so").read_bytes()
    for size in (len(data) - 1, len(data) // 2, 100, 20):
        path = tmp_path / "net.so"
        path.write_bytes(data[:size])
        for command in ("run", "inspect"):
            message = refused(command, path)
            assert message.startswith(f'library "{path}" is truncated: it has {size} bytes; at ')


def test_no_library(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("text")
    assert refused("inspect", path).startswith(f'library "{path}" cannot be loaded: ')
    assert refused("inspect", tmp_path / "none.so") == (
        f'library "{tmp_path / "none.so"}" cannot be read (No such file or directory); give a '
        "library that vta-byoc compile has written"
    )
    assert refused("inspect", tmp_path / "net.onnx") == (
        f'"{tmp_path / "net.onnx"}" is no library (.so), folder of a bundle or program file '
        "(.vta); these are what vta-byoc compile and vta-byoc programs write; give one of them"
    )


def test_a_library_without_a_model(tmp_path: Path) -> None:
    path = tmp_path / "loops.so"
    module = tvm.compile(_loops(), target="llvm")
    module.export_library(str(path))
    assert refused("run", path).startswith(f'library "{path}" cannot be loaded: ')


def _loops() -> tvm.IRModule:
    from tvm import te

    x = te.placeholder((4,), name="x")
    return tvm.IRModule({"main": te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1)])})


@pytest.mark.parametrize("name", ["constants.bin", "manifest.json", "manifest.sha256"])
def test_a_damaged_bundle(name: str, folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder / "bundle", tmp_path / "bundle"))
    data = bytearray((copied / name).read_bytes())
    data[3] ^= 1
    (copied / name).write_bytes(data)
    shown = "manifest.json" if name == "manifest.sha256" else name
    assert refused("inspect", copied) == (
        f'file "{shown}" of bundle "{copied}" is damaged: its SHA-256 is not the one written '
        "beside it; copy the bundle again, or write it again"
    )
    (copied / name).write_bytes(data[:-1])
    assert "bundle" in refused("inspect", copied)
    (copied / name).unlink()
    message = refused("inspect", copied)
    assert message == (
        f'file "{name}" of bundle "{copied}" cannot be read (No such file or directory); all six '
        "files belong to it; copy the bundle again"
    )
