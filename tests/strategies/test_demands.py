"""What tilings ask of the machine by estimate: the counts of the kernels that are compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from alu_cases import clamp
from demand_counts import Counts, asked, check_same, kernel_program, with_tiles
from test_strategy_attention import work_of

from vta_byoc.base.rewrites import without
from vta_byoc.cost.search import Choice, cost_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import PAD_LIMIT
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.ir.chains import KEPT
from vta_byoc.strategies.attention.attention import ATTENTION
from vta_byoc.strategies.base import LayerSchedule, LayerWork
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.conv.conv2d_transpose import CONV2D_TRANSPOSE
from vta_byoc.strategies.conv.depthwise import DEPTHWISE
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.strategies.movement import regions as moves
from vta_byoc.strategies.movement.move import MOVE
from vta_byoc.strategies.norms.norm import NORM
from vta_byoc.strategies.pooling.pool import POOL
from vta_byoc.strategies.te.kernel import Kernel
from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    Conv2dWorkload,
    ConvTransposeWorkload,
    ElementwiseWorkload,
    Epilogue,
    MoveWorkload,
    NormWorkload,
    PoolWorkload,
    Prologue,
    Step,
)

SIM = VTAConfig.preset("sim")
ROUGH = ("kernels", "uops")
"""Micro-ops of a kernel are known when it is compiled."""
CLAMPED = Epilogue((Step("shr", 7), *clamp()))


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
    tiles = [({"t": 3, "n": 3}, "tiles"), ({"t": 3, "g": 1}, "tiles"), ({"t": 3}, "tiles")]
    scores, values, result = with_tiles(ATTENTION, LayerWork(work), SIM, tiles)
    check_same(*scores, but=(*ROUGH, *also))
    check_same(*values, but=(*ROUGH, "alu", "alu_starts", "gemm"))
    check_same(*result, but=(*ROUGH, "stores"))


@pytest.mark.parametrize("together", [1, 3])
def test_the_values_of_an_attention(together: int) -> None:
    """Of keys in whole blocks every instruction is counted; so it is for several groups at once."""
    second = {"t": 3, "g": together}
    tiles = [({"t": 3, "n": 3}, "tiles"), (second, "tiles"), ({"t": 3}, "tiles")]
    work = work_of(SIM, 3, 48, 48, 2, 2)
    scores, (wanted, found), _ = with_tiles(ATTENTION, LayerWork(work), SIM, tiles)
    check_same(*scores, but=(*ROUGH, "alu", "gemm_starts"))
    check_same(wanted, found, but=(*ROUGH, "alu", "gemm"))
    for name in ("alu", "gemm"):
        assert wanted[name] == pytest.approx(found[name], rel=0.05)


@pytest.mark.parametrize("chunk", [1, 4])
def test_the_values_of_a_causal_attention(chunk: int) -> None:
    """Of the shares those that a block of queries may see are read, whatever the tiles."""
    work = work_of(SIM, 3, 64, 64, 2, 2, masks=1, causal=(1, 0))
    tiles = [({"t": chunk, "n": 4}, "tiles"), ({"t": chunk, "g": 1}, "tiles"), ({"t": 1}, "tiles")]
    _, (wanted, found), _ = with_tiles(ATTENTION, LayerWork(work), SIM, tiles)
    about = ("gemm", "gemm_starts", "alu", "alu_starts")
    check_same(wanted, found, but=(*ROUGH, *about, "wgt_loads"))
    for name in about:
        assert wanted[name] == pytest.approx(found[name], rel=0.07)


# ---------------------------------------------------------------- pools
def tile_of(c: int, h: int, w: int, kh: int, kw: int) -> dict[str, int]:
    return {"n": 1, "c": c, "h": h, "w": w, "kh": kh, "kw": kw}


@pytest.mark.parametrize("stride, taps", [(2, (3, 3)), (2, (3, 1)), (1, (3, 3)), (1, (1, 3))])
@pytest.mark.parametrize("variant", ["rows first", "columns first"])
def test_a_max_pool(stride: int, taps: tuple[int, int], variant: str) -> None:
    """The reset of a result of its own counts like a step of the ALU: together both are exact."""
    work = PoolWorkload("max", 1, 32, 13, 13, (3, 3), (stride, stride), low=-128)
    tile = tile_of(2, 3, 3, *taps)
    if stride == 1:
        work = dataclasses.replace(work, height=8, width=8)
    ((wanted, found),) = with_tiles(POOL, LayerWork(work), SIM, [(tile, variant)])
    check_same(wanted, found, but=(*ROUGH, "gemm", "gemm_starts", "alu", "alu_starts"))
    assert wanted["gemm"] + wanted["alu"] == found["gemm"] + found["alu"]
    steps = wanted["gemm_starts"] + wanted["alu_starts"]
    assert steps == pytest.approx(found["gemm_starts"] + found["alu_starts"], rel=0.06)


def test_steps_behind_a_maximum() -> None:
    """Their instructions are those of every tile."""
    work = PoolWorkload("max", 1, 32, 13, 13, (3, 3), (2, 2), low=-128)
    tile, counts = tile_of(2, 3, 3, 3, 3), []
    for steps in ((), (Step("add", 3), Step("shr", 1), Step("max", 0))):
        each = LayerWork(dataclasses.replace(work, epilogue=Epilogue(steps)))
        counts += with_tiles(POOL, each, SIM, [(tile, "rows first")])
    (wanted, found), (more, rest) = counts
    for name in ("alu", "alu_starts"):
        assert more[name] - wanted[name] == rest[name] - found[name] > 0


@pytest.mark.parametrize("tile", [tile_of(2, 4, 4, 3, 3), tile_of(1, 4, 4, 3, 3)])
def test_a_sum_pool(tile: dict[str, int]) -> None:
    """Of a factor in two digits, which both sum up the tile that is loaded once."""
    steps = Epilogue((Step("shr", 9),))
    work = PoolWorkload("sum", 1, 32, 12, 12, (3, 3), (3, 3), factor=300, epilogue=steps)
    ((wanted, found),) = with_tiles(POOL, LayerWork(work), SIM, [(tile, "whole")])
    check_same(wanted, found, but=(*ROUGH, "inp", "inp_loads"))
    assert found["uops"] <= wanted["uops"] <= 1.5 * found["uops"]


# ---------------------------------------------------------------- pools in tiles of convolutions
def conv_tile(**sizes: int) -> dict[str, int]:
    return {"n": 1, "g": 1, "co": 2, "ci": 2, "kh": 1, "kw": 1, **sizes}


def pooled(size: int, kernel: int, stride: int) -> LayerWork[Conv2dWorkload]:
    """A 1 x 1 convolution of a square and the maxima of its windows."""
    work = Conv2dWorkload(1, 32, 32, size, size, (1, 1), epilogue=CLAMPED)
    pool = PoolWorkload("max", 1, 32, size, size, (kernel, kernel), (stride, stride))
    return LayerWork(work, (FusedConsumer(pool),))


@pytest.mark.parametrize("off, copied", [([], 0), (["pool_planes"], 1), (["pool_first"], 1)])
def test_a_pool_in_a_tile(off: list[str], copied: int) -> None:
    """In place where it can be; else each tile is cleared and its first positions are added."""
    layer, whole = pooled(12, 2, 2), conv_tile(oh=12, ow=12)
    with without(off):
        found = [
            with_tiles(CONV2D, layer, SIM, [(tile, "weights held")])[0]
            for tile in (conv_tile(oh=4, ow=4), whole)
        ]
    for wanted, counts in found:
        check_same(wanted, counts, but=ROUGH)
        assert counts["gemm"] == 12 * 12 * 2 * 3 + copied * 6 * 6 * 2
    wanted, counts = found[1]
    assert counts["kernels"] <= wanted["kernels"] <= counts["kernels"] + 1


@pytest.mark.parametrize(
    "kind, also", [(CHANNEL, ("acc", "acc_loads")), (MAP, ()), (FULL, ("acc_loads",))]
)
def test_operands_of_a_pool_in_a_tile(kind: str, also: tuple[str, ...]) -> None:
    """They are those of the smaller tile that the pool leaves; one by channel may stay."""
    steps = Epilogue((Step("mul", kind), Step("shr", 6), *clamp()))
    work = Conv2dWorkload(1, 32, 32, 12, 12, (1, 1), epilogue=CLAMPED)
    pool = PoolWorkload("sum", 1, 32, 12, 12, (2, 2), (2, 2), epilogue=steps)
    layer = LayerWork(work, (FusedConsumer(pool),))
    ((wanted, found),) = with_tiles(CONV2D, layer, SIM, [(conv_tile(oh=4, ow=6), "weights held")])
    check_same(wanted, found, but=(*ROUGH, *also))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("rows, columns", [(2, 3), (3, 6)])
def test_overlapping_windows_in_a_tile(stride: int, rows: int, columns: int) -> None:
    """What two tiles see is computed twice."""
    layer, tile = pooled(13, 3, stride), conv_tile(oh=rows, ow=columns)
    ((wanted, found),) = with_tiles(CONV2D, layer, SIM, [(tile, "weights held")])
    check_same(wanted, found, but=(*ROUGH, "stores"))
    assert wanted["stores"] == pytest.approx(found["stores"], rel=0.07)


# ---------------------------------------------------------------- elementwise operators
@pytest.mark.parametrize("op", ["add", "max"])
@pytest.mark.parametrize("factor", [3, 300])
def test_operands_in_accumulators_of_their_own(op: str, factor: int) -> None:
    """A factor in two digits before one operand, steps of other cost before the other."""
    sides = (
        Prologue(0, (Step("mul", factor),)),
        Prologue(1, (Step("max", 0), Step("add", 3), Step("shr", 1))),
    )
    work = ElementwiseWorkload(1, 32, 12, 12, sides, op, CLAMPED)
    tile = [({"n": 1, "c": 1, "p": 72}, "tiles")]
    check_same(*with_tiles(ELEMENTWISE, LayerWork(work), SIM, tile)[0], but=ROUGH)


@pytest.mark.parametrize("repeated", [(1, 48, 1, 1), (2, 48, 1, 1), (1, 1, 12, 12)])
def test_an_operand_that_is_repeated(repeated: tuple[int, int, int, int]) -> None:
    """It is loaded where the loops over its own axes begin a tile, whatever is inside of these."""
    shapes = (2, 48, 12, 12), repeated
    sides = (Prologue(0, ()), Prologue(1, ()))
    work = ElementwiseWorkload(*shapes[0], sides, "add", CLAMPED, shapes=shapes)
    tile = [({"n": 1, "c": 1, "p": 72}, "tiles")]
    check_same(*with_tiles(ELEMENTWISE, LayerWork(work), SIM, tile)[0], but=ROUGH)


# ---------------------------------------------------------------- copies
PLANE = (1, 32, 9, 8)


@pytest.mark.parametrize(
    "work",
    [
        moves.pad(PLANE, (1, 2, 1, 0), SIM),
        moves.concat([PLANE, (1, 16, 9, 8)], SIM),
        moves.upsample(PLANE, (2, 2), SIM),
        moves.strided_slice(PLANE, (0, 1, 0), (32, 9, 8), (1, 2, 2), SIM),
    ],
    ids=["padded", "joined", "enlarged", "cut"],
)
def test_a_copy_of_boxes(work: MoveWorkload) -> None:
    """Whole ones, and such that are cut along the axis that moves most."""
    spaces = [space.candidates[0][1].axes for space in MOVE.spaces(LayerWork(work), SIM)]
    for cut in (1, 2):
        tiles = []
        for axes in spaces:
            whole, first = {axis: sizes[-1] for axis, sizes in axes.items()}, axes["d0"]
            tiles.append(({**whole, "d0": first[len(first) // cut - 1]}, "tiles"))
        for wanted, found in with_tiles(MOVE, LayerWork(work), SIM, tiles):
            check_same(wanted, found, but=ROUGH)


# ---------------------------------------------------------------- convolutions
@pytest.fixture
def every_product() -> Iterator[None]:
    """Products with padding are computed too."""
    with without(["skip_padding"]):
        yield


def conv_counts(
    work: Conv2dWorkload,
    tile: dict[str, int],
    variant: str = "weights held",
    candidate: int = 0,
    config: VTAConfig = SIM,
) -> tuple[Counts, Counts]:
    (found,) = with_tiles(CONV2D, LayerWork(work), config, [(tile, variant)], candidate)
    return found


@pytest.mark.usefixtures("every_product")
@pytest.mark.parametrize("variant", ["weights held", "inputs held"])
def test_groups_in_a_tile(variant: str) -> None:
    """Two groups in blocks of their own are staged together."""
    work = Conv2dWorkload(1, 64, 64, 8, 8, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2, CLAMPED)
    tile = conv_tile(g=2, oh=4, ow=4, kh=3, kw=3)
    check_same(*conv_counts(work, tile, variant, candidate=1), but=ROUGH)


@pytest.mark.parametrize("groups", [2, 4])
def test_the_grouping_that_takes_less_is_taken(groups: int) -> None:
    """Of two and of three: blocks of their own for each group compute the fewest zeros."""
    work = Conv2dWorkload(1, 64, 64, 8, 8, (3, 3), groups=groups, epilogue=CLAMPED)
    (space,) = CONV2D.spaces(LayerWork(work), SIM)
    assert len(space.candidates) == groups // 2 + 1
    (kernel,) = CONV2D.cheapest(LayerWork(work), SIM)
    assert kernel.grouping is not None and kernel.grouping.count == groups


@pytest.mark.usefixtures("every_product")
@pytest.mark.parametrize("side", [0, 2, 3], ids=["above", "below", "right"])
def test_padding_within_an_instruction_and_beyond(side: int) -> None:
    """Beyond 15 positions zeros are loads of their own: about as many as counted, never none."""
    for padding in (14, 15, 16, 17):
        pads = [padding if k == side else 0 for k in range(4)]
        work = Conv2dWorkload(1, 16, 16, 8, 8, (3, 3), (1, 1), tuple(pads), epilogue=CLAMPED)  # type: ignore[arg-type]
        tile = conv_tile(oh=work.out_height, ow=work.out_width, kh=3, kw=3, co=1, ci=1)
        wanted, found = conv_counts(work, tile)
        if padding <= PAD_LIMIT:
            check_same(wanted, found, but=ROUGH)
            assert found["inp_loads"] == 1
        else:
            check_same(wanted, found, but=(*ROUGH, "inp", "inp_loads"))
            assert found["inp_loads"] <= wanted["inp_loads"] <= 1.3 * found["inp_loads"]


@pytest.mark.parametrize("variant", ["weights held", "weights", "inputs held", "inputs"])
@pytest.mark.parametrize("co", [4, 2, 1])
def test_a_bias_that_stays_in_its_slot(variant: str, co: int) -> None:
    """A machine of 32 weights: all of a bias are loaded again where a tile has a part of them."""
    config = VTAConfig(log_wgt_buff_size=13)
    work = Conv2dWorkload(1, 16, 64, 8, 8, (1, 1), bias=True, epilogue=CLAMPED)
    tile = conv_tile(co=co, ci=1, oh=4, ow=4)
    check_same(*conv_counts(work, tile, variant, config=config), but=ROUGH)


@pytest.mark.parametrize("tile", [{"c": 2, "h": 4}, {"c": 1, "h": 8}])
@pytest.mark.parametrize("steps", [(), (Step("shr", 3), Step("keep", 0), Step("add", KEPT))])
def test_a_depthwise_convolution_on_the_alu(tile: dict[str, int], steps: tuple[Step, ...]) -> None:
    """Every tap is a product and, but for the first, a sum: each of two accumulators.

    What is kept is in another one, which is cleared for it.
    """
    epilogue = Epilogue((*steps, *CLAMPED.steps))
    work = Conv2dWorkload(1, 32, 32, 10, 10, (3, 3), groups=32, epilogue=epilogue)
    tiles = [({"n": 1, **tile, "w": 8, "kh": 3, "kw": 3}, "taps")]
    ((wanted, found),) = with_tiles(DEPTHWISE, LayerWork(work), SIM, tiles)
    check_same(wanted, found, but=(*ROUGH, *(("alu", "gemm_starts") if steps else ())))
    assert wanted["alu"] == pytest.approx(found["alu"], rel=0.03)


@pytest.mark.usefixtures("every_product")
@pytest.mark.parametrize("side", [3, 4, 5])
def test_boxes_of_a_bias_beside_borders(side: int) -> None:
    """Boxes at the borders are counted in the tiles that they touch, whole or in part."""
    steps = Epilogue((Step("add", CHANNEL), Step("shr", 7), *clamp()))
    work = Conv2dWorkload(1, 16, 16, 10, 10, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=steps)
    work = dataclasses.replace(work, borders=True)
    tile = conv_tile(oh=side, ow=side, kh=3, kw=3, co=1, ci=1)
    wanted, found = conv_counts(work, tile)
    assert (wanted["alu"], wanted["alu_starts"]) == (found["alu"], found["alu_starts"])


def test_phases_without_taps() -> None:
    """A kernel that is smaller than its stride leaves results that are set to zero, once."""
    work = ConvTransposeWorkload(1, 16, 32, 6, 6, (1, 1), (2, 2), epilogue=CLAMPED)
    _, *others = CONV2D_TRANSPOSE.spaces(LayerWork(work), SIM)
    for each, (oh, ow) in zip(others, [(6, 5), (5, 6), (5, 5)], strict=True):
        tile = conv_tile(oh=oh, ow=ow, kh=1, kw=1, co=2, ci=1)
        wanted = asked(each.candidates[0][1], Choice(tile, "weights held", (1, 1, 1)))
        assert (wanted["gemm"], wanted["gemm_starts"], wanted["acc_room"]) == (
            2 * oh * ow,
            1,
            2 * oh * ow,
        )


def test_a_refusal_names_rows_and_columns_of_the_kernel() -> None:
    """Two accumulators hold no result with two operands."""
    steps = (Step("add", CHANNEL), Step("max", CHANNEL), *CLAMPED.steps)
    work = Conv2dWorkload(1, 16, 16, 9, 9, (3, 5), epilogue=Epilogue(steps))
    config = VTAConfig(log_acc_buff_size=7)
    with pytest.raises(VTAError, match="no tile of a 3x5 convolution fits the SRAM"):
        CONV2D.choose(LayerWork(work), config)
