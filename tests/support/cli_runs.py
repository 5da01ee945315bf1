"""Calls of the command line, in process, and the model that most of them use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from click.testing import CliRunner, Result
from small_models import Net

from vta_byoc.cli import app, commands
from vta_byoc.hw.config import VTAConfig

SHAPE = (1, 16, 8, 8)


def cli(*args: Any, **env: str) -> Result:
    wide = {"COLUMNS": "160", **env}
    return CliRunner().invoke(app, [str(arg) for arg in args], env=wide)


def refused(*args: Any, **env: str) -> str:
    """The one line that a command ends with, which must be an error of the user's."""
    result = cli(*args, **env)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    line = result.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def small_model(path: Path) -> Path:
    """Two convolutions and a residual add on VTA, then a sigmoid on the CPU."""
    net = Net(data=SHAPE)
    a = net.node("Relu", net.conv("data", 16, 16, name="first"), name="first_relu")
    b = net.conv(a, 16, 16, name="second")
    joined = net.node("Relu", net.node("Add", b, a, name="join"), name="join_relu")
    return net.save(path, net.node("Sigmoid", joined, name="gate"))


def quantize_once(
    mod: tvm.IRModule, calibration: str | None, steps: Any, machine: VTAConfig | None = None
) -> tvm.IRModule:
    """Stands in for `commands.quantize`: most tests ask about something else."""
    key = f"{mod.script()} {machine and machine.to_dict()}"
    if calibration or key not in _DONE:
        _DONE[key] = _quantize(mod, calibration, steps, machine)
    steps.seconds.setdefault("quantize", 0.0)
    return _DONE[key]


_DONE: dict[str, Any] = {}
_quantize = commands.quantize


def save(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path
