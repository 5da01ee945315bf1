"""Layer and root-mean-square normalization on integers: exact, bounded, near to float."""

from __future__ import annotations

import dialect_numpy
import numpy as np
import pytest
import tvm
from tvm import relax

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.isa import IMMEDIATE_HIGH
from vta_byoc.ir.norms import PEAK, Norm, elements, most_elements, normalized, statistics
from vta_byoc.ir.quantization_record import float_regions
from vta_byoc.ir.reference import build_reference
from vta_byoc.quantization.ops.norms import epsilon_of, norm_of
from vta_byoc.quantization.scales import INT32_HIGH, Scale, Unscalable
from vta_byoc.quantize import quantize

CHANNELS = (1, 2, 16, 100, 192, 768, 3000, 16384)
GROUPS = (16385, 16386, 25_087, 40_960, 50_001, 65_535, 65_536)
"""Elements of groups that have a mean."""
STEP = 4 / 127


def counts(centred: bool) -> tuple[int, ...]:
    """Of elements that are tried."""
    return (*CHANNELS, *GROUPS) if centred else CHANNELS


def rows(kind: str, channels: int, tokens: int = 40) -> np.ndarray:
    """int8 tokens that reach what a normalization can meet."""
    rng = np.random.default_rng(channels)
    flat = np.repeat(rng.integers(-128, 128, (tokens, 1)), channels, axis=1)
    if kind == "equal":
        return flat
    if kind == "ends":
        return rng.choice([-128, 127], (tokens, channels))
    if kind == "spike":
        flat[:, 0] = rng.choice([-128, 127], tokens)
        return flat
    scale, middle = {"normal": (30, 0), "far": (6, 90), "low": (0.4, 0)}[kind]
    return np.clip(np.rint(rng.normal(middle, scale, (tokens, channels))), -128, 127)


def plain_norm(channels: int, centred: bool, epsilon: int = 0) -> Norm:
    """Weight 1, bias 0."""
    ones = np.ones(channels)
    return norm_of(channels, centred, epsilon, ones, 0 * ones, Scale(STEP), (-128, 127), "norm")


def wanted(x: np.ndarray, centred: bool) -> np.ndarray:
    """Normalized float64 rows; 0 for a row of equal elements."""
    real = x.astype(np.float64)
    real = real - real.mean(-1, keepdims=True) if centred else real
    mean = (real * real).mean(-1, keepdims=True)
    return real / np.sqrt(np.where(mean, mean, 1.0))


@pytest.mark.parametrize("centred", [True, False], ids=["layer", "rms"])
@pytest.mark.parametrize("kind", ["normal", "equal", "ends", "spike", "far", "low"])
def test_no_step_leaves_int32(kind: str, centred: bool) -> None:
    """Of all values of all steps, whatever the tokens are."""
    for channels in counts(centred):
        norm = plain_norm(channels, centred)
        found = normalized(rows(kind, channels, 6 if channels > 16384 else 40), norm)
        assert max(np.abs(value).max() for value in found.values()) <= norm.bound < 1 << 31
        last = elements(norm.shift, -128, 127, centred=centred)
        unit = next(each.left for each in last if each.right == "factor")
        assert np.abs(found[f"element_{unit}"]).max() <= PEAK


@pytest.mark.parametrize("centred", [True, False], ids=["layer", "rms"])
def test_results_are_those_of_float_to_a_step(centred: bool) -> None:
    """As near as rounding to int8 lets them be: the best is 40.8 dB."""
    for channels in counts(centred)[2:]:
        x = rows("normal", channels, 6 if channels > 16384 else 40)
        found = normalized(x, plain_norm(channels, centred))["element_result"]
        real = np.clip(wanted(x, centred), -128 * STEP, 127 * STEP)
        error = found * STEP - real
        assert np.abs(error).max() <= 1.6 * STEP
        least = 38.0 if channels > 16384 else 38.5 if channels > 4096 else 40
        assert 10 * np.log10((real**2).sum() / (error**2).sum()) > least


def test_equal_elements_become_the_bias() -> None:
    """No variance, no epsilon: the mean is exact."""
    for channels in counts(centred=True):
        found = normalized(rows("equal", channels, 6), plain_norm(channels, True))
        assert not found["element_result"].any()


def test_immediates_fit() -> None:
    """Of the ALU, 16 bits, for every number of channels up to the limit."""
    for channels in [*range(1, 300), 1023, 1024, 1025, 4095, 16383, 16384, *GROUPS]:
        for centred in (True, False):
            steps = [
                *statistics(channels, 0, centred=centred),
                *elements(3, -128, 127, centred=True),
            ]
            numbers = [each.right for each in steps if not isinstance(each.right, str)]
            assert max(abs(number) for number in numbers) <= IMMEDIATE_HIGH


@pytest.mark.parametrize("bias", [0.0, 900.0])
def test_factors_have_all_bits_that_fit_one_shift(bias: float) -> None:
    """Of 15 bits, or more for small factors: a longer one leaves immediates or int32."""
    shifts = set()
    for size in np.geomspace(1e-4, 2e3, 60):
        weight, level = size * np.array([1.0, 0.7]), np.array([bias, 0.0])
        norm = norm_of(2, True, 0, weight, level, Scale(STEP), (-128, 127), "norm")
        factor, offset = np.abs(norm.factor).max(), np.abs(norm.offset).max()
        assert factor <= IMMEDIATE_HIGH and factor * PEAK + offset <= INT32_HIGH
        longer = 2 * factor + 1 > IMMEDIATE_HIGH or 2 * (factor * PEAK + offset) > INT32_HIGH
        assert longer or norm.shift == 15 or (norm.shift > 15 and factor >= 192)
        shifts.add(norm.shift)
    assert min(shifts) < 15 < max(shifts)


# ---------------------------------------------------------------- the quantizer's rule
def network(kind: str, channels: int, tokens: int, axis: int = -1) -> tvm.IRModule:
    """A normalization between two layers; behind nothing where it is no last axis."""
    rng = np.random.default_rng(channels + tokens)
    gamma = relax.const((1 + 0.3 * rng.normal(size=channels)).astype("float32"))
    beta = relax.const((0.2 * rng.normal(size=channels)).astype("float32"))
    weight = relax.const((rng.normal(size=(channels,) * 2) / channels**0.5).astype("float32"))
    shape = (1, tokens, channels) if axis == -1 else (1, channels, 3, tokens)
    data = relax.Var("data", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            value = builder.emit(relax.op.matmul(data, weight), "before") if axis == -1 else data
            if kind == "layer":
                normed = relax.op.nn.layer_norm(value, gamma, beta, [axis], 1e-5)
            else:
                normed = relax.op.nn.rms_norm(value, gamma, [axis], 1e-5)
            value = builder.emit(normed, "norm")
            if axis == -1:
                value = builder.emit(relax.op.matmul(value, weight), "behind")
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()


def samples(mod: tvm.IRModule, count: int = 3) -> list[dict[str, np.ndarray]]:
    """Draws from the standard normal distribution."""
    shape = [int(size) for size in mod["main"].params[0].ty.shape]
    rng = np.random.default_rng(7)
    return [{"data": rng.normal(size=shape).astype("float32")} for _ in range(count)]


@pytest.mark.parametrize("scales", ["pow2", "mul"])
@pytest.mark.parametrize(
    "case", [("layer", 24, 9, -1), ("layer", 40, 5, 1), ("rms", 32, 7, -1)], ids=str
)
def test_quantized_norms(case: tuple[str, int, int, int], scales: str) -> None:
    """llvm and NumPy compute the same integers; they are near to the float model."""
    mod = network(*case)
    given = samples(mod)
    quantized = quantize(mod, calibration=given, config=VTAConfig.preset("sim"), scales=scales)
    assert not float_regions(quantized)
    x = given[0]["data"]
    found, exact = (
        relax.VirtualMachine(build_reference(each), tvm.cpu())["main"](tvm.runtime.tensor(x))
        for each in (quantized, mod)
    )
    assert np.array_equal(found.numpy(), dialect_numpy.run(quantized, x)["result"])
    error = found.numpy() - exact.numpy()
    assert 10 * np.log10((exact.numpy() ** 2).sum() / (error**2).sum()) > 27


def test_a_machine_without_mul_leaves_them_to_the_cpu() -> None:
    """The reason says which capability it lacks."""
    mod = network("layer", 16, 4)
    config = VTAConfig(capabilities=Capabilities(mul=False))
    left = float_regions(quantize(mod, calibration=samples(mod), config=config))
    assert left["norm"].text == (
        "stays float: its squares and its reciprocal root would multiply and the machine's ALU has "
        "no MUL (CAPABILITIES.mul is false); choose a machine that has one"
    )


def test_what_does_not_fit_is_said() -> None:
    """Too many channels; an epsilon that no immediate holds; results out of reach."""
    with pytest.raises(Unscalable, match="a token has 16385 channels; sums of squares of 16384"):
        epsilon_of(1e-5, 16385, Scale(1.0), "norm", most_elements(centred=False))
    with pytest.raises(Unscalable, match="a group has 65537 elements; sums of squares of 65536"):
        most = most_elements(centred=True)
        epsilon_of(1e-5, 65537, Scale(1.0), "norm", most, who="a group", unit="elements")
    with pytest.raises(Unscalable, match="summed over the channels, 1920000; an immediate holds"):
        epsilon_of(1e-2, 192, Scale(1e-3), "norm", 16384)
    big = np.full(16, 1e9)
    with pytest.raises(Unscalable, match="factors of 15 bits are taken; calibrate it"):
        norm_of(16, True, 0, big, 0 * big, Scale(1.0), (-128, 127), "norm")
