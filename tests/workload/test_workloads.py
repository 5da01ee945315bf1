"""Workloads and boxes in numbers: sizes against counting, defaults, and what JSON keeps."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from room_values import by_identity, changeable

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import LOADABLE, MEMORY_TYPES, MemType
from vta_byoc.ir.chains import KEPT
from vta_byoc.workload.copy_region import CopyRegion, Source, merged, read_box
from vta_byoc.workload.im2col import Im2col, folded, folds, host_cycles
from vta_byoc.workload.layout import NCHW, ROWS, read_packed
from vta_byoc.workload.memory import (
    ACC,
    DRAM_ACC,
    DRAM_INP,
    DRAM_WGT,
    INP,
    SRAM_SCOPES,
    WGT,
    dram_scopes,
    element_scalars,
    in_dram,
)
from vta_byoc.workload.packing import blocks, pack_activation
from vta_byoc.workload.products import ProductWorkload, TransposeWorkload
from vta_byoc.workload.texts import from_json, to_json
from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    ConcatWorkload,
    Conv2dWorkload,
    ConvTransposeWorkload,
    ElementwiseWorkload,
    Epilogue,
    MoveWorkload,
    NormWorkload,
    PoolWorkload,
    Prologue,
    Step,
    Workload,
)

CONFIG = VTAConfig()
CONV = Conv2dWorkload(2, 6, 9, 11, 14, (3, 5), (2, 3), (1, 2, 0, 3), (2, 1), 3)
TRANSPOSED = ConvTransposeWorkload(
    2, 6, 9, 5, 4, (3, 2), (2, 3), (1, 0, 2, 1), (2, 1), 3, output_padding=(1, 2)
)
EPILOGUE = Epilogue(
    (Step("add", CHANNEL), Step("shr", 3), Step("keep", 0), Step("add", KEPT), Step("mul", MAP)),
    "int32",
)
BOX = CopyRegion((2, 3), 5, (3, 1), (Source(1, 2, (4, 0), (0, 1), (2, 3), (1, 0, -1)),))
WORKLOADS: list[Workload] = [
    dataclasses.replace(CONV, epilogue=EPILOGUE, digit_shift=7),
    dataclasses.replace(TRANSPOSED, epilogue=EPILOGUE, digit_shift=7),
    ElementwiseWorkload(1, 2, 3, 4, (Prologue(1, (Step("shl", 2),)), Prologue(0)), "add", EPILOGUE),
    ElementwiseWorkload(1, 2, 3, 4, (Prologue(0),)),
    PoolWorkload("sum", 1, 2, 7, 8, (2, 3), (2, 1), (0, 1, 1, 0), (1, 2), 0, EPILOGUE, 9),
    ConcatWorkload(1, (16, 32, 3), 4, 5, EPILOGUE),
    MoveWorkload(((1, 16, 2, 3), (1, 16, 1, 1)), (1, 16, 2, 3), (BOX,)),
    ElementwiseWorkload(
        1, 2, 3, 4, (Prologue(0), Prologue(1)), "mul", shapes=((1, 2, 3, 4), (1, 2, 1, 1))
    ),
]


def test_no_value_may_change() -> None:
    assert changeable("vta_byoc.workload") == set() == by_identity("vta_byoc.workload")


# ---------------------------------------------------------------- sizes
def positions(size: int, low: int, high: int, reach: int, stride: int) -> int:
    """How many windows of ``reach`` begin on the grid and end inside."""
    return len(
        [at for at in range(0, low + size + high, stride) if at + reach <= low + size + high]
    )


def test_sizes_of_a_convolution() -> None:
    assert CONV.extent == (5, 5)
    assert CONV.out_height == positions(11, 1, 0, 5, 2) == 4
    assert CONV.out_width == positions(14, 2, 3, 5, 3) == 5
    assert CONV.out_shape == (2, 9, 4, 5)
    assert CONV.in_shapes == ((2, 6, 11, 14),)
    assert CONV.macs == 2 * 9 * 4 * 5 * (6 // 3) * 3 * 5
    cropped = dataclasses.replace(CONV, padding=(-1, -2, 0, 0))
    assert cropped.out_shape == (2, 9, (11 - 1 - 5) // 2 + 1, (14 - 2 - 5) // 3 + 1)


def test_sizes_of_a_transposed_convolution() -> None:
    """Every tap of every input position falls on an output position."""
    last = [(5 - 1) * 2 + (3 - 1) * 2, (4 - 1) * 3 + (2 - 1) * 1]
    assert TRANSPOSED.out_height == last[0] + 1 - (1 + 2) + 1
    assert TRANSPOSED.out_width == last[1] + 1 - (0 + 1) + 2
    assert TRANSPOSED.out_shape == (2, 9, TRANSPOSED.out_height, TRANSPOSED.out_width)
    assert TRANSPOSED.in_shapes == ((2, 6, 5, 4),)
    assert TRANSPOSED.macs == 2 * 6 * 5 * 4 * (9 // 3) * 3 * 2


def test_digits() -> None:
    for work in (CONV, TRANSPOSED):
        assert work.digits == 1
        assert dataclasses.replace(work, digit_shift=1).digits == 2


def test_sizes_of_other_operators() -> None:
    pool = WORKLOADS[4]
    assert isinstance(pool, PoolWorkload)
    window = Conv2dWorkload(1, 2, 2, 7, 8, (2, 3), (2, 1), (0, 1, 1, 0), (1, 2), 2)
    assert pool.window == window
    assert (pool.in_shapes, pool.out_shape) == (window.in_shapes, window.out_shape)
    two, one = WORKLOADS[2], WORKLOADS[3]
    assert isinstance(two, ElementwiseWorkload) and isinstance(one, ElementwiseWorkload)
    assert (two.operands, one.operands) == (2, 1)
    assert two.in_shapes == ((1, 2, 3, 4),) * 2 and two.out_shape == (1, 2, 3, 4)
    same = dataclasses.replace(two, prologues=(Prologue(0), Prologue(0)))
    assert same.operands == 1
    concat = WORKLOADS[5]
    assert concat.in_shapes == ((1, 16, 4, 5), (1, 32, 4, 5), (1, 3, 4, 5))
    assert concat.out_shape == (1, 51, 4, 5)
    move = WORKLOADS[6]
    assert isinstance(move, MoveWorkload)
    assert move.epilogue == Epilogue() and move.lanes == ((1, 0, -1),)
    assert dataclasses.replace(move, boxes=()).lanes == ((),)


def test_sizes_of_products() -> None:
    """The second operand has a column for each output channel of a group; turned it is alone."""
    data, columns = (1, 32, 1, 48), (1, 32, 1, 16)
    for kind, want in ((ProductWorkload, (data, columns)), (TransposeWorkload, (columns,))):
        work = kind(1, 32, 32, 1, 48, (1, 1), groups=2)
        assert work.in_shapes == want and work.out_shape == (1, 32, 1, 48)
        assert work.weight_by_input and not CONV.weight_by_input


def test_ranges_of_operands() -> None:
    """All of int8 where none are known."""
    work = WORKLOADS[2]
    assert isinstance(work, ElementwiseWorkload)
    assert [work.range_of(operand) for operand in (0, 1)] == [(-128, 127)] * 2
    known = dataclasses.replace(work, ranges=((0, 5), (-3, 4)))
    assert [known.range_of(operand) for operand in (0, 1)] == [(0, 5), (-3, 4)]
    assert from_json(ElementwiseWorkload, to_json(known)) == known


@pytest.mark.parametrize(("factor", "offset"), [(None, None), (3, None), (None, 0), (3, 0)])
def test_numbers_and_tensors_of_a_normalization(factor: int | None, offset: int | None) -> None:
    """What is one number for all channels is none of the tensors; 0 is a number."""
    work = NormWorkload(1, 32, 1, 16, 20, True, 5, factor, offset, 9, -128, 127)
    given = {"factor": factor, "offset": offset}
    assert work.numbers == {name: value for name, value in given.items() if value is not None}
    assert work.tensors == (CHANNEL,) * (2 - len(work.numbers))
    assert work.in_shapes == (work.out_shape,) == ((1, 32, 1, 16),)
    assert from_json(NormWorkload, to_json(work)) == work


def test_what_is_not_said() -> None:
    """The value of every field that may be left out."""
    conv = {
        "strides": (1, 1),
        "padding": (0, 0, 0, 0),
        "dilation": (1, 1),
        "groups": 1,
        "epilogue": Epilogue((), "int8"),
        "digit_shift": 0,
        "bias": False,
    }
    pool = {n: conv[n] for n in ("strides", "padding", "dilation", "epilogue")}
    defaults: dict[type, dict[str, Any]] = {
        Conv2dWorkload: {**conv, "borders": False, "filled": ()},
        ConvTransposeWorkload: {**conv, "output_padding": (0, 0)},
        PoolWorkload: {**pool, "low": -128, "factor": 1, "factors": ()},
        ElementwiseWorkload: {"op": None, "epilogue": Epilogue(), "ranges": (), "shapes": ()},
        ConcatWorkload: {"epilogue": Epilogue()},
        MoveWorkload: {},
        Epilogue: {"steps": (), "dtype": "int8"},
        Prologue: {"steps": ()},
        Source: {"lanes": ()},
    }
    for kind, want in defaults.items():
        found = {
            f.name: f.default
            for f in dataclasses.fields(kind)
            if f.default is not dataclasses.MISSING
        }
        assert found == want, kind


@pytest.mark.parametrize("work", WORKLOADS, ids=lambda w: type(w).__name__)
def test_json_keeps_everything(work: Workload) -> None:
    text = to_json(work)
    again = from_json(type(work), text)
    assert again == work and hash(again) == hash(work) and to_json(again) == text


def test_json_is_canonical() -> None:
    assert to_json(Conv2dWorkload(1, 2, 3, 4, 5, (1, 1))) == (
        '{"batch": 1, "digit_shift": 0, "dilation": [1, 1], "epilogue": {"dtype": "int8", '
        '"steps": []}, "groups": 1, "height": 4, "in_channels": 2, "kernel": [1, 1], '
        '"out_channels": 3, "padding": [0, 0, 0, 0], "strides": [1, 1], "width": 5}'
    )


def test_operands_of_steps() -> None:
    kinds = [(s.is_tensor, s.is_kept) for s in EPILOGUE.steps]
    assert kinds == [(True, False), (False, False), (False, False), (False, True), (True, False)]
    assert EPILOGUE.tensors == (CHANNEL, MAP)
    assert Epilogue((Step("add", FULL),)).tensors == (FULL,)


# ---------------------------------------------------------------- boxes
def moved(box: CopyRegion) -> dict[int, list[tuple[int, int, tuple[int, ...]]]]:
    """For each vector of the result: (operand, vector, lanes) that reach it."""
    found: dict[int, list[tuple[int, int, tuple[int, ...]]]] = {}
    for index in itertools.product(*(range(n) for n in box.size)):
        at = box.start + sum(i * s for i, s in zip(index, box.steps, strict=True))
        found[at] = []
        for s in box.sources:
            if all(a <= i < b for i, a, b in zip(index, s.low, s.high, strict=True)):
                steps = zip(index, s.low, s.steps, strict=True)
                vector = s.start + sum((i - a) * step for i, a, step in steps)
                found[at].append((s.operand, vector, s.lanes))
    return found


def random_box(rng: np.random.Generator) -> CopyRegion:
    """Up to four axes, dense or not, with up to two sources that cover all or a part."""
    size = tuple(int(n) for n in rng.integers(1, 4, int(rng.integers(1, 5))))
    rows = [int(np.prod(size[d + 1 :])) for d in range(len(size))]
    steps = tuple(r if rng.random() < 0.8 else r * 7 for r in rows)
    sources = []
    for operand in range(int(rng.integers(0, 3))):
        low = tuple(int(rng.integers(0, n)) if rng.random() < 0.2 else 0 for n in size)
        high = tuple(
            int(rng.integers(a + 1, n + 1)) if rng.random() < 0.2 else n
            for a, n in zip(low, size, strict=True)
        )
        own = tuple(r if rng.random() < 0.8 else 0 for r in rows)
        sources.append(Source(operand, 4 + operand, own, low, high, (operand,)))
    # strides that leave room: indices of different positions never meet
    spread = tuple(
        s * 10 ** (len(size) - d) if s > r else s
        for d, (s, r) in enumerate(zip(steps, rows, strict=True))
    )
    return CopyRegion(size, 11, spread, tuple(sources))


def test_merged_boxes_move_the_same() -> None:
    axes = 0
    for seed in range(200):
        box = random_box(np.random.default_rng(seed))
        result = merged(box)
        assert moved(result) == moved(box), str(seed)
        assert merged(result) == result, "there is nothing left to merge"
        axes += len(result.size)
    assert axes == 296, "a smaller number is an improvement: write it here"


def test_merged() -> None:
    dense = CopyRegion((2, 1, 3), 5, (3, 9, 1), (Source(0, 1, (3, 7, 1), (0, 0, 0), (2, 1, 3)),))
    assert merged(dense) == CopyRegion((6,), 5, (1,), (Source(0, 1, (1,), (0,), (6,)),))
    part = CopyRegion((2, 3), 0, (3, 1), (Source(0, 0, (3, 1), (1, 0), (2, 3)),))
    assert merged(part) == CopyRegion((6,), 0, (1,), (Source(0, 0, (1,), (3,), (6,)),))
    inner = CopyRegion((2, 3), 0, (3, 1), (Source(0, 0, (3, 1), (0, 1), (2, 3)),))
    assert merged(inner) == inner
    assert merged(CopyRegion((1, 1), 4, (9, 9), ())) == CopyRegion((1,), 4, (9,), ())
    late = CopyRegion((1, 2), 0, (9, 1), (Source(0, 0, (9, 1), (1, 0), (1, 2)),))
    assert merged(late) == late, "an axis of one position that no source covers says so"


def test_a_box_is_read_as_it_is_or_from_json() -> None:
    assert read_box(BOX) is BOX
    assert read_box(dataclasses.asdict(BOX)) == BOX


# ---------------------------------------------------------------- memories and layouts
def test_memories() -> None:
    config = VTAConfig.preset("tophub_4x8")
    assert SRAM_SCOPES == (INP, WGT, ACC)
    assert [element_scalars(config, s) for s in SRAM_SCOPES] == [32, 64, 32]
    scopes = ("global", DRAM_INP, DRAM_WGT, DRAM_ACC, *SRAM_SCOPES, "globalist")
    assert [in_dram(s) for s in scopes] == [True] * 4 + [False] * 4
    loaded = dram_scopes()
    assert list(loaded) and all(in_dram(scope) for scope in loaded)
    memories = [mem for found in loaded.values() for mem in found]
    assert memories == [mem for scope in loaded for mem in MemType if mem in loaded[scope]]
    assert set(memories) == {mem for mem in LOADABLE if MEMORY_TYPES[mem].scope}
    assert all(MEMORY_TYPES[mem].scope == scope for scope in loaded for mem in loaded[scope])


def test_blocks() -> None:
    assert [blocks(n, 4) for n in (0, 1, 3, 4, 5, 8, 9)] == [0, 1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("shape", "layouts"),
    [((3, 20, 4, 5), (NCHW,)), ((3, 20), (NCHW, ROWS)), ((2, 3, 20), (ROWS,)), ((40, 3), ())],
)
def test_read_packed(shape: tuple[int, ...], layouts: tuple[str, ...]) -> None:
    """A packed tensor is read in every layout in which it has that shape."""
    config = VTAConfig.preset("tophub_4x8")
    x = np.random.default_rng(0).integers(-128, 128, shape).astype("int8")
    rows = x.reshape(-1, shape[-1], 1, 1)
    seen = rows if layouts == (ROWS,) else x.reshape(*shape, *[1] * (4 - len(shape)))
    packed = pack_activation(seen if layouts else rows[:3], config)
    found = list(read_packed(packed, shape))
    assert len(found) == len(layouts)
    for value in found:
        np.testing.assert_array_equal(value, x)


# ---------------------------------------------------------------- folds
def test_a_fold_of_the_whole_kernel_has_one_tap() -> None:
    """Of one tap there is no distance: it is 1."""
    work = Conv2dWorkload(1, 3, 8, 19, 23, (3, 5), (2, 3), (2, 4, 1, 3), (2, 1))
    (whole,) = (f for f in folds(work, CONFIG) if f.window == (3, 5))
    inner = folded(work, whole)
    assert (inner.kernel, inner.dilation, inner.strides) == ((1, 1), (1, 1), (1, 1))
    assert inner.padding == (0, 0, 0, 0) and inner.out_shape == work.out_shape


STEM = Conv2dWorkload(1, 3, 64, 224, 224, (7, 7), (2, 2), (3, 3, 3, 3))


def test_folds_in_order_of_what_they_cost() -> None:
    """GEMM steps of all output vectors and the host's copies, in cycles: the cheapest first."""

    def cost(fold: Im2col) -> float:
        taps = [blocks(k, w) for k, w in zip(STEM.kernel, fold.window, strict=True)]
        steps = blocks(fold.shape[1], 16) * taps[0] * taps[1]
        nbytes = blocks(fold.shape[1], 16) * fold.shape[2] * fold.shape[3] * 16
        assert fold.nbytes(CONFIG) == nbytes
        assert host_cycles(nbytes, CONFIG) == nbytes / CONFIG.timing.host_copy_bytes
        return steps * 112 * 112 * 4 + nbytes / CONFIG.timing.host_copy_bytes

    found = folds(STEM, CONFIG)
    assert len(found) == 6
    costs = [cost(f) for f in found]
    assert costs == sorted(costs)
    assert found[0] == Im2col((2, 7), (2, 2), (1, 1), (3, 3), (1, 42, 115, 112))
    assert [(f.window, f.grid) for f in found] == [
        ((2, 7), (2, 2)),
        ((7, 2), (2, 2)),
        ((4, 4), (2, 2)),
        ((1, 4), (1, 2)),
        ((4, 1), (2, 1)),
        ((2, 2), (2, 2)),
    ]
