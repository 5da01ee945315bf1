"""Model files to clean float Relax: one function, one table of formats."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from vta_byoc.bindings import source_name
from vta_byoc.hw.errors import VTAError
from vta_byoc.normalize import normalize

__all__ = ["OUTPUT_NAMES", "load_model", "output_names", "source_name"]

OUTPUT_NAMES = "vta.output_names"
"""Module attribute: the model's output names, in the order of `main`'s results."""

Shapes = Mapping[str, tuple[int, ...]]


def load_model(path: str | Path, *, shapes: Shapes | None = None) -> tvm.IRModule:
    """Load a model as a Relax module with one dataflow function `main`.

    Args:
        path: an ONNX file (`.onnx`) with float32 inputs.
        shapes: input name -> shape, for inputs with dynamic dimensions.

    Returns:
        Float Relax. Parameters of `main` carry the model's input names; every variable carries
        its node's name (`source_name`); weights are constants; batch normalization is folded
        into layers and what else exporters write around them is rewritten (`normalize`). The
        attribute `vta.output_names` lists the outputs.

    Raises:
        VTAError: the file cannot be read, is broken, or holds something not supported.
    """
    path = Path(path)
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "does not exist"
        raise VTAError(f'model file "{path}" {kind}; {_formats()} can be loaded; check the path')
    loader = LOADERS.get(path.suffix.lower())
    if loader is None:
        raise VTAError(
            f'model file "{path}" has the extension "{path.suffix}"; {_formats()} can be loaded; '
            "export the model to ONNX"
        )
    return loader(path, dict(shapes or {}))


def output_names(mod: tvm.IRModule) -> list[str]:
    """The model's output names; `output0`, `output1` ... for a module that has none."""
    names = mod.get_attr(OUTPUT_NAMES)
    if names is not None:
        return [str(name) for name in names]
    result = mod["main"].ret_ty
    count = len(result.fields) if isinstance(result, relax.TupleType) else 1
    return [f"output{i}" for i in range(count)]


def _load_onnx(path: Path, shapes: dict[str, tuple[int, ...]]) -> tvm.IRModule:
    from vta_byoc import onnx_checks, onnx_import

    model = onnx_checks.read(path)
    opset = onnx_checks.check_operators(model, path)
    bound = onnx_checks.input_shapes(model.graph, shapes)
    onnx_checks.check_model(model, path)
    onnx_import.name_nodes(model.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = onnx_import.import_graph(model.graph, opset, bound)
    return normalize(mod).with_attr(OUTPUT_NAMES, [value.name for value in model.graph.output])


LOADERS: dict[str, Callable[[Path, dict[str, Any]], tvm.IRModule]] = {".onnx": _load_onnx}
"""File extension -> loader. A new format is one entry."""


def _formats() -> str:
    return "only " + ", ".join(LOADERS) + " (ONNX, float32)"
