"""What variables of the float module have become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tvm import relax

from vta_byoc.quantization.scales import Scale, Unscalable

UNIT = Scale(1.0)
"""The scale of a value that has none yet."""
UNKNOWN_RANGE = (
    "the model states no scale for a tensor of it and there are no samples; give calibration= (or "
    "--calibration)"
)


Span: TypeAlias = tuple[float, float]
"""The least and the largest value of a tensor in calibration."""


class Ranges(dict[relax.Var, float]):
    """Largest magnitudes; who asks for one that is not known gives up being integer."""

    def __missing__(self, var: relax.Var) -> float:
        raise Unscalable(var.name, UNKNOWN_RANGE)


@dataclass
class Value:
    """What a variable of the float module has become.

    Attributes:
        name: source name, for what is derived from the value.
        amax: largest magnitude seen in calibration (None: not a float32 tensor).
        plain: the value as the float module has it (float32, or another dtype unchanged).
        int8: the value as int8 at `scale`; for a tuple, a tuple of int8.
        is_native: an integer operator made it; `plain`, if any, is derived from `int8`.
        fields: the elements, if the value is a tuple that was built from values.
        is_input: it is an input of the model, so that quantizing it is the normal case.
        dtype: of the variable in the source module: "int8" or "uint8" behind its own quantize.
        span: from where to where int8 reaches, if the value gets a zero point for it.
    """

    name: str
    amax: float | None = None
    plain: relax.Expr | None = None
    int8: relax.Expr | None = None
    scale: Scale = UNIT
    is_native: bool = False
    fields: list[Value] | None = None
    is_input: bool = False
    dtype: str = "float32"
    span: Span | None = None
