"""Which operators go to VTA: one table of patterns, and a reason for everything else.

:func:`mark` groups every match of the table into a composite function (attribute ``Composite`` =
``vta.conv2d`` and so on) that still computes on unpacked tensors, and records where each operator
of the model runs and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.plugins import load_installed
from vta_byoc.ir.bindings import (
    FunctionWriter,
    source_name,
    straight_bindings,
    substituted,
    vars_in,
)
from vta_byoc.ir.chains import Graph
from vta_byoc.ir.legality import INTEGER, MARKED
from vta_byoc.ir.quantization_record import float_regions
from vta_byoc.ir.stage import Stage
from vta_byoc.partitioning.composite import RESULT_ATTR, SOURCE_ATTR
from vta_byoc.partitioning.kept_match import match_attributes
from vta_byoc.partitioning.left_out import left_out
from vta_byoc.partitioning.matcher import Group, Matcher
from vta_byoc.partitioning.placement import Placement, placements, with_placements
from vta_byoc.partitioning.placer import Placer

__all__ = ["Placement", "mark", "placements"]


MARK = Stage("Mark", INTEGER, MARKED, "groups what VTA takes; a reason for everything else")


def mark(
    config: VTAConfig, only: Sequence[str] = (), exclude: Sequence[str] = ()
) -> tvm.transform.Pass:
    """Group what the table takes into composite functions and attach the placement record.

    Args:
        config: the machine.
        only: selectors (`vta_byoc.ir.selection`) of what VTA may compute; everything when empty.
        exclude: selectors of what it may not compute.
    """

    @MARK
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        load_installed()
        graph = Graph(mod["main"])
        unwanted = left_out(mod, only, exclude)
        matcher = Matcher(graph, config, unwanted)
        groups = matcher.groups()
        rejected = {**float_regions(mod), **matcher.rejected, **unwanted}
        placer = Placer(graph, groups, rejected, config, mod, matcher.passed_over)
        return with_placements(_grouped(mod, groups), placer.records())

    return run


def _grouped(mod: tvm.IRModule, groups: Mapping[relax.Var, Group]) -> tvm.IRModule:
    """``mod`` with a composite function for each group."""
    inside = {b.var for group in groups.values() for b in group.bindings}
    builder = relax.BlockBuilder(tvm.IRModule(dict(mod.functions)))
    writer = FunctionWriter(builder)
    env: dict[relax.Var, relax.Expr] = {}
    main = mod["main"]
    needed = _needed(main, groups)
    for binding in straight_bindings(main):
        var = binding.var
        group = groups.get(var)
        if group is not None:
            function, args = _composite(group)
            name = builder.add_func(function, group.entry.name.replace(".", "_"))
            call = relax.Call(name, [substituted(a, env) for a in args])
            env[var] = writer.emit(call, str(var.name))
        elif var not in inside or var in needed:
            env[var] = writer.emit(substituted(binding.value, env), str(var.name))
    result = builder.get()
    body = substituted(main.body.body, env)
    result.update_func(result.get_global_var("main"), writer.finish(main, body))
    for key, value in (mod.attrs or {}).items():
        result = result.with_attr(key, value)
    return relax.transform.Normalize()(result)


def _needed(main: relax.Function, groups: Mapping[relax.Var, Group]) -> set[relax.Var]:
    """Variables inside of groups that something outside of them reads too."""
    owned = {b.var for group in groups.values() for b in group.bindings}
    reads = {v for b in straight_bindings(main) if b.var not in owned for v in vars_in(b.value)}
    return (reads | set(vars_in(main.body.body))) & (owned - set(groups))


def _composite(group: Group) -> tuple[relax.Function, list[relax.Var]]:
    """The group as a function, and the arguments of its call."""
    own = {b.var for b in group.bindings}
    reads = [v for b in group.bindings for v in vars_in(b.value) if v not in own]
    args = list(dict.fromkeys(reads))
    params = [relax.Var(str(a.name), a.ty) for a in args]
    env: dict[relax.Var, relax.Expr] = dict(zip(args, params, strict=True))
    bindings = []
    for binding in group.bindings:
        last = binding is group.bindings[-1]
        make = relax.Var if last else relax.DataflowVar
        copy = make(str(binding.var.name), binding.var.ty)
        bindings.append(relax.VarBinding(copy, substituted(binding.value, env)))
        env[binding.var] = copy
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], env[group.result])
    function = relax.Function(params, body, ret_ty=group.result.ty)
    attrs = {
        "Composite": group.entry.name,
        "Primitive": True,
        SOURCE_ATTR: source_name(group.result),
        RESULT_ATTR: str(group.result.name),
        **match_attributes(group.match, args),
    }
    return function.with_attrs(attrs), args
