"""Registering what stands before the compiler: importers, calibrators, integer operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tvm
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.registry import registrant
from vta_byoc.importers.load import FORMATS, RELAY, Format
from vta_byoc.quantization.calibration.range_estimators import METHODS, Calibrator, Histogram
from vta_byoc.quantization.ops.table import add_operator
from vta_byoc.quantization.quantizer import IntegerOp, Quantizer, asks_if_wanted

Load = Callable[[Path, dict[str, tuple[int, ...]]], tuple[tvm.IRModule, list[str]]]
"""(file, input name -> shape that the user gave) -> (Relax module, names of its outputs)."""
Threshold = Callable[[Histogram, float, Calibrator], float]
"""(histogram of a tensor, its largest magnitude, the method's options) -> what int8 reaches to."""
Rule = Callable[[Quantizer, relax.VarBinding], bool]
"""(quantizer, binding of the operator) -> whether the integer form was written."""


class _Importer:
    """A function as what the module of a format has."""

    def __init__(self, load: Load) -> None:
        self.load = load


def register_importer(name: str, suffix: str, load: Load) -> None:
    """Let `load_model`, and every command, take files of another format.

    Args:
        name: of the format, in messages.
        suffix: of its files, with the dot, in lower case.
        load: returns a module with one dataflow function `main`, as
            `vta_byoc.importers.load.Importer` says, and the names of its outputs.

    Raises:
        VTAError: files of this extension are taken already, or it is no extension.
    """
    by = registrant(load)
    if not suffix.startswith(".") or suffix != suffix.lower() or suffix in RELAY:
        raise VTAError(
            f'importer "{name}" of {by} is for files that end in "{suffix}"; an extension has a '
            f"dot, lower case, and is none of Relay's ({', '.join(RELAY)}); choose another"
        )
    FORMATS.add(suffix, Format(name, suffix, _Importer(load)), by)


def register_calibrator(name: str, threshold: Threshold) -> None:
    """Add a method by which calibration chooses ranges: `method=` and `--method` take its name.

    Args:
        name: of the method.
        threshold: called for each tensor that is not always zero; returns the magnitude that int8
            reaches to, above 0 and at most the largest one seen.

    Raises:
        VTAError: the name is taken.
    """

    def chosen(choice: Calibrator, histogram: Histogram, absmax: float) -> float:
        return threshold(histogram, absmax, choice)

    METHODS.add(name, chosen, registrant(threshold))


def register_integer_op(
    operator: str, rule: Rule, *, asks: Rule = asks_if_wanted, replace: bool = False
) -> None:
    """Let an operator become integer instead of staying float.

    What the rule writes are operators of the integer dialect; llvm computes them exactly, and
    those that the partition table takes run on VTA.

    Args:
        operator: the Relax operator, "relax.nn.silu" for example.
        rule: writes the integer form with the quantizer, stores its value (`close`) and returns
            True; or writes nothing that is read and returns False, and the operator stays float.
        asks: whether the operator will read its data as int8; by default it does where its result
            is wanted as int8.
        replace: whether the rule takes the place of the compiler's own form of the operator.

    Raises:
        VTAError: the operator has an integer form already (of another plug-in, or the compiler's
            own one without `replace`), or there is no such operator.
    """
    by = registrant(rule)
    if operator not in tvm.ir.Op.list_op_names():
        raise VTAError(
            f'integer operator "{operator}" of {by} is no operator of TVM; Relax operators have '
            "names such as relax.nn.silu; correct the name"
        )
    add_operator(operator, IntegerOp(rule, asks), by, replace=replace)
