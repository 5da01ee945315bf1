"""The quantization options: one decorator, the same for every command that quantizes."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from cli_runs import cli, refused
from click.testing import CliRunner
from small_models import Net

from vta_byoc.cli import app, commands, quantization
from vta_byoc.cli.quantization import QuantizationOptions, chosen, quantization_options

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tflite"
QUANTIZING = {
    *("run", "compile", "disasm", "place", "eval", "report", "trace", "programs", "verify"),
    *("diff", "quantize-report", "compare"),
}
OPTIONS = {
    *("--scales", "--per-channel", "--method", "--percentile", "--equalize"),
    *("--bias-correction", "--keep-float", "--calibration", "--preprocess"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Net(data=(1, 16, 4, 4))
    a = net.node("Relu", net.conv("data", 16, 16, name="first"), name="first_relu")
    return net.save(tmp_path_factory.mktemp("m") / "net.onnx", net.conv(a, 16, 16, name="second"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `quantize` is called with."""
    seen: list[dict[str, Any]] = []

    def record(mod: Any, **arguments: Any) -> Any:
        seen.append(arguments)
        return real(mod, calibration=arguments["calibration"])

    module = importlib.import_module("vta_byoc.quantize")  # the package has a function of that name
    real = module.quantize
    monkeypatch.setattr(module, "quantize", record)
    return seen


def test_every_command_that_quantizes_has_the_options() -> None:
    found = {
        name: {text for p in command.params for text in p.opts} & OPTIONS
        for name, command in app.commands.items()
    }
    assert {name for name, given in found.items() if given} >= QUANTIZING
    assert all(given in (set(), OPTIONS) for given in found.values())


# ---------------------------------------------------------------- the dataclass
@click.command()
@quantization_options
def probe(calibration: str | None) -> None:
    click.echo(repr(chosen().arguments()))


def arguments(*args: str) -> str:
    result = CliRunner().invoke(probe, list(args), standalone_mode=False)
    return result.stdout.strip() or str(result.exception)


@pytest.mark.parametrize(
    "given, expected",
    [
        ([], {}),
        (["--scales", "mul", "--per-channel"], {"scales": "mul", "per_channel": True}),
        (["--method", "mse", "--equalize"], {"method": "mse", "equalize": True}),
        (
            ["--method", "percentile", "--percentile", "99.9", "--bias-correction"],
            {"method": "percentile", "percentile": 99.9, "bias_correction": True},
        ),
        (["--keep-float", "a, b*", "--keep-float", "c"], {"keep_float": ("a", "b*", "c")}),
        (["--method", "minmax"], {}),
    ],
)
def test_arguments(given: list[str], expected: dict[str, Any]) -> None:
    assert arguments(*given) == repr(expected)


def test_arguments_are_those_of_quantize() -> None:
    from vta_byoc.quantization.calibration.range_estimators import METHODS
    from vta_byoc.quantization.policy import POLICIES
    from vta_byoc.quantize import quantize

    defaults = {n: p.default for n, p in inspect.signature(quantize).parameters.items()}
    options = vars(QuantizationOptions())
    assert set(options) < set(defaults)
    assert all(value in (defaults[n], None) for n, value in options.items())
    assert tuple(POLICIES) == quantization.SCALES
    assert tuple(METHODS) == quantization.METHODS
    assert QuantizationOptions().arguments() == {}


def test_text() -> None:
    options = QuantizationOptions("mul", True, "percentile", 99.5, keep_float=("a", "b"))
    assert options.text() == (
        "--scales mul --per-channel --method percentile --percentile 99.5 --keep-float a,b"
    )
    assert QuantizationOptions().text() == "default options"
    assert QuantizationOptions(float_tail=False).text() == "--no-float-tail"


@pytest.mark.parametrize(
    "given, message",
    [
        (["--percentile", "99"], "--percentile 99 with --method minmax"),
        (["--method", "kl", "--percentile", "99"], "--percentile 99 with --method kl"),
        (["--keep-float", " , "], "--keep-float names no operator"),
        (["--percentile", "0"], "0.0 is not in the range 0<x<=100"),
        (["--scales", "int4"], "'int4' is not one of 'pow2', 'mul'"),
        (["--method", "max"], "'max' is not one of"),
    ],
)
def test_refused(model: Path, given: list[str], message: str) -> None:
    assert message in refused("place", model, *given)


def test_unknown_operator(model: Path) -> None:
    assert '"sekond" to keep in float' in refused("place", model, "--keep-float", "sekond")


# ---------------------------------------------------------------- what reaches quantize
def test_options_reach_quantize(model: Path, calls: list[dict[str, Any]]) -> None:
    result = cli("place", model, "--scales", "mul", "--per-channel", "--keep-float", "second")
    assert result.exit_code == 0, result.output
    (call,) = calls
    assert {n: call[n] for n in ("scales", "per_channel", "keep_float")} == {
        "scales": "mul",
        "per_channel": True,
        "keep_float": ("second",),
    }
    assert len(call["calibration"]) == 4 and "method" not in call
    assert "quantizing with noise" in result.stderr


def test_options_do_not_stay_for_the_next_command(model: Path, calls: list[dict[str, Any]]) -> None:
    cli("place", model, "--per-channel")
    cli("place", model)
    assert "per_channel" in calls[0] and "per_channel" not in calls[1]


def test_a_model_that_came_quantized_needs_no_calibration(calls: list[dict[str, Any]]) -> None:
    result = cli("place", FIXTURES / "net.tflite")
    assert result.exit_code == 0, result.output
    assert calls[0]["calibration"] is None
    assert "quantizing with the scales of the model" in result.stderr
    assert "noise" not in result.stderr


def test_options_change_the_placement(model: Path) -> None:
    kept = json.loads(cli("place", model, "--keep-float", "second", "--json").stdout)
    devices = {op["name"]: op["device"] for op in kept["placement"]["ops"]}
    assert devices["second"] == "cpu"
    assert devices["first"] == "vta"


def test_a_model_with_integer_inputs_runs(tmp_path: Path) -> None:
    path, output = FIXTURES / "conv_relu6.tflite", tmp_path / "out.npz"
    with np.load(FIXTURES / "conv_relu6.npz") as arrays:
        given, expected = arrays["x0"], arrays["y0"]
    np.save(tmp_path / "x.npy", given)
    result = cli("run", path, "--input", tmp_path / "x.npy", "--output", output, "--check")
    assert result.exit_code == 0, result.output
    assert "bit-exact" in result.stdout
    with np.load(output) as outputs:
        (got,) = outputs.values()
    assert got.dtype == expected.dtype and np.abs(got.astype(int) - expected).max() <= 1
    np.save(tmp_path / "x.npy", given.astype("float32"))
    message = refused("run", path, "--input", tmp_path / "x.npy")
    assert 'the model takes int8; convert it with .astype("int8")' in message


# ---------------------------------------------------------------- quantize-report
def test_quantize_report(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = cli("quantize-report", model, "--scales", "mul", "-o", page)
    assert result.exit_code == 0, result.output
    assert "4 samples, with the float model" in result.stdout
    assert "most harmful" in result.stdout and f"{page} written" in result.stdout
    assert "quantized with --scales mul" in page.read_text()


def test_quantize_report_json_on_data(model: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        n: rng.standard_normal((k, 16, 4, 4)).astype("float32") for n, k in (("c", 2), ("d", 3))
    }
    paths = {n: tmp_path / f"{n}.npz" for n in arrays}
    for name, path in paths.items():
        np.savez(path, data=arrays[name])
    given = ["quantize-report", model, "--calibration", paths["c"], "--json", "--equalize"]
    both = json.loads(cli(*given, "--data", paths["d"]).stdout)
    assert both["samples"] == 3 and both["quantization"] == {"equalize": True}
    alone = json.loads(cli(*given).stdout)
    assert alone["samples"] == 2 and alone["data"] is None
    saturated = [
        max(op["levels"]["saturated"] for op in r["operators"] if op["levels"])
        for r in (both, alone)
    ]
    assert saturated[0] >= saturated[1] == 0


def test_quantize_report_of_integer_inputs(tmp_path: Path) -> None:
    with np.load(FIXTURES / "conv_relu6.npz") as arrays:
        np.savez(tmp_path / "d.npz", x=arrays[next(k for k in arrays if k.startswith("x"))])
    path = FIXTURES / "conv_relu6.tflite"
    data = json.loads(cli("quantize-report", path, "--data", tmp_path / "d.npz", "--json").stdout)
    assert data["compared_with"] == "the model as it came"
    np.savez(tmp_path / "bad.npz", x=np.zeros((1, 2), "int8"))
    message = refused("quantize-report", path, "--data", tmp_path / "bad.npz")
    assert 'calibration array "x" has shape (1, 2); n samples' in message
    np.savez(tmp_path / "bad.npz", y=np.zeros((1, 2), "int8"))
    assert 'the inputs of the model are "x"' in refused(
        "quantize-report", path, "--data", tmp_path / "bad.npz"
    )
    assert '"none.npz" does not exist' in refused("quantize-report", path, "--data", "none.npz")


def test_quantize_report_refuses(model: Path, tmp_path: Path) -> None:
    assert "the extension" in refused("quantize-report", model, "-o", tmp_path / "report.txt")
    assert "--method percentile or leave" in refused("quantize-report", model, "--percentile", "5")
    assert "this model came quantized" in refused(
        "quantize-report", FIXTURES / "net.tflite", "--equalize"
    )
    assert commands.calibration_option is quantization_options
