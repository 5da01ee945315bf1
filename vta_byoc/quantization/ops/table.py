"""Every operator's integer form, once all modules of this folder are imported."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from vta_byoc.quantization import quantizer

for _module in pkgutil.iter_modules([str(Path(__file__).parent)], f"{__package__}."):
    if _module.name != __name__:
        importlib.import_module(_module.name)

OPERATORS: Mapping[str, quantizer.IntegerOp] = MappingProxyType(quantizer.OPERATORS)
"""Operator -> its entry."""


def add_operator(name: str, entry: quantizer.IntegerOp, by: str, *, replace: bool = False) -> None:
    """Register how an operator becomes integer, beside those of this folder.

    Args:
        name: the Relax operator.
        entry: its integer form.
        by: who registers it.
        replace: whether it takes the place of the form that this folder has.

    Raises:
        VTAError: the operator has an integer form already.
    """
    quantizer.OPERATORS.add(name, entry, by, replace=replace)
