"""Output files: checked before the long work, and complete or absent after it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from vta_byoc._interrupt import Unfinished
from vta_byoc.hw.errors import VTAError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, and of a user's share of one."""
# TVM's own order of preference (tvm.support.cc).
COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")


GIVEN = {
    "model": "the model file",
    "other": "the program file",
    "config": "the configuration file",
    "calibration": "the calibration file",
    "data": "the data file",
    "inputs": "the input file",
    "replaced": "the program file",
    "against": "the older report",
}
"""Parameters of commands that name files to read."""


def check_writable(path: Path, suffix: str = "") -> None:
    """Refuse a path that no file can be written to, and one that the running command reads.

    A file that is read is found by another link to it, too.

    Args:
        path: the file to be written later; nothing is left there.
        suffix: the extension it must have, "" for any.

    Raises:
        VTAError: what is in the way.
    """
    if path.is_dir():
        raise VTAError(f'output "{path}" is a directory; a file name is needed; add one to it')
    if suffix and path.suffix != suffix:
        raise VTAError(
            f'output "{path}" has the extension "{path.suffix}"; {suffix} is written; '
            f'name it "{path.with_suffix(suffix)}"'
        )
    if path.exists() and not path.is_file():
        raise VTAError(f'output "{path}" is not a regular file; choose another path')
    if not path.parent.is_dir():
        raise VTAError(
            f'output "{path}": the directory "{path.parent}" does not exist; create it or choose '
            "another path"
        )
    _check_not_read(path)
    try:
        # Permission bits say little (root, read-only file systems): try it.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise VTAError(
            f'output "{path}" cannot be written: {error.strerror} in "{path.parent}"; choose a '
            "directory you may write to"
        ) from error


def _check_not_read(path: Path) -> None:
    context = click.get_current_context(silent=True)
    for name, value in (context.params if context else {}).items():
        texts = value if isinstance(value, tuple) else (value,)
        for text in texts if name in GIVEN else ():
            for given in (text, str(text).partition("=")[2]):
                if given and path.exists() and Path(given).exists() and path.samefile(given):
                    raise VTAError(
                        f'output "{path}" is {GIVEN[name]} "{given}", which would be lost; choose '
                        "another path"
                    )


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to that takes the place of `path` when the block succeeds.

    It is in the same directory and has the same extension; it is removed when the block fails.

    Raises:
        VTAError: there is no room for it.
    """
    handle, name = tempfile.mkstemp(path.suffix, f".{path.stem[:40]}-", path.parent)
    os.close(handle)
    temporary = Path(name)
    with Unfinished(temporary):
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise VTAError(
                f'output "{path}" cannot be written: {error.strerror}; nothing has been changed; '
                f'make room in "{path.parent}" or write elsewhere'
            ) from error
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def workspace() -> Iterator[str]:
    """A folder for what is written on the way; it is removed in any case."""
    with tempfile.TemporaryDirectory() as name, Unfinished(Path(name)):
        yield name


@contextlib.contextmanager
def in_memory(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Files of `folder` whose bytes are in memory, so that they need no room on its disk.

    Other processes of the user read them by the same names. Where the system has no such files,
    those of `names` are ordinary ones.
    """
    own = Path(f"/proc/{os.getpid()}/fd")  # what is open here, by a name that children know
    with contextlib.ExitStack() as files:
        for name in names if hasattr(os, "memfd_create") and own.is_dir() else ():
            number = os.memfd_create(name)
            files.callback(os.close, number)
            (folder / name).symlink_to(own / str(number))
        yield


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def find_compiler() -> str:
    """The C compiler that links exported libraries: CXX or CC, or the first of COMPILERS.

    Raises:
        VTAError: there is none.
    """
    for variable in ("CXX", "CC"):
        command = os.environ.get(variable)
        if command:
            if shutil.which(command):
                return command
            raise VTAError(
                f'{variable} is "{command}"; it names no program; exporting a library needs a C '
                f"compiler to link it; correct {variable} or unset it"
            )
    found = next((path for path in map(shutil.which, COMPILERS) if path), None)
    if found is None:
        raise VTAError(
            f"no C compiler on PATH ({', '.join(COMPILERS)}); exporting a library needs one to "
            "link it; install gcc or clang (Debian, Ubuntu: apt-get install g++) or set CC"
        )
    return found
