"""A module as the files that users have: two ONNX exporters, and a program of torch.export."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from . import STYLES

TORCHSCRIPT, DYNAMO, PROGRAM = STYLES
OPSET = 17
"""Of the TorchScript exporter; the other one takes its own."""


def exported(module: Any, inputs: tuple[Any, ...]) -> Any:
    """The `torch.export.ExportedProgram` of a module in evaluation mode."""
    with _quiet():
        return torch.export.export(module, inputs)


def export(style: str, module: Any, program: Any, inputs: tuple[Any, ...], folder: Path) -> Path:
    """Write a file and return it; what exporters print is dropped.

    Args:
        style: one of STYLES.
        module: in evaluation mode.
        program: `exported` of it.
        inputs: an example of each input.
        folder: where the file goes.
    """
    with _quiet():
        return EXPORTERS[style](module, program, inputs, folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def _torchscript(module: Any, _program: Any, inputs: tuple[Any, ...], folder: Path) -> Path:
    path, names = folder / "torchscript.onnx", input_names(len(inputs))
    torch.onnx.export(
        module, inputs, str(path), dynamo=False, opset_version=OPSET, input_names=names
    )
    return path


def _dynamo(_module: Any, program: Any, inputs: tuple[Any, ...], folder: Path) -> Path:
    path, names = folder / "dynamo.onnx", input_names(len(inputs))
    torch.onnx.export(program, inputs, str(path), dynamo=True, verbose=False, input_names=names)
    return path


def _program(_module: Any, program: Any, _inputs: tuple[Any, ...], folder: Path) -> Path:
    path = folder / "program.pt2"
    torch.export.save(program, str(path))
    return path


EXPORTERS: dict[str, Callable[[Any, Any, tuple[Any, ...], Path], Path]] = {
    TORCHSCRIPT: _torchscript,
    DYNAMO: _dynamo,
    PROGRAM: _program,
}


def input_names(count: int) -> list[str]:
    """The names that ONNX files give the inputs."""
    return [f"x{i}" for i in range(count)]
