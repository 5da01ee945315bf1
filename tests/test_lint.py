"""Linting and type checking are tests: what they find fails with their own output."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]


def check(*command: str, cwd: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def as_installed(target: Path) -> Path:
    """Copy the sources to the layout they install to: mypy cannot follow `package_dir`."""
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "vta_byoc", target / "vta_byoc", ignore=no_caches)
    shutil.copytree(ROOT / "hw", target / "vta_byoc" / "hw", ignore=no_caches)
    return target


def test_ruff() -> None:
    check("ruff", "check", ".", cwd=ROOT)


def test_mypy(tmp_path: Path) -> None:
    config = ("--config-file", str(ROOT / "pyproject.toml"))
    cache = ("--cache-dir", str(ROOT / ".mypy_cache"))
    sources = as_installed(tmp_path / "src")
    check("mypy", *config, *cache, "-p", "vta_byoc", cwd=sources, MYPYPATH=".")


def test_no_drawn_case_has_a_deadline() -> None:
    """A busy machine fails no test."""
    assert settings().deadline is None
