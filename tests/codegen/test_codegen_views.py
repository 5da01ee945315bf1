"""Views: parameters that are parts of larger tensors, and layers of several parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from script_nests import function, nest, parse, stored
from strict_machine import Machine
from tvm import tirx

from vta_byoc.codegen import CodegenError, ProgramBuilder, View, with_views
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator

CONFIG = VTAConfig()
LANES = 16


def text(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def copy(shape: Sequence[int]) -> tirx.PrimFunc:
    """y = x + 1 of int8 tensors of ``shape`` (h, w, 1, 16), each in one tile."""
    h, w = shape[:2]
    loops = f"i:{h} j:{w} k:16"
    value = 'y[i, j, 0, k] = T.Cast("int8", a[i, j, 0, k] + 1)'
    return parse(
        function(
            f"x:int8:{text(shape)} y:int8:{text(shape)}",
            f"a:acc:{text(shape)}",
            nest("load", "dma_copy", loops, 'a[i, j, 0, k] = T.Cast("int32", x[i, j, 0, k])'),
            nest("store", "alu,dma_copy", loops, value),
        )
    )


def built(
    parts: Sequence[tuple[tirx.PrimFunc, Sequence[str]]],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    config: VTAConfig = CONFIG,
) -> Program:
    """One layer of ``parts``: functions with the symbols of their parameters."""
    builder = ProgramBuilder(config)
    for kind, shapes in (("input", inputs), ("output", outputs)):
        for name, shape in shapes.items():
            builder.symbol(name, kind, shape, "int8")
    for func, args in parts:
        builder.layer("layer", func, args)
    return builder.finish()


def run(program: Program, inputs: dict[str, np.ndarray], output: str = "y") -> np.ndarray:
    """The output; the simulator, the strict machine and a random order agree."""
    result = simulator.run(program, inputs).outputs[output]
    for order in (None, np.random.default_rng(0)):
        arena = Machine(program, inputs, saturated=False).run(order)
        np.testing.assert_array_equal(program.view(arena, output), result)
    return result


def random_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-128, 127, shape, dtype=np.int8)


def seen(x: np.ndarray, view: View, shape: Sequence[int]) -> np.ndarray:
    """What ``view`` shows of ``x``, writable."""
    flat = x.reshape(-1)
    return np.lib.stride_tricks.as_strided(flat[view.offset :], shape, view.strides)


def transfers(program: Program, *mems: MemType) -> list[tuple[int, int, int]]:
    """(y_size, x_size, x_stride) of each transfer of one of the memory types."""
    isa = ISA.of(program.config)
    insns = [isa.decode(*words) for words in program.insns.tolist()]
    return [
        (i["y_size"], i["x_size"], i["x_stride"])
        for i in insns
        if i.opcode in (Opcode.LOAD, Opcode.STORE) and i["mem_type"] in mems and i["x_size"]
    ]


# ---------------------------------------------------------------- any view
def random_view(rng: np.random.Generator, shape: Sequence[int]) -> tuple[View, int]:
    """A view of (h, w, 1, 16) that holds each element once, and the scalars of its symbol."""
    h, w = shape[:2]
    inner, outer = (int(rng.integers(1, 4)) for _ in "io")
    before = int(rng.integers(0, 6))
    if rng.random() < 0.5:  # rows of columns
        col, row = inner, inner * w + outer - 1
    else:  # columns of rows
        row, col = inner, inner * h + outer - 1
    steps = [row, col]
    for k, size in enumerate((h, w)):
        if rng.random() < 0.3:  # backwards
            before += (size - 1) * steps[k]
            steps[k] = -steps[k]
    view = View(before * LANES, (steps[0] * LANES, steps[1] * LANES, LANES, 1))
    return view, view.reach(shape)[1] + LANES * int(rng.integers(0, 3))


@pytest.mark.parametrize("start", range(0, 60, 15))
def test_any_view(start: int) -> None:
    for seed in range(start, start + 15):
        rng = np.random.default_rng(seed)
        shape = (int(rng.integers(1, 7)), int(rng.integers(1, 7)), 1, LANES)
        (source, size_in), (target, size_out) = (random_view(rng, shape) for _ in "xy")
        func = with_views(copy(shape), {0: source, 1: target})
        program = built([(func, ["x", "y"])], {"x": (size_in,)}, {"y": (size_out,)})
        x = random_bytes(size_in)
        want = np.zeros(size_out, np.int8)
        seen(want, target, shape)[...] = seen(x, source, shape) + 1
        np.testing.assert_array_equal(run(program, {"x": x}), want, err_msg=str(seed))


@pytest.mark.parametrize("preset", ["tophub_4x8", "2x16", "1x32"])
def test_elements_of_other_machines(preset: str) -> None:
    config = VTAConfig.preset(preset)
    b, k = config.batch, config.block
    loops, index = f"i:3 j:4 b:{b} k:{k}", "[i, j, b, k]"
    func = parse(
        function(
            f"x:int8:3,4,{b},{k} y:int8:3,4,{b},{k}",
            f"a:acc:3,4,{b},{k}",
            nest("load", "dma_copy", loops, f'a{index} = T.Cast("int32", x{index})'),
            nest("store", "alu,dma_copy", loops, f'y{index} = T.Cast("int8", a{index} + 1)'),
        )
    )
    unit = b * k
    view = View(2 * unit, (11 * unit, 2 * unit, k, 1))
    program = built([(with_views(func, {1: view}), ["x", "y"])], {"x": (3, 4, b, k)},
                    {"y": (34, b, k)}, config)
    x = random_bytes(3, 4, b, k)
    want = np.zeros((34, b, k), np.int8)
    seen(want, view, (3, 4, b, k))[...] = x + 1
    np.testing.assert_array_equal(run(program, {"x": x}), want)


# ---------------------------------------------------------------- what views are for
def phase(first: int, step: int, rows: int, cols: int, width: int) -> View:
    """Every ``step``-th row and column of an image of ``width``."""
    row = step * width * LANES
    at = (first // step * width + first % step) * LANES
    return View(at, (row, step * LANES, LANES, 1))


def test_phases_of_a_layer() -> None:
    """Four parts store one pixel of each 2x2 square; columns become the rows of the DMA."""
    rows, cols = 5, 7
    shape, inputs = (rows, cols, 1, LANES), [f"x{p}" for p in range(4)]
    parts = [
        (with_views(copy(shape), {1: phase(p, 2, rows, cols, 2 * cols)}), [inputs[p], "y"])
        for p in range(4)
    ]
    program = built(parts, dict.fromkeys(inputs, shape), {"y": (2 * rows, 2 * cols, 1, LANES)})
    assert [(layer.name, layer.output) for layer in program.layers] == [("layer", "y")]
    assert program.layers[0].begin == 0
    assert program.layers[0].end == len(program.insns)
    assert transfers(program, MemType.OUT) == [(cols, 1, 2)] * (4 * rows)
    values = {name: random_bytes(*shape) + np.int8(k) for k, name in enumerate(inputs)}
    out = run(program, values)
    for p, name in enumerate(inputs):
        np.testing.assert_array_equal(out[p // 2 :: 2, p % 2 :: 2], values[name] + 1)


def test_a_column_is_one_transfer() -> None:
    """A tile of one column takes its rows, however far apart, in one transfer."""
    shape, step = (9, 1, 1, LANES), 20 * LANES
    column = View(3 * LANES, (step, LANES, LANES, 1))
    func = with_views(copy(shape), {0: column, 1: column})
    program = built([(func, ["x", "y"])], {"x": (180, LANES)}, {"y": (180, LANES)})
    assert transfers(program, MemType.OUT, MemType.ACC_8BIT) == [(9, 1, 20)] * 2
    x = random_bytes(180, LANES)
    want = np.zeros_like(x)
    want[3::20] = x[3::20] + 1
    np.testing.assert_array_equal(run(program, {"x": x}), want)


def test_padded_columns() -> None:
    """Zeros around every other column of an input."""
    loops = "i:3 j:5 k:16"
    func = parse(
        function(
            "x:int8:3,3,1,16 y:int8:3,5,1,16",
            "a:acc:3,5,1,16",
            nest(
                "load",
                "dma_copy",
                loops,
                "a[i, j, 0, k] = T.if_then_else(1 <= j and j < 4, "
                'T.Cast("int32", x[i, j - 1, 0, k]), 0)',
            ),
            nest(
                "store", "alu,dma_copy", loops, 'y[i, j, 0, k] = T.Cast("int8", a[i, j, 0, k] + 1)'
            ),
        )
    )
    func = with_views(func, {0: View(LANES, (6 * LANES, 2 * LANES, LANES, 1))})
    program = built([(func, ["x", "y"])], {"x": (3, 6, LANES)}, {"y": (3, 5, 1, LANES)})
    assert transfers(program, MemType.ACC_8BIT) == [(3, 1, 2)] * 3
    x = random_bytes(3, 6, LANES)
    want = np.pad(x[:, 1::2], ((0, 0), (1, 1), (0, 0))) + 1
    np.testing.assert_array_equal(run(program, {"x": x})[:, :, 0], want)


def test_slices_of_one_tensor() -> None:
    """Two parameters on one symbol, channel slices in and out."""
    loops, index = "c:2 p:6 k:16", "[c, p, 0, k]"
    func = parse(
        function(
            "x:int8:2,6,1,16 z:int8:2,6,1,16 y:int8:2,6,1,16",
            "a:acc:2,6,1,16 b:acc:2,6,1,16",
            nest("load_a", "dma_copy", loops, f'a{index} = T.Cast("int32", x{index})'),
            nest("load_b", "dma_copy", loops, f'b{index} = T.Cast("int32", z{index})'),
            nest(
                "store",
                "alu,dma_copy",
                loops,
                f'y{index} = T.Cast("int8", T.max(a{index}, b{index}))',
            ),
        )
    )
    strides = (6 * LANES, LANES, LANES, 1)
    views = {i: View(at * 6 * LANES, strides) for i, at in enumerate((0, 3, 2))}
    program = built(
        [(with_views(func, views), ["x", "x", "y"])], {"x": (5, 6, LANES)}, {"y": (4, 6, LANES)}
    )
    x = random_bytes(5, 6, LANES)
    out = run(program, {"x": x})
    np.testing.assert_array_equal(out[2:], np.maximum(x[:2], x[3:]))
    assert not out[:2].any()


def test_parts_that_read_one_another() -> None:
    """A part waits for what the part before it stored to the same symbol."""
    shape = (3, 5, 1, LANES)
    half = 3 * 5 * LANES
    dense = View.dense(shape).strides
    parts = [
        (with_views(copy(shape), {1: View(half, dense)}), ["x", "y"]),
        (with_views(copy(shape), {0: View(half, dense), 1: View(0, dense)}), ["y", "y"]),
    ]
    program = built(parts, {"x": shape}, {"y": (2, *shape)})
    x = random_bytes(*shape)
    np.testing.assert_array_equal(run(program, {"x": x}), np.stack([x + 2, x + 1]))


def test_layers_of_one_name_apart() -> None:
    """Only calls in a row are parts of one layer."""
    shape = (1, 2, 1, LANES)
    builder = ProgramBuilder(CONFIG)
    builder.symbol("x", "input", shape, "int8")
    for name in ("u", "v", "w"):
        builder.symbol(name, "output", shape, "int8")
        builder.layer("other" if name == "v" else "layer", copy(shape), ["x", name])
    program = builder.finish()
    assert [(layer.name, layer.output) for layer in program.layers] == [
        ("layer", "u"), ("other", "v"), ("layer", "w")
    ]


# ---------------------------------------------------------------- refusals
SHAPE = (4, 6, 1, LANES)
DENSE = View.dense(SHAPE).strides


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            View(LANES, DENSE),
            "layer layer: the view of parameter y reaches scalars 16 to 399 of y; it has 384; "
            "correct the offset or the strides",
        ),
        (View(0, (128, *DENSE[1:])), "reaches scalars 0 to 479 of y; it has 384"),
        (View(0, (-96, *DENSE[1:])), "reaches scalars -288 to 95 of y"),
        (
            View(8, (64, *DENSE[1:])),
            "the view of parameter y starts at 8 scalars of y; an element has 16; keep its lanes "
            "dense and step over whole elements",
        ),
        (View(0, (72, *DENSE[1:])), "the view of parameter y steps 72 scalars of y"),
        (View(0, (72, 24, 16, 1)), "the view of parameter y steps 72 scalars of y"),
        (View(0, (0, 0, 0, 2)), "the view of parameter y steps 2 scalars of y"),
        (View(0, (0, 1, 0, 1)), "the view of parameter y steps 1 scalars of y"),
    ],
)
def test_refused(view: View, message: str) -> None:
    func = with_views(copy(SHAPE), {1: view})
    with pytest.raises(CodegenError, match=re.escape(message)):
        built([(func, ["x", "y"])], {"x": SHAPE}, {"y": SHAPE})


def test_view_of_another_type() -> None:
    func = with_views(parse(stored("a[i, 0, k] + 1")), {0: View(0, (16, 16, 1))})
    with pytest.raises(CodegenError, match="parameter x is 64 x int32, symbol x 384 x int8; bind"):
        built([(func, ["x", "y"])], {"x": SHAPE}, {"y": (4, 1, LANES)})


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ({2: View(0, DENSE)}, "a view of parameter 2; the function has 2; number them from 0"),
        ({-1: View(0, DENSE)}, "a view of parameter -1; the function has 2"),
        (
            {0: View(0, (16, 1))},
            "the view of parameter x has 2 strides; it has 4 dimensions; give one stride each",
        ),
    ],
)
def test_no_such_view(views: dict[int, View], message: str) -> None:
    with pytest.raises(CodegenError, match=re.escape(message)):
        with_views(copy(SHAPE), views)
