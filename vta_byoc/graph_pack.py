"""Packs the graph: marked composites compute on (N/b, C/k, H, W, b, k) tensors.

Every value is kept in the layout it was made in; a pack or an unpack is written the first time a
consumer wants the other one, so a packed part has one pack at each entry and one unpack at each
exit.  A reshape between composites that leaves the packed tensor as it is costs nothing.  Weights
and biases are packed at compile time.

Without ``keep_packed`` every value between composites is plain: each composite packs its operands
and its result is unpacked.  How each one is computed is decided as if values were kept packed, so
that only layout copies differ, and channels are moved that packed tensors hold where they are read.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter

import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import source_name, static_shape, straight_bindings
from vta_byoc.ir.legality import MARKED, PACKED
from vta_byoc.ir.names import ROUTED, of_channels
from vta_byoc.ir.stage import Stage
from vta_byoc.partitioning.composite import RESULT_ATTR, SOURCE_ATTR, composite_source, composites
from vta_byoc.partitioning.copied_forms import MOVED, CopiedForms
from vta_byoc.partitioning.entry import Match, Parsed, Plan
from vta_byoc.partitioning.kept_match import match_of
from vta_byoc.partitioning.left_out import names_left_out
from vta_byoc.partitioning.ordering import find_orders
from vta_byoc.partitioning.packed_forms import FOLD, PACK, UNPACK, PackedForm, packed_function
from vta_byoc.partitioning.placement import with_plans
from vta_byoc.partitioning.region import called_composite
from vta_byoc.partitioning.routes import Part, Routes
from vta_byoc.partitioning.routing import find_routes
from vta_byoc.partitioning.token_forms import with_layout
from vta_byoc.strategies.te.kernel import SCHEDULE_ATTR, Chosen
from vta_byoc.strategy import STRATEGIES, Computation
from vta_byoc.tuning.schedules import Schedules, chosen_for
from vta_byoc.workload.layout import NCHW, ROWS, canonical, fits_tokens, is_tokens, tokens
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.texts import to_json
from vta_byoc.workload.workloads import Conv2dWorkload, ElementwiseWorkload

LOG = logging.getLogger(__name__)
JOINED = "vta.concat"
"""The composite of what lies side by side, where packing writes it."""
GRAPH_PACK = Stage("GraphPack", MARKED, PACKED, "packs tensors; chooses a strategy for each group")


def graph_pack(
    config: VTAConfig, keep_packed: bool = True, schedules: Schedules | None = None
) -> tvm.transform.Pass:
    """Replace marked composites by packed ones that call their strategy's compute.

    Args:
        config: the machine.
        keep_packed: composites hand each other packed tensors; otherwise each packs its operands
            from plain tensors and its result is unpacked.
        schedules: overrule those that strategies choose by estimate.
    """

    @GRAPH_PACK
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        groups = composites(mod)
        if not groups:
            return mod
        kept = {
            gv: f
            for gv, f in mod.functions.items()
            if gv.name_hint != "main" and gv.name_hint not in groups
        }
        builder = relax.BlockBuilder(tvm.IRModule(kept))
        given = schedules.in_module(mod) if schedules else None
        packer = _Packer(builder, config, groups, keep_packed, given)
        packer.no_views = names_left_out(mod)
        if keep_packed:
            packer.routes = find_routes(mod["main"], groups, config)
            packer.routes.add(find_orders(mod["main"], groups, packer.routes, config))
        main = packer.rewrite(mod["main"])
        result = builder.get()
        result.update_func(mod.get_global_var("main"), main)
        for key, value in (mod.attrs or {}).items():
            result = result.with_attr(key, value)
        routed = {source_name(var) for var in packer.routes.moves}
        result = with_plans(result, packer.plans, packer.movements(), routed)
        return relax.transform.Normalize()(result)

    return run


class _Packer(CopiedForms):
    """Rewrites one function, keeping for each value its plain and its packed forms.

    ``plans`` has for each composite's source how it is computed and what the host folds for it;
    ``no_views`` are reshapes that the user leaves to the CPU; ``routes`` are the channels that
    nothing moves.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        config: VTAConfig,
        groups: dict[str, relax.Function],
        keep_packed: bool,
        schedules: Schedules | None,
    ):
        super().__init__(builder, config, keep_packed)
        self._schedules = schedules
        self._sources = Counter(composite_source(group) for group in groups.values())
        self._groups = groups
        self.plans: dict[str, list[tuple[Plan, int]]] = {}
        self.no_views: set[str] = set()
        self.routes = Routes()
        self._parts: dict[tuple[relax.Var, int], relax.Var] = {}
        self._reordered: dict[relax.Expr, relax.Var] = {}
        self._read_as: dict[relax.Expr, str] = {}

    def rewrite(self, main: relax.Function) -> relax.Function:
        """``main`` with packed composites; parameters and results stay as they are."""
        for param in main.params:
            self._plain[param] = param
        self._note_readers(main)
        for binding in straight_bindings(main):
            var, value = binding.var, binding.value
            group = called_composite(binding, self._groups)
            if var in self.routes.moves:
                self._route(var)
            elif group is not None:
                self._composite(var, group, value)
            elif self._is_reshape_of_packed(value) and source_name(var) not in self.no_views:
                self._reshaped[var] = binding
            else:
                self._plain[var] = self._writer.emit(self._copy(value), str(var.name))
        return self._writer.finish(main, self._copy(main.body.body))

    def _note_readers(self, main: relax.Function) -> None:
        """In which layout, channels last, composites read values, also through elementwise ones."""
        for binding in reversed(straight_bindings(main)):
            group = called_composite(binding, self._groups)
            if group is None:
                continue
            parsed = match_of(group).parsed
            inner = dict(zip(group.params, binding.value.args, strict=True))
            follows = isinstance(parsed.work, ElementwiseWorkload)
            behind = self._read_as.get(binding.var) if follows else None
            for operand, wanted in zip(parsed.operands, parsed.operand_layouts, strict=True):
                layout = behind or wanted
                if layout in (ROWS, tokens(self._config.block)):
                    self._read_as.setdefault(inner[operand], layout)

    # ---------------------------------------------------------------- composites
    def _composite(self, var: relax.Var, group: relax.Function, call: relax.Call) -> None:
        match = self.routes.readers.get(var) or match_of(group)
        inner = dict(zip(group.params, call.args, strict=True))
        parts = self.routes.parts.get(var, [])
        if not parts:
            operands = [inner[x] for x in match.parsed.operands]
            result = str(group.attrs[RESULT_ATTR])
            if var in self.routes.reordered:
                result = f"{result}{ROUTED}"
            form = self._computed(var, group, match, operands, result)
            if var in self.routes.reordered:
                self._reordered[var] = form.expr
            else:
                self._packed[var][form.layout] = form
            return
        self._sources[composite_source(group)] += len(parts) - 1
        for part in parts:
            assert part.match is not None
            operands = [inner[x] for x in part.match.parsed.operands]
            name = of_channels(str(group.attrs[RESULT_ATTR]), part.first, part.last)
            form = self._computed(var, group, part.match, operands, name)
            self._parts[var, part.first] = form.expr

    def _computed(
        self,
        var: relax.Var,
        group: relax.Function,
        match: Match,
        operands: list[relax.Var],
        result: str,
    ) -> PackedForm:
        """The tensor ``result`` of ``match``, which is ``var`` or a part of it."""
        match, operands = self._unflattened(match, operands)
        match = self._following(match, operands, var)
        reordered = operands[0] in self._reordered
        hosted = not reordered and not any(self._forms(x) for x in operands)
        entry, parsed = match.entry, match.parsed
        plan = match.planned(self._config, hosted)
        if reordered:
            packed = [self._reordered[operands[0]]]
        elif plan.fold is not None:
            packed = [self._as_folded(operands[0], plan.fold)]
        else:
            packed = self._packed_operands(parsed, operands)
        host = plan.fold.nbytes(self._config) if plan.fold is not None else 0
        expr = self._planned(entry.name, plan, packed, composite_source(group), result, host)
        shape = plan.work.out_shape
        if is_tokens(parsed.layout):  # a layer's last block may have fewer channels than lanes
            shape = canonical(static_shape(var), parsed.layout) or shape
        return PackedForm(expr, shape, plan.work.epilogue.dtype, parsed.layout)

    def _planned(
        self,
        composite: str,
        plan: Plan,
        packed: list[relax.Expr],
        source: str,
        result: str,
        host: int = 0,
    ) -> relax.Var:
        """The variable ``result`` of a packed composite that computes ``plan``; notes the plan."""
        computation = self._scheduled(plan, source, result)
        schedule = computation.schedule(self._config)
        plan = dataclasses.replace(plan, cycles=self._cycles(plan, computation))
        LOG.debug("%s: %s; %s", result, plan.candidate.text, computation.chosen)
        args = [*packed, *(relax.const(c) for c in plan.constants(schedule, self._config))]
        expr = self._emitted(composite, computation, args, source, result)
        self.plans.setdefault(source, []).append((plan, host))
        return expr

    # ---------------------------------------------------------------- channels in other orders
    def _route(self, var: relax.Var) -> None:
        """Join what convolutions read as ``var``; nothing where none reads it."""
        order = self.routes.orders.get(var)
        if order is None:
            return
        source, result = source_name(var), f"{var.name}{ROUTED}"
        pieces = [self._part(part) for part in order.pieces]
        if order.copy is not None:
            copied = [self._part(part) for part in order.copied]
            name = result if order.joined is None else f"{result}_copied"
            pieces.append(self._planned(MOVED, order.copy, copied, source, name))
        if order.joined is not None:
            pieces = [self._planned(JOINED, order.joined, pieces, source, result)]
        (self._reordered[var],) = pieces

    def _part(self, part: Part) -> relax.Var:
        """What holds ``part``."""
        if part.match is None:
            return self._as_packed(part.var, NCHW)
        return self._parts[part.var, part.first]

    def _emitted(
        self,
        composite: str,
        computation: Computation,
        args: list[relax.Expr],
        source: str,
        result: str,
    ) -> relax.Var:
        """The variable ``result`` of a packed composite that computes it from ``args``."""
        strategy, schedule = computation.strategy, computation.schedule(self._config)
        work = computation.work
        shape = packed_shape(work.out_shape, self._config, work.epilogue.dtype)
        groupings = [kernel.grouping for kernel in schedule.kernels]
        prim = self._function(  # equal workloads share one
            f"{composite} {groupings} {strategy.name} {to_json(work)}",
            lambda: strategy.compute(schedule, self._config),
            f"{composite.replace('.', '_')}_compute",
        )
        assert computation.chosen is not None
        out_type = relax.TensorType(shape, "int8")
        function = packed_function(prim, args, out_type, self._builder).with_attrs(
            {
                "Composite": composite,
                "Primitive": True,
                SOURCE_ATTR: source,
                RESULT_ATTR: result,
                SCHEDULE_ATTR: computation.chosen.to_text(),
            }
        )
        name = self._builder.add_func(function, composite.replace(".", "_"))
        return self._writer.emit(relax.Call(name, args), result)

    def _scheduled(self, plan: Plan, source: str, result: str) -> Computation:
        """What ``plan`` computes, with the kernels that are given for it or that it has."""
        computation = Computation(STRATEGIES[plan.strategy], plan.work, chosen=Chosen(plan.kernels))
        if self._schedules is None:
            return computation
        names = [result, *([source] if self._sources[source] == 1 else [])]
        return chosen_for(self._schedules, names, computation, self._config)

    def _cycles(self, plan: Plan, computation: Computation) -> float:
        """Of ``plan`` with the kernels of ``computation``: what the host does stays."""
        assert computation.chosen is not None
        if computation.chosen.kernels == plan.kernels:
            return plan.cycles
        before = dataclasses.replace(computation, chosen=Chosen(plan.kernels))
        own, other = before.estimate(self._config), computation.estimate(self._config)
        return plan.cycles - own + other

    def _unflattened(
        self, match: Match, operands: list[relax.Var]
    ) -> tuple[Match, list[relax.Var]]:
        """A dense layer of a flattened packed tensor as a convolution over its whole plane.

        The flattened tensor would have to be packed anew; the plane is there already, and its
        order is that of the weights.
        """
        parsed = match.parsed
        binding = self._reshaped.get(operands[0])
        if binding is None or parsed.layout != ROWS or not isinstance(parsed.work, Conv2dWorkload):
            return match, operands
        n, inputs = parsed.work.batch, parsed.work.in_channels
        for form in self._forms(operands[0]):
            images, channels, height, width = form.shape
            if images == n and channels * height * width == inputs and height * width > 1:
                work = dataclasses.replace(
                    parsed.work,
                    in_channels=channels,
                    height=height,
                    width=width,
                    kernel=(height, width),
                )
                weight = parsed.constants["weight"].reshape(-1, channels, height, width)
                constants = {**parsed.constants, "weight": weight}
                changed = Parsed(work, parsed.operands, constants, NCHW)
                plan = match.entry.plan(changed, self._config)
                return Match(match.entry, changed, plan), [self._origin(operands[0])]
        return match, operands

    def _following(self, match: Match, operands: list[relax.Var], var: relax.Var) -> Match:
        """An elementwise operator in the layout of its operands, where their channels are last.

        Of operands that the host packs it is the layout in which its result is read.
        """
        shape = static_shape(operands[0])
        for layout in (self._followed(operands, var), self._wanted(var)):
            if layout == NCHW:
                break
            found = with_layout(match, shape, layout, self._config)
            if found is not None:
                return found
        return match

    def _wanted(self, var: relax.Var) -> str:
        """The layout in which a value is read; rows of a matrix are as images have them."""
        layout = self._read_as.get(var, NCHW)
        return NCHW if layout == ROWS and len(static_shape(var)) < 3 else layout

    def _followed(self, operands: list[relax.Var], var: relax.Var) -> str:
        """The layout that an elementwise operator has from its operands and its readers."""
        layout, shape = tokens(self._config.block), static_shape(operands[0])
        wanted = self._wanted(var)
        if any(self._has(x, layout) for x in operands):
            return layout
        if wanted != layout and any(self._has(x, NCHW) for x in operands):
            return NCHW
        moved = [form for x in operands if (form := self._moved_from(x, layout)) is not None]
        held = len(shape) > 2 and any(self._has(x, ROWS) for x in operands)
        if moved and wanted != NCHW and not (held and wanted == layout):
            return wanted
        if held:
            return ROWS
        if any(is_tokens(form.layout) for form in moved):
            return layout
        free = wanted == layout and not any(self._forms(x) for x in operands)
        return layout if free and fits_tokens(shape, self._config) else NCHW


def pack_counts(mod: tvm.IRModule) -> dict[str, int]:
    """How many packs, unpacks and folds ``main`` runs."""
    counts = {PACK: 0, UNPACK: 0, FOLD: 0}
    for binding in straight_bindings(mod["main"]):
        args = getattr(binding.value, "args", [])
        if args and isinstance(args[0], tvm.ir.GlobalVar):
            for kind in counts:
                counts[kind] += args[0].name_hint.startswith(kind)
    return counts
