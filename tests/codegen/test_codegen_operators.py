"""Operators that the project does not know: users' own schedules, and any expression of the ALU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from draws import draws, least
from script_nests import function, nest, program
from strict_machine import Machine
from tvm import s_tir, te, tirx

from vta_byoc.codegen import PRAGMA_KEY, CodegenError
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator

ACC, WGT = "local.acc_buffer", "local.wgt_buffer"


def outputs(built: Program, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The only output; the simulator, the strict machine and a random order agree."""
    (name,) = (s.name for s in built.of_kind("output"))
    result = simulator.run(built, inputs).outputs[name]
    for order in (None, np.random.default_rng(0)):
        arena = Machine(built, inputs, saturated=False).run(order)
        np.testing.assert_array_equal(built.view(arena, name), result)
    return result


def state(sch: s_tir.Schedule, **pragmas: str) -> None:
    """The pragma of each block, by name, on its innermost loop."""
    for name, pragma in pragmas.items():
        sch.annotate(sch.get_loops(sch.get_sblock(name))[-1], PRAGMA_KEY, pragma)


def widened(tensor: te.Tensor, name: str) -> te.Tensor:
    return te.compute(tensor.shape, lambda *i: tensor(*i).astype("int32"), name=name)


# ---------------------------------------------------------------- schedules
def maximum_of_two(rows: int, tile: int) -> tirx.PrimFunc:
    """out = max(x, y) of two int8 tensors, in tiles of rows."""
    shape = (rows, 1, 16)
    x, y = (te.placeholder(shape, "int8", name=n) for n in ("x", "y"))
    left, right = widened(x, "left"), widened(y, "right")
    out = te.compute(
        shape, lambda *i: tirx.Max(left(*i), right(*i)).astype("int8"), name="out"
    )
    sch = s_tir.Schedule(te.create_prim_func([x, y, out]))
    outer, _ = sch.split(sch.get_loops(sch.get_sblock("out"))[0], [None, tile])
    for name in ("left", "right"):
        sch.set_scope(sch.get_sblock(name), 0, ACC)
        sch.compute_at(sch.get_sblock(name), outer)
    state(sch, left="dma_copy", right="dma_copy", out="alu,dma_copy")
    return sch.mod["main"]


@pytest.mark.parametrize("tile", [40, 8, 7])
def test_maximum_of_two(tile: int) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, (40, 1, 16), dtype=np.int8) for _ in "xy")
    built = program(maximum_of_two(40, tile))
    np.testing.assert_array_equal(outputs(built, {"x": x, "y": y}), np.maximum(x, y))
    assert built.counters()["alu_counter"] == 40


def max_pool(size: int, window: int, step: int, tile: int) -> tirx.PrimFunc:
    """Maximum over a window of an image (h, w, 1, 16), in tiles of output rows."""
    out_size = (size - window) // step + 1
    x = te.placeholder((size, size, 1, 16), "int8", name="x")
    wide = widened(x, "wide")
    r, s = (te.reduce_axis((0, window), n) for n in "rs")

    def pool(h: Any, w: Any, b: Any, k: Any) -> Any:
        return te.max(wide[h * step + r, w * step + s, b, k], axis=[r, s])

    pooled = te.compute((out_size, out_size, 1, 16), pool, name="pooled")
    out = te.compute(pooled.shape, lambda *i: pooled(*i).astype("int8"), name="out")
    sch = s_tir.Schedule(te.create_prim_func([x, out]))
    for name in ("wide", "pooled"):
        sch.set_scope(sch.get_sblock(name), 0, ACC)
    rows, _ = sch.split(sch.get_loops(sch.get_sblock("out"))[0], [None, tile])
    block = sch.get_sblock("pooled")
    sch.compute_at(block, rows)
    sch.compute_at(sch.get_sblock("wide"), rows)
    sch.decompose_reduction(block, sch.get_loops(block)[1])
    state(sch, wide="dma_copy", pooled_init="alu", pooled_update="alu", out="dma_copy")
    return sch.mod["main"]


@pytest.mark.parametrize(("window", "step"), [(2, 2), (3, 2), (3, 1), (5, 3)])
@pytest.mark.parametrize("tile", [1, 2, 3, 100])
def test_max_pool(window: int, step: int, tile: int) -> None:
    """The reduction starts at the least int32, which takes more than one immediate."""
    size = 13
    x = np.random.default_rng(0).integers(-128, 128, (size, size, 1, 16), dtype=np.int8)
    seen = np.lib.stride_tricks.sliding_window_view(x, (window, window), axis=(0, 1))
    built = program(max_pool(size, window, step, min(tile, (size - window) // step + 1)))
    expected = seen[::step, ::step].max(axis=(-1, -2))
    np.testing.assert_array_equal(outputs(built, {"x": x}), expected)


def dense_in_threads(config: VTAConfig, rows: int, threads: int) -> tirx.PrimFunc:
    """rows x 64 times 64 x 64, the output channels in virtual threads."""
    b, k = config.batch, config.block
    n, size = rows // b, 64 // k
    data = te.placeholder((n, size, b, k), "int8", name="data")
    weight = te.placeholder((size, size, k, k), "int8", name="weight")
    rc, rk = te.reduce_axis((0, size), "rc"), te.reduce_axis((0, k), "rk")

    def mac(i: Any, o: Any, bi: Any, bo: Any) -> Any:
        left = data[i, rc, bi, rk].astype("int32")
        return te.sum(left * weight[o, rc, bo, rk].astype("int32"), axis=[rc, rk])

    acc = te.compute((n, size, b, k), mac, name="acc")
    scaled = te.compute(acc.shape, lambda *i: acc(*i) >> tirx.const(9, "int32"), name="scaled")
    out = te.compute(acc.shape, lambda *i: scaled(*i).astype("int8"), name="out")
    sch = s_tir.Schedule(te.create_prim_func([data, weight, out]))
    block = sch.get_sblock("acc")
    loads = [sch.cache_read(block, 0, "local.inp_buffer"), sch.cache_read(block, 1, WGT)]
    sch.set_scope(block, 0, ACC)
    sch.compute_inline(sch.get_sblock("scaled"))
    i, o, _, _ = sch.get_loops(sch.get_sblock("out"))
    thread, inner = sch.split(o, [threads, None])
    sch.reorder(thread, inner, i)
    sch.bind(thread, "vthread.x")
    sch.compute_at(block, inner, preserve_unit_loops=True)
    for load in loads:
        sch.compute_at(load, inner)
    reduce = sch.get_loops(block)[-2]
    sch.reorder(reduce, *sch.get_loops(block)[2:-2])
    sch.decompose_reduction(block, reduce)
    names = {str(sch.get(load).name_hint): "dma_copy" for load in loads}
    state(sch, **names, acc_init="gemm", acc_update="gemm", out="alu,dma_copy")
    return sch.mod["main"]


@pytest.mark.parametrize("preset", ["sim", "tophub_4x8", "2x16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_virtual_threads(preset: str, threads: int) -> None:
    config = VTAConfig.preset(preset)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, (n, 64), dtype=np.int8) for n in (8, 64))
    b, k = config.batch, config.block
    data = x.reshape(8 // b, b, 64 // k, k).transpose(0, 2, 1, 3)
    weight = w.reshape(64 // k, k, 64 // k, k).transpose(0, 2, 1, 3)
    built = program(
        dense_in_threads(config, 8, threads), config, weight=np.ascontiguousarray(weight)
    )
    out = outputs(built, {"data": np.ascontiguousarray(data)})
    expected = (x.astype(np.int32) @ w.T.astype(np.int32)) >> 9
    np.testing.assert_array_equal(
        out.transpose(0, 2, 1, 3).reshape(8, 64), expected.astype(np.int8)
    )


# ---------------------------------------------------------------- any expression
NAMES = ("a", "b", "c")


def random_expression(rng: np.random.Generator, depth: int, names: list[str]) -> str:
    """Python text of an ALU expression; every name is read as ``name[...]``."""
    kind = rng.choice(["max", "min", "add", "mul", "imm", "shift", "leaf"]) if depth else "leaf"
    if kind == "leaf":
        return f"{rng.choice(names)}[i, 0, k]"
    left = random_expression(rng, depth - 1, names)
    if kind == "imm":
        value = int(rng.choice([-9, -2, 3, 8]))
        ops = (f"T.max({left}, {value})", f"({value} + {left})", f"({left} - {value})")
        return str(rng.choice([*ops, f"({left} * {value})"]))
    if kind == "shift":
        return f"T.shift_{rng.choice(['left', 'right'])}({left}, {int(rng.integers(1, 4))})"
    right = random_expression(rng, depth - 1, names)
    text = {"max": "T.max({}, {})", "min": "T.min({}, {})", "add": "({} + {})", "mul": "({} * {})"}
    return text[str(kind)].format(left, right)


class Numpy:
    """What an expression means, with numpy instead of TVMScript."""

    max, min = staticmethod(np.maximum), staticmethod(np.minimum)
    shift_left, shift_right = staticmethod(np.left_shift), staticmethod(np.right_shift)


class Rows:
    """``x[i, 0, k]`` is all of x."""

    def __init__(self, value: np.ndarray):
        self.value = value

    def __getitem__(self, _: object) -> np.ndarray:
        return self.value


def meaning(text: str, values: dict[str, np.ndarray]) -> np.ndarray:
    scope = {name: Rows(value) for name, value in values.items()}
    return eval(text, {"T": Numpy, "i": 0, "k": 0}, scope)


def expression_program(text: str, where: str) -> Program:
    """``text`` evaluated by the store, in a nest of its own, or into a running value of d."""
    loads = [
        nest(f"load_{n}", "dma_copy", "i:4 k:16", f"{n}[i, 0, k] = x{n}[i, 0, k]") for n in NAMES
    ]
    params = " ".join(f"x{n}:int32:4,1,16" for n in NAMES) + " y:int8:4,1,16"
    buffers = " ".join(f"{n}:acc:4,1,16" for n in NAMES)
    loops = "i:4 k:16"
    if where == "store":
        store = nest("store", "alu,dma_copy", loops, f'y[i, 0, k] = T.Cast("int8", {text})')
        return program(function(params, buffers, *loads, store))
    nests = [nest("compute", "alu", loops, f"d[i, 0, k] = {text}")]
    if where == "again":
        nests = [
            nest("start", "alu", loops, "d[i, 0, k] = 70000"),
            nest("compute", "alu", loops, f"d[i, 0, k] = {text}"),
        ]
    store = nest("store", "dma_copy", loops, 'y[i, 0, k] = T.Cast("int8", d[i, 0, k])')
    return program(function(params, f"{buffers} d:acc:4,1,16", *loads, *nests, store))


@pytest.mark.parametrize("where", ["store", "nest", "again"])
def test_random_expressions(where: str) -> None:
    """Every expression that lowers computes what it says; refusals name the in-place value."""
    lowered, refused, expressions = 0, 0, draws(36, 70)
    for seed in range(expressions):
        rng = np.random.default_rng(seed)
        names = [*NAMES, "d"] if where == "again" else list(NAMES)
        text = random_expression(rng, int(rng.integers(1, 4)), names)
        used = {n for n in names if f"{n}[" in text}
        # every tile must be read, or TVM does not keep it
        rest = [n for n in NAMES if n not in used]
        for n in rest:
            text = f"T.max({text}, {n}[i, 0, k])"
        try:
            built = expression_program(text, where)
        except CodegenError as err:
            assert "in place" in str(err) or "overwrites its first operand" in str(err), text
            refused += 1
            continue
        values = {n: rng.integers(-60, 60, (4, 1, 16), dtype=np.int32) for n in NAMES}
        inputs = {f"x{n}": v for n, v in values.items()}
        want = meaning(text, values | {"d": np.full((4, 1, 16), 70000, np.int32)})
        got = outputs(built, inputs)
        np.testing.assert_array_equal(got, want.astype(np.int8), err_msg=f"{seed}: {text}")
        lowered += 1
    assert lowered >= least(25, expressions, 70), (lowered, refused)


def test_value_read_twice_lowers_where_it_can() -> None:
    """Reads before the change, and a destination of its own, need no second copy."""
    x = np.arange(64, dtype=np.int32).reshape(4, 1, 16) - 30
    zero = np.zeros_like(x)
    for text, where in (
        ("T.max(a[i, 0, k] * a[i, 0, k], T.max(b[i, 0, k], c[i, 0, k]))", "store"),
        ("T.max(T.shift_right(a[i, 0, k], 1) + a[i, 0, k], b[i, 0, k] + c[i, 0, k])", "nest"),
    ):
        built = expression_program(text, where)
        got = outputs(built, {"xa": x, "xb": zero, "xc": zero})
        want = meaning(text, {"a": x, "b": zero, "c": zero})
        np.testing.assert_array_equal(got, want.astype(np.int8))


@pytest.mark.parametrize("value", [1, -1, 32767, 32768, -32768, -32769, 1 << 30, -(1 << 31), 65536])
def test_any_constant(value: int) -> None:
    """A constant of any size is made from two halves."""
    loops = "i:4 k:16"
    text = function(
        "y:int8:4,1,16",
        "a:acc:4,1,16",
        nest("fill", "alu", loops, f"a[i, 0, k] = {value}"),
        nest(
            "store",
            "alu,dma_copy",
            loops,
            'y[i, 0, k] = T.Cast("int8", T.max(T.min(T.shift_right(a[i, 0, k], 12), 90), -90))',
        ),
    )
    assert (outputs(program(text), {}) == min(max(value >> 12, -90), 90)).all()


@pytest.mark.parametrize(
    ("load", "compute", "store"), [(-1, 1, 1), (1, -1, 1), (1, 1, -1), (-1, -1, -1)]
)
def test_backwards(load: int, compute: int, store: int) -> None:
    """Loops that walk DRAM or the accumulator downwards."""

    def index(step: int) -> str:
        return "i" if step > 0 else "3 - i"

    text = function(
        "x:int32:4,2,16 y:int8:4,2,16",
        "a:acc:4,2,16 b:acc:4,2,16",
        nest("load", "dma_copy", "i:4 j:2 k:16", f"a[i, j, k] = x[{index(load)}, j, k]"),
        nest("compute", "alu", "i:4 j:2 k:16", f"b[i, j, k] = a[{index(compute)}, j, k] + 1"),
        nest(
            "store",
            "dma_copy",
            "i:4 j:2 k:16",
            f'y[{index(store)}, j, k] = T.Cast("int8", b[i, j, k])',
        ),
    )
    x = np.random.default_rng(0).integers(-100, 100, (4, 2, 16), dtype=np.int32)
    expected = (x + 1)[:: load * compute * store]
    np.testing.assert_array_equal(outputs(program(text), {"x": x}), expected)
