"""Files that hold Relay, by what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.relay import text as relay_text
from vta_byoc.importers.relay.archive import read_archive
from vta_byoc.importers.relay.binaries import params_of, read_params
from vta_byoc.importers.relay.graph import Metadata, Module
from vta_byoc.importers.relay.importer import Imported, Shapes, import_module
from vta_byoc.importers.relay.json_graph import JsonGraph
from vta_byoc.importers.relay.operators.table import refers
from vta_byoc.importers.relay.parameters import Tensors

SUFFIXES = (".relay", ".txt", ".json", ".tar")
Params = str | Path | Mapping[str, np.ndarray]


def import_file(
    path: Path, shapes: Shapes, params: Params | None = None, seed: int | None = None
) -> Imported:
    """The model in a file, not yet normalized.

    Args:
        path: a file with one of `SUFFIXES`.
        shapes: of inputs with open dimensions, by name.
        params: a parameter file, or arrays by name; they come before those of an archive.
        seed: of random values for tensors that no file has.

    Raises:
        VTAError: a file that is damaged, or holds what is not read.
    """
    module, what, inside = read_file(path)
    given = {**inside, **given_params(params)}
    return import_module(module, what, Tensors(given, seed), shapes)


def read_file(path: Path) -> tuple[Module, str, dict[str, np.ndarray]]:
    """The module of a file, what errors call the file, and the parameters beside it."""
    what = f'model file "{path}"'
    if path.suffix.lower() == ".tar":
        library = read_archive(path)
        inside = {} if library.params is None else params_of(library.params, what)
        return read_text(library.text, what), what, inside
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise VTAError(f"{what} is no UTF-8 text; save it with mod.astext()") from error
    is_json = path.suffix.lower() == ".json"
    module = JsonGraph(content, what, refers).module() if is_json else read_text(content, what)
    return module, what, {}


def read_text(content: str, what: str) -> Module:
    """The module of a Relay text, with its metadata."""

    def metadata(section: str) -> Mapping[str, list[Metadata]]:
        return JsonGraph(section, f"the metadata of {what}", refers).metadata()

    return relay_text.parse(content, what, metadata)


def given_params(params: Params | None) -> dict[str, np.ndarray]:
    """The arrays of a parameter file, or those that were given."""
    if params is None:
        return {}
    if isinstance(params, str | Path):
        return read_params(params)
    return {name: np.asarray(_array(value)) for name, value in params.items()}


def _array(value: np.ndarray) -> np.ndarray:
    """NumPy's, or a tensor of TVM's runtime."""
    return value if isinstance(value, np.ndarray) else np.asarray(value.numpy())
