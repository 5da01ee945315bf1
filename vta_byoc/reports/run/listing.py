"""Disassembly of whole models and of single layers, as text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Layer, Program
from vta_byoc.ir.names import JOINT


def listing(programs: Mapping[str, Program]) -> str:
    """Every region: a title, symbols, instructions under their layers."""
    if not programs:
        return "; no region: every operator runs on the CPU\n"
    return "\n".join(f"; {name}\n{program.disassemble()}" for name, program in programs.items())


def layer_listing(programs: Mapping[str, Program], name: str) -> str:
    """One layer: the symbols that it addresses, then its instructions.

    Raises:
        VTAError: no layer of that name runs on VTA.
    """
    region, layer = find_layer(programs, name)
    return "\n".join([f"; {region}", *_lines(programs[region], layer)]) + "\n"


def find_layer(programs: Mapping[str, Program], name: str) -> tuple[str, Layer]:
    """The region and the layer ``name``, or the one that the operator ``name`` is fused into.

    Raises:
        VTAError: there is none.
    """
    layers = [(r, layer) for r, program in programs.items() for layer in program.layers]
    for region, layer in layers:
        if name == layer.name or name in layer.name.split(JOINT):
            return region, layer
    known = list(dict.fromkeys(part for _, layer in layers for part in layer.name.split(JOINT)))
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:3]
    hint = f"for example {', '.join(close)}" if close else "the model has none"
    raise VTAError(
        f'no layer "{name}" on VTA; {len(known)} operators are, {hint}; `vta-byoc run` lists all'
    )


def _lines(program: Program, layer: Layer) -> Iterator[str]:
    indices = range(layer.begin, layer.end)
    used = {rel.symbol for rel in program.relocations if rel.index in indices}
    for line in program.disassemble().splitlines():
        words = line.split()
        if line.startswith("; vta"):
            yield line
        elif line.startswith("; "):
            if words[2] in used:
                yield line
        elif line.startswith("  "):
            if int(words[0]) in indices:
                yield line
        elif line == f"{layer.name}:":
            yield line
