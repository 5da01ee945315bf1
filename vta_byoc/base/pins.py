"""The TVM releases this package works with, and the check that one of them is installed.

`setup.py` reads `REQUIREMENTS` from here, so what pip installs and what the import accepts
cannot drift apart. Nothing here imports TVM: with a wrong tvm-ffi, TVM imports without
complaint and then crashes the process on the first JSON serialisation of IR.
"""

from __future__ import annotations

from collections.abc import Mapping

TVM = "apache-tvm"
FFI = "apache-tvm-ffi"
RANGES = {TVM: ">=0.27,<0.28", FFI: ">=0.1.14.post0,<0.1.15"}
# Without the rpc extra, TVM's RPC lacks cloudpickle, tornado and psutil.
REQUIREMENTS = (f"{TVM}[rpc]{RANGES[TVM]}", f"{FFI}{RANGES[FFI]}")
FIX = "python -m pip install " + " ".join(f'"{requirement}"' for requirement in REQUIREMENTS)


def installed_versions() -> dict[str, str | None]:
    """Version of each pinned distribution in this environment; None where it is missing."""
    return {name: _version_or_none(name) for name in RANGES}


def mismatch(versions: Mapping[str, str | None]) -> str | None:
    """One line on the first pinned distribution outside its range, or None when all fit.

    `versions` maps a distribution's name to its version; None or no entry means not installed.
    """
    for name, wanted in RANGES.items():
        found = versions.get(name)
        if found is None:
            return f"{name} is not installed; vta_byoc needs {name}{wanted}; run: {FIX}"
        if not _in_range(found, wanted):
            return f"{name} {found} is installed; vta_byoc needs {name}{wanted}; run: {FIX}"
    return None


def check_pins(versions: Mapping[str, str | None] | None = None) -> None:
    """Raise ImportError, with the command that repairs it, unless the pins hold.

    `versions` defaults to what is installed.
    """
    problem = mismatch(installed_versions() if versions is None else versions)
    if problem is not None:
        raise ImportError(problem)


def _version_or_none(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _in_range(found: str, wanted: str) -> bool:
    # Imported late: setup.py runs this file in a build environment without `packaging`.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(wanted).contains(Version(found), prereleases=True)
    except InvalidVersion:
        return False
