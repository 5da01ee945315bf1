"""Forms of the IR: what each takes and refuses, and that every stage gives the form it says."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from contextvars import Context

import pytest
import tvm
from integer_models import IntegerNet, island_net, residual_net
from stage_runs import DRY, after_stages, bordered_net, in_every_form
from tvm import relax

from vta_byoc import pipeline
from vta_byoc.graph_pack import graph_pack
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.interpreter import symbol
from vta_byoc.ir.legality import (
    DRIVER,
    FORMS,
    INTEGER,
    LOWERED,
    MARKED,
    PACKED,
    PLACED,
    REGIONS,
    VM,
    Form,
    check_form,
    complaints,
)
from vta_byoc.ir.stage import Stage, checked_forms
from vta_byoc.options import Planned
from vta_byoc.partition import mark
from vta_byoc.passes.fuse_tiles import fuse_tiles
from vta_byoc.passes.lower_regions import LoweredRegions, lower_regions
from vta_byoc.pipeline import (
    SCOPE_MODES,
    STAGES,
    BuildOptions,
    compile_module,
    partition_for_vta,
    partition_passes,
)
from vta_byoc.vdevice import annotate_scopes

CONFIG = VTAConfig()


def cpu_net() -> IntegerNet:
    """Nothing for VTA."""
    net = IntegerNet(x=(1, 16, 4, 4))
    net.result = net.op("abs", net.params[0], name="size")
    return net


@functools.cache
def modules() -> dict[Form, tvm.IRModule]:
    net = bordered_net()
    return in_every_form(net.module(net.result))


def refusal(mod: tvm.IRModule, form: Form) -> str:
    with pytest.raises(VTAError) as err:
        check_form(mod, form)
    return str(err.value)


# ---------------------------------------------------------------- what stages give
@pytest.mark.parametrize("make", [residual_net, island_net, bordered_net, cpu_net])
@pytest.mark.parametrize("scopes", SCOPE_MODES)
def test_every_stage_gives_its_form(make: Callable[[], IntegerNet], scopes: str) -> None:
    net = make()
    for planned, mod in after_stages(
        net.module(net.result), BuildOptions(device="null", scopes=scopes)
    ):
        found = list(complaints(mod, planned.stage.gives))
        assert not found, f"{planned.name}: {found}"


def test_forms_follow_each_other() -> None:
    stages = [planned.stage for planned in STAGES]
    assert stages[0].takes is INTEGER and stages[-1].gives is VM
    for before, after in itertools.pairwise(stages):
        assert before.gives is after.takes
    assert list(dict.fromkeys(stage.gives for stage in stages)) == list(FORMS)


def test_form_of_every_stage_is_refused_or_taken(golden: Callable[[str, str], None]) -> None:
    """All forms against all: the whole messages; a module is of one form."""
    lines, taken = [], set()
    for form in FORMS:
        for name, mod in modules().items():
            try:
                check_form(mod, form)
                taken.add((form.name, name.name))
            except VTAError as error:
                lines.append(f"{form} for {name}: {error}")
    golden("forms.txt", "\n".join(lines) + "\n")
    assert taken == {(form.name, form.name) for form in FORMS}


def test_the_driver_is_known_by_its_name() -> None:
    assert symbol(CONFIG).startswith(DRIVER)
    mod = modules()[LOWERED].without_attr("vta.placement")
    assert 'binding "region0__run" is a driver call (vta_run_b0_' in refusal(mod, INTEGER)


# ---------------------------------------------------------------- broken by hand
def changed(
    form: Form, prefix: str, change: Callable[[relax.Function], tvm.ir.BaseFunc]
) -> tvm.IRModule:
    """A module of ``form`` in which the first function called ``prefix`` is changed."""
    mod = modules()[form].clone()
    names = {gv.name_hint: gv for gv in mod.get_global_vars()}
    gv = names[min(name for name in names if name.startswith(prefix))]
    mod.update_func(gv, change(mod[gv]))
    return mod


def without(name: str) -> Callable[[relax.Function], relax.Function]:
    return lambda func: func.without_attr(name)


def rebound(
    make: Callable[[relax.Function], relax.Expr], name: str = "odd"
) -> Callable[[relax.Function], relax.Function]:
    """The function with one more binding, of what ``make`` makes."""

    def change(func: relax.Function) -> relax.Function:
        value = make(func)
        odd = relax.VarBinding(relax.DataflowVar(name, func.ret_ty), value)
        blocks = [*func.body.blocks, relax.BindingBlock([odd])]
        body = relax.SeqExpr(blocks, func.body.body)
        made = relax.Function(func.params, body, ret_ty=func.ret_ty)
        return made.with_attrs(dict(func.attrs))

    return change


def inner_without(name: str) -> Callable[[relax.Function], relax.Function]:
    """A region whose inner functions lack an attribute."""

    def change(func: relax.Function) -> relax.Function:
        bindings = [
            relax.VarBinding(b.var, b.value.without_attr(name))
            if isinstance(b.value, relax.Function)
            else b
            for block in func.body.blocks
            for b in block.bindings
        ]
        body = relax.SeqExpr([relax.BindingBlock(bindings)], func.body.body)
        made = relax.Function(func.params, body, ret_ty=func.ret_ty)
        return made.with_attrs(dict(func.attrs))

    return change


def absolute(func: relax.Function) -> relax.Expr:
    return relax.op.abs(func.params[0])


def loops(func: relax.Function) -> relax.Expr:
    return relax.call_tir(tvm.ir.GlobalVar("loops"), [func.params[0]], out_ty=func.ret_ty)


TAKE_QUANTIZED = "take the module that vta_byoc.quantize gives"
TAKE_MARKED = "take the module that stage Mark gives (`vta-byoc passes`)"
TAKE_PACKED = "take the module that stage GraphPack gives (`vta-byoc passes`)"
TAKE_PLACED = "take the module that vta_byoc.partition_for_vta gives"
REGION = 'region "fused_vta_conv2d_binary_vta"'
BROKEN = {
    "a composite without its match": (
        MARKED,
        lambda: changed(MARKED, "vta_conv2d", without("vta.match")),
        f'composite "vta_conv2d" has no attribute "vta.match"; MARKED has it; {TAKE_MARKED}',
    ),
    "loops in a composite that is not packed": (
        MARKED,
        lambda: changed(MARKED, "vta_conv2d", rebound(loops)),
        'composite "vta_conv2d", binding "odd" is a call_tir (loops); MARKED has there: operator, '
        f"value; {TAKE_MARKED}",
    ),
    "a composite without its source": (
        PACKED,
        lambda: changed(PACKED, "vta_conv2d_binary", without("vta.source")),
        'composite "vta_conv2d_binary" has no attribute "vta.source"; PACKED has it; '
        f"{TAKE_PACKED}",
    ),
    "an operator in a packed composite": (
        PACKED,
        lambda: changed(PACKED, "vta_conv2d_binary", rebound(absolute)),
        'composite "vta_conv2d_binary", binding "odd" is an operator (relax.abs); PACKED has '
        f"there: call_tir; {TAKE_PACKED}",
    ),
    "an operator in a region": (
        PLACED,
        lambda: changed(PLACED, "fused_vta", rebound(absolute)),
        f'{REGION}, binding "odd" is an operator (relax.abs); PLACED has there: inner call, '
        f"inner function, value; {TAKE_PLACED}",
    ),
    "a region without scopes": (
        PLACED,
        lambda: changed(PLACED, "fused_vta", without("vta.scopes")),
        f'{REGION} has no attribute "vta.scopes"; PLACED has it; {TAKE_PLACED}',
    ),
    "a step without its result": (
        PLACED,
        lambda: changed(PLACED, "fused_vta", inner_without("vta.result")),
        f'{REGION}, binding "gv" has no attribute "vta.result"; PLACED has it; {TAKE_PLACED}',
    ),
    "no record of the placement": (
        PLACED,
        lambda: modules()[PLACED].without_attr("vta.placement"),
        f'the module has no attribute "vta.placement"; PLACED has it; {TAKE_PLACED}',
    ),
    "an operator that the VM does not know": (
        VM,
        lambda: changed(VM, "main", rebound(absolute)),
        'function "main", binding "odd" is an operator (relax.abs); VM has there: VM instruction, '
        "driver call, function call, kernel call, packed call, value; take the module that stage "
        "BuildHost gives (`vta-byoc passes`)",
    ),
    "main of the VM with a purity that somebody checks": (
        VM,
        lambda: changed(VM, "main", without("relax.force_pure")),
        'function "main" has no attribute "relax.force_pure"; VM has it; take the module that '
        "stage BuildHost gives (`vta-byoc passes`)",
    ),
    "no main": (
        INTEGER,
        lambda: tvm.IRModule({}),
        f'the module has no Relax function "main"; INTEGER has one; {TAKE_QUANTIZED}',
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_module_is_refused(what: str) -> None:
    form, make, message = BROKEN[what]
    assert refusal(make(), form) == message


FOREIGN = """
@I.ir_module
class Module:
    @R.function
    def other(x: R.Tensor((1, 16, 4, 4), "int8")) -> R.Tensor((1, 16, 4, 4), "int8"):
        R.func_attr({"Codegen": "another"})
        y = R.abs(x)
        return y
    @R.function
    def main(x: R.Tensor((1, 16, 4, 4), "int8")) -> R.Tensor((1, 16, 4, 4), "int8"):
        cls = Module
        with R.dataflow():
            a: R.Tensor((1, 16, 4, 4), "int8") = cls.other(x)
            t = (x, a)
            c = t[1]
            y = R.abs(c)
            R.output(y)
        return y
"""


def test_what_the_cpu_runs_is_legal_from_end_to_end() -> None:
    """Functions of another backend, tuples."""
    mod = tvm.script.from_source(FOREIGN)
    check_form(mod, INTEGER)
    placed = partition_for_vta(mod, CONFIG)
    check_form(placed, PLACED)
    assert 'R.func_attr({"Codegen": "another"})' in placed.script()


def test_packed_functions_are_refused() -> None:
    """TVM ends with an internal error when it merges composites beside one."""
    called = 'R.call_dps_packed("mine", (c,), out_ty=R.Tensor((1, 16, 4, 4), "int8"))'
    script = FOREIGN.replace("R.abs(c)", called)
    with pytest.raises(VTAError) as err:
        partition_for_vta(tvm.script.from_source(script), CONFIG)
    assert str(err.value) == (
        'stage TellOfFloats takes INTEGER: function "main", binding "y" is a packed call (mine); '
        f"INTEGER has there: call_tir, function call, operator, value; {TAKE_QUANTIZED}"
    )


BRANCH = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "int8"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "int8"):
        if c:
            y = R.abs(x)
        else:
            y = R.negative(x)
        return y
"""
MATCH_CAST = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(ndim=1, dtype="int8")) -> R.Tensor((4,), "int8"):
        y = R.match_cast(x, R.Tensor((4,), "int8"))
        return y
"""


@pytest.mark.parametrize(
    ("script", "kind"), [(BRANCH, "control flow"), (MATCH_CAST, "a shape match")]
)
def test_what_does_not_run_straight_is_refused(script: str, kind: str) -> None:
    assert refusal(tvm.script.from_source(script), INTEGER) == (
        f'function "main", binding "y" is {kind}; INTEGER has there: call_tir, function call, '
        f"operator, value; {TAKE_QUANTIZED}"
    )


# ---------------------------------------------------------------- stages given another form
@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (
            lambda: mark(CONFIG),
            PLACED,
            'stage Mark takes INTEGER: the module has the attribute "vta.placement"; INTEGER does '
            f"not have it; {TAKE_QUANTIZED}",
        ),
        (
            lambda: graph_pack(CONFIG),
            INTEGER,
            'stage GraphPack takes MARKED: the module has no attribute "vta.placement"; MARKED has '
            f"it; {TAKE_MARKED}",
        ),
        (
            lambda: fuse_tiles(CONFIG),
            MARKED,
            'stage FuseTiles takes PACKED: composite "vta_binary" has the attribute "vta.match"; '
            f"PACKED does not have it; {TAKE_PACKED}",
        ),
        (
            lambda: annotate_scopes(CONFIG),
            PACKED,
            'stage AnnotateScopes takes REGIONS: function "vta_conv2d_binary" is a composite; '
            "REGIONS has main, region, PrimFunc, Relax function; take the module that stage "
            "MergeRegions gives (`vta-byoc passes`)",
        ),
        (
            lambda: lower_regions(CONFIG, LoweredRegions()),
            REGIONS,
            f'stage LowerRegions takes PLACED: {REGION} has no attribute "vta.scopes"; PLACED has '
            f"it; {TAKE_PLACED}",
        ),
    ],
)
def test_a_pass_refuses_another_form(
    make: Callable[[], tvm.transform.Pass], given: Form, message: str
) -> None:
    with pytest.raises(VTAError) as err:
        Context().run(make(), modules()[given])  # where no test checks forms
    assert str(err.value) == message


def test_a_pass_leaves_its_module_as_it_was() -> None:
    """What it is given is of the form that it takes, afterwards too."""
    for stage, before in zip(partition_passes(CONFIG)[-3:], (PACKED, REGIONS, PLACED), strict=True):
        stage(modules()[before])
        check_form(modules()[before], before)


def test_public_functions_refuse_another_form() -> None:
    with pytest.raises(VTAError, match="^stage TellOfFloats takes INTEGER: the module has the att"):
        partition_for_vta(modules()[PLACED], CONFIG)
    refused = r'^stage LowerRegions takes PLACED: function "vta_\w+" is a composite; '
    for form in (MARKED, PACKED):
        with pytest.raises(VTAError, match=refused):
            compile_module(modules()[form], options=DRY)


# ---------------------------------------------------------------- stages that give another form
BAD = Stage("Bad", INTEGER, MARKED, "forgets to mark")
WRONG = (
    'stage Bad gives MARKED: the module has no attribute "vta.placement"; MARKED has it; '
    f"{TAKE_MARKED}"
)


@BAD
def bad(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
    return mod


def test_tests_check_what_stages_give() -> None:
    """By the fixture `checked`, which holds for every test."""
    with pytest.raises(AssertionError) as err:
        bad(modules()[INTEGER])
    assert str(err.value) == WRONG


def test_users_have_it_checked_on_demand() -> None:
    def with_checks(wanted: bool) -> None:
        with checked_forms(wanted):
            bad(modules()[INTEGER])

    bare = Context()
    bare.run(bad, modules()[INTEGER])
    bare.run(with_checks, False)
    with pytest.raises(AssertionError, match="^stage Bad gives MARKED"):
        bare.run(with_checks, True)
    bare.run(bad, modules()[INTEGER])  # and no longer than that


@pytest.mark.parametrize("call", [partition_for_vta, compile_module])
def test_check_forms_reaches_the_stages(
    call: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = (*pipeline.PARTITION, Planned(BAD, lambda _options, _record: unmarked))
    monkeypatch.setattr(pipeline, "PARTITION", stages)
    net = cpu_net()
    mod, bare = net.module(net.result), Context()
    with pytest.raises(AssertionError, match="^stage Bad gives MARKED"):
        bare.run(call, mod, options=BuildOptions(device="null", check_forms=True))
    if call is partition_for_vta:
        bare.run(call, mod, options=DRY)


def test_check_forms_reaches_the_stages_that_build(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = (Planned(BAD, lambda _options, _record: unmarked), *pipeline.BUILD)
    monkeypatch.setattr(pipeline, "BUILD", stages)
    with pytest.raises(AssertionError, match="^stage Bad gives MARKED"):
        Context().run(
            compile_module,
            modules()[PLACED],
            options=BuildOptions(device="null", check_forms=True),
        )


@Stage("Bad", PLACED, MARKED, "forgets the placement")
def unmarked(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
    return mod.without_attr("vta.placement")
