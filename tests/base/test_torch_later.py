"""The command line imports TVM without PyTorch, and still reads PyTorch's models."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
import sys
from vta_byoc.cli import main
model = sys.argv.pop()
sys.argv.append("--version")
try:
    main()
except SystemExit:
    import tvm
print("torch" in sys.modules, "numpy" in sys.modules)
import torch
print(tvm.runtime.from_dlpack(torch.arange(6)).numpy().sum())
from vta_byoc.importers.load import load_model
print([len(function.params) for function in load_model(model).functions.values()])
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_tvm_comes_without_torch_and_torch_later(tmp_path: Path) -> None:
    import torch

    exported = torch.export.export(torch.nn.Linear(4, 3), (torch.zeros(1, 4),))
    torch.export.save(exported, tmp_path / "linear.pt2")
    command = [sys.executable, "-W", "ignore", "-c", COMMAND, str(tmp_path / "linear.pt2")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == ["False True", "15", "[1]"], done.stderr
