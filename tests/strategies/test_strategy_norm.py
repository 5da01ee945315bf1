"""Normalizations on VTA: what the simulator computes is what the definition computes on llvm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from draws import draws

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.norms import Norm as Numbers
from vta_byoc.ir.norms import normalized, statistics
from vta_byoc.ir.programs import Instruction, run
from vta_byoc.strategies.base import LayerWork
from vta_byoc.strategies.norms.norm import GROUP_NORM, NORM
from vta_byoc.strategies.te.program_builder import program_builder
from vta_byoc.strategies.te.registers import allocated
from vta_byoc.testing.strategies import check_strategy
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import GroupNormWorkload, NormWorkload

MACHINES = tuple(VTAConfig.preset(name) for name in ("sim", "2x16", "1x32"))


def drawn(
    rng: np.random.Generator, config: VTAConfig
) -> tuple[NormWorkload, Mapping[str, np.ndarray]]:
    """Any width, plane and number of images; factors of channels where lanes stay idle."""
    channels = int(rng.integers(1, 6 * config.block))
    images, rows, columns = (int(rng.integers(1, high)) for high in (3, 3, 24))
    own = bool(rng.integers(2)) or channels % config.block != 0
    centred = bool(rng.integers(2))
    shape = (images, channels, rows, columns)
    work = NormWorkload(*shape, channels, centred, *numbers(rng, own))
    return work, operands(rng, channels) if own else {}


def numbers(rng: np.random.Generator, own: bool) -> tuple[Any, ...]:
    """Epsilon, factor and offset (None: of channels), shift and limits."""
    return (
        int(rng.integers(2) * rng.integers(1, 1000)),
        None if own else int(rng.integers(-32767, 32768)),
        None if own else int(rng.integers(-32768, 32768)),
        int(rng.integers(14, 24)),
        int(rng.integers(-128, 0)),
        127,
    )


def operands(rng: np.random.Generator, channels: int) -> Mapping[str, np.ndarray]:
    """Factors and offsets of channels."""
    factor = rng.integers(-32767, 32768, channels)
    return {"operand0": factor, "operand1": rng.integers(-(2**28), 2**28, channels)}


def test_drawn_norms() -> None:
    """Bit for bit, verified, and the estimate within twice of the timing model."""
    check_strategy(NORM, drawn, machines=MACHINES, cases=draws(5, 9), factor=2.2)


def drawn_groups(
    rng: np.random.Generator, config: VTAConfig
) -> tuple[GroupNormWorkload, Mapping[str, np.ndarray]]:
    """Groups of a channel, of some lanes of a block, of whole blocks, and of all channels."""
    block = config.block
    size = int(rng.choice([1, 2, block // 2, block, 2 * block]))
    groups = int(rng.integers(1, 4 * block // size + 2))
    if groups == 1:
        size = int(rng.integers(1, 3 * block))
    images, rows, columns = (int(rng.integers(1, high)) for high in (3, 9, 20))
    own = bool(rng.integers(2)) or groups * size % block != 0
    channels = groups * size
    shape, summed = (images, channels, rows, columns), size * rows * columns
    work = GroupNormWorkload(*shape, summed, True, *numbers(rng, own), groups=groups)
    return work, operands(rng, channels) if own else {}


def test_drawn_group_norms() -> None:
    """Bit for bit, verified, and the estimate within twice of the timing model."""
    check_strategy(GROUP_NORM, drawn_groups, machines=MACHINES, cases=draws(8, 16), factor=2.2)


def test_a_chunk_of_channels_at_a_time() -> None:
    """More channels than the accumulators hold: the data is loaded again for the result."""
    config = VTAConfig(log_acc_buff_size=13, log_inp_buff_size=10)

    def wide(
        rng: np.random.Generator, _config: VTAConfig
    ) -> tuple[NormWorkload, Mapping[str, np.ndarray]]:
        work = NormWorkload(1, 900, 1, 5, 900, True, 3, None, None, 20, -128, 127)
        given = {"operand0": rng.integers(-9999, 9999, 900), "operand1": np.zeros(900, np.int64)}
        return work, given

    check_strategy(NORM, wide, machines=(config,), cases=1)


@pytest.mark.parametrize(("channels", "groups"), [(48, 48), (64, 2), (40, 1)])
def test_a_chunk_of_positions_at_a_time(channels: int, groups: int) -> None:
    """More positions than the accumulators hold; operands of channels with every chunk."""
    config = VTAConfig(log_acc_buff_size=13, log_inp_buff_size=10)
    summed = channels // groups * 19 * 23

    def large(
        rng: np.random.Generator, _config: VTAConfig
    ) -> tuple[GroupNormWorkload, Mapping[str, np.ndarray]]:
        numbers = (summed, True, 3, None, None, 20, -128, 127)
        work = GroupNormWorkload(2, channels, 19, 23, *numbers, groups=groups)
        factor, offset = rng.integers(-9999, 9999, (2, channels))
        return work, {"operand0": factor, "operand1": offset}

    check_strategy(GROUP_NORM, large, machines=(config,), cases=1)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("channels", "positions", "times"), [(768, 16, 1), (768, 60, 2)])
def test_data_that_fits_is_loaded_once(
    centred: bool, channels: int, positions: int, times: int
) -> None:
    """By a program: the second kernel finds it where the first one has left it."""
    config = VTAConfig.preset("sim")
    work = NormWorkload(1, channels, 1, positions, channels, centred, 3, 77, 5, 20, -128, 127)
    schedule = NORM.choose(LayerWork(work), config)
    builder, shape = program_builder(config), packed_shape(work.out_shape, config)
    weights, (digits,) = NORM.weights(schedule, {}, config)[0], NORM.scratch(schedule, config)
    names = [
        builder.symbol("x", "input", shape, "int8"),
        builder.constant("weights", weights),
        builder.symbol("digits", "temp", digits.shape, digits.dtype),
        builder.symbol("y", "output", shape, "int8"),
    ]
    for kernel in NORM.functions(schedule, config):
        builder.layer("norm", kernel.func, [names[i] for i in kernel.args])
    loaded = builder.finish().counters()["inp_load_nbytes"]
    assert loaded == times * channels * positions + np.prod(digits.shape)


@pytest.mark.parametrize("centred", [True, False])
def test_registers_hold_every_value_until_it_is_read(centred: bool) -> None:
    """The program in registers computes what the program computes."""
    program = statistics(48, 5, centred=centred)
    sums = {"sum": np.array([77]), "squares": np.array([9000])}
    wanted = run(program, sums)
    ends = ["rate", *(["mean"] if centred else [])]
    made = allocated(program, sums, ends)
    registers: list[np.ndarray] = [sums["sum"], sums["squares"], *[np.array([0])] * made.count]
    for move in made.moves:
        right = registers[move.right] if move.is_register else np.array([move.right])
        step = Instruction("to", move.op, "left", "right")
        given = {"left": registers[move.left], "right": right}
        registers[move.to] = run((step,), given)["to"]
    assert all(registers[made.places[name]] == wanted[name] for name in ends)
    assert made.count <= 8


def test_numbers_of_a_norm() -> None:
    """A token of one channel is its bias; a tail of lanes belongs to no token."""
    one = Numbers(1, True, 0, np.array(5), np.array(1 << 9), 8, -128, 127)
    assert (normalized(np.arange(-128, 128)[:, None], one)["element_result"] == 2).all()
