"""Thirty machines with ResNet-18: minutes, an interruption, and the same numbers by a Dask cluster.

    python benchmarks/explore.py [--json] [--machines 30]

The exploration is killed behind the tenth result and called again; the whole is done once more by
two workers of a local Dask cluster. A number that is not the same both times is a difference. Where
other programs have the processors, the seconds of a point say more than the minutes.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from models import resnet18

MOST_MINUTES = 10.0
WORKERS = 2
VARY = {
    "LOG_INP_BUFF_SIZE": [13, 14, 15],
    "LOG_WGT_BUFF_SIZE": [16, 17, 18],
    "LOG_ACC_BUFF_SIZE": [15, 16, 17],
}
"""Of pynq: 27 machines; with NAMED they are thirty."""
NAMED = ["sim", "chisel", "2x16"]
COMMAND = [sys.executable, "-m", "vta_byoc", "explore"]


def call(folder: Path, log: str, *more: str) -> subprocess.Popen[str]:
    model, space = str(resnet18.cached()), str(folder / "space.json")
    command = [*COMMAND, model, "--space", space, "-o", str(folder / log), "--json", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def finished(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"vta-byoc explore ended with exit code {process.returncode}")
    points: list[dict[str, Any]] = json.loads(text)["points"]
    return points


def interrupted(folder: Path, after: int) -> None:
    """Kill an exploration, with its workers, behind so many results."""
    process, log = call(folder, "local.jsonl", "--workers", str(WORKERS)), folder / "local.jsonl"
    while process.poll() is None:
        if log.exists() and log.read_bytes().count(b"\n") >= after:
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.1)
    process.communicate()


def main() -> int:
    parser = arguments("Thirty machines with ResNet-18, interrupted, and on a Dask cluster.")
    parser.add_argument("--machines", type=int, default=30, help="how many of them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vary = {"machines": NAMED, "base": "pynq", "vary": VARY}
        (folder / "space.json").write_text(json.dumps(vary))
        if options.machines < len(NAMED):
            few = {"machines": NAMED[: options.machines]}
            (folder / "space.json").write_text(json.dumps(few))
        begin = time.perf_counter()
        interrupted(folder, min(10, options.machines // 2))
        kept = (folder / "local.jsonl").read_bytes().count(b"\n")
        local = finished(call(folder, "local.jsonl", "--workers", str(WORKERS)))
        minutes = (time.perf_counter() - begin) / 60
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = (used.ru_utime + used.ru_stime) / max(len(local) - kept, 1)
        again = by_dask(folder)
    different = sum(a != b for a, b in zip(local, again, strict=True))
    figures = [
        Figure("points", len(local), "points"),
        Figure("kept_of_the_interrupted", kept, "points"),
        Figure("not_beaten", sum(point["pareto"] for point in local), "points"),
        Figure("refused", sum(bool(point["error"]) for point in local), "points"),
        Figure("cpu_seconds_a_point", seconds, "s"),
        Figure.at_most("minutes", minutes, "min", MOST_MINUTES),
        Figure.at_most("different", different, "points", 0),
    ]
    return report("explore", figures, options.json)


def by_dask(folder: Path) -> list[dict[str, Any]]:
    """The same by two processes of a local cluster."""
    import distributed

    with distributed.LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        return finished(call(folder, "dask.jsonl", "--scheduler", cluster.scheduler_address))


if __name__ == "__main__":
    sys.exit(main())
