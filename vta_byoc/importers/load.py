"""Models to clean Relax, float or quantized: one function, one table of formats."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.boundary import at, boundary
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.canonicalize.index_bounds import bound_indices
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.importers.declared import check_declared
from vta_byoc.importers.torch import importer as torch_import
from vta_byoc.ir.bindings import UniqueNames, source_name
from vta_byoc.ir.quantization_record import CAME_INTEGER

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from vta_byoc.importers.relay.importer import Imported

__all__ = ["OUTPUT_NAMES", "load_model", "output_names", "source_name"]

OUTPUT_NAMES = "vta.output_names"
"""Module attribute: the model's output names, in the order of `main`'s results."""

Shapes = Mapping[str, tuple[int, ...]]
Params = str | Path | Mapping[str, np.ndarray]
RELAY = (".relay", ".txt", ".json", ".tar")
"""Extensions of files that hold Relay."""


def load_model(
    path: str | Path | ExportedProgram,
    *,
    shapes: Shapes | None = None,
    params: Params | None = None,
    random_params: int | None = None,
) -> tvm.IRModule:
    """Load a model as a Relax module with one dataflow function `main`.

    Args:
        path: an ONNX file (`.onnx`), a TFLite file (`.tflite`), a program saved by
            `torch.export.save` (`.pt2`), or a `torch.export.ExportedProgram` itself; or Relay:
            text (`.relay`, `.txt`), JSON (`.json`), a Model Library Format archive (`.tar`).
        shapes: input name -> shape, for inputs with dynamic dimensions (ONNX, Relay).
        params: of a Relay model: a file of `save_param_dict`, or arrays by name.
        random_params: seed of random values for the weights that a Relay model lacks.

    Returns:
        Float Relax; for a quantized model with `relax.quantize` and `relax.dequantize` between
        float operators, and int8 or uint8 inputs and outputs if the model has them. Parameters of
        `main` carry the model's input names; every variable carries its node's name
        (`source_name`); weights are constants; batch normalization is folded into layers and what
        else exporters write around them is rewritten (`normalize`). The attribute
        `vta.output_names` lists the outputs.

    Raises:
        VTAError: the file cannot be read, is broken, or holds something not supported; or its
            tensors take more than the limit (`limits.memory_limit`).
    """
    if torch_import.is_program(path):
        _check_relay_only("a program", params, random_params)
        with boundary("imported", "the program"):
            return _from_torch(path, dict(shapes or {}))
    path = Path(path)
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "does not exist"
        raise VTAError(f'model file "{path}" {kind}; {_formats()} can be loaded; check the path')
    if path.suffix.lower() in RELAY:
        with boundary("imported", f'model file "{path}"'):
            return _load_relay(path, dict(shapes or {}), params, random_params)
    _check_relay_only(f'model file "{path}"', params, random_params)
    loader = LOADERS.get(path.suffix.lower())
    if loader is None:
        raise VTAError(
            f'model file "{path}" has the extension "{path.suffix}"; {_formats()} can be loaded; '
            "export the model to one of them"
        )
    with boundary("imported", f'model file "{path}"'):
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
    from vta_byoc.importers.onnx import attributes as onnx_attributes
    from vta_byoc.importers.onnx import checks as onnx_checks
    from vta_byoc.importers.onnx import importer as onnx_import
    from vta_byoc.importers.onnx import qoperator as onnx_quantized
    from vta_byoc.importers.onnx import sizes as onnx_sizes

    model = onnx_checks.read(path)
    opset = onnx_checks.check_operators(model, path)
    bound = onnx_checks.input_shapes(model.graph, shapes)
    onnx_checks.check_model(model, path)
    onnx_attributes.check_attributes(model.graph)
    onnx_sizes.check_sizes(model.graph, opset, bound)
    onnx_import.name_nodes(model.graph)
    onnx_quantized.expand(model.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = onnx_import.import_graph(model.graph, opset, bound)
    names = UniqueNames("_")  # a result may be listed twice
    outputs = [names.fresh(value.name) for value in model.graph.output]
    return _finished(mod, outputs)


def _load_tflite(path: Path, shapes: dict[str, tuple[int, ...]]) -> tvm.IRModule:
    from vta_byoc.importers.tflite.importer import import_model

    mod, outputs = import_model(path, shapes)
    return _finished(mod, outputs)


def _load_torch(path: Path, shapes: dict[str, tuple[int, ...]]) -> tvm.IRModule:
    return _from_torch(torch_import.read(path), shapes)


def _load_relay(
    path: Path, shapes: dict[str, tuple[int, ...]], params: Params | None, seed: int | None
) -> tvm.IRModule:
    from vta_byoc.importers.relay.read import import_file

    return finished_relay(import_file(path, shapes, params, seed))


def finished_relay(imported: Imported) -> tvm.IRModule:
    """A Relay model as `load_model` gives it: float Relax, or with integers of its own the
    integer dialect, marked `CAME_INTEGER`."""
    from vta_byoc.importers.relay.exact import computes_integers, exact_integers

    if not computes_integers(imported.mod):
        return _finished(imported.mod, imported.outputs)
    at("")
    exact = exact_integers(imported.mod)
    return _finished(exact, imported.outputs).with_attr(CAME_INTEGER, "relay.quantize")


def _check_relay_only(what: str, params: Params | None, seed: int | None) -> None:
    if params is not None or seed is not None:
        option = "params (--params)" if params is not None else "random_params (--random-params)"
        raise VTAError(
            f"{option} given for {what}, which holds its weights; only Relay models "
            f"({', '.join(RELAY)}) take them; leave it out"
        )


def _from_torch(program: ExportedProgram, shapes: dict[str, tuple[int, ...]]) -> tvm.IRModule:
    mod, outputs = torch_import.import_program(program, shapes)
    return torch_import.check(_finished(mod, outputs))


def _finished(mod: tvm.IRModule, outputs: list[str]) -> tvm.IRModule:
    """What an importer made, with indices inside their axes and exporters' detours removed, after
    checking what the module declares: rules make constants of it."""
    at("")
    check_declared(mod)
    return normalize(bound_indices(mod)).with_attr(OUTPUT_NAMES, outputs)


LOADERS: dict[str, Callable[[Path, dict[str, tuple[int, ...]]], tvm.IRModule]] = {
    ".onnx": _load_onnx,
    ".pt2": _load_torch,
    ".tflite": _load_tflite,
}
"""File extension -> loader. A new format is one entry."""


def _formats() -> str:
    return "only " + ", ".join((*LOADERS, *RELAY)) + " (ONNX, PyTorch, TFLite, Relay)"
