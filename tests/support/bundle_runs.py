"""Bundles in C: the example built once, bundles run by it, bundles damaged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from vta_byoc.bundle.manifest import BINARIES, MANIFEST, MANIFEST_SUM
from vta_byoc.ir.reference import build_reference

C_FOLDER = Path(__file__).resolve().parents[2] / "vta_byoc" / "runtime" / "c"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
STATUSES = ("ok", "file", "checksum", "format", "version", "machine", "memory", "device")
"""The example's exit codes by number."""
CRASHED = 99
ENVIRONMENT = {
    **os.environ,
    "ASAN_OPTIONS": f"exitcode={CRASHED}:allocator_may_return_null=1",
    "UBSAN_OPTIONS": f"exitcode={CRASHED}:halt_on_error=1",
}
"""What sanitizers end a program with is none of the example's own exit codes."""


def compiler(name: str = "cc") -> str:
    """The path of a compiler; the test is skipped, visibly, where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on PATH")
    return found


def built(folder: Path, *flags: str, sources: Sequence[str] = ("example.c",)) -> Path:
    """The example as a program in `folder`, compiled strictly."""
    target = folder / "example"
    names = [str(C_FOLDER / name) for name in (*sources, "vta_runtime.c", "vta_sim.c")]
    command = [compiler(), *STRICT, *flags, *names, f"-I{C_FOLDER}", "-lm", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def run_bundle(
    program: Path,
    bundle: Path,
    inputs: Sequence[np.ndarray],
    like: Sequence[np.ndarray],
    folder: Path,
    *flags: str,
) -> tuple[list[np.ndarray], str]:
    """What the C runtime makes of `inputs`, typed as the arrays `like`; and what it prints."""
    given = [folder / f"in{i}.bin" for i in range(len(inputs))]
    made = [folder / f"out{i}.bin" for i in range(len(like))]
    for path, array in zip(given, inputs, strict=True):
        array.tofile(path)
    command = [program, bundle, *flags, *given, "-o", *made]
    text = [str(part) for part in command]
    done = subprocess.run(text, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    results = [np.fromfile(p, a.dtype).reshape(a.shape) for p, a in zip(made, like, strict=True)]
    return results, done.stdout


def outcome(program: Path, bundle: Path, *more: object) -> tuple[str, str]:
    """How the example ends with a bundle, one of STATUSES or what else; and its message."""
    command = [str(part) for part in (program, bundle, *more)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    known = 0 <= done.returncode < len(STATUSES)
    name = STATUSES[done.returncode] if known else f"crash, exit code {done.returncode}"
    return name, done.stderr.strip()


def reference(mod: tvm.IRModule) -> relax.VirtualMachine:
    """The integer dialect on LLVM."""
    return relax.VirtualMachine(build_reference(mod), tvm.cpu())


def results_of(machine: relax.VirtualMachine, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    found = machine["main"](*map(tvm.runtime.tensor, inputs))
    return [found.numpy()] if hasattr(found, "numpy") else [item.numpy() for item in found]


def drawn_inputs(mod: tvm.IRModule, seed: int) -> list[np.ndarray]:
    """Random arrays for the parameters of `main`: every integer, floats around zero."""
    rng = np.random.default_rng(seed)
    arrays = []
    for param in mod["main"].params:
        shape, dtype = [int(n) for n in param.ty.shape], np.dtype(str(param.ty.dtype))
        if dtype.kind == "f":
            arrays.append(rng.standard_normal(shape).astype(dtype))
        else:
            ends = np.iinfo(dtype)
            arrays.append(rng.integers(ends.min, ends.max + 1, shape).astype(dtype))
    return arrays


# ---------------------------------------------------------------- damage
def damage(bundle: Path, rng: np.random.Generator) -> str:
    """Change a file of a bundle in place; says what was done."""
    while True:
        before = {path: path.read_bytes() for path in bundle.iterdir()}
        what = _damage(bundle, rng)
        if any(path.read_bytes() != data for path, data in before.items()):
            return what  # another number may be the one that was there


def _damage(bundle: Path, rng: np.random.Generator) -> str:
    files = [path for path in sorted(bundle.iterdir()) if path.stat().st_size]
    path = files[int(rng.integers(len(files)))]
    data = bytearray(path.read_bytes())
    kind = str(rng.choice(["bit", "byte", "cut", "append", "swap", "number"]))
    at = int(rng.integers(len(data)))
    if kind == "bit":
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == "byte":
        data[at] = (data[at] + int(rng.integers(1, 256))) % 256
    elif kind == "cut":
        del data[at:]
    elif kind == "append":
        data += bytes(rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8))
    elif kind == "number" and path.name == MANIFEST:
        data = _other_number(data, rng)
    else:
        other = int(rng.integers(len(data)))
        end = min(other + 8, len(data))
        data[other:end] = bytes(255 - b for b in data[other:end])
    path.write_bytes(bytes(data))
    return f"{kind} of {path.name} at {at}"


def _other_number(data: bytearray, rng: np.random.Generator) -> bytearray:
    """Another value for one of the manifest's numbers: the JSON stays well formed."""
    places = [i for i in range(1, len(data)) if chr(data[i]).isdigit() and data[i - 1] in b" ["]
    at = places[int(rng.integers(len(places)))]
    end = at
    while chr(data[end]).isdigit():
        end += 1
    value = int(data[at:end])
    choices = (0, 1, value + 1, max(0, value - 1), value * 2, 64, 65536, 2**31, 2**32 - 1, 2**63)
    return data[:at] + str(choices[int(rng.integers(len(choices)))]).encode() + data[end:]


def repair(bundle: Path) -> None:
    """Write the checksums and sizes that the files now have."""
    manifest = bundle / MANIFEST
    text = manifest.read_bytes()
    for line in text.splitlines(keepends=True):
        for name in BINARIES:
            if f'{{"name": "{name}"'.encode() in line:
                text = text.replace(line, _file_line(line, bundle / name))
    manifest.write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    (bundle / MANIFEST_SUM).write_bytes(f"{digest}  {MANIFEST}\n".encode())


def _file_line(line: bytes, path: Path) -> bytes:
    data = path.read_bytes()
    row = {"name": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    tail = b",\n" if line.rstrip().endswith(b",") else b"\n"
    return b"  " + json.dumps(row).encode() + tail
