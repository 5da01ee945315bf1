"""Views: a DRAM parameter of a PrimFunc as part of a larger tensor.

Inside the PrimFunc the parameter is dense; its symbol holds more.  Element (i0, i1, ...) is scalar
``offset + i0 * strides[0] + i1 * strides[1] + ...`` of the symbol: one phase of a strided output, a
plane of several, a range of channels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx

from vta_byoc.codegen.linear import CodegenError, row_major
from vta_byoc.hw.config import VTAConfig

VIEWS_ATTR = "vta.views"


@dataclass(frozen=True)
class View:
    """Where the elements of a parameter are in its symbol; both in scalars."""

    offset: int
    strides: tuple[int, ...]

    @classmethod
    def dense(cls, shape: Sequence[int]) -> View:
        """The view of a parameter that is all of its symbol."""
        return cls(0, tuple(row_major(shape)))

    def reach(self, shape: Sequence[int]) -> tuple[int, int]:
        """[low, high) of the scalars that a parameter of ``shape`` lies in."""
        steps = [(d - 1) * s for d, s in zip(shape, self.strides, strict=True)]
        low = self.offset + sum(min(0, step) for step in steps)
        return low, self.offset + sum(max(0, step) for step in steps) + 1


def with_views(func: tirx.PrimFunc, views: Mapping[int, View]) -> tirx.PrimFunc:
    """``func`` with the parameters numbered in ``views`` as views of their symbols.

    A number of strides that differs from the parameter's dimensions: CodegenError.
    """
    for index, view in views.items():
        if not 0 <= index < len(func.params):
            raise CodegenError(
                f"a view of parameter {index}; the function has {len(func.params)}; number them "
                "from 0"
            )
        param = func.params[index]
        rank = len(getattr(param, "shape", ()))
        if len(view.strides) != rank:
            raise CodegenError(
                f"the view of parameter {param.name} has {len(view.strides)} strides; it has "
                f"{rank} dimensions; give one stride each"
            )
    table = {str(i): [view.offset, *view.strides] for i, view in sorted(views.items())}
    return func.with_attr(VIEWS_ATTR, json.dumps(table))


def views_of(func: tirx.PrimFunc) -> dict[tirx.Var, View]:
    """The views of ``func`` by parameter."""
    if func.attrs is None or VIEWS_ATTR not in func.attrs:
        return {}
    table = json.loads(str(func.attrs[VIEWS_ATTR]))
    return {func.params[int(i)]: View(v[0], tuple(v[1:])) for i, v in table.items()}


def check_view(config: VTAConfig, param: tirx.Var, view: View, symbol: str, scalars: int) -> None:
    """Every element of the view must be a whole one, inside the ``scalars`` of ``symbol``."""
    shape = [int(d) for d in param.shape]
    low, high = view.reach(shape)
    if low < 0 or high > scalars:
        raise CodegenError(
            f"the view of parameter {param.name} reaches scalars {low} to {high - 1} of {symbol}; "
            f"it has {scalars}; correct the offset or the strides"
        )
    unit = config.batch * config.block
    parts = zip(shape, view.strides, row_major(shape), strict=True)
    broken = [s for d, s, lane in parts if d > 1 and s % unit and not (s == lane < unit)]
    if broken or view.offset % unit:
        what = f"steps {broken[0]}" if broken else f"starts at {view.offset}"
        raise CodegenError(
            f"the view of parameter {param.name} {what} scalars of {symbol}; an element has "
            f"{unit}; keep its lanes dense and step over whole elements"
        )
