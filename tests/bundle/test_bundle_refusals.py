"""What no bundle is written of, and that a folder is written as a whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import tvm
from cli_runs import cli, refused, small_model
from integer_models import IntegerNet
from tvm import relax

import vta_byoc as vta
from vta_byoc.bundle import write
from vta_byoc.bundle.manifest import FILES
from vta_byoc.hw.errors import VTAError

TAKEN = (
    "there bundles hold quantize, dequantize, pack, fold, unpack, softmax, argmax, reshape, "
    "transpose, casts of integers and additions of an int32 constant; cut the model before it, "
    "let VTA compute it (vta-byoc place says what would), or compile a library for TVM's runtime "
    "(--format library)"
)


def with_operator(op: str, *more: Any, **attrs: Any) -> tvm.IRModule:
    """A convolution on VTA, and an operator of the CPU behind it."""
    net = IntegerNet(5, x=(1, 16, 4, 4))
    made = net.conv(net.params[0], 16, name="layer")
    real = net.op(
        "dequantize", made, relax.const(0.5), relax.const(0, "int8"), axis=0, out_dtype="float32"
    )
    return net.module(net.op(op, real, *more, name="gate", **attrs))


def told(mod: tvm.IRModule, folder: Path) -> str:
    with pytest.raises(VTAError) as raised:
        vta.write_bundle(mod, folder)
    assert list(folder.parent.iterdir()) == []
    return str(raised.value)


@pytest.mark.parametrize(
    ("op", "more", "attrs"),
    [
        ("sigmoid", (), {}),
        ("astype", ("int32",), {}),
        ("add", (relax.const(1.0),), {}),
        ("argmax", (), {}),
        ("sort", (), {}),
    ],
)
def test_an_operator_of_the_cpu(
    op: str, more: tuple[Any, ...], attrs: dict[str, Any], tmp_path: Path
) -> None:
    message = told(with_operator(op, *more, **attrs), tmp_path / "bundle")
    assert message == f'operator "gate" ({op}) stays on the CPU; {TAKEN}'


def test_a_name_that_cannot_stand_in_a_manifest(tmp_path: Path) -> None:
    net = IntegerNet(5)
    net.params = [relax.Var("größe", relax.TensorType((1, 16, 4, 4), "int8"))]
    mod = net.module(net.conv(net.params[0], 16, name="layer"))
    assert told(mod, tmp_path / "bundle") == (
        "the name 'größe' stands in a bundle; names there are at most 127 printable ASCII "
        "characters without quotes and backslashes; rename the tensor in the model"
    )


# ---------------------------------------------------------------- folders
def test_a_folder_of_something_else(small_module: tvm.IRModule, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(VTAError) as raised:
        vta.write_bundle(small_module, tmp_path)
    assert str(raised.value) == (
        f'bundle "{tmp_path}" is a folder that holds "thesis.txt"; only a bundle or an empty '
        "folder is replaced; choose another path"
    )


def test_a_file_and_a_folder_that_is_not_there(small_module: tvm.IRModule, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VTAError, match=r'file" is a file; a bundle is a folder; choose another'):
        vta.write_bundle(small_module, tmp_path / "file")
    with pytest.raises(VTAError, match=r"does not exist; create it or choose another path$"):
        vta.write_bundle(small_module, tmp_path / "nowhere" / "bundle")


@pytest.mark.parametrize("before", [False, True], ids=["new", "replaced"])
def test_a_full_disk_leaves_what_was_there(
    before: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = {name: name.encode() for name in FILES}
    if before:
        write.write_files({name: b"old" for name in FILES}, tmp_path / "bundle")
    left = iter((None, None, None))

    def full(descriptor: int) -> None:
        if next(left, 0) == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VTAError) as raised:
        write.write_files(files, tmp_path / "bundle")
    assert str(raised.value) == (
        f'bundle "{tmp_path / "bundle"}" cannot be written (No space left on device); nothing of '
        "it is left; make room or choose another path"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"] * before
    if before:
        assert {path.read_bytes() for path in (tmp_path / "bundle").iterdir()} == {b"old"}


def test_an_older_bundle_is_replaced(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        write.write_files({name: content for name in FILES}, tmp_path / "bundle")
    assert {path.read_bytes() for path in (tmp_path / "bundle").iterdir()} == {b"new"}
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


# ---------------------------------------------------------------- the command line
def test_the_command(tmp_path: Path) -> None:
    net = Path(__file__).resolve().parents[1] / "fixtures" / "tflite" / "net.tflite"
    folder = tmp_path / "bundle"
    result = cli("compile", net, "-o", folder, "--format", "bundle")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{folder} written: 6 files, 0.0 MB")
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_the_command_names_the_operator(tmp_path: Path) -> None:
    model = small_model(tmp_path / "net.onnx")
    message = refused(
        "compile",
        model,
        "-o",
        tmp_path / "b",
        "--format",
        "bundle",
        "--calibration",
        "noise",
        "--target",
        "native",
    )
    assert message == (
        "--target with --format bundle; a bundle holds no code for a processor; leave --target "
        "out, or compile a library"
    )
