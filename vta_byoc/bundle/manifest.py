"""The files of a bundle as bytes: a JSON manifest and flat binaries (docs/bundle-format.md)."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from vta_byoc.bundle.model import RUN, BundleModel, HostStep, RunStep
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import INSN_BYTES, SRAMS
from vta_byoc.hw.program.arena import ARENA_ALIGN, Lifetime, Tenant, aligned, plan_arena
from vta_byoc.hw.program.program import STORED, Program, Symbol

FORMAT, VERSION = "vta-byoc bundle", 1
MANIFEST, MANIFEST_SUM = "manifest.json", "manifest.sha256"
CONSTANTS, MICRO_OPS = "constants.bin", "micro_ops.bin"
BINARIES = ("instructions.bin", CONSTANTS, MICRO_OPS, "relocations.bin")
FILES = (MANIFEST, MANIFEST_SUM, *BINARIES)
NAME_LIMIT = 127
"""Most characters of a name: the C runtime copies names into a buffer of this size."""
_RELOCATION = struct.Struct("<III")


def bundle_files(model: BundleModel, config: VTAConfig) -> dict[str, bytes]:
    """The contents of a bundle's files by name; equal models give equal bytes."""
    binaries, places = _binaries(model)
    text = _text(_manifest(model, config, binaries, places))
    summed = f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n".encode()
    return {MANIFEST: text, MANIFEST_SUM: summed, **binaries}


# ---------------------------------------------------------------- binaries
def _binaries(model: BundleModel) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The flat files, and where each program's parts are in them."""
    parts: dict[str, bytearray] = {name: bytearray() for name in BINARIES}
    insns, _, _, relocations = (parts[name] for name in BINARIES)
    places = []
    for program in model.programs.values():
        rows = _relocations(program)
        place: dict[str, Any] = {
            "instructions": {"first": len(insns) // INSN_BYTES, "count": len(program.insns)},
            "relocations": {"first": len(relocations) // _RELOCATION.size, "count": len(rows)},
        }
        insns += program.insns.astype("<u8").tobytes()
        relocations += b"".join(_RELOCATION.pack(*row) for row in rows)
        place["segments"] = list(_segments(program, parts))
        places.append(place)
    return {name: bytes(data) for name, data in parts.items()}, places


def _relocations(program: Program) -> list[tuple[int, int, int]]:
    """(instruction, symbol, elements from its begin on), in order of instructions."""
    numbers = {symbol.name: number for number, symbol in enumerate(program.symbols)}
    return sorted((r.index, numbers[r.symbol], r.addend) for r in program.relocations)


def _segments(program: Program, parts: Mapping[str, bytearray]) -> Iterator[dict[str, Any]]:
    """The image in rows of constants and rows of micro-ops, each appended to its file."""
    rows: list[tuple[str, int, int]] = []
    image = [s for s in program.symbols if s.kind in ("const", "uop") and s.nbytes]
    for symbol in sorted(image, key=lambda s: s.offset):
        file = MICRO_OPS if symbol.kind == "uop" else CONSTANTS
        end = symbol.offset + symbol.nbytes
        if rows and rows[-1][0] == file:
            rows[-1] = (file, rows[-1][1], max(end, rows[-1][2]))
        else:
            rows.append((file, symbol.offset, end))
    for file, begin, end in rows:
        start = begin - program.input_bytes
        data = program.image[start : start + end - begin].tobytes()
        yield {"file": file, "first": len(parts[file]), "bytes": len(data), "at": begin}
        parts[file] += data


# ---------------------------------------------------------------- the manifest
def _manifest(
    model: BundleModel,
    config: VTAConfig,
    binaries: Mapping[str, bytes],
    places: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    offsets, workspace = _workspace(model)
    tensors = [
        {
            "name": _name(tensor.name),
            "dtype": tensor.dtype,
            "layout": tensor.layout,
            "shape": list(tensor.shape),
            "offset": offsets[tensor.storage],
        }
        for tensor in model.tensors
    ]
    programs = [
        _program(name, program, place, config)
        for (name, program), place in zip(model.programs.items(), places, strict=True)
    ]
    steps = [_step(step, model) for step in model.steps]
    return {
        "format": FORMAT,
        "version": VERSION,
        "producer": f"vta_byoc {version('vta_byoc')}",
        "machine": machine_fields(config),
        "counts": _counts(model, places),
        "workspace_bytes": workspace,
        "device_bytes": sum(
            p["arena_bytes"] + p["align"] + INSN_BYTES * p["instructions"]["count"] + ARENA_ALIGN
            for p in programs
        ),
        "files": [
            {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in binaries.items()
        ],
        "tensors": tensors,
        "inputs": model.inputs,
        "outputs": model.outputs,
        "programs": programs,
        "steps": steps,
    }


def machine_fields(config: VTAConfig) -> dict[str, int]:
    """What a program depends on, as the manifest and the driver's `capabilities` have it."""
    caps, bits = config.capabilities, config.index_bits
    flags = ("mul", "acc_8bit", "imm_reads_src", "shift_modulo", "out_sram")
    limits = ("max_shift", "dst_distance", "max_tokens")
    return {
        "log_batch": config.log_batch,
        "log_block": config.log_block,
        **{f"log_{name}_buff_size": getattr(config, f"log_{name}_buff_size") for name in SRAMS},
        **{f"{name}_bits": bits[name] for name in SRAMS},
        **{name: int(getattr(caps, name)) for name in (*flags, *limits)},
    }


def _counts(model: BundleModel, places: Sequence[dict[str, Any]]) -> dict[str, int]:
    runs = [step for step in model.steps if isinstance(step, RunStep)]
    names = [*(tensor.name for tensor in model.tensors), *model.programs]
    return {
        "tensors": len(model.tensors),
        "inputs": len(model.inputs),
        "outputs": len(model.outputs),
        "programs": len(model.programs),
        "segments": sum(len(place["segments"]) for place in places),
        "symbols": sum(len(program.symbols) for program in model.programs.values()),
        "steps": len(model.steps),
        "bindings": sum(len(run.inputs) + len(run.outputs) for run in runs),
        "name_bytes": sum(len(name) + 1 for name in names),
    }


def _program(
    name: str, program: Program, place: dict[str, Any], config: VTAConfig
) -> dict[str, Any]:
    """One program: where its parts are, its arena, its symbols and what it counts."""
    elements = (config.elem_bytes(sram, dtype) for sram, dtype in _ELEMENTS)
    stored = [s.offset for s in program.symbols if s.kind in STORED]
    return {
        "name": _name(name),
        "instructions": place["instructions"],
        "relocations": place["relocations"],
        "stored_from": min(stored, default=program.arena_bytes),
        "arena_bytes": program.arena_bytes,
        "align": max(ARENA_ALIGN, *elements),
        "segments": place["segments"],
        "symbols": [_symbol(symbol) for symbol in program.symbols],
        "counters": {key: program.counters()[key] for key in COUNTER_NAMES},
    }


_ELEMENTS = (("inp", "int8"), ("wgt", "int8"), ("acc", "int32"), ("acc", "int8"))


def _symbol(symbol: Symbol) -> dict[str, Any]:
    return {
        "name": _name(symbol.name),
        "kind": symbol.kind,
        "dtype": symbol.dtype,
        "shape": list(symbol.shape),
        "scope": symbol.scope,
        "offset": symbol.offset,
    }


def _step(step: HostStep | RunStep, model: BundleModel) -> dict[str, Any]:
    if isinstance(step, HostStep):
        return {"op": step.op, "from": step.source, "to": step.result, **step.values}
    program = list(model.programs.values())[step.program]

    def bound(tensors: Sequence[tuple[int, str]]) -> list[dict[str, int]]:
        return [{"tensor": t, "at": program.symbol(name).offset} for t, name in tensors]

    tensors = {"inputs": bound(step.inputs), "outputs": bound(step.outputs)}
    return {"op": RUN, "program": step.program, **tensors}


def _workspace(model: BundleModel) -> tuple[dict[int, int], int]:
    """The offset of every storage, and the bytes of all: what is never alive together shares."""
    sizes: dict[int, int] = {}
    alive: dict[int, Lifetime] = {}

    def lives(number: int, first: int, last: int) -> None:
        tensor = model.tensors[number]
        span = Lifetime(first, last)
        alive[tensor.storage] = span.union(alive.get(tensor.storage, span))
        sizes[tensor.storage] = max(tensor.nbytes, sizes.get(tensor.storage, 0))

    end = len(model.steps)
    for number in range(len(model.tensors)):  # also those that nothing reads have a place
        sizes.setdefault(model.tensors[number].storage, model.tensors[number].nbytes)
    for number in model.inputs:
        lives(number, 0, 0)
    for at, (reads, writes) in enumerate(model.uses()):
        for number in (*reads, *writes):
            lives(number, at, at)
    for number in model.outputs:
        lives(number, end, end)
    whole = Lifetime(0, end)
    tenants = [
        Tenant(str(number), size, ARENA_ALIGN, alive.get(number, whole))
        for number, size in sizes.items()
    ]
    plan = plan_arena(tenants)
    return {int(n): at for n, at in plan.offsets.items()}, aligned(plan.nbytes, ARENA_ALIGN)


def _name(name: str) -> str:
    """A name that the manifest's reader takes.

    Raises:
        VTAError: characters other than ASCII's printable ones, quotes and backslashes, or too many.
    """
    if (
        len(name) > NAME_LIMIT
        or not name.isascii()
        or not name.isprintable()
        or set(name) & set('"\\')
    ):
        raise VTAError(
            f"the name {name!r} stands in a bundle; names there are at most {NAME_LIMIT} printable "
            "ASCII characters without quotes and backslashes; rename the tensor in the model"
        )
    return name


def _text(manifest: Mapping[str, Any]) -> bytes:
    """One key a line at the top, one row a line below."""
    lines = []
    for key, value in manifest.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n  ".join(json.dumps(row) for row in value)
            lines.append(f" {json.dumps(key)}: [\n  {rows}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")
