"""ResNet-18 from code: the right network, the same bytes, and worth quantizing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import tvm
from onnx import numpy_helper
from tvm import relax

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # models/ is not installed

from models import _command, resnet18
from models._build import build_images, calibration_inputs, sample_inputs
from vta_byoc import load_model
from vta_byoc.ir.bindings import FunctionWriter, straight_bindings, substituted, with_main
from vta_byoc.ir.reference import build_reference
from vta_byoc.quantize import quantize

ROOT = Path(__file__).resolve().parents[2]
SMALL = 32
WEIGHTS_SHA256 = "6d695de25ba734624ce26d36c7482d671b050aeb1c201ffa955d676e4c1e7492"
"""Of all initializers at SMALL: the generator promises the same on every machine."""


@pytest.fixture(scope="session")
def resnet18_path() -> Path:
    """ResNet-18 at 224x224, built once per version of the generator."""
    return resnet18.cached()


@pytest.fixture(scope="module")
def small() -> onnx.ModelProto:
    return resnet18.build(size=SMALL)


def script(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "models" / "resnet18.py", *arguments]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment}
    )


def weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}


# ---------------------------------------------------------------- the network
def test_is_resnet18(small: onnx.ModelProto) -> None:
    onnx.checker.check_model(small, full_check=True)
    counts: dict[str, int] = {}
    for node in small.graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    assert counts == {
        "Conv": 20,
        "BatchNormalization": 20,
        "Relu": 17,
        "Add": 8,
        "MaxPool": 1,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
    }
    trained = {name: w for name, w in weights(small).items() if "running" not in name}
    assert sum(w.size for w in trained.values()) == 11_689_512  # as torchvision counts


def test_names(small: onnx.ModelProto) -> None:
    graph = small.graph
    nodes = [node.name for node in graph.node]
    assert len(set(nodes)) == len(nodes)
    assert {"conv1", "bn1", "relu", "maxpool", "layer1.0.conv1", "layer2.0.downsample.bn"} < {
        *nodes
    }
    assert {"layer4.1.bn2", "layer4.1.add", "layer4.1.relu2", "avgpool", "fc"} < {*nodes}
    assert {"layer3.0.downsample.conv.weight", "bn1.running_var", "fc.bias"} < {*weights(small)}
    assert all(node.output[0] == node.name for node in graph.node[:-1])
    assert [value.name for value in (*graph.input, *graph.output)] == ["data", "logits"]


@pytest.mark.parametrize(("size", "classes"), [(SMALL, 7), (65, 1000)])
def test_shapes(size: int, classes: int) -> None:
    model = resnet18.build(size=size, classes=classes)
    session = ort.InferenceSession(model.SerializeToString())
    (logits,) = session.run(None, {"data": sample_inputs(1, 0, size)})
    assert logits.shape == (1, classes)
    assert session.get_inputs()[0].shape == [1, 3, size, size]


def test_batch_norm_is_not_trivial(small: onnx.ModelProto) -> None:
    for name, values in weights(small).items():
        if "bn" in name:
            assert len(np.unique(values)) >= 30, name
            assert values.std() > 0.05 * np.abs(values).mean(), name
            assert not name.endswith("running_var") or values.min() > 0


def test_onnxruntime_agrees_with_the_builder() -> None:
    """BatchNorm statistics and scales rest on the builder's own forward pass."""
    b = resnet18.builder(size=64, seed=0)
    logits = resnet18.network(b, classes=100)
    session = ort.InferenceSession(b.build(logits).SerializeToString())
    for image, expected in zip(b.input.data[:8], logits.data[:8], strict=True):
        (got,) = session.run(None, {"data": image[None]})
        assert np.abs(got - expected).max() <= 1e-3 * np.abs(expected).max()


# ---------------------------------------------------------------- the same bytes
def test_two_processes_write_the_same_bytes(tmp_path: Path, small: onnx.ModelProto) -> None:
    """The script in a process with other limits, and this one."""
    path = tmp_path / "net.onnx"
    limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    assert script("-o", path, "--size", SMALL, **limits).returncode == 0
    assert path.read_bytes() == small.SerializeToString(deterministic=True)


def test_weights_are_the_published_ones(small: onnx.ModelProto) -> None:
    digest = hashlib.sha256()
    for name, values in weights(small).items():
        digest.update(name.encode())
        digest.update(values.astype("<f4").tobytes())
    assert digest.hexdigest() == WEIGHTS_SHA256


def test_seed_changes_every_layer(small: onnx.ModelProto) -> None:
    other = weights(resnet18.build(size=SMALL, seed=1))
    for name, values in weights(small).items():
        assert not np.array_equal(values, other[name]), name


# ---------------------------------------------------------------- images
def test_sample_inputs() -> None:
    images = sample_inputs(4, 3, 48)
    assert images.shape == (4, 3, 48, 48) and images.dtype == np.float32
    np.testing.assert_array_equal(images[:2], sample_inputs(2, 3, 48))
    assert not np.array_equal(images, sample_inputs(4, 4, 48))
    np.testing.assert_array_equal(images * 64, np.rint(images * 64))  # int8 holds them exactly
    assert np.abs(images).max() <= 120 / 64
    assert 0.6 < images.std() < 1.0 and abs(images.mean()) < 0.1
    flat = images.reshape(4, -1)
    similarity = np.corrcoef(flat)[np.triu_indices(4, 1)]
    assert np.abs(similarity).max() < 0.5


def test_calibration_inputs_are_build_images() -> None:
    np.testing.assert_array_equal(calibration_inputs(SMALL), build_images(SMALL)[:8])


# ---------------------------------------------------------------- the script
def test_script_writes_a_model(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    done = script("-o", path, "--size", SMALL, "--classes", 10)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"resnet18: wrote {path}, 44.8 MB, in ")
    assert onnx.load(path).graph.output[0].type.tensor_type.shape.dim[1].dim_value == 10
    assert list(tmp_path.iterdir()) == [path]


def in_missing_directory(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "missing" / "net.onnx"
    return path, f'cannot write "{path}": No such file or directory; {ROOM}'


def below_a_file(tmp_path: Path) -> tuple[Path, str]:
    (tmp_path / "file").write_text("kept")
    path = tmp_path / "file" / "net.onnx"
    return path, f'cannot write "{path}": Not a directory; {ROOM}'


def a_directory(tmp_path: Path) -> tuple[Path, str]:
    return tmp_path, f'cannot write "{tmp_path}": it is a directory; name a file in it'


def a_device(tmp_path: Path) -> tuple[Path, str]:
    return Path(os.devnull), 'cannot write "/dev/null": it is not a regular file; name a new file'


ROOM = "name a file in a directory that exists, is writable and has room"


@pytest.mark.parametrize("place", [in_missing_directory, below_a_file, a_directory, a_device])
def test_paths_that_cannot_be_written(
    place: Callable[[Path], tuple[Path, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, message = place(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert _command.main("resnet18", resnet18.build, ["-o", str(path)]) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "31"], "image size 31; 32 to 512 can be built; change --size"),
        (["--size", "4096"], "image size 4096; 32 to 512 can be built; change --size"),
        (["--classes", "1"], "number of classes 1; 2 to 10000 can be built; change --classes"),
        (["--seed", "-1"], "seed -1; 0 to 4294967295 can be built; change --seed"),
        (
            ["--size", "big"],
            "argument --size: invalid int value: 'big'; run with --help for the options",
        ),
        (["--sice"], "unrecognized arguments: --sice; run with --help for the options"),
    ],
)
def test_bad_options(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-o", str(tmp_path / "net.onnx"), *options]
    assert _command.main("resnet18", resnet18.build, arguments) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert not list(tmp_path.iterdir())


def test_script_errors_are_one_line() -> None:
    done = script()
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        "error: the following arguments are required: -o/--output; "
        "run with --help for the options\n"
    )


def test_a_failed_build_leaves_the_old_file(tmp_path: Path) -> None:
    def fail() -> bytes:
        raise RuntimeError("interrupted")

    path = tmp_path / "net.onnx"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="interrupted"):
        _command.write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_followed(tmp_path: Path) -> None:
    link, path = tmp_path / "link.onnx", tmp_path / "net.onnx"
    link.symlink_to(path)
    assert _command.write_atomically(link, lambda: b"new") == 3
    assert link.is_symlink() and path.read_bytes() == b"new"


def test_cache_builds_once(tmp_path: Path) -> None:
    builds: list[int] = []

    def build(*, size: int, classes: int, seed: int) -> onnx.ModelProto:
        builds.append(size)
        return onnx.ModelProto(producer_name=f"{size} {classes} {seed}")

    first = _command.cached("net", build, size=32, directory=tmp_path / "new")
    assert _command.cached("net", build, size=32, directory=tmp_path / "new") == first
    assert onnx.load_from_string(first.read_bytes()).producer_name == "32 1000 0"
    assert _command.cached("net", build, size=64, directory=tmp_path / "new") != first
    assert builds == [32, 64]


# ---------------------------------------------------------------- worth quantizing
def every_layer(qmod: tvm.IRModule) -> tuple[list[str], tvm.IRModule]:
    """Names of all int8 activations, and a module that returns them, then the logits."""
    main, writer = qmod["main"], FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    layers: dict[str, relax.Var] = {}
    for binding in straight_bindings(main):
        var = writer.emit(substituted(binding.value, env), binding.var.name)
        env[binding.var] = var
        if var.ty.dtype == "int8":
            layers[binding.var.name] = var
    outputs = relax.Tuple([*layers.values(), env[main.body.body]])
    return list(layers), with_main(qmod, writer.finish(main, outputs))


def run_all(mod: tvm.IRModule, images: np.ndarray) -> list[np.ndarray]:
    """Every output of `mod`, batch 1, stacked over the images."""
    machine = relax.VirtualMachine(build_reference(mod), tvm.cpu())
    runs = [[y.numpy() for y in machine["main"](tvm.runtime.tensor(x[None]))] for x in images]
    return [np.concatenate(column) for column in zip(*runs, strict=True)]


def centred(logits: np.ndarray) -> np.ndarray:
    """Rows less their mean, at length 1."""
    rows = logits.astype("float64") - logits.mean(axis=0, dtype="float64")
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_int8_network_means_something(resnet18_path: Path) -> None:
    """Over 8 images that neither the builder nor the calibration has seen."""
    calibration = [image[None] for image in calibration_inputs(224)]
    qmod = quantize(load_model(resnet18_path), calibration=calibration)
    images = sample_inputs(8, seed=1, size=224)
    names, module = every_layer(qmod)
    *layers, logits = run_all(module, images)

    assert len(names) == 1 + 20 + 8 + 3  # data, convolutions, additions, pools and flatten
    for name, values in zip(names, layers, strict=True):
        distinct = len(np.unique(values))
        saturated = np.mean((values == 127) | (values == -128))
        print(f"{name:28} {distinct:4} values, {100 * saturated:.4f} % saturated")
        # only a sum reads this one; it has the sum's scale, twice as coarse as its own
        least = 64 if name == "layer4_1_conv2" else 100
        assert distinct >= least, f"{name} uses {distinct} of 256 int8 values"
        assert saturated <= 0.01, f"{name} saturates {100 * saturated:.2f} %"

    cosines = (centred(logits) @ centred(logits).T)[np.triu_indices(8, 1)]
    print(f"largest cosine between logits of two images: {cosines.max():.3f}")
    assert cosines.max() <= 0.9
    session = ort.InferenceSession(resnet18_path)
    exact = np.concatenate([session.run(None, {"data": image[None]})[0] for image in images])
    fidelity = (centred(logits) * centred(exact)).sum(axis=1)
    print(f"smallest cosine between int8 and float32 logits: {fidelity.min():.3f}")
    assert fidelity.min() >= 0.9
