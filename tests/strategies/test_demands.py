"""What tilings ask of the machine by estimate: the counts of the kernels that are compiled."""

from __future__ import annotations

import pytest
from demand_counts import check_same, kernel_program, with_tiles
from test_strategy_attention import work_of

from vta_byoc.cost.search import Choice, cost_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.strategies.attention.attention import ATTENTION
from vta_byoc.strategies.base import LayerSchedule, LayerWork
from vta_byoc.strategies.norms.norm import NORM
from vta_byoc.strategies.te.kernel import Kernel
from vta_byoc.workload.workloads import NormWorkload

SIM = VTAConfig.preset("sim")
ROUGH = ("kernels", "uops")
"""Micro-ops of a kernel are known when it is compiled."""


# ---------------------------------------------------------------- normalizations
@pytest.mark.parametrize("tile", [{"n": 1, "c": 3, "p": 8}, {"n": 2, "c": 1, "p": 8}])
def test_a_norm(tile: dict[str, int]) -> None:
    """Its squares to the last count; the rest but for a step a tile and digits loaded at once."""
    work = NormWorkload(2, 48, 3, 8, 48, True, 3, None, None, 20, -128, 127)
    squares, rest = with_tiles(NORM, LayerWork(work), SIM, [(tile, "tiles")] * 2)
    check_same(*squares, but=ROUGH)
    check_same(*rest, but=(*ROUGH, "alu_starts", "inp_loads"))
    wanted, found = rest
    assert wanted["alu_starts"] == pytest.approx(found["alu_starts"], rel=0.02)


def test_digits_of_a_norm_are_stored_before_they_change() -> None:
    """Two slots hide no STORE of a digit: the next digit is made of the accumulators it reads."""
    work = NormWorkload(2, 48, 3, 8, 48, True, 3, None, None, 20, -128, 127)
    ((_, space),) = NORM.spaces(LayerWork(work), SIM)[0].candidates
    choice = Choice({"n": 1, "c": 1, "p": 1}, "tiles", (2, 2, 2))
    schedule = LayerSchedule(work, kernels=(Kernel(choice),) * 2)
    squares = kernel_program(NORM.functions(schedule, SIM)[0], SIM)
    assert cost_of(space, SIM, choice) == pytest.approx(simulate(squares).cycles, rel=0.1)


# ---------------------------------------------------------------- attention
@pytest.mark.parametrize(
    "masks, hiding, also",
    [
        (0, (), ("alu_starts",)),
        (1, (), ("alu_starts", "acc", "acc_loads")),
        (0, (1, 1, 12), ("alu_starts", "inp", "inp_loads")),
    ],
)
def test_the_scores_of_an_attention(
    masks: int, hiding: tuple[int, ...], also: tuple[str, ...]
) -> None:
    """With keys that fill the last block by half, which is what the estimate counts on.

    A mask that all groups have in common may stay where it is.
    """
    work = work_of(SIM, 3, 48, 42, 2, 2, masks=masks, hiding=hiding)
    tiles = [({"t": 3, "n": 3}, "tiles"), ({"t": 3}, "tiles"), ({"t": 3}, "tiles")]
    scores, values, result = with_tiles(ATTENTION, LayerWork(work), SIM, tiles)
    check_same(*scores, but=(*ROUGH, *also))
    check_same(*values, but=(*ROUGH, "alu", "alu_starts", "gemm"))
    check_same(*result, but=(*ROUGH, "stores"))


def test_the_values_of_an_attention() -> None:
    """Of keys in whole blocks every instruction is counted."""
    tiles = [({"t": 3, "n": 3}, "tiles"), ({"t": 3}, "tiles"), ({"t": 3}, "tiles")]
    work = work_of(SIM, 3, 48, 48, 2, 2)
    scores, (wanted, found), _ = with_tiles(ATTENTION, LayerWork(work), SIM, tiles)
    check_same(*scores, but=(*ROUGH, "alu", "gemm_starts"))
    check_same(wanted, found, but=(*ROUGH, "alu", "gemm"))
    for name in ("alu", "gemm"):
        assert wanted[name] == pytest.approx(found[name], rel=0.05)
