"""What an importer of a plug-in gives, checked before the compiler relies on it."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import known_shape

DTYPES = ("float32", "int8", "uint8", "int32", "int64", "bool")
"""What inputs of models may be."""


def check_imported(
    found: object, shapes: Mapping[str, tuple[int, ...]], whose: str
) -> tuple[tvm.IRModule, list[str]]:
    """The module and the names of its outputs that an importer returned.

    Args:
        found: what it returned.
        shapes: input name -> shape, of the inputs that the user gave one.
        whose: the importer and its plug-in, as errors call them.

    Raises:
        VTAError: it is no such pair, or inputs or outputs differ from what was asked for.
    """
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], tvm.IRModule):
        raise VTAError(
            f"{whose} returned a {type(found).__name__}; a Relax module and a list of the names "
            "of its outputs are taken; return both"
        )
    mod, outputs = found[0], [str(name) for name in found[1]]
    main = mod.functions.get(next((gv for gv in mod.functions if gv.name_hint == "main"), None))
    if not isinstance(main, relax.Function):
        raise VTAError(f'{whose} returned a module without a Relax function "main"; give it one')
    for param in main.params:
        _check_input(param, shapes, whose)
    result = main.ret_ty
    count = len(result.fields) if isinstance(result, relax.TupleType) else 1
    if len(outputs) != count:
        raise VTAError(
            f"{whose} names {len(outputs)} outputs of a module that has {count}; name each once"
        )
    return mod, outputs


def _check_input(param: relax.Var, shapes: Mapping[str, tuple[int, ...]], whose: str) -> None:
    shape, dtype = known_shape(param.ty), str(getattr(param.ty, "dtype", "none"))
    if shape is None:
        raise VTAError(
            f'{whose} gives input "{param.name}" no fixed shape; all dimensions are numbers here; '
            "use the shapes that load gets"
        )
    if dtype not in DTYPES:
        raise VTAError(
            f'{whose} gives input "{param.name}" the dtype {dtype}; {", ".join(DTYPES)} are '
            "taken; convert it"
        )
    wanted = shapes.get(str(param.name))
    if wanted is not None and tuple(wanted) != tuple(shape):
        raise VTAError(
            f'{whose} gives input "{param.name}" the shape {tuple(shape)}; {tuple(wanted)} was '
            "asked for; use the shapes that load gets"
        )
