"""The forms that the IR takes between passes, as tables of what is legal in each.

A module has functions of five kinds (:data:`FUNCTION_KINDS`), and their bindings are of several
kinds (:func:`binding_kind`). A form lists the kinds of functions that it holds, the kinds of
bindings that stand in each of them, and the attributes that functions and module carry.
:func:`check_form` reads these tables and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name

MAIN, COMPOSITE, REGION, LOOPS, HELPER = FUNCTION_KINDS = (
    "main",
    "composite",
    "region",
    "PrimFunc",
    "Relax function",
)
"""The entry; a match of the partition table; what VTA runs; loops; any other Relax function."""

OPERATOR = "operator"
CALL_TIR = "call_tir"
CALLS = {
    COMPOSITE: "composite call",
    REGION: "region call",
    LOOPS: "kernel call",  # on memory that is allocated
    HELPER: "function call",
    MAIN: "call of main",
}
"""Direct calls of functions, by the kind of function."""
PACKED_CALL = "packed call"
DRIVER_CALL = "driver call"
VM_CALL = "VM instruction"
INNER, INNER_CALL = "inner function", "inner call"
CONTROL, MATCH = "control flow", "shape match"
VALUE = "value"
"""A tuple, an element of one, a variable or a constant."""

DRIVER = "vta_run"
"""The name of every driver begins with it."""
VM_OPERATORS = ("relax.vm.", "relax.memory.", "relax.null_value", "relax.builtin.")
EXTERNAL_CALLS = ("relax.call_dps_packed", "relax.call_pure_packed", "relax.call_inplace_packed")


@dataclass(frozen=True)
class Rule:
    """What a function of one kind is made of.

    Attributes:
        bindings: the kinds of bindings that stand in it; None for any.
        attributes: those that it carries.
        without: attributes of other forms.
        inner: the rule of its inner functions.
    """

    bindings: frozenset[str] | None = None
    attributes: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    inner: Rule | None = None


@dataclass(frozen=True, eq=False)
class Form:
    """One form of a module; each is equal to itself only.

    Attributes:
        name: in capitals, as stages and messages say it.
        says: what such a module is.
        source: who gives one.
        functions: the rule of each kind of function that it holds.
        attributes: those that the module carries.
        without: attributes of other forms.
    """

    name: str
    says: str
    source: str
    functions: Mapping[str, Rule]
    attributes: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


# ---------------------------------------------------------------- the tables
PLACEMENT, REGIONS_ATTR = "vta.placement", "vta.regions"
CODEGEN, SCOPES, KEPT_MATCH = "Codegen", "vta.scopes", ("vta.match", "vta.constants")
OF_COMPOSITES = ("Composite", "vta.source", "vta.result")

HOST = frozenset((OPERATOR, CALL_TIR, CALLS[HELPER], VALUE))
"""What the CPU computes; no packed calls, which MergeCompositeFunctions of TVM 0.27 cannot pass."""
_ANY = {LOOPS: Rule(), HELPER: Rule()}
_MARKED = Rule(frozenset((OPERATOR, VALUE)), ("Primitive", *KEPT_MATCH, *OF_COMPOSITES))
_PACKED = Rule(frozenset((CALL_TIR,)), ("Primitive", *OF_COMPOSITES), KEPT_MATCH)
_STEP = Rule(frozenset((CALL_TIR,)), OF_COMPOSITES, KEPT_MATCH)
_REGION = frozenset((INNER, INNER_CALL, VALUE))
_VM = frozenset((CALLS[LOOPS], PACKED_CALL, DRIVER_CALL, VM_CALL, CALLS[HELPER], VALUE))
_STAGE = "the module that stage {} gives (`vta-byoc passes`)"

INTEGER = Form(
    "INTEGER",
    "operators of the integer dialect, and any that stay on the CPU",
    "the module that vta_byoc.quantize gives",
    {MAIN: Rule(HOST), **_ANY},
    without=(PLACEMENT,),
)
MARKED = Form(
    "MARKED",
    "what VTA takes stands in composites, which compute on plain tensors",
    _STAGE.format("Mark"),
    {MAIN: Rule(HOST | {CALLS[COMPOSITE]}), COMPOSITE: _MARKED, **_ANY},
    (PLACEMENT,),
)
PACKED = Form(
    "PACKED",
    "composites call loops on packed tensors; packs and unpacks stand at their borders",
    _STAGE.format("GraphPack"),
    {MAIN: Rule(HOST | {CALLS[COMPOSITE]}), COMPOSITE: _PACKED, **_ANY},
    (PLACEMENT,),
)
REGIONS = Form(
    "REGIONS",
    "composites stand in regions, one call of each in main",
    _STAGE.format("MergeRegions"),
    {
        MAIN: Rule(HOST | {CALLS[REGION]}),
        REGION: Rule(_REGION, (CODEGEN,), (SCOPES,), _STEP),
        **_ANY,
    },
    (PLACEMENT,),
)
PLACED = Form(
    "PLACED",
    "every tensor of a region has a memory scope",
    "the module that vta_byoc.partition_for_vta gives",
    {
        MAIN: Rule(HOST | {CALLS[REGION]}),
        REGION: Rule(_REGION, (CODEGEN, SCOPES), (), _STEP),
        **_ANY,
    },
    (PLACEMENT,),
)
LOWERED = Form(
    "LOWERED",
    "regions are programs, and main calls VTA's driver with them",
    _STAGE.format("LowerRegions"),
    {MAIN: Rule(HOST | {DRIVER_CALL, PACKED_CALL}), **_ANY},
    (PLACEMENT,),
)
VM = Form(
    "VM",
    "calls on allocated memory, for the Relax VM",
    _STAGE.format("BuildHost"),
    {
        MAIN: Rule(_VM, ("relax.force_pure",)),
        **_ANY,
    },
    (PLACEMENT,),
)
FORMS = (INTEGER, MARKED, PACKED, REGIONS, PLACED, LOWERED, VM)
"""In the order in which a module takes them."""


# ---------------------------------------------------------------- what stands in a module
def function_kind(name: str, function: tvm.ir.BaseFunc) -> str:
    """Which of FUNCTION_KINDS a function of a module is."""
    if isinstance(function, tirx.PrimFunc):
        return LOOPS
    if name == MAIN:
        return MAIN
    attributes = function.attrs or {}
    if "Composite" in attributes:
        return COMPOSITE
    return REGION if str(attributes.get(CODEGEN, "")) == "vta" else HELPER


def binding_kind(binding: relax.Binding, mod: tvm.IRModule) -> str:
    """What a binding is: one of the names above."""
    if not isinstance(binding, relax.VarBinding):
        return MATCH
    value = binding.value
    if isinstance(value, relax.If):
        return CONTROL
    if isinstance(value, relax.Function):
        return INNER
    return _call_kind(value, mod) if isinstance(value, Call) else VALUE


def _call_kind(call: Call, mod: tvm.IRModule) -> str:
    name = op_name(call)
    if name in EXTERNAL_CALLS or isinstance(call.op, relax.ExternFunc):
        callee = call.op if not name else call.args[0]
        symbol = str(getattr(callee, "global_symbol", ""))
        return DRIVER_CALL if symbol.startswith(DRIVER) else PACKED_CALL
    if name.startswith("relax.call_tir"):
        return CALL_TIR
    if name.startswith(VM_OPERATORS):
        return VM_CALL
    if name:
        return OPERATOR
    if isinstance(call.op, GlobalVar):
        return CALLS[function_kind(call.op.name_hint, mod[call.op])]
    return INNER_CALL


# ---------------------------------------------------------------- checking
def check_form(mod: tvm.IRModule, form: Form) -> None:
    """Refuse a module that is not of ``form``.

    Raises:
        VTAError: the first function, attribute or binding that the form does not have.
    """
    for complaint in complaints(mod, form):
        raise VTAError(f"{complaint}; take {form.source}")


def complaints(mod: tvm.IRModule, form: Form) -> Iterator[str]:
    """What in ``mod`` is not of ``form``, each as `<what it is>; <what the form has>`."""
    yield from _wrong_attributes("the module", mod.attrs or {}, form, form)
    functions = sorted(
        ((gv.name_hint, function) for gv, function in mod.functions.items()),
        key=lambda item: item[0],
    )
    kinds = {name: function_kind(name, function) for name, function in functions}
    if kinds.get(MAIN) != MAIN:
        yield f'the module has no Relax function "{MAIN}"; {form} has one'
    for name, kind in kinds.items():
        if kind not in form.functions:
            known = ", ".join(kind for kind in FUNCTION_KINDS if kind in form.functions)
            yield f'function "{name}" is {_with_article(kind)}; {form} has {known}'
    for name, function in functions:
        kind = kinds[name]
        if kind in form.functions and isinstance(function, relax.Function):
            title = f'{kind if kind in (COMPOSITE, REGION) else "function"} "{name}"'
            yield from _wrong_function(title, function, form.functions[kind], form, mod)


def _wrong_function(
    title: str, function: relax.Function, rule: Rule, form: Form, mod: tvm.IRModule
) -> Iterator[str]:
    yield from _wrong_attributes(title, function.attrs or {}, rule, form)
    if rule.bindings is None:
        return
    for block in function.body.blocks:
        for binding in block.bindings[:]:
            kind = binding_kind(binding, mod)
            if kind in rule.bindings and kind != INNER:
                continue
            where = f'{title}, binding "{binding.var.name}"'
            if kind not in rule.bindings:
                known = ", ".join(sorted(rule.bindings))
                what = f"{_with_article(kind)}{_called(binding)}"
                yield f"{where} is {what}; {form} has there: {known}"
            elif kind == INNER and rule.inner is not None:
                yield from _wrong_function(where, binding.value, rule.inner, form, mod)


def _wrong_attributes(
    title: str, attributes: Mapping[str, object], rule: Rule | Form, form: Form
) -> Iterator[str]:
    for name in rule.attributes:
        if name not in attributes:
            yield f'{title} has no attribute "{name}"; {form} has it'
    for name in rule.without:
        if name in attributes:
            yield f'{title} has the attribute "{name}"; {form} does not have it'


def _called(binding: relax.Binding) -> str:
    """The operator or the function that a binding calls, in parentheses."""
    call = getattr(binding, "value", None)
    if not isinstance(call, Call):
        return ""
    callee = getattr(call.op, "name_hint", "") or op_name(call)
    if callee.startswith("relax.call_"):
        target = call.args[0]
        callee = str(getattr(target, "name_hint", getattr(target, "global_symbol", callee)))
    return f" ({callee})" if callee else ""


def _with_article(kind: str) -> str:
    if kind == CONTROL:
        return kind
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
