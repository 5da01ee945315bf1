"""The FPGA tools of the extra `rtl`, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vta_byoc.hw.errors import VTAError

LONGEST_SAID = 300
"""Characters of a tool's own message that an error repeats."""


def run_tool(
    name: str, start: str, options: Sequence[str], room: Path, of: str, remedy: str
) -> None:
    """Run a tool in the folder `room`, where it reads and writes its files.

    Args:
        name: the tool, for errors.
        start: a statement of Python that runs it with the arguments in `sys.argv[1:]`.
        options: these arguments.
        room: the folder.
        of: what it works on, for errors.
        remedy: what to do where it fails.

    Raises:
        VTAError: the tool fails; its first line with ERROR is in the text.
    """
    done = subprocess.run(
        [sys.executable, "-c", start, *options],
        cwd=room,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line]
        said = (lines or [done.stderr.strip() or "nothing"])[0][:LONGEST_SAID]
        raise VTAError(f"{name} fails with {done.returncode} on {of}: {said}; {remedy}")
