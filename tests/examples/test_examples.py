"""Every example runs, says what it promises and is as short as it promises."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
USER_LINES = 60
"""A kernel of one's own takes fewer lines than this: definition, schedule, call."""
COUNTERS = {
    "matmul_blocked": [4096, 1048576, 0, 20, 1024, 4096, 192],
    "conv2d_optimisation": [114688, 1179648, 0, 1144, 50176, 451584, 9408],
    "nhwc_bias": [287232, 516096, 512, 408, 100352, 225792, 25088],
}
"""By example: bytes loaded for inp, wgt, acc and uop, bytes stored, GEMM and ALU micro-ops.

Those of the first two are the published ones."""


def run(name: str, *options: str) -> str:
    """What an example prints; it compares its result with LLVM's itself."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *options]
    root = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(command, env=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_every_example_has_a_row_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(COUNTERS)


@pytest.mark.parametrize("name", COUNTERS)
def test_counters(name: str) -> None:
    assert json.loads(run(name, "--json"))["counters"] == COUNTERS[name]


@pytest.mark.parametrize("name", COUNTERS)
def test_explained(name: str) -> None:
    text = run(name)
    assert "problem" not in text
    assert "same: the schedule computes what its definition does" in text
    assert "same: VTA computes what the host does" in text


@pytest.mark.parametrize("name", COUNTERS)
def test_short_and_through_the_public_package_alone(name: str) -> None:
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    lines = [line for line in source.splitlines() if line.strip()]
    assert len([line for line in lines if not line.strip().startswith("#")]) < USER_LINES
    imported = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import)]
    ours = {a.name for n in imported for a in n.names if a.name.startswith("vta_byoc")}
    assert ours == {"vta_byoc", "vta_byoc.schedule"}
    assert "from vta_byoc" not in source
