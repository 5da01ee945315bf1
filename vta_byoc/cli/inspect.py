"""`vta-byoc inspect`: what a compiled model is for, takes, holds and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.cli.run_library import holds_library
from vta_byoc.hw.errors import VTAError


@click.command(short_help="Say what a library, a bundle or a program file is for.")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def inspect(file: str, as_json: bool) -> None:
    """Say machine, version, inputs, counters and size of FILE, which is compiled already.

    FILE is a library (.so) or the folder of a bundle that `vta-byoc compile` wrote, or a program
    file (.vta) of `vta-byoc programs`.

    \b
    Examples:
      vta-byoc inspect resnet18.so
      vta-byoc inspect resnet18-bundle --json
    """
    facts = _facts(file)
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    for line in _lines(file, facts):
        say(line)


def _facts(file: str) -> dict[str, Any]:
    from vta_byoc.bundle.read import is_bundle
    from vta_byoc.cli.program_files import holds_program

    if is_bundle(Path(file)):
        return _bundle_facts(Path(file))
    if holds_library(file):
        return _library_facts(Path(file))
    if holds_program(file):
        return _program_facts(file)
    raise VTAError(
        f'"{file}" is no library (.so), folder of a bundle or program file (.vta); these are what '
        "vta-byoc compile and vta-byoc programs write; give one of them"
    )


def _bundle_facts(folder: Path) -> dict[str, Any]:
    from vta_byoc.bundle.read import nbytes, read_manifest

    manifest = read_manifest(folder)

    def named(numbers: Sequence[int]) -> list[dict[str, Any]]:
        tensors = [manifest["tensors"][number] for number in numbers]
        return [{key: tensor[key] for key in ("name", "shape", "dtype")} for tensor in tensors]

    return {
        "kind": "bundle",
        "version": manifest["producer"],
        "bytes": nbytes(folder),
        "machine": manifest["machine"],
        "inputs": named(manifest["inputs"]),
        "outputs": named(manifest["outputs"]),
        "programs": {
            program["name"]: {
                "instructions": program["instructions"]["count"],
                "constant_bytes": sum(segment["bytes"] for segment in program["segments"]),
                "arena_bytes": program["arena_bytes"],
                "counters": program["counters"],
            }
            for program in manifest["programs"]
        },
    }


def _library_facts(path: Path) -> dict[str, Any]:
    from vta_byoc.runtime.library import load_library

    library = load_library(path)
    inputs = [
        {"name": item.name, "shape": item.shape and list(item.shape), "dtype": item.dtype}
        for item in library.inputs
    ]
    known = {"kind": "library", "bytes": library.nbytes, "inputs": inputs}
    if not library.about:
        return {**known, "version": "unknown: written before libraries said it", "machine": {}}
    about = library.about
    return {
        **known,
        "version": f"vta_byoc {about['version']}",
        "machine": about["machine"],
        "programs": about["programs"],
    }


def _program_facts(file: str) -> dict[str, Any]:
    from vta_byoc.hw.program.file import VERSION, load
    from vta_byoc.runtime.library import program_facts

    program = load(file)

    def tensors(kind: str) -> list[dict[str, Any]]:
        return [
            {"name": s.name, "shape": list(s.shape), "dtype": s.dtype}
            for s in program.of_kind(kind)
        ]

    return {
        "kind": "program",
        "version": f"program file, format version {VERSION}",
        "bytes": Path(file).stat().st_size,
        "machine": program.config.to_dict(),
        "inputs": tensors("input"),
        "outputs": tensors("output"),
        "programs": {Path(file).stem: program_facts(program)},
    }


def _lines(file: str, facts: Mapping[str, Any]) -> list[str]:
    from vta_byoc.hw.counters import COUNTER_NAMES

    lines = [f"{file}: {facts['kind']}, {facts['bytes'] / 1e6:,.2f} MB, {facts['version']}"]
    machine = {key.lower(): value for key, value in facts["machine"].items()}
    if machine:
        name = f"{machine['target']}, " if "target" in machine else ""
        buffers = (f"{sram} 2^{machine[f'log_{sram}_buff_size']}" for sram in SRAM_NAMES)
        shape = f"{1 << machine['log_batch']}x{1 << machine['log_block']}"
        lines.append(f"machine: {name}{shape}; buffers in bytes: {', '.join(buffers)}")
    for kind in ("input", "output"):
        for tensor in facts.get(f"{kind}s", ()):
            lines.append(f"{kind} {tensor['name']} {tensor['dtype']} {_shape(tensor['shape'])}")
    programs = facts.get("programs", {})
    for name, program in programs.items():
        sizes = f"{program['instructions']:,} instructions, {program['constant_bytes']:,} bytes"
        lines.append(
            f"program {name}: {sizes} of constants, arena {program['arena_bytes']:,} bytes"
        )
    for counter in COUNTER_NAMES if programs else ():
        total = sum(program["counters"][counter] for program in programs.values())
        lines.append(f"{counter:<18}{total:>16,}")
    return lines


SRAM_NAMES = ("uop", "inp", "wgt", "acc")


def _shape(shape: Sequence[int] | None) -> str:
    return "of unknown shape" if shape is None else "x".join(map(str, shape)) or "scalar"
