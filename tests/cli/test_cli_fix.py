"""The option --fix: inputs of a model that are constants, in every command that loads one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_runs import cli, refused
from onnx import TensorProto, helper
from small_models import Net

from vta_byoc.cli import app

FEATURES, CLASSES = 16, 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense classifier whose option `rate` says whether its scores are negated."""
    net = Net(data=(1, FEATURES))
    net.inputs.insert(0, helper.make_tensor_value_info("rate", TensorProto.INT64, []))
    scores = net.dense("data", FEATURES, CLASSES)
    fast = net.node("Equal", "rate", net.const(16000, "int64"))
    ends = [
        helper.make_graph(
            [helper.make_node(op, [scores], [op])],
            op,
            [],
            [helper.make_tensor_value_info(op, TensorProto.FLOAT, [1, CLASSES])],
        )
        for op in ("Identity", "Neg")
    ]
    taken = net.node("If", fast, then_branch=ends[0], else_branch=ends[1])
    return net.save(tmp_path_factory.mktemp("model") / "rates.onnx", taken)


@pytest.fixture(scope="module")
def samples(model: Path) -> Path:
    """What `compare` takes; `labelled.npz` beside it is what `eval` does."""
    rng, path = np.random.default_rng(2), model.parent / "samples.npz"
    data = rng.standard_normal((8, FEATURES), dtype=np.float32)
    np.savez(path, data=data)
    np.savez(path.with_name("labelled.npz"), data=data, labels=rng.integers(0, CLASSES, 8))
    return path


def test_every_command_that_takes_shapes_takes_it() -> None:
    options = {
        name: {text for param in command.params for text in param.opts}
        for name, command in app.commands.items()
    }
    assert len([name for name, texts in options.items() if "--shape" in texts]) > 10
    for name, texts in options.items():
        assert ("--fix" in texts) == ("--shape" in texts), name


def test_help(model: Path) -> None:
    text = " ".join(cli("place", "--help").stdout.split())
    assert (
        "--fix NAME=VALUE Value of an ONNX input of one number, which becomes a constant; repeat "
        "for more inputs."
    ) in text


def test_the_branch_that_runs(model: Path, tmp_path: Path) -> None:
    outputs = []
    for rate in (16000, 8000):
        path = tmp_path / f"{rate}.npz"
        options = ("--fix", f"rate={rate}", "--output", path, "--check", "--json")
        result = cli("run", model, *options)
        assert result.exit_code == 0, result.stderr
        assert list(json.loads(result.stdout)["inputs"]) == ["data"]
        with np.load(path) as arrays:
            outputs.append(next(iter(arrays.values())))
    np.testing.assert_allclose(outputs[0], -outputs[1], atol=0.05)
    assert np.abs(outputs[0]).max() > 1


def test_without_it(model: Path) -> None:
    assert "; fix it, for example --fix rate=16000, or " in refused("place", model)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_onnx_runtime_gets_the_value(model: Path, samples: Path, rate: int) -> None:
    options = ("--against", "onnxruntime", "--fix", f"rate={rate}", "--json")
    result = cli("compare", model, "--data", samples, *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    ends = {"t0_0"} if rate == 16000 else {"t0_0", "Neg"}
    assert {tensor["name"] for tensor in found["tensors"]} == {"data", *ends}
    assert found["skipped"] == {}
    for workers in ((), ("--workers", "1")):
        where = ("--data", samples.with_name("labelled.npz"), "--device", "reference")
        result = cli("eval", model, *where, *options, *workers)
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["agreement"]["samples"] >= 7


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize("value", ["rate", "rate=", "=1", "rate= "])
def test_syntax(value: str) -> None:
    assert refused("run", "x.onnx", "--fix", value) == (
        f'--fix "{value}" is not NAME=VALUE; values are numbers, true or false; write for example '
        "--fix rate=16000"
    )


def test_twice(model: Path) -> None:
    assert refused("run", model, "--fix", "rate=1", "--fix", "rate=2") == (
        '--fix names "rate" twice; give every input one value'
    )


def test_values_and_names(model: Path) -> None:
    assert refused("place", model, "--fix", "rate=8k") == (
        'value "8k" given for "rate" of dtype int64; it takes an integer from '
        "-9223372036854775808 to 9223372036854775807; correct the value"
    )
    assert refused("place", model, "--fix", "rat=1") == (
        'value given for "rat"; the inputs of the model are rate, data; use one of these names'
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("mine.vta", "a program file; it holds the machine and the compiled program"),
        ("mine.so", "a library; machine, device and shapes are compiled into it"),
    ],
)
def test_what_is_compiled_already(tmp_path: Path, name: str, what: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    assert refused("run", path, "--fix", "rate=1") == (
        f"--fix with {what}; leave --fix out, or give the model"
    )


def test_an_open_dimension_beside_its_shape(tmp_path: Path) -> None:
    net = Net(data=(1, FEATURES))
    net.inputs.append(helper.make_tensor_value_info("gain", TensorProto.FLOAT, ["N"]))
    path = net.save(tmp_path / "net.onnx", net.node("Mul", "data", "gain"))
    assert "state its shape with --shape gain=1, " in refused("place", path, "--fix", "gain=0.5")
    options = ("--fix", "gain=0.5", "--shape", "gain=1")
    for command in (("place",), ("compare", "--against", "onnxruntime")):
        result = cli(*command, path, *options)
        assert result.exit_code == 0, result.stderr


def test_a_name_with_an_equals_sign(tmp_path: Path) -> None:
    net = Net(data=(1, FEATURES))
    net.inputs.append(helper.make_tensor_value_info("a=b", TensorProto.FLOAT, [1]))
    path = net.save(tmp_path / "net.onnx", net.node("Mul", "data", "a=b"))
    assert len(onnx.load(str(path)).graph.input) == 2
    result = cli("place", path, "--fix", "a=b=0.5")
    assert result.exit_code == 0, result.stderr
    assert not re.search("a=b", result.stdout)
