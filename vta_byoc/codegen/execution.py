"""Executions of a nest: its accesses as SRAM elements and as loops over elements.

A loop either runs over whole elements or over the lanes of one; every nest is checked to be so.
Turns of the outer loops that differ only in where DRAM is addressed share one execution, and what
is worked out for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vta_byoc.codegen.accumulator import Where, elements
from vta_byoc.codegen.alu import Access, AluStep, check_immediate
from vta_byoc.codegen.linear import Clip, CodegenError, Domain, Linear
from vta_byoc.codegen.sram import SramMap
from vta_byoc.codegen.tensorizable import TensorizableNest
from vta_byoc.codegen.uops import LoopDim
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import AluOp
from vta_byoc.workload.memory import WGT, element_scalars, in_dram

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Execution:
    """``nest`` over ``domain`` of its own loops.

    ``places`` are the SRAM elements of its accesses at the corner of the domain, ``steps`` those of
    the nest with immediates that are numbers.
    """

    config: VTAConfig
    nest: TensorizableNest
    domain: Domain
    places: Mapping[Access, int]
    steps: Sequence[AluStep]
    _known: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The result of ``make``, which is called once for each ``key``."""
        if key not in self._known:
            self._known[key] = make()
        value: Value = self._known[key]
        return value

    def unit(self, access: Access) -> int:
        """Scalars of one element of ``access``."""
        return element_scalars(self.config, access.scope)

    def ranges(self) -> list[tuple[int, int, int]]:
        """(variable, low, high) of each loop."""
        return [(v, *r) for (v, _), r in zip(self.nest.loops, self.domain, strict=True)]

    def at(self, access: Access) -> int:
        """SRAM element of ``access`` at the corner of the domain."""
        return self.places[access]

    def where(self, access: Access) -> Where:
        """Every SRAM element of ``access``."""
        return self.once(access, lambda: elements(self.dims(access), 0, self.at(access)))

    def dims(self, *accesses: Access, lanes_alike: bool = False) -> list[LoopDim]:
        """Loops over SRAM elements with the strides of up to three accesses, in elements."""
        units = [self.unit(a) for a in accesses]
        coefs = [dict(a.flat.terms) for a in accesses]
        dims = []
        for var, low, high in self.ranges():
            if high - low == 1:
                continue
            strides = [own.get(var, 0) for own in coefs]
            if inside(strides, units):
                if lanes_alike and len(set(strides)) > 1:
                    raise CodegenError(
                        f"block {self.nest.name}: a lane loop steps {strides}; the ALU works lane "
                        "by lane; give every operand the same lanes"
                    )
                continue
            if any(s % u for s, u in zip(strides, units, strict=True)):
                raise CodegenError(
                    f"block {self.nest.name}: a loop steps {strides} scalars, elements hold "
                    f"{units}; keep the batch and channel lanes innermost and whole"
                )
            parts = [s // u for s, u in zip(strides, units, strict=True)]
            dst, src, wgt = (*parts, 0, 0)[:3]
            dims.append(LoopDim(high - low, (dst, src, wgt)))
        return dims

    def check_lanes(self, access: Access) -> None:
        """The lane loops of ``access`` must cover whole elements."""
        unit = self.unit(access)
        lanes: dict[int, int] = {}
        coefs = dict(access.flat.terms)
        for var, low, high in self.ranges():
            stride = coefs.get(var, 0)
            if 0 < stride < unit:
                lanes[stride] = lanes.get(stride, 1) * (high - low)
        total = 1
        for stride in sorted(lanes):
            if stride != total:
                break
            total *= lanes[stride]
        if total != unit:
            rows = self.config.block if access.scope == WGT else self.config.batch
            raise CodegenError(
                f"block {self.nest.name}: lane loops cover {total} scalars; an element of "
                f"{access.scope} has {unit} ({rows}x{self.config.block}); split the loops at whole "
                "elements"
            )

    def check_gemm_lanes(self, dst: Access, src: Access, wgt: Access) -> None:
        """acc[b, o] += inp[b, k] * wgt[o, k]: anything else is not a GEMM."""
        block = self.config.block
        allowed = {(block, block, 0), (1, 0, block), (0, 1, 1)}
        units = [self.unit(a) for a in (dst, src, wgt)]
        coefs = [dict(a.flat.terms) for a in (dst, src, wgt)]
        for var, extent in self.nest.loops:
            lanes = tuple(own.get(var, 0) for own in coefs)
            if extent > 1 and inside(lanes, units) and lanes not in allowed:
                raise CodegenError(
                    f"block {self.nest.name}: a lane loop steps {lanes} in acc, inp, wgt; GEMM "
                    "computes acc[b, o] += inp[b, k] * wgt[o, k]; transpose the weights when "
                    "packing"
                )


class _Place:
    """Scalar offsets of an access, the nest's own loops apart from those around it."""

    def __init__(self, access: Access, loops: Sequence[tuple[int, int]]):
        places = {var: k for k, (var, _) in enumerate(loops)}
        terms = tuple(t for t in access.flat.terms if t[0] not in places)
        self._outer = Linear(access.flat.const, terms)
        own = ((places[var], coef) for var, coef in access.flat.terms if var in places)
        self._own = sorted(own)

    def at(self, env: Mapping[int, int], domain: Domain) -> int:
        """The offset at the corner of ``domain``."""
        offset = self._outer.at(env)
        for k, coef in self._own:
            offset += coef * domain[k][0]
        return offset


class Site:
    """A nest and its executions."""

    def __init__(self, config: VTAConfig, nest: TensorizableNest):
        self.nest = nest
        self._config = config
        # of places in planes a nest may leave out any; what is loaded or stored is one box
        most = {"gemm": 3, "reset": 2, "alu": 2}.get(nest.kind, 1)
        self._where = Clip(nest.where, nest.loops, most)
        self._pad = Clip(nest.pad, nest.loops)
        self._chip = [
            (a, element_scalars(config, a.scope), _Place(a, nest.loops)) for a in nest.on_chip
        ]
        dram = nest.dst if nest.kind == "store" else nest.src
        self._dram = _Place(dram, nest.loops) if dram and in_dram(dram.scope) else None
        self._varies = any(step.imm is not None and step.imm.terms for step in nest.steps)
        self._steps = [] if self._varies else self._numbered({})
        self._known: dict[Hashable, Execution] = {}

    def executions(self, env: Mapping[int, int], sram: SramMap) -> list[Execution]:
        """With outer loop values ``env``: one for each box that the nest's predicate leaves."""
        return [self._execution(env, domain, sram) for domain in self._where.domains(env)]

    def _execution(self, env: Mapping[int, int], domain: Domain, sram: SramMap) -> Execution:
        places = tuple(self._element(a, unit, p.at(env, domain), sram) for a, unit, p in self._chip)
        steps = self._numbered(env) if self._varies else self._steps
        key = (domain, places, *(step.imm for step in steps)) if self._varies else (domain, places)
        if key not in self._known:
            named = dict(zip((a for a, _, _ in self._chip), places, strict=True))
            self._known[key] = Execution(self._config, self.nest, domain, named, steps)
        return self._known[key]

    def data(self, env: Mapping[int, int], domain: Domain) -> Domain | None:
        """The part of ``domain`` that comes from DRAM, or None where all of it is padding."""
        pad = self._pad.domain(env)
        if pad is None or self._dram is None:
            return None
        data = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(domain, pad, strict=True))
        return None if any(first >= last for first, last in data) else data

    def first(self, env: Mapping[int, int], data: Domain, unit: int) -> int:
        """DRAM element at the corner of ``data``."""
        assert self._dram is not None
        offset = self._dram.at(env, data)
        start, lane = divmod(offset, unit)
        if lane:
            raise CodegenError(
                f"block {self.nest.name}: DRAM offset {offset} scalars is not a multiple of "
                f"{unit}; tiles start at whole elements"
            )
        return start

    def _element(self, access: Access, unit: int, offset: int, sram: SramMap) -> int:
        element, lane = divmod(offset, unit)
        if lane:
            raise CodegenError(
                f"block {self.nest.name}: {access.buffer.name} starts at lane {lane} of an element "
                f"of {unit}; start at whole elements"
            )
        return element + sram[access.buffer].base

    def _numbered(self, env: Mapping[int, int]) -> list[AluStep]:
        """The nest's steps with numbers for immediates; no shifts by nothing."""
        steps = []
        for step in self.nest.steps:
            amount = step.amount(env)
            if amount is not None:
                check_immediate(self.nest.name, step.op, amount)
            if step.op == AluOp.SHR and amount == 0:
                continue
            imm = None if amount is None else Linear(amount)
            steps.append(AluStep(step.op, step.dst, imm, step.src))
        return steps


def inside(strides: Sequence[int], units: Sequence[int]) -> bool:
    """Whether a loop runs over the lanes of an element."""
    return any(strides) and all(abs(s) < u for s, u in zip(strides, units, strict=True))
