"""Packed forms that VTA copies from another one: tokens, rows and planes of one tensor."""

from __future__ import annotations

import abc
from collections.abc import Iterator

from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import source_name, static_shape
from vta_byoc.ir.names import COPIED
from vta_byoc.partitioning.entry import Parsed, Plan
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.partitioning.packed_forms import PackedForm, PackedForms
from vta_byoc.partitioning.placement import Taken
from vta_byoc.partitioning.token_forms import token_copy, wants_zero_lanes
from vta_byoc.workload.layout import NCHW, canonical
from vta_byoc.workload.workloads import Shape

MOVED = "vta.move"
"""The composite of a copy, where packing writes it."""


class CopiedForms(PackedForms, abc.ABC):
    """Packed forms, of which VTA writes those that it holds in another layout."""

    def __init__(self, builder: relax.BlockBuilder, config: VTAConfig, keep_packed: bool) -> None:
        super().__init__(builder, config, keep_packed)
        self._within: dict[str, str] = {}
        self._refused: dict[str, Refusal] = {}
        self._zeroed: dict[tuple[relax.Var, str], relax.Var] = {}

    def movements(self) -> dict[str, Taken | Refusal]:
        """Source names of movements, and whether they are copies, nothing at all, or the host's."""
        names = {source_name(var) for var in self._reshaped if var not in self._plain}
        found = {name: Taken(within=self._within.get(name, "")) for name in names}
        copies = {name: Taken(MOVED) for name in names & set(self._within.values())}
        return self._refused | found | copies

    @abc.abstractmethod
    def _planned(
        self, composite: str, plan: Plan, packed: list[relax.Expr], source: str, result: str
    ) -> relax.Var:
        """The variable ``result`` of a packed composite that computes ``plan``."""

    def _packed_operands(self, parsed: Parsed, operands: list[relax.Var]) -> list[relax.Expr]:
        """The operands of a composite in the layouts that it takes."""
        wanted = list(zip(operands, parsed.operand_layouts, strict=True))
        shapes = getattr(parsed.work, "shapes", ()) or [None] * len(operands)
        asked = [(*each, shape) for each, shape in zip(wanted, shapes, strict=True)]
        if self._keep and wants_zero_lanes(parsed, self._config):
            others = [self._as_packed(*each) for each in asked[1:]]
            if not self._by_host(wanted[1:2]):
                return [self._with_zeros(*wanted[0]), *others]
        once = {each: self._as_packed(*each) for each in dict.fromkeys(asked)}
        return [once[each] for each in asked]

    def _as_packed(self, var: relax.Var, layout: str, shape: Shape | None = None) -> relax.Var:
        """``var`` packed in ``layout``; VTA copies what it holds in another one."""
        usual = canonical(static_shape(var), layout)
        if self._keep and shape in (None, usual) and not self._has(var, layout):
            self._copy_moved(var, layout)
        return super()._as_packed(var, layout, shape)

    def _held(self, var: relax.Var) -> Iterator[PackedForm]:
        """The int8 forms, on VTA, of what ``var`` is moved from, or of itself."""
        origin = self._origin(var)
        for form in self._forms(origin):
            is_usual = form.shape == canonical(static_shape(origin), form.layout)
            if is_usual and form.dtype == "int8" and not form.by_host:
                yield form

    def _moved_from(self, var: relax.Var, layout: str) -> PackedForm | None:
        """The form that VTA copies to have ``var`` in ``layout``.

        None where both are images: such a movement is an operator of its own.
        """
        return next((p for p in self._held(var) if (p.layout, layout) != (NCHW, NCHW)), None)

    def _with_zeros(self, var: relax.Var, layout: str) -> relax.Var:
        """``var`` in ``layout``, zeros in the lanes behind its channels: a copy, or the host's."""
        if (var, layout) not in self._zeroed:
            name = f"{var.name}{COPIED}"
            copies = (
                self._copied_from(form, var, layout, name, zeros=True) for form in self._held(var)
            )
            made = next((copy.expr for copy in copies if copy is not None), None)
            self._zeroed[var, layout] = self._pack_tokens(var, layout) if made is None else made
        return self._zeroed[var, layout]

    def _copy_moved(self, var: relax.Var, layout: str) -> None:
        """Let VTA write ``var`` in ``layout`` where it holds what ``var`` is moved from."""
        form = self._moved_from(var, layout)
        if form is None or any(copied.same_as(var) for copied, _ in self._copied):
            return  # a region stores a tensor of the model once
        name = str(var.name) if var in self._reshaped else f"{var.name}{COPIED}"
        made = self._copied_from(form, var, layout, name)
        if made is not None:
            self._copied[var, layout] = made

    def _copied_from(
        self, form: PackedForm, var: relax.Var, layout: str, name: str, *, zeros: bool = False
    ) -> PackedForm | None:
        """The copy ``name`` of ``var`` from a form of its origin; None where VTA makes none."""
        shape, moves = static_shape(self._origin(var)), self._moves(var)
        try:
            work = token_copy(shape, form.layout, moves, layout, self._config, zeros)
            plan = simple_plan("move", work, {}, self._config, "copied by the GEMM core")
        except VTAError as err:
            self._refused |= {source_name(move.var): err.refusal for move in moves}
            return None
        expr = self._planned(MOVED, plan, [form.expr], source_name(var), name)
        for move in moves:
            self._within[source_name(move.var)] = source_name(var)
        return PackedForm(expr, work.out_shape, "int8", layout)
