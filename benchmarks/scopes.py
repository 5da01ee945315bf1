"""Memory scopes: bytes that move with the pass on, with DRAM scopes only, and off.

Each network is built, calibrated with its own images and compiled for the pynq preset three times,
once for each mode of `vta_byoc.pipeline.SCOPE_MODES`, in a process of its own. "VTA" is what the
programs of all regions move between DRAM and the chip, micro-ops and the fetch of instructions
included; "host" is what its packs, unpacks and folds read and write, each by itself. TVM fuses an
unpack with the packs behind it, so a host can move less: the bound is what is left when no plain
tensor is written between two layers. Outputs and the tensors that regions store are compared with
the integer reference.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks.networks import images, measured
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings, vars_in
from vta_byoc.ir.views import RESHAPES
from vta_byoc.partitioning.packed_forms import FOLD, PACK, UNPACK
from vta_byoc.partitioning.region import Region, region_functions
from vta_byoc.pipeline import DRAM_ONLY, OFF, ON, SCOPE_MODES

NETWORKS = ("resnet18", "mobilenet_v2", "yolov3_tiny")
LAYERS_OF = "resnet18"
"""The network whose convolutions and residual additions are counted alone."""
LAYER_KINDS = ("relax.nn.conv2d", "relax.add")
LEFT_OUT = ("conv1",)
"""The stem, which the published counters do not have either: there it runs on the CPU."""
PUBLISHED_BYTES = 22.3e6
"""Of those 19 convolutions and 8 additions: published counters in true bytes of DRAM."""
FLOOR_BYTES = 15.4e6
"""Of those layers, were each tensor moved once and residual sums on chip."""
MOST_LAYER_BYTES = 17.0e6
"""Of those layers with the pass on."""
SUFFIX = {ON: "on", DRAM_ONLY: "dram_only", OFF: "off"}
NOTES = (
    f"{LAYERS_OF}_dram_bytes_*: 19 convolutions and 8 additions, as published (without the stem): "
    "what VTA moves and the host's packs and unpacks of these layers, which are there with scopes "
    "off only; folds, which every mode makes alike, are left out",
    "*_dram_bytes_* of the other networks: the whole network, VTA and host",
    f"bound: of {LAYERS_OF}: every tensor moved once; of scopes off: the same where no plain "
    "tensor is written between two layers",
)
INPUTS = 2
"""Images that every stored tensor is compared on."""


# ---------------------------------------------------------------- the host's copies
@dataclass(frozen=True)
class HostCopy:
    """A change of layout between a plain and a packed tensor, with the bytes of both.

    ``layers`` are the operators on VTA that it is made for; ``between``: the plain tensor is made
    by an unpack and read by packs only.
    """

    kind: str
    layers: Sequence[str]
    plain: int
    packed: int
    between: bool

    @property
    def nbytes(self) -> int:
        """Read and written."""
        return self.plain + self.packed

    @property
    def least(self) -> int:
        """Without a plain tensor that nothing else needs."""
        return self.packed if self.between else self.nbytes


def host_copies(mod: tvm.IRModule) -> list[HostCopy]:
    """Packs, unpacks and folds of a partitioned module, in order."""
    return list(_Copies(mod).all())


class _Copies:
    """What ``main`` copies, for which operators, and which plain tensors only copies touch."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self._bindings = straight_bindings(mod["main"])
        self._root: dict[relax.Var, relax.Var] = {}
        self._layers: dict[relax.Var, list[str]] = {}
        self._unpacked: set[relax.Var] = set()
        self._needed = set(vars_in(mod["main"].body.body))
        for binding in self._bindings:
            var, value = binding.var, binding.value
            if op_name(value) in RESHAPES:
                self._root[var] = self.root(value.args[0])
            elif self._kind(value) == UNPACK:
                self._unpacked.add(var)
            elif not self._kind(value):
                self._needed.update(vars_in(value))
        self._needed = {self.root(var) for var in self._needed}
        self._find_layers(mod)

    def root(self, var: relax.Var) -> relax.Var:
        """The variable before all reshapes."""
        return self._root.get(var, var)

    def all(self) -> Iterator[HostCopy]:
        for binding in self._bindings:
            kind = self._kind(binding.value)
            if not kind:
                continue
            operand, result = binding.value.args[1].fields[0], binding.var
            packed, plain = (operand, result) if kind == UNPACK else (result, operand)
            root = self.root(plain)
            between = root in self._unpacked and root not in self._needed
            layers = self._layers[packed]
            name = kind.removeprefix("vta_")
            yield HostCopy(name, layers, nbytes_of(plain), nbytes_of(packed), between)

    @staticmethod
    def _kind(value: relax.Expr) -> str:
        """PACK, UNPACK or FOLD; "" for what is no copy."""
        if op_name(value) != "relax.call_tir":
            return ""
        callee = value.args[0].name_hint
        return next((kind for kind in (PACK, UNPACK, FOLD) if callee.startswith(kind)), "")

    def _find_layers(self, mod: tvm.IRModule) -> None:
        """The operators that read or store each packed tensor."""
        functions = {gvar.name_hint: func for gvar, func in region_functions(mod).items()}
        stored: dict[relax.Var, list[str]] = {}
        for binding in self._bindings:
            var, value = binding.var, binding.value
            if isinstance(value, tvm.ir.TupleGetItem) and value.tuple_value in stored:
                self._layers[var] = [stored[value.tuple_value][value.index]]
            callee = getattr(getattr(value, "op", None), "name_hint", "")
            if callee in functions:
                region = Region.of(functions[callee])
                sources = {step.output: step.source for step in region.steps}
                stored[var] = [sources[name] for name in region.outputs]
                self._layers[var] = stored[var]
                for name, arg in zip(region.params, value.args, strict=True):
                    users = [step.source for step in region.steps if name in step.args]
                    self._layers.setdefault(arg, []).extend(users)


def nbytes_of(var: relax.Var) -> int:
    """Of a tensor."""
    return math.prod(static_shape(var)) * tvm.DataType(str(var.ty.dtype)).bits // 8


# ---------------------------------------------------------------- measuring
def measure(name: str) -> dict[str, Any]:
    """The network in all modes, in this process."""
    from vta_byoc import load_model, quantize
    from vta_byoc.pipeline import compile_module, partition_for_vta
    from vta_byoc.validation.bit_exact import reference_runner

    given = images(name)
    config = VTAConfig.preset("pynq")
    qmod = quantize(load_model(given.path), calibration=given.calibration, config=config)
    modules = {mode: partition_for_vta(qmod, config, scopes=mode) for mode in SCOPE_MODES}
    compiled = {mode: compile_module(modules[mode], config) for mode in SCOPE_MODES}
    programs = {f"{m} {n}": p for m, made in compiled.items() for n, p in made.programs.items()}
    reference_of = reference_runner(qmod, programs)
    samples = given.samples[:INPUTS]
    references = [reference_of([sample]) for sample in samples]
    modes = {}
    for mode in SCOPE_MODES:
        print(f"{name}, scopes {mode} ...", file=sys.stderr, flush=True)
        checks = different(qmod, compiled[mode], samples, references)
        modes[mode] = {**moved(modules[mode], compiled[mode]), **checks}
    return {"name": name, "modes": modes}


def moved(mod: tvm.IRModule, compiled: Any) -> dict[str, Any]:
    """Regions, cycles, arena bytes, and bytes that VTA and the host move, in all and for the layers
    of LAYER_KINDS."""
    from vta_byoc.ir.names import operators_of
    from vta_byoc.reports.run.layers import model_facts

    facts = model_facts(compiled.config, compiled.programs, compiled.placement)
    wanted = {op.name for op in compiled.placement if op.op in LAYER_KINDS} - {*LEFT_OUT}

    def counts(layer: str) -> bool:
        return any(name in wanted for name in operators_of(layer))

    def host(copies: Sequence[HostCopy]) -> dict[str, int]:
        return {"host": sum(c.nbytes for c in copies), "host_least": sum(c.least for c in copies)}

    copies = host_copies(mod)
    own = [c for c in copies if c.kind != "fold" and any(counts(layer) for layer in c.layers)]
    alone = sum(layer.dram_bytes for layer in facts.layers if counts(layer.name))
    return {
        "regions": len(facts.regions),
        "cycles": facts.cycles,
        "peak": max(p.peak_bytes for p in compiled.programs.values()),
        "apart": max(p.unshared_bytes for p in compiled.programs.values()),
        "vta_by_kind": facts.dram,
        "all": {"vta": sum(facts.dram.values()), **host(copies)},
        "layers": {"vta": alone, **host(own)},
    }


def different(
    qmod: tvm.IRModule, compiled: Any, samples: Iterable[np.ndarray], references: Iterable[Any]
) -> dict[str, int]:
    """How many tensors were compared with the reference, and how many differ."""
    from vta_byoc.importers.load import output_names
    from vta_byoc.runtime.execute import profile
    from vta_byoc.validation.bit_exact import compare_outputs, compare_stored

    checks = []
    for sample, reference in zip(samples, references, strict=True):
        run = profile(compiled.exe, [sample], arenas=True)
        checks += compare_outputs(output_names(qmod), run.outputs, reference)
        checks += compare_stored(run, compiled.programs, reference)
    return {"tensors": len(checks), "different": sum(not check.equal for check in checks)}


# ---------------------------------------------------------------- figures
def figures_of(row: Mapping[str, Any]) -> list[Figure]:
    """The figures of one network."""
    name, modes = row["name"], row["modes"]
    figures = [bytes_figure(name, mode, modes) for mode in SCOPE_MODES]
    for mode in SCOPE_MODES:
        prefix, found = f"{name}_{SUFFIX[mode]}", modes[mode]
        figures += [
            Figure(f"{prefix}_tensors_compared", found["tensors"], "tensors"),
            Figure.at_most(f"{prefix}_tensors_different", found["different"], "tensors", 0),
            Figure(f"{prefix}_regions", found["regions"], "regions"),
            Figure(f"{prefix}_vta_megabytes", found["all"]["vta"] / 1e6, "MB"),
            Figure(f"{prefix}_host_megabytes", found["all"]["host"] / 1e6, "MB"),
            Figure(f"{prefix}_cycles", found["cycles"], "cycles"),
            Figure(f"{prefix}_peak_megabytes", found["peak"] / 1e6, "MB"),
            Figure(f"{prefix}_apart_megabytes", found["apart"] / 1e6, "MB"),
        ]
    return figures


def bytes_figure(name: str, mode: str, modes: Mapping[str, Any]) -> Figure:
    """Bytes in one mode; those of "on" have a limit."""
    figure, value = f"{name}_dram_bytes_{SUFFIX[mode]}", total(name, modes[mode])
    bound = total(name, modes[mode], "host_least")
    if name == LAYERS_OF and mode != OFF:
        bound = FLOOR_BYTES
    if mode != ON:
        return Figure(figure, value, "bytes", bound=bound)
    off = total(name, modes[OFF])
    most = MOST_LAYER_BYTES if name == LAYERS_OF else off - 1
    baseline = (PUBLISHED_BYTES, "published") if name == LAYERS_OF else (off, "off")
    beside = {"baseline": baseline[0], "baseline_name": baseline[1], "bound": bound}
    return Figure.at_most(figure, value, "bytes", most, **beside)


def total(name: str, found: Mapping[str, Any], host: str = "host") -> int:
    """What :data:`NOTES` says of the figure of ``name``."""
    part = found["layers" if name == LAYERS_OF else "all"]
    return int(part["vta"] + part[host])


def table_of(rows: Iterable[Mapping[str, Any]]) -> Table:
    """A row for each network and mode."""
    table = Table(title="bytes moved, by scope mode")
    for column in ("network", "scopes"):
        table.add_column(column)
    numbers = ("regions", "VTA", "host", "VTA + host", "conv + add", "cycles", "different")
    for column in numbers:
        table.add_column(column, justify="right")
    for row in rows:
        for mode, found in row["modes"].items():
            alone = row["name"] == LAYERS_OF
            cells = [
                found["regions"],
                found["all"]["vta"],
                found["all"]["host"],
                found["all"]["vta"] + found["all"]["host"],
                total(LAYERS_OF, found) if alone else None,
                found["cycles"],
            ]
            text = ["" if value is None else f"{value:,}" for value in cells]
            verdict = f"{found['different']} of {found['tensors']}"
            table.add_row(row["name"] if mode == ON else "", mode, *text, verdict)
    return table


def main() -> int:
    parser = arguments("Bytes moved in each mode of memory scopes.")
    options, rows = measured(parser, NETWORKS, NETWORKS, measure, __file__)
    if options.measure:
        return 0
    figures = [figure for row in rows for figure in figures_of(row)]
    if not options.json:
        console = Console(width=max(140, Console().width))
        console.print(table_of(rows))
        for note in NOTES:
            console.print(note, markup=False, highlight=False)
    return report("scopes", figures, options.json, networks=rows, notes=NOTES)


if __name__ == "__main__":
    sys.exit(main())
