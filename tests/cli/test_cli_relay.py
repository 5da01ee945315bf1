"""Relay models on the command line: parameter files, random weights, bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
import relay_files
import relay_quantized
from cli_runs import cli
from relay_texts import SMALL, floats, write

MISSING = '"w" Tensor[(4, 3, 3, 3), float32]'


def test_parameters_from_a_file(tmp_path: Path) -> None:
    model = write(tmp_path / "net.relay", SMALL)
    params = write(tmp_path / "net.params", relay_files.params({"w": floats(4, 3, 3, 3)}))
    result = cli("run", str(model), "--params", str(params), "--check")
    assert result.exit_code == 0
    assert "conv2d" in result.stdout


@pytest.mark.parametrize("command", ["run", "place", "disasm"])
def test_random_weights(tmp_path: Path, command: str) -> None:
    model = write(tmp_path / "net.relay", SMALL)
    assert cli(command, str(model), "--random-params", "3").exit_code == 0


def test_a_model_of_relay_quantize_needs_no_samples(tmp_path: Path) -> None:
    model = write(tmp_path / "net.relay", relay_quantized.small())
    result = cli("run", str(model), "--check", "--config", "pynq")
    assert result.exit_code == 0
    assert "quantizing with the scales of the model" in result.stderr
    assert "(100.0 %)" in result.stdout


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("net.relay", SMALL, (), MISSING),
        ("net.relay", SMALL[:-20], (), "line "),
        ("net.relay", SMALL, ("--params", "none.params"), '"none.params" does not exist'),
        ("net.json", "{}", (), '"nodes" is missing'),
        ("net.tar", "x" * 600, (), "no complete tar archive"),
        ("net.onnx", "", ("--random-params", "0"), "only Relay models"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, name: str, text: str, options: tuple[str, ...], message: str
) -> None:
    model = write(tmp_path / name, text)
    result = cli("place", str(model), *options)
    assert result.exit_code == 2
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("error: ")]
    assert message in line
