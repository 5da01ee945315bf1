"""Relay modules as scripts hold them: the functions of a text, and what of them VTA may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vta_byoc.base.boundary import boundary
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.relay import graph
from vta_byoc.importers.relay.binaries import params_of
from vta_byoc.importers.relay.read import read_text

WHAT = "the Relay text"


@dataclass(frozen=True)
class Span:
    """The operators between two others, both excluded, as `graph_pack` of the old flow took them.

    Attributes:
        start, stop: names of Relay operators; "" for the begin and the end of the module.
        start_index, stop_index: the place of the operator among all operators, from 0; None: the
            first one of that name.
    """

    start: str
    stop: str
    start_index: int | None = None
    stop_index: int | None = None

    def outside(self, operators: Sequence[tuple[str, str]]) -> list[str]:
        """The names in Relax of what is not between both.

        Args:
            operators: (Relay's operator, name in Relax) in the order of execution.

        Raises:
            VTAError: there is no such operator.
        """
        first = self._place(operators, self.start, self.start_index, 0) + 1 if self.start else 0
        count = len(operators)
        last = self._place(operators, self.stop, self.stop_index, first) if self.stop else count
        return [name for i, (_, name) in enumerate(operators) if not first <= i < last]

    @staticmethod
    def _place(
        operators: Sequence[tuple[str, str]], name: str, index: int | None, after: int
    ) -> int:
        for place, (operator, _) in enumerate(operators):
            if operator == name and (place == index or (index is None and place >= after)):
                return place
        known = ", ".join(sorted({operator for operator, _ in operators}))
        where = "" if index is None else f" at place {index}"
        raise VTAError(
            f'graph_pack names "{name}"{where}, which the module does not have'
            f"{f' behind place {after - 1}' if after and index is None else ''}; its operators are "
            f"{known}; choose one of them"
        )


@dataclass(frozen=True)
class Module:
    """What `fromtext` read.

    Attributes:
        functions: the module as a graph.
        span: the operators that VTA may take; None: all.
    """

    functions: graph.Module
    span: Span | None = None

    def __getitem__(self, name: str) -> Module:
        """The module itself: old scripts hand `mod["main"]` to `graph_pack`."""
        if name not in self.functions.functions:
            known = ", ".join(f'"{each}"' for each in self.functions.functions)
            raise VTAError(f'the module has no function "{name}"; it has {known}; use one of them')
        return self


def fromtext(text: str) -> Module:
    """Read Relay text, with or without its metadata.

    Raises:
        VTAError: line and column of what is wrong.
    """
    with boundary("imported", WHAT):
        return Module(read_text(text, WHAT))


def load_param_dict(data: bytes | str | Path) -> dict[str, np.ndarray]:
    """The arrays of a parameter file: its bytes, as old scripts read them, or its path.

    Raises:
        VTAError: it is no parameter file, or damaged.
    """
    if isinstance(data, str | Path):
        from vta_byoc.importers.relay.binaries import read_params

        return read_params(data)
    return params_of(bytes(data), "the parameter file")


def graph_pack(
    mod: Module,
    bfactor: int | None = None,
    cfactor: int | None = None,
    weight_bits: int | None = None,
    start_name: str = "nn.max_pool2d",
    stop_name: str = "nn.global_avg_pool2d",
    start_name_idx: int | None = None,
    stop_name_idx: int | None = None,
) -> Module:
    """Choose the operators that VTA may take: those behind `start_name` and before `stop_name`.

    Args:
        mod: from `fromtext`, or its "main".
        bfactor: BATCH; the configuration that `build` gets says it, so that it is not read.
        cfactor: BLOCK; not read either.
        weight_bits: the width of weights; not read either.
        start_name: an operator of Relay, which stays on the CPU; "": the begin of the module.
        stop_name: an operator of Relay, which stays on the CPU; "": the end of the module.
        start_name_idx: the place of the first among all operators of the module, from 0; None: the
            first one of that name.
        stop_name_idx: the place of the other one.
    """
    return dataclasses.replace(mod, span=Span(start_name, stop_name, start_name_idx, stop_name_idx))
