"""Run benchmarks and keep what they print in `benchmarks/results`, from which the docs quote.

    python benchmarks/record.py networks layers    # some of them; without names all but BY_NAME
    python benchmarks/record.py networks -- --only resnet18   # options of the benchmark: a part

`tests/benchmarks/test_documented_figures.py` compares README and docs with these files. A part
replaces the figures of the same names and leaves the others; figures of all that a benchmark
measures (`Figure.total`) are taken from a run of all of it alone, and those of a part are told.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
BY_NAME = frozenset({"explore", "libraries", "mutants", "published", "rtl"})
"""Recorded only when they are named: they take long, and need an extra or an index."""
KEPT_KEYS = ("name", "value", "unit", "baseline", "bound", "target", "ok")


def recorded(name: str) -> dict[str, float]:
    """The recorded figures of benchmark `name`: `figure`, `figure.bound`, `figure.baseline`."""
    kept = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    values = {figure["name"]: figure["value"] for figure in kept["figures"]}
    for beside in ("bound", "baseline"):
        values |= {f"{f['name']}.{beside}": f[beside] for f in kept["figures"]}
    return values


def all_recorded() -> dict[str, dict[str, float]]:
    """The figures of every benchmark that has been recorded."""
    return {path.stem: recorded(path.stem) for path in sorted(RESULTS.glob("*.json"))}


def run(name: str, options: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The figures that a benchmark prints; a missed target (exit code 1) is recorded too.

    Totals of a part are no figures; their names and values come beside, as texts.
    """
    command = [sys.executable, str(HERE / f"{name}.py"), "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode > 1:
        raise SystemExit(f"{name}.py ended with exit code {done.returncode}; nothing is recorded")
    printed = json.loads(done.stdout)
    is_part = printed.get("part", False)
    left = [figure for figure in printed["figures"] if is_part and figure["total"]]
    kept = [figure for figure in printed["figures"] if figure not in left]
    texts = [f"{figure['name']} {figure['value']:.4g}" for figure in left]
    return [{key: figure[key] for key in KEPT_KEYS} for figure in kept], texts


def record(name: str, options: Sequence[str]) -> None:
    """Run one benchmark and write its figures, one a line."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    found, left = run(name, options)
    figures = {figure["name"]: figure for figure in found}
    if options and path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))["figures"]
        figures = {figure["name"]: figure for figure in before} | figures
    lines = ",\n".join(f"    {json.dumps(figure)}" for figure in figures.values())
    text = f'{{\n  "name": {json.dumps(name)},\n  "figures": [\n{lines}\n  ]\n}}\n'
    path.write_text(text, encoding="utf-8")
    print(f"{name}: {len(figures)} figures in {path.name}")
    if left:
        print(f"{name}: of this part alone, not recorded: {', '.join(left)}; record all of {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the figures that the docs quote.")
    parser.add_argument("names", nargs="*", help="benchmarks; without, all but the slow ones")
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names = parser.parse_args(arguments[:split]).names
    for name in names or sorted({path.stem for path in RESULTS.glob("*.json")} - BY_NAME):
        record(name, arguments[split + 1 :])


if __name__ == "__main__":
    main()
