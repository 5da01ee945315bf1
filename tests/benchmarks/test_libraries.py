"""`benchmarks/libraries.py`: its table, how networks of libraries are woken, and its figures.

Needs torch; one network is taken the whole way where timm is installed (extra: libraries).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import libraries, zoo

pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")

import torch
from torch import nn

from benchmarks._libraries import modules
from benchmarks._libraries.table import NETWORKS, TIMM, TORCHVISION, TRANSFORMERS
from benchmarks._zoo import measure


# ---------------------------------------------------------------- the table
def test_names_are_different() -> None:
    assert len(NETWORKS) == len(TIMM) + len(TORCHVISION) + len(TRANSFORMERS)


def test_inputs_of_a_row_have_a_batch() -> None:
    for name, network in NETWORKS.items():
        generator = torch.Generator().manual_seed(0)
        made = [make(generator, 2) for make in network.inputs]
        assert made and all(x.shape[0] == 2 for x in made), name


# ---------------------------------------------------------------- modules
class Nested(nn.Module):
    def forward(self, first: Any, second: Any, *, twice: bool) -> Any:
        more = first * 2 if twice else first
        return {"one": first, "several": (second, [more]), "nothing": None}


def test_every_tensor_is_a_result() -> None:
    called = modules.Results(Nested(), ("second", "first"), {"twice": True})
    one, two = torch.ones(2), torch.zeros(3)
    results = called(two, one)
    assert [r.tolist() for r in results] == [one.tolist(), two.tolist(), (2 * one).tolist()]


class Asleep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.full((4096,), 1e-6))
        self.token = nn.Parameter(torch.zeros(1, 64, 64))
        self.count = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
        self.one = nn.Parameter(torch.ones(4))


def test_what_starts_near_zero_is_drawn() -> None:
    before = Asleep()
    layer = {key: value.clone() for key, value in before.layer.state_dict().items()}
    first, second = modules.awake(before), modules.awake(Asleep())
    assert first.scale.std().item() == pytest.approx(modules.SHARE, rel=0.1)
    assert first.token.std().item() == pytest.approx(1 / 8, rel=0.1)
    assert torch.equal(first.scale, second.scale) and torch.equal(first.token, second.token)
    assert not first.count.any() and (first.one == 1).all()
    assert all(torch.equal(first.layer.state_dict()[key], layer[key]) for key in layer)


STRANGE = """
import torch
if not hasattr(torch.ops.torchvision, "nms"):
    raise RuntimeError("operator torchvision::nms does not exist")
found = True
"""


def test_a_torchvision_without_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(STRANGE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("torchvision", "torchvision.ops"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    assert modules.import_torchvision().found


def test_another_error_of_torchvision_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('broken')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "torchvision", raising=False)
    with pytest.raises(RuntimeError, match="broken"):
        modules.import_torchvision()


# ---------------------------------------------------------------- the whole way
def test_network(tmp_path: Path) -> None:
    pytest.importorskip("timm", reason="timm is not installed (extra: libraries)")
    data = measure.prepared(NETWORKS["test_mambaout"])
    row = measure.measure_style("program", data, tmp_path)
    assert (row.export_error, row.error, row.first_difference) == ("", "", "")
    assert row.imported and row.bit_exact


# ---------------------------------------------------------------- figures
def row(name: str, **changes: Any) -> dict[str, Any]:
    style = {
        "name": "program", "export_error": "", "imported": True, "bit_exact": True,
        "sqnr_db": 30.0, "macs": 10, "macs_on_vta": 10, "operators": 4, "operators_on_vta": 3,
        "regions": 2, "cycles": 7,
    }  # fmt: skip
    return {"name": name, "macs": 10, "onnxruntime_db": None, "styles": [{**style, **changes}]}


def test_figures() -> None:
    rows = [
        row("a"),
        row("b", macs_on_vta=5, bit_exact=False),
        {**zoo.FAILED, "name": "c", "failure": "stopped"},
        row("d", imported=False, bit_exact=False, sqnr_db=None, macs=None, macs_on_vta=None),
    ]
    found = {figure.name: figure.value for figure in libraries.figures_of(rows)}
    assert (found["networks"], found["all_macs_on_vta"]) == (4, 1)
    assert (found["imported_share"], found["bit_exact_share"]) == (0.5, 0.25)
    assert (found["a_operators"], found["a_operators_on_vta"], found["a_regions"]) == (4, 75, 2)
    assert found["b_macs_on_vta"] == 50 and "d_cycles" not in found
