"""Models to clean Relax, float or quantized: one function, one table of formats."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.boundary import at, boundary, first_line
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.plugins import load_installed
from vta_byoc.hw.registry import Registry
from vta_byoc.importers.canonicalize.index_bounds import bound_indices
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.importers.declared import check_declared
from vta_byoc.importers.imported import check_imported
from vta_byoc.importers.quantized_tensor import check_module
from vta_byoc.importers.torch.importer import import_program, is_program
from vta_byoc.ir.bindings import source_name
from vta_byoc.ir.quantization_record import CAME_FROM, CAME_INTEGER, ONNXRUNTIME, TFLITE
from vta_byoc.ir.states import initial_states
from vta_byoc.quantization.qdq import is_quantized

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from vta_byoc.importers.onnx.fixed import Value
    from vta_byoc.importers.relay.importer import Imported

__all__ = ["OUTPUT_NAMES", "initial_states", "load_model", "output_names", "source_name"]

OUTPUT_NAMES = "vta.output_names"
"""Module attribute: the model's output names, in the order of `main`'s results."""

Shapes = Mapping[str, tuple[int, ...]]
Params = str | Path | Mapping[str, np.ndarray]
ONNX = ".onnx"
RELAY = (".relay", ".txt", ".json", ".tar")
"""Extensions of files that hold Relay."""


class Importer(Protocol):
    """What the module of a format has."""

    def load(
        self, path: Path, shapes: dict[str, tuple[int, ...]]
    ) -> tuple[tvm.IRModule, list[str]]:
        """Read a file as Relax that `load_model` then normalizes, and name its outputs.

        Args:
            path: a file that exists.
            shapes: input name -> shape, of the inputs that the user gave one.

        Returns:
            A module with one dataflow function `main`: parameters with the model's input names,
            weights as constants, every variable called after its operator (`FunctionWriter`);
            quantized tensors between `relax.quantize` and `relax.dequantize`. And the names of
            the outputs, in the order of its results.

        Raises:
            VTAError: the file or what it holds cannot be imported.
        """


@dataclass(frozen=True)
class Format:
    """A kind of model file.

    Attributes:
        name: what its users call it.
        suffix: of its files, in lower case.
        module: an `Importer`, or its module, imported when the first file is loaded.
    """

    name: str
    suffix: str
    module: str | Importer


FORMATS: Registry[Format] = Registry("importer")
"""Extension -> its format: every one but Relay, whose files may need `params`."""
for _format in (
    Format("ONNX", ONNX, "vta_byoc.importers.onnx.importer"),
    Format("PyTorch", ".pt2", "vta_byoc.importers.torch.importer"),
    Format("TFLite", ".tflite", "vta_byoc.importers.tflite.importer"),
):
    FORMATS.add(_format.suffix, _format)
RUNTIMES = {ONNX: ONNXRUNTIME, ".tflite": TFLITE}
"""Extension -> the runtime whose arithmetic a quantized model of it means."""


def load_model(
    path: str | Path | ExportedProgram,
    *,
    shapes: Shapes | None = None,
    fixed: Mapping[str, Value] | None = None,
    params: Params | None = None,
    random_params: int | None = None,
) -> tvm.IRModule:
    """Load a model as a Relax module with one dataflow function `main`.

    Args:
        path: an ONNX file (`.onnx`), a TFLite file (`.tflite`), a program saved by
            `torch.export.save` (`.pt2`), or a `torch.export.ExportedProgram` itself; or Relay:
            text (`.relay`, `.txt`), JSON (`.json`), a Model Library Format archive (`.tar`).
        shapes: input name -> shape, for inputs with dynamic dimensions (ONNX, Relay).
        fixed: input name -> value, for inputs of one number or truth value that are to be
            constants, such as the sample rate that chooses a branch (ONNX): a number, a truth
            value, or the text of one. The module has no such parameter; its attribute
            `vta.fixed_inputs` has the values.
        params: of a Relay model: a file of `save_param_dict`, or arrays by name.
        random_params: seed of random values for the weights that a Relay model lacks.

    Returns:
        Float Relax; for a quantized model with `relax.quantize` and `relax.dequantize` between
        float operators, and int8 or uint8 inputs and outputs if the model has them. Parameters of
        `main` carry the model's input names; every variable carries its node's name
        (`source_name`); weights are constants; batch normalization is folded into layers and what
        else exporters write around them is rewritten (`normalize`). The attribute
        `vta.output_names` lists the outputs; `vta.came_from` names the runtime of a quantized ONNX
        or TFLite file.

    Raises:
        VTAError: the file cannot be read, is broken, or holds something not supported; an input
            does not take the shape or the value that is given; or the tensors take more than the
            limit (`limits.memory_limit`).
    """
    load_installed()
    bound = dict(shapes or {})
    if is_program(path):
        _check_relay_only("a program", params, random_params)
        _check_fixed("a program", fixed)
        with boundary("imported", "the program"):
            return _finished(*import_program(path, bound))
    path = Path(path)
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "does not exist"
        raise VTAError(f'model file "{path}" {kind}; {_formats()} can be loaded; check the path')
    suffix = path.suffix.lower()
    if suffix != ONNX and suffix in (*FORMATS, *RELAY):
        _check_fixed(f'model file "{path}"', fixed)
    if suffix in RELAY:
        with boundary("imported", f'model file "{path}"'):
            return _load_relay(path, bound, params, random_params)
    _check_relay_only(f'model file "{path}"', params, random_params)
    if suffix not in FORMATS:
        raise VTAError(
            f'model file "{path}" has the extension "{path.suffix}"; {_formats()} can be loaded; '
            "export the model to one of them"
        )
    with boundary("imported", f'model file "{path}"'):
        return _came_from(_finished(*_imported(FORMATS[suffix], path, bound, fixed)), suffix)


def _came_from(mod: tvm.IRModule, suffix: str) -> tvm.IRModule:
    """The module, marked with the runtime of its file where it came quantized."""
    runtime = RUNTIMES.get(suffix)
    return mod.with_attr(CAME_FROM, runtime) if runtime and is_quantized(mod) else mod


def _imported(
    chosen: Format,
    path: Path,
    shapes: dict[str, tuple[int, ...]],
    fixed: Mapping[str, Value] | None,
) -> tuple[tvm.IRModule, list[str]]:
    """What the importer of a format makes of a file; that of a plug-in is checked."""
    if fixed:
        from vta_byoc.importers.onnx import importer as onnx

        return onnx.load(path, shapes, fixed)
    module = chosen.module
    if isinstance(module, str):
        importer = cast(Importer, importlib.import_module(module))
    else:
        importer = module
    if FORMATS.is_built_in(chosen.suffix):
        return importer.load(path, shapes)
    whose = f'importer "{chosen.name}" of {FORMATS.by(chosen.suffix)}'
    try:
        found = importer.load(path, shapes)
    except VTAError:
        raise
    except Exception as err:
        raise VTAError(
            f'{whose} fails at "{path}": {first_line(err)}; repair it, or export the model to '
            "another format"
        ) from err
    return check_imported(found, shapes, whose)


def output_names(mod: tvm.IRModule) -> list[str]:
    """The model's output names; `output0`, `output1` ... for a module that has none."""
    names = mod.get_attr(OUTPUT_NAMES)
    if names is not None:
        return [str(name) for name in names]
    result = mod["main"].ret_ty
    count = len(result.fields) if isinstance(result, relax.TupleType) else 1
    return [f"output{i}" for i in range(count)]


def _load_relay(
    path: Path, shapes: dict[str, tuple[int, ...]], params: Params | None, seed: int | None
) -> tvm.IRModule:
    from vta_byoc.importers.relay.read import import_file

    return finished_relay(import_file(path, shapes, params, seed))


def finished_relay(imported: Imported) -> tvm.IRModule:
    """A Relay model as `load_model` gives it.

    That is float Relax, or with integers of its own the integer dialect, marked `CAME_INTEGER`.
    """
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


def _check_fixed(what: str, fixed: Mapping[str, Value] | None) -> None:
    if fixed:
        raise VTAError(
            f"fixed (--fix) given for {what}; only ONNX models ({ONNX}) take values of inputs; "
            "leave it out, or export the model to ONNX"
        )


def _finished(mod: tvm.IRModule, outputs: list[str]) -> tvm.IRModule:
    """What an importer made, with indices inside their axes and exporters' detours removed.

    What the module declares is checked first, because rules make constants of it; scales and zero
    points last, because rules make constants of them.
    """
    at("")
    check_declared(mod)
    mod = normalize(bound_indices(mod))
    check_module(mod)
    return mod.with_attr(OUTPUT_NAMES, outputs)


def _formats() -> str:
    suffixes = (*FORMATS, *RELAY)
    names = (*(each.name for each in FORMATS.values()), "Relay")
    return f"only {', '.join(suffixes)} ({', '.join(names)})"
