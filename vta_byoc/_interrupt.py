"""Ctrl-C on the command line: exit code 130 at once, nothing half-written, no traceback.

A KeyboardInterrupt would have to find its way through C++ frames, callbacks and destructors, which
turn it into other errors or swallow it.  So the signal ends the process here instead.  Its handler
in Python waits until C++ returns; the thread that reads the wakeup pipe does not.

The console script imports this module first, so it needs little itself.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys

INTERRUPTED = 130
SCRIPTS = ("vta-byoc", "vta-byoc.exe", "vta-byoc-script.py")
MODULE = "vta_byoc"
_SHOW_CURSOR = "\x1b[?25h"

_unfinished: set[str] = set()
_leaving = _thread.allocate_lock()
_installed = False


class Unfinished:
    """While the block runs, an interrupt removes `path`, a file or a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __enter__(self) -> None:
        _unfinished.add(self._path)

    def __exit__(self, *_: object) -> None:
        _unfinished.discard(self._path)


def is_command() -> bool:
    """Whether this process is the console script, or `python -m vta_byoc`."""
    name = os.path.basename((getattr(sys, "argv", None) or [""])[0])
    if name == "-m":  # while the package is imported that runs as a module
        return ("-m", MODULE) in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    return name in SCRIPTS


def install_for_script() -> None:
    """`install`, if this process is a command."""
    if is_command():
        install()


def install() -> None:
    """From now on SIGINT ends the process; once is enough, and only the main thread may."""
    global _installed
    if _installed or signal.getsignal(signal.SIGINT) != signal.default_int_handler:
        return  # started in the background, or somebody else handles it
    try:
        signal.signal(signal.SIGINT, lambda _number, _frame: _leave())
    except ValueError:
        return  # not the main thread
    _installed = True
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _thread.start_new_thread(_watch, (reader,))


def _watch(reader: int) -> None:
    while signal.SIGINT not in os.read(reader, 1):
        pass
    _leave()


def _leave() -> None:
    if not _leaving.acquire(blocking=False):
        return
    children = _children()
    for child in children:  # they write no more; if they ended here, who waits for them would go on
        _tried(os.kill, child, signal.SIGSTOP)
    for path in tuple(_unfinished):
        _tried(_remove, path)
    cursor = _SHOW_CURSOR if os.isatty(2) else ""
    _tried(os.write, 2, f"{cursor}\nerror: interrupted\n".encode())
    for child in children:
        _tried(os.kill, child, signal.SIGKILL)
    os._exit(INTERRUPTED)


def _tried(function: object, *args: object) -> None:
    """Call `function`; what the system refuses cannot be helped any more."""
    try:
        function(*args)  # type: ignore[operator]
    except OSError:
        return


def _remove(path: str) -> None:
    if os.path.isdir(path):
        import shutil

        shutil.rmtree(path)
    else:
        os.unlink(path)


def _children() -> list[int]:
    """A linker, for example; [] where the system does not say."""
    found: list[int] = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except OSError:
        return found
    return found
