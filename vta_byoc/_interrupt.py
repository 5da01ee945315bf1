"""Ctrl-C on the command line: exit code 130 at once, nothing half-written, no traceback.

A KeyboardInterrupt would have to find its way through C++ frames, callbacks and destructors, which
turn it into other errors or swallow it.  So the signal ends the process here instead.  Its handler
in Python waits until C++ returns; the thread that reads the wakeup pipe does not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INTERRUPTED = 130
SCRIPTS = ("vta-byoc", "vta-byoc.exe", "vta-byoc-script.py")
_SHOW_CURSOR = "\x1b[?25h"

_unfinished: set[Path] = set()
_leaving = threading.Lock()
_installed = False


@contextlib.contextmanager
def removed_when_interrupted(path: Path) -> Iterator[None]:
    """While the block runs, an interrupt removes `path`, a file or a folder."""
    _unfinished.add(path)
    try:
        yield
    finally:
        _unfinished.discard(path)


def install_for_script() -> None:
    """`install`, if this process is the console script: it has begun and nothing is imported."""
    if os.path.basename((getattr(sys, "argv", None) or [""])[0]) in SCRIPTS:
        install()


def install() -> None:
    """From now on SIGINT ends the process; only a main thread can say so, once is enough."""
    global _installed
    if _installed or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        return  # started in the background
    _installed = True
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGINT, lambda _number, _frame: _leave())
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def _watch(reader: int) -> None:
    while signal.SIGINT not in os.read(reader, 1):
        pass
    _leave()


def _leave() -> Any:
    if not _leaving.acquire(blocking=False):
        return
    for child in _children():
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
    for path in tuple(_unfinished):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with contextlib.suppress(OSError, ValueError):
        cursor = _SHOW_CURSOR if os.isatty(2) else ""
        os.write(2, f"{cursor}\nerror: interrupted\n".encode())
    os._exit(INTERRUPTED)


def _children() -> list[int]:
    """A linker, for example; [] where the system does not say."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
