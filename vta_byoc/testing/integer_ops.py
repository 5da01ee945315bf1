"""`check_integer_op`: a quantizer rule inside small networks, from float to the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.registry import registrant, undone
from vta_byoc.importers.load import output_names
from vta_byoc.ir.bindings import op_name, source_name, static_shape, straight_bindings
from vta_byoc.ir.quantization_record import float_regions
from vta_byoc.ir.reference import build_reference
from vta_byoc.ir.stage import checked_forms
from vta_byoc.pipeline import compile_module
from vta_byoc.quantization.ops.table import add_operator
from vta_byoc.quantization.quantizer import Convert, IntegerOp, asks_if_wanted
from vta_byoc.quantize import quantize
from vta_byoc.runtime.execute import profile, run_vm
from vta_byoc.testing.cases import Conformance, Mismatch, Suite, check_verified
from vta_byoc.testing.cases import machines as default_machines
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

SAMPLES = 4
TOLERANCE = 0.1
"""How far an integer result may be from the float one, as a share of the largest magnitude."""


def check_integer_op(
    operator: str,
    draw: Callable[[np.random.Generator, VTAConfig], tvm.IRModule],
    rule: Convert | None = None,
    *,
    asks: Convert = asks_if_wanted,
    machines: Sequence[VTAConfig] | None = None,
    seed: int = 0,
    cases: int = 8,
    case: int | None = None,
    tolerance: float = TOLERANCE,
) -> Conformance:
    """Check a quantizer rule on small float networks of yours.

    Each is quantized with samples of the standard normal distribution. The operator must have
    become integer, its result int8; every output and every tensor that VTA stores must equal the
    integer module on llvm bit for bit, every program be verified, and the result be close to that
    of the float network.

    Args:
        operator: as in "relax.nn.relu".
        draw: (generator, machine) -> a float network in which `operator` stands.
        rule: as `vta_byoc.extend.register_integer_op` takes it; None: the one that is registered.
        asks: of `rule`, as `register_integer_op` takes it.
        machines: they take turns; those of `vta_byoc.testing.machines` when None.
        seed: equal seeds draw equal cases.
        cases: how many.
        case: the only one to try, as an error names it.
        tolerance: the largest error of a result, as a share of the largest magnitude in it.

    Raises:
        ConformanceError: the first case that is wrong, with the arguments that repeat it.
    """

    def attempt(rng: np.random.Generator, config: VTAConfig) -> None:
        mod = draw(rng, config)
        names = [
            source_name(binding.var)
            for binding in straight_bindings(mod["main"])
            if op_name(binding.value) == operator
        ]
        if not names:
            raise Mismatch(f"the network that was drawn has no {operator}")
        shapes = [static_shape(param) for param in mod["main"].params]
        samples = [_noise(rng, mod, shapes) for _ in range(SAMPLES)]
        with undone():
            if rule is not None:
                add_operator(operator, IntegerOp(rule, asks), registrant(rule), replace=True)
            qmod = quantize(mod, calibration=samples, config=config)
        _check_integer(qmod, names)
        with checked_forms():
            compiled = compile_module(qmod, config)
        for region, program in compiled.programs.items():
            check_verified(program, region)
        inputs = list(samples[0].values())
        run = profile(compiled.exe, inputs, arenas=True)
        wanted = reference_runner(qmod, compiled.programs)(inputs)
        checks = compare_outputs(output_names(mod), run.outputs, wanted)
        checks += compare_stored(run, compiled.programs, wanted)
        for check in checks:
            if not check.equal:
                raise Mismatch(f"VTA differs from the integer module on llvm: {check}")
        machine = relax.VirtualMachine(build_reference(mod), tvm.cpu())
        _check_close(run.outputs, run_vm(machine, inputs), tolerance)

    what = f'integer operator "{operator}"'
    return Suite(what, seed, cases, case, machines or default_machines()).run(attempt)


def _noise(
    rng: np.random.Generator, mod: tvm.IRModule, shapes: Sequence[tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """A sample: a float32 array for each input."""
    params = mod["main"].params
    return {
        str(param.name): rng.standard_normal(shape).astype("float32")
        for param, shape in zip(params, shapes, strict=True)
    }


def _check_integer(qmod: tvm.IRModule, names: Sequence[str]) -> None:
    """Refuse operators that stayed float, or whose result is no int8."""
    left = float_regions(qmod)
    for name in names:
        if name in left:
            raise Mismatch(f'"{name}" {left[name].text}')
    for binding in straight_bindings(qmod["main"]):
        name = str(binding.var.name)
        dtype = getattr(binding.var.ty, "dtype", "int8")
        if name in names and str(dtype) != "int8":
            raise Mismatch(
                f'the result "{name}" is {dtype}; the integer form of an operator gives int8'
            )


def _check_close(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float
) -> None:
    for number, (ours, floats) in enumerate(zip(found, expected, strict=True)):
        largest = float(np.abs(floats).max(initial=0))
        error = float(np.abs(ours.astype("float64") - floats).max(initial=0))
        if error > tolerance * largest:
            raise Mismatch(
                f"output {number} is off by {error:.3g} from the float network, whose largest "
                f"magnitude is {largest:.3g}; the tolerance is {tolerance:g} of that"
            )
