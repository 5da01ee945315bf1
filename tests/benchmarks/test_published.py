"""`benchmarks/published.py`: a file out of a wheel the whole way, and what it makes of rows.

Nothing is downloaded here: the wheels lie where pip would have put them. Needs torch and LiteRT.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from benchmarks import published
from benchmarks._published import tasks

pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
pytest.importorskip("ai_edge_litert", reason="the TFLite interpreter is not installed")

from benchmarks._published import measure
from benchmarks._published.table import MODELS, Published

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tflite"
REQUIREMENT = "carrier==1.0"


def carried(name: str, folder: Path) -> Published:
    """A fixture as the file of a package that has been downloaded."""
    packages = folder / REQUIREMENT
    packages.mkdir(parents=True)
    with zipfile.ZipFile(packages / "carrier-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(FIXTURES / f"{name}.tflite", f"carrier/models/{name}.tflite")
    return Published(name, REQUIREMENT, f"{name}.tflite", "a fixture")


@pytest.mark.parametrize("name", ["net", "net_float"])
def test_a_model_the_whole_way(name: str, tmp_path: Path) -> None:
    row = measure.measure(carried(name, tmp_path), tmp_path)
    assert row["error"] == "" and row["imported"] and row["bit_exact"]
    assert row["macs"] == row["macs_on_vta"] > 0 and row["cycles"] > 0
    assert row["package"] == REQUIREMENT
    found = {figure.name: figure.value for figure in published.figures_of([row])}
    assert found[f"{name}_cycles"] == row["cycles"] and found[f"{name}_sqnr"] > 20


@pytest.mark.parametrize(
    "scaling, low, high",
    [
        (tasks.HALF, -1, 1),
        (tasks.PLAIN, 0, 1),
        (tasks.BYTES, 0, 255),
        (tasks.IMAGENET, -2.12, 2.64),
    ],
)
@pytest.mark.parametrize("shape", [(1, 3, 6, 8), (1, 6, 8, 3), (1, 1, 6, 8)])
def test_pictures_have_the_pixels_that_a_network_was_trained_with(
    scaling: tasks.Scaling, low: float, high: float, shape: tuple[int, ...]
) -> None:
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    mod = tvm.IRModule({"main": relax.Function([x], x)})
    make = measure._structured(mod, {}, scaling)
    (picture,), (other,) = make(), make()
    assert picture.shape == shape and picture.dtype == np.float32
    ends = picture.min(), picture.max()
    if scaling is tasks.IMAGENET:
        assert low - 0.01 <= ends[0] < -1.8 and 2.2 < ends[1] <= high + 0.01
    else:
        np.testing.assert_allclose(ends, (low, high), atol=1e-4)
    assert (picture != other).any()


def test_a_file_that_cannot_be_imported_is_a_row(tmp_path: Path) -> None:
    row = measure.measure(carried("unsupported", tmp_path), tmp_path)
    assert row["error"].startswith(
        'import: VTAError: operator "Identity" (CUMSUM) is not supported'
    )
    assert not row["imported"] and not row["bit_exact"]


def test_a_package_that_is_not_there_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "ERROR: No matching distribution found for carrier==1.0"

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert REQUIREMENT in command and "--no-deps" in command
        return subprocess.CompletedProcess(command, 1, "", f"{said}\n")

    monkeypatch.setattr(subprocess, "run", run)
    row = measure.measure(Published("a", REQUIREMENT, "a.onnx", ""), tmp_path)
    assert row["error"] == f": FileNotFoundError: {REQUIREMENT}: {said}"


def test_figures() -> None:
    whole = {
        "name": "a", "imported": True, "bit_exact": True, "sqnr_db": 30.0, "float_db": 120.0,
        "macs": 10, "macs_on_vta": 5, "operators": 4, "operators_on_vta": 3, "regions": 2,
        "cycles": 99, "seconds": {}, **measure.UNJUDGED,
    }  # fmt: skip
    found = {
        figure.name: figure.value
        for figure in published.figures_of([whole, {**published.EMPTY, "name": "b"}])
    }
    assert found["models"] == 2
    assert found["imported_share"] == found["bit_exact_share"] == 0.5
    assert found["a_macs_on_vta"] == 50 and found["a_operators_on_vta"] == 75
    assert not any(name.startswith("b_") for name in found)


def test_command_line() -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        script = Path(published.__file__)
        return subprocess.run([sys.executable, script, *args], capture_output=True, text=True)

    listed = run("--list").stdout.splitlines()
    assert len(listed) >= 20 and [line.split()[0] for line in listed] == list(MODELS)
    unknown = run("--only", "yunet", "yunett")
    assert unknown.returncode == 2
    assert "no model is called yunett; see --list" in unknown.stderr
