"""Steps of the dialect as machine steps: the same value everywhere, within what the ALU can do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from random_layers import EXACT, StepMaker, random_steps

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.chains import OTHER, SELF
from vta_byoc.partitioning.steps import Range, StepReader, axes_of
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Step

CHANNELS, SIZE = 5, 4
SHAPE = (2, CHANNELS, SIZE, SIZE)
IMMEDIATES = range(-(2**15), 2**15)


def machine(**capabilities: bool | int) -> VTAConfig:
    return VTAConfig(capabilities=Capabilities(**capabilities))  # type: ignore[arg-type]


def reader(
    low: int | np.ndarray = -1000, high: int | np.ndarray = 1000, config: VTAConfig | None = None
) -> StepReader:
    """A reader of steps on SHAPE whose channels lie in ``low``..``high``."""
    ends = [np.broadcast_to(np.asarray(end, np.int64), (CHANNELS,)) for end in (low, high)]
    axes = axes_of("nchw", 4)
    return StepReader(SHAPE, axes, Range(*ends), config or VTAConfig(), "the accumulator")


def shaped(value: np.ndarray) -> np.ndarray:
    """A constant by channel as the dialect has it."""
    return value.reshape(1, -1, 1, 1) if value.ndim == 1 else value


def machine_value(found: StepReader, value: np.ndarray, limit: int) -> np.ndarray:
    """What the ALU makes of int64 ``value`` (N, C, H, W); every operand must be legal."""
    operands = iter(found.operands)
    for step in found.steps:
        operand = step.operand
        if isinstance(operand, str):
            array = next(operands)
            assert array.dtype == np.int32
            if step.op == "shr":
                assert array.min() >= 0 and array.max() <= limit
            shape = {CHANNEL: (1, -1, 1, 1), MAP: (1, 1, SIZE, SIZE), FULL: (1, -1, SIZE, SIZE)}
            value = EXACT[step.op](value, array.astype(np.int64).reshape(shape[operand]))
        else:
            # code generation splits a shift by an immediate
            assert operand in (range(32) if step.op in ("shr", "shl") else IMMEDIATES)
            value = EXACT[step.op](value, operand)
        assert np.abs(value).max() <= 2**31
    assert next(operands, None) is None
    return value


def samples(rng: np.random.Generator, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Values of SHAPE within the interval of each channel, both ends among them."""
    value = rng.integers(low[:, None, None], high[:, None, None] + 1, SHAPE)
    value[0, :, 0, 0], value[0, :, 0, 1] = low, high
    return value


@pytest.mark.parametrize("limit", [7, 15, 31])
@pytest.mark.parametrize("seed", range(60))
def test_random_steps_give_the_same_value(seed: int, limit: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.choice([200, 30_000, 5_000_000]))
    low, high = rng.integers(-size, 1, CHANNELS), rng.integers(0, size + 1, CHANNELS)
    steps, _ = random_steps(rng, low, high)
    found = reader(low, high, machine(max_shift=limit)).read((op, shaped(v)) for op, v in steps)
    values = want = samples(rng, low, high)
    for op, constant in steps:
        want = EXACT[op](want, shaped(constant))
    np.testing.assert_array_equal(machine_value(found, values, limit), want)
    assert (found.range.low[:, None, None] <= want).all()
    assert (want <= found.range.high[:, None, None]).all()


def test_the_interval_is_the_exact_one() -> None:
    for seed in range(40):
        maker = StepMaker(np.random.default_rng(seed), np.full(CHANNELS, -99), np.full(CHANNELS, 7))
        for name in ("add", "mul", "shr", "shl", "max", "min"):
            getattr(maker, name)()
        found = reader(-99, 7).read((op, shaped(v)) for op, v in maker.steps)
        np.testing.assert_array_equal(found.range.low, maker.low)
        np.testing.assert_array_equal(found.range.high, maker.high)


ALONE = (("add", 100), ("min", 0), ("mul", SELF), ("mul", -300), ("shr", 6), ("shl", 2))


@pytest.mark.parametrize("count", range(1, len(ALONE) + 1))
def test_a_function_of_one_tensor_has_the_range_of_its_values(count: int) -> None:
    """Intervals would tell more: the sum of -x and of twice its positive part is its magnitude."""
    line = StepReader(SHAPE, axes_of("nchw", 4), Range.int8(CHANNELS), machine(), "a side")
    other = StepReader(SHAPE, axes_of("nchw", 4), Range.int8(CHANNELS), machine(), "a side")
    line.read([("mul", np.array(-1000))])
    other.read([("max", np.array(0)), ("mul", np.array(2000))])
    joined = line.range.joined("add", other.range)
    assert (joined.low[0], joined.high[0]) == (0, 128_000)
    found = StepReader(
        SHAPE, axes_of("nchw", 4), joined, machine(), "the result", other=other.range
    )
    steps = [(op, by if isinstance(by, str) else np.array(by)) for op, by in ALONE[:count]]
    found.read([("shr", np.array(9)), *steps, ("add", OTHER)])
    x = np.arange(-128, 128)
    value = np.abs(x) * 1000 >> 9
    for op, by in ALONE[:count]:
        value = EXACT[op](value, value if by == SELF else by)
    value = value + np.maximum(x, 0) * 2000
    assert (found.range.low == value.min()).all() and (found.range.high == value.max()).all()
    assert found.steps[-1] == Step("add", OTHER)


def test_what_differs_by_channel_or_tensor_has_intervals() -> None:
    one = Range.int8(CHANNELS)
    moved = StepReader(SHAPE, axes_of("nchw", 4), one, machine(), "a side")
    moved.read([("add", shaped(np.arange(CHANNELS)))])
    assert moved.range.values is None
    np.testing.assert_array_equal(moved.range.high, 127 + np.arange(CHANNELS))
    assert one.joined("sub", one).high[0] == 0, "a value less itself"
    assert one.joined("sub", Range(one.low, one.high)).high[0] == 255


# ---------------------------------------------------------------- forms
def test_a_product_with_zero_is_two_bounds() -> None:
    for config in (machine(), machine(mul=False)):
        found = reader(-999, 999, config).read([("mul", np.array(0)), ("add", np.array(7))])
        assert found.steps == [Step("min", 0), Step("max", 0), Step("add", 7)]
        assert (found.range.low == 7).all() and (found.range.high == 7).all()


def steps(*given: tuple[str, object], **options: object) -> list[Step]:
    pairs = [(op, shaped(np.asarray(value))) for op, value in given]
    return reader(**options).read(pairs).steps  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (("add", 32767), Step("add", 32767)),
        (("add", -32768), Step("add", -32768)),
        (("add", 32768), Step("add", CHANNEL)),
        (("add", -32769), Step("add", CHANNEL)),
        (("mul", 3), Step("mul", 3)),
        (("mul", 2**15), Step("mul", CHANNEL)),
        (("shr", 31), Step("shr", 31)),
        (("shl", 20), Step("shl", 20)),
        (("max", 0), Step("max", 0)),
        (("min", -999), Step("min", -999)),
        (("add", [7] * CHANNELS), Step("add", 7)),
        (("add", range(1, CHANNELS + 1)), Step("add", CHANNEL)),
        (("shl", range(1, CHANNELS + 1)), Step("mul", CHANNEL)),
        (("shr", range(1, CHANNELS + 1)), Step("shr", CHANNEL)),
    ],
    ids=lambda v: str(v),
)
def test_immediate_or_tensor(given: tuple[str, object], want: Step) -> None:
    op, value = given
    assert steps((op, list(value) if isinstance(value, range) else value)) == [want]


@pytest.mark.parametrize(
    "given", [("add", 0), ("mul", 1), ("shr", 0), ("shl", [0] * 5), ("max", -1000), ("min", 1000)]
)
def test_steps_that_change_nothing_are_left_out(given: tuple[str, object]) -> None:
    assert steps(given) == []


def test_a_clamp_by_channel_stays_where_one_channel_needs_it() -> None:
    low = [-1000, -1000, -999, -1000, -1000]
    assert steps(("max", low)) == [Step("max", CHANNEL)]
    assert steps(("max", [-1000] * 4 + [-2000])) == []


@pytest.mark.parametrize(("limit", "count"), [(15, 3), (31, 1), (8, 4), (1, 31)])
def test_shifts_by_tensors_are_split(limit: int, count: int) -> None:
    amounts = np.array([0, 7, 15, 16, 31])
    found = reader(-(2**31), 2**31 - 1, machine(max_shift=limit)).read([("shr", shaped(amounts))])
    assert found.steps == [Step("shr", CHANNEL)] * count
    np.testing.assert_array_equal(sum(found.operands), amounts)
    assert all(part.max() <= limit for part in found.operands)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((1, 1, SIZE, SIZE), MAP),
        ((SIZE, SIZE), MAP),
        ((1, SIZE), MAP),
        ((1, CHANNELS, SIZE, SIZE), FULL),
        ((CHANNELS, 1, SIZE), FULL),
        ((1, CHANNELS, 1, 1), CHANNEL),
        ((CHANNELS, 1, 1), CHANNEL),
    ],
)
def test_operands_by_position(shape: tuple[int, ...], kind: str) -> None:
    rng = np.random.default_rng(0)
    constant = rng.integers(-9, 9, shape)
    found = reader().read([("add", constant), ("max", constant)])
    assert found.steps == [Step("add", kind), Step("max", kind)]
    value = samples(rng, *(np.full(CHANNELS, end) for end in (-1000, 1000)))
    want = np.maximum(value + constant, constant)
    np.testing.assert_array_equal(machine_value(found, value, 15), want)
    assert (found.range.low[:, None, None] <= want).all()
    assert (found.range.high[:, None, None] >= want).all()


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_rows_have_their_channels_last(rank: int) -> None:
    shape = (2, 3, 4, CHANNELS)[-rank:]
    ends = [np.full(CHANNELS, end, np.int64) for end in (-5, 5)]
    found = StepReader(shape, axes_of("rows", rank), Range(*ends), VTAConfig(), "x")
    found.read([("add", np.arange(CHANNELS))])
    assert found.steps == [Step("add", CHANNEL)]
    np.testing.assert_array_equal(found.operands[0], np.arange(CHANNELS))


# ---------------------------------------------------------------- refusals
def refused(message: str, *given: tuple[str, object], **options: object) -> None:
    with pytest.raises(VTAError) as error:
        steps(*given, **options)
    assert str(error.value) == message


def test_overflow_is_proved_step_by_step() -> None:
    limit = 2**31 - 1
    reader(-(2**31), limit)  # all of int32 is taken
    assert steps(("add", limit - 1000)) == [Step("add", CHANNEL)]
    text = (
        "the accumulator may reach {}; int32 holds -2147483648 to 2147483647; "
        "use smaller weights or closer scales"
    )
    refused(text.format(limit + 1), ("add", limit - 999))
    refused(text.format(-(2**31) - 1), ("add", -(2**31) + 999))
    refused(text.format(1000 << 22), ("shl", 22))
    refused(text.format(1000 << 22), ("shl", [0, 0, 0, 22, 0]))
    refused(text.format(-1000 * 2**22), ("max", -1000), ("min", 0), ("mul", 2**22))
    refused(text.format(2**31), high=2**31)


def test_a_clamp_lets_a_product_in() -> None:
    assert steps(("mul", 2**22 // 10), ("shr", 31)) != []
    bounded = steps(("max", -100), ("min", 100), ("mul", 21_000_000))
    assert bounded == [Step("max", -100), Step("min", 100), Step("mul", CHANNEL)]


@pytest.mark.parametrize(
    ("op", "amount", "listed"),
    [("shr", 32, "32 to 32"), ("shl", -1, "-1 to -1"), ("shr", [1, 2, 3, 4, 40], "1 to 40")],
)
def test_shift_amounts(op: str, amount: object, listed: str) -> None:
    refused(f"the accumulator shifts by {listed}; 0 to 31 are taken; split the shift", (op, amount))


@pytest.mark.parametrize("given", [("mul", 3), ("mul", [1, 2, 3, 4, 5]), ("shl", [1, 2, 3, 4, 5])])
def test_multiplication_needs_mul(given: tuple[str, object]) -> None:
    refused(
        "the accumulator multiplies and the machine has no MUL (CAPABILITIES.mul is false); "
        "quantize for this machine (config=), use power-of-two scales or a machine with MUL",
        given,
        config=machine(mul=False),
    )


def test_shift_to_the_left_by_one_number_needs_no_mul() -> None:
    assert steps(("shl", 3), ("mul", 1), config=machine(mul=False)) == [Step("shl", 3)]


def test_constant_of_another_shape() -> None:
    constant: Sequence[object] = np.arange(2 * CHANNELS).reshape(2, CHANNELS, 1, 1).tolist()
    refused(
        "the accumulator has a constant of shape (2, 5, 1, 1) for a tensor (2, 5, 4, 4); "
        "one value, one per channel or one per position is taken; write it as one of these",
        ("add", constant),
    )


def test_constant_beyond_int32() -> None:
    refused(
        "the accumulator has the operand 2147483648; int32 holds 2147483647; use smaller constants",
        ("shl", [31, 30, 29, 28, 27]),
        low=0,
        high=0,
    )
