"""The four importers: the operators they take, and the cases of each."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from importer_draws import Case
from importer_runs import Outcome, outcomes


def _onnx() -> frozenset[str]:
    from vta_byoc.importers.onnx.absent import ABSENT
    from vta_byoc.importers.onnx.checks import float_operators

    return float_operators() | ABSENT.keys()


def _tflite() -> frozenset[str]:
    from vta_byoc.importers.tflite.operators import CONVERTERS

    return frozenset(CONVERTERS)


def _torch() -> frozenset[str]:
    from vta_byoc.importers.torch.operators import taken_operators

    return taken_operators()


def _relay() -> frozenset[str]:
    from vta_byoc.importers.relay.operators.table import OPERATORS

    return frozenset(OPERATORS)


@dataclass(frozen=True)
class Importer:
    """One format.

    Attributes:
        name: of the format.
        package: what its own runtime is; of Relay, which none that can be installed has, NumPy.
        operators: those that the importer takes, as the importer itself says.
        cases: the module with a generator for each of them.
    """

    name: str
    package: str
    operators: Callable[[], frozenset[str]]
    cases: str

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    @property
    def module(self) -> Any:
        return importlib.import_module(self.cases)

    def drawn(self, operators: Sequence[str], draws: int, seed: int = 0) -> Iterator[Case]:
        """`draws` cases of each of the operators."""
        make = self.module.case
        return (make(name, number, seed) for name in operators for number in range(draws))

    def run(self, cases: Sequence[Case], size: int) -> list[Outcome]:
        """What became of the cases; `size` of them are imported as one model where that works."""
        join = getattr(self.module, "joined", None)
        return outcomes(cases, join, size if join is not None else 1)


IMPORTERS = (
    Importer("onnx", "onnxruntime", _onnx, "importer_onnx"),
    Importer("tflite", "ai_edge_litert", _tflite, "importer_tflite"),
    Importer("torch", "torch", _torch, "importer_torch"),
    Importer("relay", "numpy", _relay, "importer_relay"),
)
