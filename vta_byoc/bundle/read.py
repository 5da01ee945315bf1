"""Reading bundles in Python: their manifest, after every checksum was compared."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from vta_byoc.bundle.manifest import BINARIES, FORMAT, MANIFEST, MANIFEST_SUM, VERSION
from vta_byoc.hw.errors import VTAError


def is_bundle(path: Path) -> bool:
    """Whether a path is a folder with a manifest in it, also of a damaged bundle."""
    return path.is_dir() and ((path / MANIFEST).exists() or (path / MANIFEST_SUM).exists())


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle whose files are as they were written.

    Raises:
        VTAError: a file is missing or damaged, or the format is a later one.
    """
    text = _read(folder, MANIFEST)
    summed = f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n".encode()
    if _read(folder, MANIFEST_SUM) != summed:
        raise _damaged(folder, MANIFEST)
    manifest = json.loads(text)
    if manifest["format"] != FORMAT or manifest["version"] != VERSION:
        raise VTAError(
            f'bundle "{folder}" has format version {manifest["version"]}; this vta_byoc reads '
            f"version {VERSION}; take the vta_byoc that wrote it, or write the bundle again"
        )
    rows = {row["name"]: row for row in manifest["files"]}
    for name in BINARIES:
        data = _read(folder, name)
        if len(data) != rows[name]["bytes"]:
            raise VTAError(
                f'file "{name}" of bundle "{folder}" has {len(data)} bytes; the manifest says '
                f"{rows[name]['bytes']}; the bundle is truncated or damaged: copy it again"
            )
        if hashlib.sha256(data).hexdigest() != rows[name]["sha256"]:
            raise _damaged(folder, name)
    return dict(manifest)


def nbytes(folder: Path) -> int:
    """Bytes of all files of a bundle."""
    return sum(path.stat().st_size for path in folder.iterdir())


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise VTAError(
            f'file "{name}" of bundle "{folder}" cannot be read ({error.strerror}); all six files '
            "belong to it; copy the bundle again"
        ) from error


def _damaged(folder: Path, name: str) -> VTAError:
    return VTAError(
        f'file "{name}" of bundle "{folder}" is damaged: its SHA-256 is not the one written beside '
        "it; copy the bundle again, or write it again"
    )
