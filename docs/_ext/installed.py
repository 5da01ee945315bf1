"""The package as a reader has it: installed from a copy, outside of the repository.

Pages and blocks of the documentation run against the folder that `installed` gives: `vta_byoc` as
pip installs it, and the modules that the notebooks import (`drawings`, `models`).
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "site"
PACKAGE = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "vta_byoc", "hw")
BESIDE = ("docs/_ext/drawings.py", "models")
"""What executed pages import besides the package, by its place in the repository."""
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


@functools.cache
def sources_digest() -> str:
    """The digest of every file that an executed page may run."""
    found = hashlib.sha256()
    for name in (*PACKAGE, *BESIDE):
        for path in sorted(_files(ROOT / name)):
            if path.name != "README.md":
                found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts]


@functools.cache
def installed() -> Path:
    """The folder to put on PYTHONPATH; it is made once for each version of the sources."""
    folder = BUILD / "installed" / sources_digest()
    if not folder.is_dir():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as made:
            _install(Path(made), Path(made) / "target")
            (Path(made) / "target").rename(folder)
    return folder


def plain_kernels() -> Path:
    """IPython's folder for the kernels of pages: what commands print is text, in lines of 110.

    ipykernel tells commands that a terminal with colours reads them; a page is none.
    """
    profile = BUILD / "ipython" / "profile_default"
    (profile / "startup").mkdir(parents=True, exist_ok=True)
    (profile / "startup" / "plain.py").write_text(
        'import os\n\nos.environ.update(FORCE_COLOR="", CLICOLOR_FORCE="0", COLUMNS="110")\n'
    )
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")
    return profile.parent


def _install(work: Path, target: Path) -> None:
    """Install a copy of the sources: setuptools would leave files beside the real ones."""
    source = work / "source"
    source.mkdir()
    _copy(PACKAGE, source, keep_folders=True)
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target)]
    subprocess.run([*command, str(source)], check=True)
    _copy(BESIDE, target, keep_folders=False)


def _copy(names: tuple[str, ...], target: Path, *, keep_folders: bool) -> None:
    for name in names:
        given = ROOT / name
        wanted = target / (name if keep_folders else given.name)
        if given.is_dir():
            shutil.copytree(given, wanted, ignore=_LEFT_OUT)
        else:
            shutil.copyfile(given, wanted)
