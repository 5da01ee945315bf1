"""The options that say how to quantize, written once for every command that does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, cast

import click

from vta_byoc.base.boundary import boundary
from vta_byoc.base.choices import FUNCTION_WORTH, METHODS, PERCENTILE, RESCALES, SCALES, ZERO_POINTS
from vta_byoc.cli.calibration import calibration_option, read_calibration
from vta_byoc.cli.jobs import MOST_WORKERS
from vta_byoc.cli.names import RegisteredName
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.registry import REGISTRIES

if TYPE_CHECKING:
    import numpy as np
    import tvm

    from vta_byoc.cli.progress import Steps
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.quantization.calibration.samples import Sample

CHOSEN = "vta_byoc.quantization"
"""Key of the click context's `meta`: the options that were given, by the names of
QuantizationOptions."""
NOISE_SEED = 1
"""Seed of the default calibration; not that of the default input, which it would contain."""
OWN = "samples that the model keeps"
Command = TypeVar("Command", bound=Callable[..., object])


def _methods() -> list[str]:
    """The names of the methods of calibration."""
    added = [name for table in REGISTRIES if table.kind == "calibrator" for name in table.added()]
    return [*METHODS, *added]


class QuantizeArguments(TypedDict, total=False):
    """Keyword arguments of `vta_byoc.quantize`."""

    scales: str
    per_channel: bool
    method: str
    percentile: float
    equalize: bool
    bias_correction: bool
    keep_float: tuple[str, ...]
    float_tail: bool
    rescale: str
    function_tolerance: int
    function_worth: float
    exact_rescale: bool
    zero_points: str
    calibration_workers: int
    calibration_scheduler: str


@dataclass(frozen=True)
class QuantizationOptions:
    """How to quantize, as arguments of `vta_byoc.quantize`; None is its default."""

    scales: str | None = None
    per_channel: bool = False
    method: str = METHODS[0]
    percentile: float | None = None
    equalize: bool = False
    bias_correction: bool = False
    keep_float: tuple[str, ...] = ()
    float_tail: bool = True
    rescale: str | None = None
    function_tolerance: int | None = None
    function_worth: float | None = None
    exact_rescale: bool = False
    zero_points: str | None = None
    calibration_workers: int | None = None
    calibration_scheduler: str | None = None

    def arguments(self) -> QuantizeArguments:
        """Keyword arguments: those that are not the default.

        Raises:
            VTAError: --percentile without --method percentile.
        """
        if self.percentile is not None and self.method != PERCENTILE:
            raise VTAError(
                f"--percentile {self.percentile:g} with --method {self.method}, which has no "
                "percentile; add --method percentile or leave it out"
            )
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        found = {name: value for name, value in values.items() if value != defaults[name]}
        return cast(QuantizeArguments, found)  # it has the fields of this class

    def text(self) -> str:
        """As options of the command line."""
        given = self.arguments().items()
        return " ".join(_as_option(name, value) for name, value in given) or "default options"


def quantization_options(command: Command) -> Command:
    """Add --calibration, --preprocess and the options of quantization.

    A command takes the first as `calibration`; `quantize_model` finds the others by itself.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return calibration_option(command)


def chosen() -> QuantizationOptions:
    """The options of the running command."""
    context = click.get_current_context(silent=True)
    return QuantizationOptions(**(context.meta.get(CHOSEN, {}) if context else {}))


def quantize_model(
    mod: tvm.IRModule,
    calibration: str | None,
    steps: Steps,
    machine: VTAConfig | None = None,
    kept: Sequence[np.ndarray] | None = None,
) -> tvm.IRModule:
    """The integer module for a machine, by the options of the running command.

    The machine is the default preset when None.  ``kept`` are samples of the model's file, which
    are taken where --calibration is not given.
    """
    options = chosen().arguments()
    own = kept is not None and calibration is None
    text = f"quantizing with {OWN if own else _source(mod, calibration)}"
    with steps.step("quantize", text), boundary("quantized", _model()):
        from vta_byoc.quantize import quantize

        samples = kept if own else calibration_samples(mod, calibration)

        def progress(done: int, total: int | None) -> None:
            steps.detail(f"{text}: sample {done} of {total}")

        return quantize(mod, calibration=samples, config=machine, progress=progress, **options)


def _model() -> str:
    context = click.get_current_context(silent=True)
    name = context.params.get("model") if context else None
    return "the model" if name is None else f'model file "{name}"'


def calibration_samples(mod: tvm.IRModule, calibration: str | None) -> Iterable[Sample] | None:
    """Those of --calibration, or noise; None for a model that came quantized."""
    from vta_byoc.quantization.calibration.samples import default_calibration
    from vta_byoc.quantization.qdq import is_quantized

    if calibration is not None:
        return read_calibration(calibration, mod)
    return None if is_quantized(mod) else default_calibration(mod, seed=NOISE_SEED)


def _source(mod: tvm.IRModule, calibration: str | None) -> str:
    from vta_byoc.quantization.qdq import is_quantized

    if calibration is None and is_quantized(mod):
        return "the scales of the model"
    return calibration or "noise; --calibration gives representative samples"


def _as_option(name: str, value: object) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {','.join(value) if isinstance(value, tuple) else value}"


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value is not None and param.name is not None:
        ctx.meta.setdefault(CHOSEN, {})[param.name] = value


def _remember_names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    if not values:
        return
    from vta_byoc.ir.selection import parse_selectors

    names = tuple(name for value in values for name in parse_selectors(value))
    if not names:
        raise VTAError("--keep-float names no operator; give names with commas between them")
    _remember(ctx, param, names)


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    settings.setdefault("callback", _remember)
    return click.option(*names, expose_value=False, **settings)


class _Decorator(Protocol):
    def __call__(self, command: Command, /) -> Command: ...


_OPTIONS: tuple[_Decorator, ...] = (
    _option(
        "--scales",
        type=click.Choice(SCALES),
        help="pow2: powers of two, rescaled by shifts; mul: any, by multiplier and shift. "
        "Default: pow2, and mul for a model that came quantized.",
    ),
    _option(
        "--rescale",
        type=click.Choice(RESCALES),
        help="Of scales mul, the factor of a layer's result: multiply (needs the ALU's MUL), "
        "digits (in weights of two int8 digits), shifts (as sums of shifts), approximate (in "
        "weights of one digit). Default: multiply, and the cheaper of digits and shifts on a "
        "machine without MUL.",
    ),
    _option(
        "--function-tolerance",
        type=click.IntRange(0),
        metavar="STEPS",
        help="The largest error of a function of one tensor (sigmoid, SiLU, GELU) as a program of "
        "the ALU, in steps of its result; 0: exact. Default: 1.",
    ),
    _option(
        "--function-worth",
        type=click.FloatRange(0),
        metavar="CYCLES",
        help="Cycles a vector that half of the noise of such a function's result is worth; 0: the "
        f"fewest cycles within the tolerance. Default: {FUNCTION_WORTH:g}.",
    ),
    _option(
        "--exact-rescale",
        is_flag=True,
        help="Of a quantized TFLite or ONNX model: its runtime's integers to the bit, where the "
        "machine has MUL; costs cycles.",
    ),
    _option(
        "--zero-points",
        type=click.Choice(ZERO_POINTS),
        help="Of scales mul, which tensors get a zero point: cheap (those that use more of int8 "
        "with one and whose readers take it at little cost), all (also beside padding), none. "
        "Default: cheap.",
    ),
    _option(
        "--calibration-workers",
        type=click.IntRange(1, MOST_WORKERS),
        metavar="N",
        help="Processes of this computer that run the calibration's samples. Default: this one.",
    ),
    _option(
        "--calibration-scheduler",
        metavar="ADDRESS",
        help="A Dask scheduler whose workers run the calibration's samples (extra dask).",
    ),
    _option("--per-channel", is_flag=True, help="A weight scale for each output channel."),
    _option(
        "--method",
        type=RegisteredName(_methods),
        default=METHODS[0],
        show_default=True,
        help="How calibration chooses ranges.",
    ),
    _option(
        "--percentile",
        type=click.FloatRange(0, 100, min_open=True),
        metavar="PCT",
        help="Of --method percentile: the share of values in range. Default: 99.99.",
    ),
    _option(
        "--equalize", is_flag=True, help="Balance the weights of successive convolutions first."
    ),
    _option("--bias-correction", is_flag=True, help="Correct each layer's mean error in its bias."),
    _option(
        "--keep-float",
        multiple=True,
        metavar="NAME,...",
        callback=_remember_names,
        help="Operators that stay float, by name, pattern (*, ?), range (FIRST..LAST) or kind "
        "(@conv2d); repeat or separate by commas.",
    ),
    _option(
        "--no-float-tail",
        "float_tail",
        is_flag=True,
        flag_value=False,
        default=None,
        help="What only results of the model follow (decoding of boxes) becomes integer too where "
        "it can. Default: it stays float where int8 would hide what it reads.",
    ),
)
