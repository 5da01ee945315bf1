"""PrimFuncs with buffers in the scopes of their call sites: one clone per scope signature.

relax.transform.SpecializePrimFuncBasedOnCallSite overwrites a PrimFunc that several call sites
share (the last one wins) and rejects buffers whose extents are not int64.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax, s_tir, tirx

from vta_byoc.scopes.table import GLOBAL


class Specializer:
    """Clones PrimFuncs of ``builder``'s module; :attr:`replaced` are those that were cloned."""

    def __init__(self, builder: relax.BlockBuilder):
        self._builder = builder
        self._made: dict[tuple[tvm.ir.GlobalVar, tuple[str, ...]], tvm.ir.GlobalVar] = {}
        self.replaced: set[tvm.ir.GlobalVar] = set()

    def function(self, gvar: tvm.ir.GlobalVar, scopes: tuple[str, ...]) -> tvm.ir.GlobalVar:
        """``gvar`` with its first buffers in ``scopes``: itself if they are there already."""
        func = self._builder.get()[gvar]
        if not isinstance(func, tirx.PrimFunc) or scopes == scopes_of_buffers(func, len(scopes)):
            return gvar
        if (gvar, scopes) not in self._made:
            # Clones share no variable: the well-formed module is one of independent functions.
            clone = s_tir.renew_defs(specialized(func, scopes)).without_attr("global_symbol")
            name = "_".join([gvar.name_hint, *(s.rpartition(".")[2] for s in scopes)])
            self._made[gvar, scopes] = self._builder.add_func(clone, name)
            self.replaced.add(gvar)
        return self._made[gvar, scopes]


def scopes_of_buffers(func: tirx.PrimFunc, count: int) -> tuple[str, ...]:
    """The scopes of the first ``count`` buffer parameters of ``func``."""
    return tuple(str(param.scope()) or GLOBAL for param in func.params[:count])


def specialized(func: tirx.PrimFunc, scopes: Sequence[str]) -> tirx.PrimFunc:
    """``func`` with its first buffer parameters in ``scopes``; extents stay as they are written."""
    for position, scope in enumerate(scopes):
        old = func.params[position]
        if str(old.scope()) != scope:
            new = tirx.decl_buffer(
                old.shape,
                old.dtype,
                str(old.name),
                strides=list(old.strides) or None,
                elem_offset=old.elem_offset,
                scope=scope,
                data_alignment=old.data_alignment,
                offset_factor=old.offset_factor,
            )
            func = func.specialize({old: new})
    return func
