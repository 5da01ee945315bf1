"""A measurement in a process of its own, bounded in time: what ends it does not end the others."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

MOST_SECONDS = 1200
"""After which a measurement is stopped; one takes minutes on an idle machine."""


def measured_apart(
    script: str, name: str, options: Sequence[str] = ()
) -> tuple[dict[str, Any] | None, str]:
    """What `script --measure name` prints last, a JSON object; or None and why it ended without."""
    start = time.perf_counter()
    command = [sys.executable, script, "--measure", name, *options]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=MOST_SECONDS)
        row = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
        ended = f"its process ended with {done.returncode}"
    except subprocess.TimeoutExpired:
        row, ended = None, f"it took longer than {MOST_SECONDS} s"
    print(f"{name} {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return row, ended
