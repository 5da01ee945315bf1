"""`benchmarks/zoo.py`: three of its networks the whole way, and what it makes of measurements.

Needs torch, and onnxscript for its ONNX exporter.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import zoo

pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
pytest.importorskip("onnxscript", reason="onnxscript is not installed; PyTorch's exporter needs it")

import torch
from torch import nn

from benchmarks._zoo import counting, exports, inputs, measure, weights
from benchmarks._zoo.table import NETWORKS, Network

SCRIPT = Path(zoo.__file__)


# ---------------------------------------------------------------- networks
@pytest.mark.parametrize(
    ("name", "style"),
    [("tcn", "torchscript"), ("film", "dynamo"), ("pointnet", "program")],
)
def test_network(name: str, style: str, tmp_path: Path) -> None:
    data = measure.prepared(NETWORKS[name])
    row = measure.measure_style(style, data, tmp_path)
    assert (row.export_error, row.error, row.first_difference) == ("", "", "")
    assert row.imported and row.bit_exact
    assert row.macs == data.macs
    assert row.sqnr_db is not None and row.sqnr_db > 15


def test_a_failure_is_a_row(tmp_path: Path) -> None:
    class Sorted(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.qr(x)[0]

    data = measure.prepared(Network(Sorted, (inputs.series(3, 4),), ""))
    row = measure.measure_style("torchscript", data, tmp_path)
    assert row.export_error and not row.error and not row.imported
    row = measure.measure_style("program", data, tmp_path)
    assert row.error.startswith("import: VTAError: ") and not row.bit_exact


# ---------------------------------------------------------------- what is measured
@pytest.mark.parametrize(
    ("layer", "shape", "macs"),
    [
        (nn.Conv2d(8, 12, 3, groups=4), (1, 8, 5, 5), 12 * 9 * 2 * 9),
        (nn.ConvTranspose2d(4, 6, 2, 2), (1, 4, 3, 3), 4 * 9 * 6 * 4),
        (nn.LSTM(5, 7, batch_first=True), (1, 3, 5), 4 * 7 * (3 * 5 + 2 * 7)),
        (nn.GRU(5, 7, batch_first=True), (1, 3, 5), 3 * 7 * (3 * 5 + 2 * 7)),
        (nn.MultiheadAttention(8, 2), None, 4 * 5 * 8 * 8 + 2 * 5 * 5 * 8),
    ],
)
def test_macs(layer: Any, shape: tuple[int, ...] | None, macs: int) -> None:
    given = (torch.zeros(shape),) if shape else (torch.zeros(5, 1, 8),) * 3
    assert counting.multiply_accumulates(layer.eval(), given) == macs


def test_decibels() -> None:
    expected = [[np.array([3.0, 4.0])], [np.array([0.0, 0.0])]]
    got = [[np.array([3.0, 4.5])], [np.array([0.0, 0.0])]]
    assert measure.decibels(got, expected) == pytest.approx(20)
    assert measure.decibels(expected, expected) == 200


def test_weights_are_the_same_each_time() -> None:
    def one() -> list[Any]:
        network = NETWORKS["film"]
        generator = torch.Generator().manual_seed(1)
        batch = tuple(make(generator, 4) for make in network.inputs)
        module = weights.prepare(network.build(), batch, 3)
        return [*module.state_dict().values(), *batch]

    for first, second in zip(one(), one(), strict=True):
        assert torch.equal(first, second)


def test_files_have_the_same_input_names(tmp_path: Path) -> None:
    assert exports.input_names(2) == ["x0", "x1"]


# ---------------------------------------------------------------- figures
def style(**changes: Any) -> dict[str, Any]:
    row = measure.Style("dynamo", macs=10, macs_on_vta=5, operators=4, operators_on_vta=3)
    plain = {**vars(row), "imported": True, "bit_exact": True, "sqnr_db": 30.0, "cycles": 7}
    return {**plain, **changes}


def network(name: str, *styles: dict[str, Any], **changes: Any) -> dict[str, Any]:
    row = {"name": name, "styles": list(styles), "macs": 10, "onnxruntime_db": 20.0}
    return {**row, **changes}


def values(*rows: dict[str, Any]) -> dict[str, float]:
    return {figure.name: figure.value for figure in zoo.figures_of(list(rows))}


def test_figures() -> None:
    found = values(
        network("a", style(), style(export_error="no such operator")),
        network("b", style(macs=9), style(bit_exact=False, sqnr_db=25.0)),
    )
    assert found["networks"] == 2 and found["files"] == 3
    assert found["imported_share"] == 1
    assert found["bit_exact_share"] == pytest.approx(2 / 3)
    assert found["macs_misreported"] == 1
    assert found["a_macs_on_vta"] == 50 and found["a_operators_on_vta"] == 75
    assert found["b_sqnr"] == 25


def test_a_network_that_was_stopped_counts_as_a_file_that_failed() -> None:
    found = values(network("a", style()), {**zoo.FAILED, "name": "b", "failure": "stopped"})
    assert found["files"] == 2 and found["imported_share"] == found["bit_exact_share"] == 0.5


def test_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As a script it names what it does not know; as a function it lists what it knows."""
    monkeypatch.setattr("sys.argv", [str(SCRIPT), "--list"])
    assert zoo.main() == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) >= 24 and [line.split()[0] for line in listed] == list(NETWORKS)
    command = [sys.executable, SCRIPT, "--only", "vit", "vitt"]
    unknown = subprocess.run(command, capture_output=True, text=True)
    assert unknown.returncode == 2
    assert "no network is called vitt; see --list" in unknown.stderr
