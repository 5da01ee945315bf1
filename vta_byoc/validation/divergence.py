"""Find the first instruction and layer where two runs part, or a run and the integer reference.

Two runs are compared by their commit logs.  Against the reference, the first layer whose stored
tensor differs comes first; inside it, the same program as compiled afresh, then a second
implementation, then the reference's values between the operators tell the instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import tvm

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.hw.program.program import Layer, Program, root_of
from vta_byoc.hw.trace.commit_log import CommitLog, Effect, first_difference
from vta_byoc.hw.trace.implementations import Implementation, Inputs, implementation
from vta_byoc.hw.verify.access import Transfer, dram_grain
from vta_byoc.hw.verify.rules import disassembly, layer_of
from vta_byoc.pipeline import Compiled
from vta_byoc.runtime.execute import Inputs as ModelInputs
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import TensorCheck, reference_runner, same_packed
from vta_byoc.validation.root_cause import find_root_cause

REFERENCE = "reference"
"""What the integer reference is called where implementations are named."""


@dataclass(frozen=True)
class Divergence:
    """Where two runs part.

    Attributes:
        region: the region whose program it is in.
        layer: the layer; empty for instructions that belong to none.
        index: the instruction.
        text: its disassembly.
        symbol: the symbol that it addresses in DRAM, with its element; empty for none.
        cause: what differs.
        detail: the first wrong value, where it was found.
        tensor: the layer's stored tensor against the reference, where that was compared.
        evidence: how the instruction was found.
    """

    region: str
    layer: str
    index: int
    text: str
    symbol: str
    cause: str
    detail: str = ""
    tensor: TensorCheck | None = None
    evidence: str = ""

    def __str__(self) -> str:
        where = f"{self.region} " if self.region else ""
        layer = f"layer {self.layer}, " if self.layer else ""
        symbol = f"  ; {self.symbol}" if self.symbol else ""
        lines = [
            f"first difference: {where}{layer}instruction {self.index}",
            f"  {self.text}{symbol}",
            f"  {self.cause}",
        ]
        lines += [f"  {line}" for line in (self.detail, self.evidence) if line]
        if self.tensor is not None:
            lines.insert(0, f"first tensor that differs: {self.tensor}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """JSON-ready data; keys are the attributes."""
        tensor = None if self.tensor is None else str(self.tensor)
        return {**self.__dict__, "tensor": tensor}


# ---------------------------------------------------------------- two runs
def compare_runs(
    program: Program,
    inputs: Inputs,
    left: Implementation,
    right: Implementation,
    *,
    variant: Program | None = None,
    region: str = "",
) -> Divergence | None:
    """The first instruction whose effect differs between two runs; None when none does.

    Args:
        program: what ``left`` runs, and ``right`` too unless there is a variant.
        inputs: by symbol name.
        left: the implementation that runs ``program``.
        right: the one it is compared with.
        variant: another version of ``program`` for ``right``: as many instructions, same layers.
        region: name of the region, for the result.
    """
    other = program if variant is None else variant
    names = (left.name, right.name) if left.name != right.name else ("left", "right")
    logs = [
        replace(one.run(what, inputs).log, source=name)
        for one, what, name in ((left, program, names[0]), (right, other, names[1]))
    ]
    found = first_difference(logs[0], logs[1], variants=variant is not None)
    if found is None:
        return None
    index, detail = found.index, ""
    if found.left.digest is not None and found.right.digest is not None:
        effects = (
            left.run(program, inputs, index).effect(index),
            right.run(other, inputs, index).effect(index),
        )
        detail = describe(program, *effects, *names)
    return replace(_at(program, region, index, found.cause), detail=detail)


def _at(program: Program, region: str, index: int, cause: str) -> Divergence:
    symbols = {r.index: f"{r.symbol}+{r.addend}" for r in program.relocations}
    text = disassembly(program.config, program.insns[index])
    layer = layer_of(program.layers, index)
    return Divergence(region, layer, index, text, symbols.get(index, ""), cause)


def describe(program: Program, left: Effect, right: Effect, one: str, two: str) -> str:
    """The first lane in which two effects of one instruction differ."""
    if left.space != right.space or not np.array_equal(left.index, right.index):
        return f"{one} writes {_extent(program, left)}; {two} writes {_extent(program, right)}"
    wrong = np.flatnonzero(left.value != right.value)
    if not len(wrong):
        return ""
    first, size = int(wrong[0]), left.index.size
    return (
        f"{_lane(program, left.space, int(left.index[first]))} is {left.value[first]} in {one}, "
        f"{right.value[first]} in {two}; {len(wrong)} of the {size} values written differ"
    )


def _extent(program: Program, effect: Effect) -> str:
    if not effect.space:
        return "nothing"
    lanes = _lanes(program, effect.space)
    elements = np.unique(effect.index // lanes)
    unit = "bytes" if effect.space == "dram" else "elements"
    span = f"{len(elements)} between {elements[0]} and {elements[-1]}"
    return f"{effect.space.upper()} {unit}: {span}"


def _lanes(program: Program, space: str) -> int:
    c = program.config
    row = c.batch * c.block
    return {"uop": 1, "inp": row, "acc": row, "wgt": c.block * c.block, "dram": 1}[space]


def _lane(program: Program, space: str, index: int) -> str:
    """A lane by name: a tensor's element for DRAM, an element and a lane for SRAM."""
    if space != "dram":
        lanes, block = _lanes(program, space), program.config.block
        element, lane = divmod(index, lanes)
        place = "" if lanes == 1 else f" lane [{lane // block}, {lane % block}]"
        return f"{space.upper()} element {element}{place}"
    for sym in program.symbols:
        if sym.offset <= index < sym.offset + sym.nbytes and sym.nbytes:
            item = (index - sym.offset) // np.dtype(sym.dtype).itemsize
            at = ", ".join(str(int(i)) for i in np.unravel_index(item, sym.shape or (1,)))
            return f"{sym.name}[{at}]"
    return f"DRAM byte {index:#x}"


# ---------------------------------------------------------------- a model
def compare_models(
    compiled: Compiled,
    inputs: ModelInputs,
    left: Implementation,
    right: Implementation,
    programs: Mapping[str, Program] | None = None,
) -> Divergence | None:
    """Run every region of a model on two implementations; the first difference.

    Args:
        compiled: the result of :func:`vta_byoc.pipeline.compile_module`.
        inputs: of the model, as for :func:`vta_byoc.profile`.
        left: the first implementation.
        right: the second one.
        programs: by region, what ``left`` runs instead of what was compiled.
    """
    given = _checked(programs or {}, compiled)
    for name, (tensors, program) in _regions(compiled, inputs).items():
        mine, variant = given.get(name, program), program if name in given else None
        found = compare_runs(mine, tensors, left, right, variant=variant, region=name)
        if found is not None:
            return found
    return None


def compare_with_reference(
    qmod: tvm.IRModule,
    compiled: Compiled,
    inputs: ModelInputs,
    run: Implementation,
    programs: Mapping[str, Program] | None = None,
) -> Divergence | None:
    """The first layer whose stored tensor is not the reference's, and the instruction in it.

    Args:
        qmod: the quantized module that ``compiled`` was made from.
        compiled: as for :func:`compare_models`.
        inputs: of the model.
        run: the implementation in question.
        programs: by region, what ``run`` runs instead of what was compiled.
    """
    given = _checked(programs or {}, compiled)
    tensors = reference_runner(qmod, compiled.programs)(inputs).tensors
    for name, (values, fresh) in _regions(compiled, inputs).items():
        program = given.get(name, fresh)
        done = run.run(program, values)
        if done.log.stopped:
            index = int(np.argmin(done.log.executed))
            cause = f"{run.name} stopped: {done.log.stopped}"
            return _at(program, name, min(index, len(program.insns) - 1), cause)
        # Where tensors share bytes only a run with each at its own place keeps them all.
        apart = program.without_sharing()
        kept = done if apart is program else run.run(apart, values)
        if kept.log.stopped:
            index = int(np.argmin(kept.log.executed))
            return _at(program, name, index, f"{run.name} stopped: {kept.log.stopped}")
        found = _first_wrong(apart, name, kept.result.arena, tensors)
        if found is not None:
            layer, check = found
            where = _inside(qmod, inputs, name, program, fresh, values, run, layer, check)
            return replace(where, tensor=check)
        wrong = _first_wrong(program, name, done.result.arena, tensors, results_only=True)
        if wrong is not None:
            index, cause = _spoiler(program, done.log, kept.log, wrong[0])
            return replace(_at(program, name, index, cause), tensor=wrong[1])
    return None


def _regions(compiled: Compiled, inputs: ModelInputs) -> dict[str, tuple[Inputs, Program]]:
    """By region: its inputs by symbol, as the functional simulator's run gives them; its program.

    In the order in which they ran: a wrong region makes the inputs of later ones wrong, but it is
    found before them.
    """
    run = profile(compiled.exe, inputs, arenas=True)
    found: dict[str, tuple[Inputs, Program]] = {}
    for region in run.regions:
        assert region.arena is not None, "profile(..., arenas=True) keeps the arenas"
        name, program = region.name, compiled.programs[region.name]
        names = [s.name for s in program.of_kind("input")]
        found[name] = ({n: program.view(region.arena, n).copy() for n in names}, program)
    return found


def _checked(programs: Mapping[str, Program], compiled: Compiled) -> Mapping[str, Program]:
    for name, program in programs.items():
        if name not in compiled.programs:
            raise VTAError(
                f"no region {name!r} in the model; it has "
                f"{', '.join(compiled.programs) or 'none'}; use one of these names"
            )
        fresh = compiled.programs[name]
        if program.symbols != fresh.symbols or program.config.key != fresh.config.key:
            raise VTAError(
                f"the program given for {name} has other symbols or another machine than the "
                "model compiled now; only a version of the same program can replace it; compile "
                "it from the same model and calibration"
            )
    return programs


# ---------------------------------------------------------------- the reference
def _first_wrong(
    program: Program,
    region: str,
    arena: np.ndarray,
    tensors: Mapping[str, np.ndarray],
    *,
    results_only: bool = False,
) -> tuple[Layer, TensorCheck] | None:
    results = {s.name for s in program.of_kind("output")}
    for layer in program.layers:
        if layer.output in tensors and (layer.output in results or not results_only):
            want = tensors[layer.output]
            packed = program.view(arena, layer.output)
            check = same_packed(layer.output, region, packed, want)
            if not check.equal:
                return layer, check
    return None


def _spoiler(program: Program, log: CommitLog, apart: CommitLog, layer: Layer) -> tuple[int, str]:
    """The STORE that spoils a tensor whose bytes it shares, and what it spoils.

    Args:
        program: as it was compiled.
        log: of a run of ``program``.
        apart: of a run of ``program.without_sharing()``, whose results are right.
        layer: its result is wrong otherwise.
    """
    insns = [ISA.of(program.config).decode(*words) for words in program.insns.tolist()]
    by_name = {s.name: s for s in program.symbols}
    named = {r.index: by_name[r.symbol] for r in program.relocations}
    loads = np.array([i in named and insn.opcode == Opcode.LOAD for i, insn in enumerate(insns)])
    spoiled = np.flatnonzero(loads & (log.digests != apart.digests))
    grain = dram_grain(program.config)
    read = np.zeros(-(-program.arena_bytes // grain), bool)
    if len(spoiled):
        end = int(spoiled[0])
        symbol, reader = named[end], f"instruction {end} reads"
        read[Transfer.of(program.config, insns[end]).grains(grain, 0)] = True
    else:
        end, symbol, reader = len(insns), by_name[layer.output], "is a result"
        read[symbol.offset // grain : -(-(symbol.offset + symbol.nbytes) // grain)] = True
    own = root_of(symbol, by_name)[0]
    for index in reversed(range(end)):
        if insns[index].opcode == Opcode.STORE and index in named:
            transfer, target = Transfer.of(program.config, insns[index]), named[index]
            if transfer.empty or root_of(target, by_name)[0] == own:
                continue
            if read[transfer.grains(grain, 0)].any():
                return index, f"it overwrites {symbol.name}, which {reader}"
    return min(end, len(insns) - 1), f"{symbol.name}, which {reader}, is not what was stored"


def _inside(
    qmod: tvm.IRModule,
    inputs: ModelInputs,
    region: str,
    program: Program,
    fresh: Program,
    values: Inputs,
    run: Implementation,
    layer: Layer,
    check: TensorCheck,
) -> Divergence:
    """The instruction that made ``check`` differ; three searches for it, the surest first."""
    second = implementation("sim" if run.name != "sim" else "numpy")
    if program != fresh and _alike(program, fresh):
        found = compare_runs(program, values, run, run, variant=fresh, region=region)
        if found is not None and found.index < layer.end:
            return replace(found, evidence="compared with the program as compiled now")
    found = compare_runs(program, values, run, second, region=region)
    if found is not None and found.index < layer.end:
        return replace(found, evidence=f"{run.name} and {second.name} disagree on this program")
    assert check.first is not None
    origin = find_root_cause(qmod, inputs, program, values, layer, check.first)
    at = _at(program, region, origin.index, origin.cause)
    return replace(at, detail=origin.detail, evidence=origin.evidence)


def _alike(program: Program, fresh: Program) -> bool:
    return len(program.insns) == len(fresh.insns) and program.layers == fresh.layers
