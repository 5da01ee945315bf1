"""Writing bundles: compile what VTA runs, and put it into a folder as a whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tvm

from vta_byoc._interrupt import Unfinished
from vta_byoc.bundle.host_steps import bundle_model
from vta_byoc.bundle.manifest import FILES, bundle_files
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.options import BuildOptions, build_options
from vta_byoc.passes.lower_regions import LoweredRegions, lower_regions
from vta_byoc.pipeline import is_partitioned, partition_for_vta


def write_bundle(
    mod: tvm.IRModule,
    folder: str | Path,
    config: VTAConfig | None = None,
    *,
    options: BuildOptions | None = None,
) -> Path:
    """Compile a module to a bundle that the C runtime runs without TVM.

    Args:
        mod: a module of the integer dialect, or one that `partition_for_vta` gave.
        folder: a folder that does not exist, or an older bundle, which is replaced.
        config: the machine; must be the one the module was partitioned for.
        options: machine, scopes and schedules in one value instead.

    Returns:
        The folder.

    Raises:
        VTAError: the host computes what bundles do not hold, or the folder cannot be written.
    """
    chosen = build_options(options, {"config": config})
    target = Path(folder)
    check_folder(target)
    placed = mod if is_partitioned(mod) else partition_for_vta(mod, options=chosen)
    files = compiled_files(placed, chosen.config)
    write_files(files, target)
    return target


def compiled_files(placed: tvm.IRModule, config: VTAConfig) -> dict[str, bytes]:
    """The files of the bundle of a partitioned module, by name.

    Raises:
        VTAError: the host computes what bundles do not hold; found before programs are compiled.
    """
    model, record = bundle_model(placed, config), LoweredRegions()
    lower_regions(config, record)(placed)
    model.programs.update(record.programs)
    return bundle_files(model, config)


# ---------------------------------------------------------------- the folder
def check_folder(folder: Path) -> None:
    """Refuse a path that no bundle can be written to.

    Raises:
        VTAError: it is a file, or a folder with anything but a bundle in it, or its parent is none
            that can be written to.
    """
    if folder.exists() and not folder.is_dir():
        raise VTAError(f'bundle "{folder}" is a file; a bundle is a folder; choose another path')
    if folder.is_dir():
        others = sorted(path.name for path in folder.iterdir() if path.name not in FILES)
        if others:
            raise VTAError(
                f'bundle "{folder}" is a folder that holds "{others[0]}"; only a bundle or an '
                "empty folder is replaced; choose another path"
            )
    if not folder.resolve().parent.is_dir():
        raise VTAError(
            f'bundle "{folder}": the directory "{folder.parent}" does not exist; create it or '
            "choose another path"
        )


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write `files` into `folder`, which then holds them alone; or leave it as it was.

    Raises:
        VTAError: the disk is full, or the folder cannot be written.
    """
    target = folder.resolve()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}-", dir=target.parent))
    except OSError as error:
        raise _unwritten(folder, error) from error
    with Unfinished(made):
        try:
            for name, data in files.items():
                _write(made / name, data)
            made.chmod(0o777 & ~_umask())
            _exchange(made, target)
        except OSError as error:
            raise _unwritten(folder, error) from error
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _exchange(made: Path, target: Path) -> None:
    """Give the name of `target` to the folder `made`; what had it is gone."""
    if not target.exists():
        made.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}-", dir=target.parent)) / "old"
    try:
        target.rename(old)
        try:
            made.rename(target)
        except OSError:
            old.rename(target)
            raise
    finally:
        shutil.rmtree(old.parent, ignore_errors=True)


def _unwritten(folder: Path, error: OSError) -> VTAError:
    return VTAError(
        f'bundle "{folder}" cannot be written ({error.strerror}); nothing of it is left; make room '
        "or choose another path"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
