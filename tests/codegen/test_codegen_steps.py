"""Steps with an operand per channel, and int32 results as byte planes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from script_nests import function, nest, parse, program
from strict_machine import Machine
from tvm import s_tir, te, tirx

from vta_byoc.codegen import PRAGMA_KEY, CodegenError, ProgramBuilder
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.isa import ISA, AluOp, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator

ACC = "local.acc_buffer"
OPERATORS = {
    "add": (lambda v, x: v + x, np.add),
    "mul": (lambda v, x: v * x, np.multiply),
    "shr": (lambda v, x: v >> x, np.right_shift),
    "max": (tirx.Max, np.maximum),
    "min": (tirx.Min, np.minimum),
}
Steps = Sequence[tuple[str, int | None]]
PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")


def mark(sch: s_tir.Schedule, block: Any, pragma: str) -> None:
    sch.annotate(sch.get_loops(block)[-1], PRAGMA_KEY, pragma)


def stage(name: str, op: str, value: te.Tensor, operand: Any) -> te.Tensor:
    """``value`` op a number or a tensor (c, b, k)."""
    apply, tensor = OPERATORS[op][0], isinstance(operand, te.Tensor)

    def at(c: Any, h: Any, w: Any, y: Any, z: Any) -> Any:
        return apply(value[c, h, w, y, z], operand[c, y, z] if tensor else operand)

    return te.compute(value.shape, at, name=name)


def chain(
    config: VTAConfig,
    steps: Steps,
    shape: tuple[int, int, int],
    rows: int,
    planes: bool = False,
) -> tirx.PrimFunc:
    """Steps on int32 ``x`` (c, h, w, b, k) in tiles of ``rows``: a number or, where it is None, an
    operand (c, b, k) of its own.  The result is int8, or int32 as four byte planes in front."""
    b, k = config.batch, config.block
    full = (*shape, b, k)
    x = te.placeholder(full, "int32", name="x")
    value = te.compute(full, lambda *i: x(*i), name="staged")
    params, names = [x], []
    for number, (op, amount) in enumerate(steps):
        operand: Any = tirx.const(0 if amount is None else amount, "int32")
        if amount is None:
            operand = te.placeholder((shape[0], b, k), "int32", name=f"operand{number}")
            params.append(operand)
        value = stage(f"step{number}", op, value, operand)
        names.append(f"step{number}")
    if planes:
        out = te.compute(
            (4, *full), lambda j, *i: (value(*i) >> (j * 8)).astype("int8"), name="out"
        )
    else:
        out = te.compute(full, lambda *i: value(*i).astype("int8"), name="out")
    return scheduled(te.create_prim_func([*params, out]), names, len(params) - 1, rows, planes)


def scheduled(
    func: tirx.PrimFunc, names: list[str], operands: int, rows: int, planes: bool
) -> tirx.PrimFunc:
    """Tiles of ``rows`` staged, the steps in the store; planes come inside the tiles."""
    sch = s_tir.Schedule(func)
    sch.set_scope(sch.get_sblock("staged"), 0, ACC)
    loads = []
    for name in names:
        block = sch.get_sblock(name)
        reads = sch.get(block).reads
        for i in range(len(reads)):
            if re.fullmatch(r"operand\d+", str(reads[i].source.name)):
                loads.append(sch.cache_read(block, i, ACC))
        sch.compute_inline(block)
    assert len(loads) == operands
    loops = sch.get_loops(sch.get_sblock("out"))
    plane, (c, h, *inner) = loops[: int(planes)], loops[int(planes) :]
    ho, hi = sch.split(h, [None, rows])
    sch.reorder(ho, *plane, c, hi, *inner)
    sch.compute_at(sch.get_sblock("staged"), ho)
    for load in loads:
        mark(sch, load, "dma_copy")
    mark(sch, sch.get_sblock("staged"), "dma_copy")
    mark(sch, sch.get_sblock("out"), "alu,dma_copy" if names or planes else "dma_copy")
    return sch.mod["main"]


class TensorShifts(Machine):
    """The strict machine with shifts by tensors, whose amounts every core can take."""

    @staticmethod
    def _value(op: AluOp, left: np.ndarray, right: np.ndarray | int) -> np.ndarray:
        if op != AluOp.SHR or isinstance(right, int):
            return Machine._value(op, left, right)
        assert right.min() >= 0 and right.max() < 16
        return left >> right


def run(built: Program, inputs: dict[str, np.ndarray], output: str = "out") -> np.ndarray:
    """The output; the simulator, the strict machine and a random order agree."""
    result = simulator.run(built, inputs).outputs[output]
    for order in (None, np.random.default_rng(0)):
        arena = TensorShifts(built, inputs, saturated=False).run(order)
        np.testing.assert_array_equal(built.view(arena, output), result)
    return result


def alu(built: Program) -> Steps:
    """(operation, immediate) of each ALU instruction."""
    isa = ISA.of(built.config)
    insns = [isa.decode(*words) for words in built.insns.tolist()]
    return [
        (AluOp(i["alu_opcode"]).name, i["imm"] if i["use_imm"] else None)
        for i in insns
        if i.opcode == Opcode.ALU
    ]


def values(rng: np.random.Generator, steps: Steps, *shape: int) -> list[Any]:
    """A number or random values per channel for each step; every batch lane has its own."""
    ranges = {"shr": (0, 16), "mul": (-300, 300)}
    return [
        rng.integers(*ranges.get(op, (-30000, 30000)), shape, dtype=np.int32)
        if amount is None
        else np.int32(amount)
        for op, amount in steps
    ]


def expected(x: np.ndarray, steps: Steps, operands: list[Any]) -> np.ndarray:
    for (op, amount), operand in zip(steps, operands, strict=True):
        wide = operand[:, None, None] if amount is None else operand
        x = OPERATORS[op][1](x, wide)
    assert x.dtype == np.int32
    return x


def inputs_of(x: np.ndarray, operands: list[Any]) -> dict[str, np.ndarray]:
    arrays = {f"operand{n}": v for n, v in enumerate(operands) if isinstance(v, np.ndarray)}
    return {"x": x, **arrays}


RESCALE: Steps = [
    ("add", None),
    ("mul", None),
    ("add", None),
    ("shr", None),
    ("max", -128),
    ("min", 127),
]
CHAINS: dict[str, Steps] = {
    "rescale per channel": RESCALE,
    "all per channel": [*RESCALE[:4], ("max", None), ("min", None)],
    **{op: [(op, None)] for op in OPERATORS},
    "numbers between": [("add", 3), ("shr", None), ("mul", -2), ("add", None), ("shr", 17)],
}


# ---------------------------------------------------------------- operands per channel
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("preset", PRESETS)
def test_operand_per_channel(name: str, preset: str) -> None:
    config, steps = VTAConfig.preset(preset), CHAINS[name]
    shape, (b, k) = (3, 5, 4), (config.batch, config.block)
    rng = np.random.default_rng(0)
    x = rng.integers(-9000, 9000, (*shape, b, k), dtype=np.int32)
    operands = values(rng, steps, shape[0], b, k)
    for rows in (5, 2):
        built = program(chain(config, steps, shape, rows), config)
        got = run(built, inputs_of(x, operands))
        np.testing.assert_array_equal(got, expected(x, steps, operands).astype(np.int8))


def test_one_instruction_a_step() -> None:
    """Channels and pixels are the two loops of one instruction, whatever the operand."""
    built = program(chain(VTAConfig(), RESCALE, (3, 5, 4), 5))
    assert alu(built) == [
        ("ADD", None), ("MUL", None), ("ADD", None), ("SHR", None), ("MAX", -128), ("MIN", 127)
    ]
    assert built.counters()["alu_counter"] == 6 * 3 * 5 * 4


@pytest.mark.parametrize("op", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("amount", [32768, -32769, 1 << 20])
def test_number_beyond_an_immediate(op: str, amount: int) -> None:
    steps = [("shr", None), (op, amount)]
    message = (
        f"layer layer: block out: {op.upper()} by {amount}; an immediate holds -32768 to 32767; "
        "fold the constant into the bias or load it as a tensor"
    )
    with pytest.raises(CodegenError, match=re.escape(message)):
        program(chain(VTAConfig(), steps, (1, 2, 2), 2))


@pytest.mark.parametrize("op", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("amount", [32767, -32768])
def test_largest_immediates(op: str, amount: int) -> None:
    config, steps = VTAConfig(), [(op, amount), ("shr", 9)]
    x = np.random.default_rng(0).integers(-40000, 40000, (1, 2, 2, 1, 16), dtype=np.int32)
    got = run(program(chain(config, steps, (1, 2, 2), 2)), {"x": x})
    want = expected(x, steps, values(np.random.default_rng(0), steps, 1))
    np.testing.assert_array_equal(got, want.astype(np.int8))


# ---------------------------------------------------------------- byte planes
def int32s(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Any int32, with the ends of the range and of each byte."""
    x = rng.integers(-(1 << 31), 1 << 31, shape, dtype=np.int64).astype(np.int32)
    edges = [0, -1, 1, -(1 << 31), (1 << 31) - 1]
    edges += [s * (1 << n) + d for n in (7, 8, 15, 16, 23, 24) for s in (1, -1) for d in (-1, 0)]
    x.reshape(-1)[: len(edges)] = edges
    return x


def word(planes: np.ndarray) -> np.ndarray:
    """int32 of four planes of bytes, least significant first."""
    parts = planes.view(np.uint8).astype(np.uint32)
    whole = sum(parts[p] << np.uint32(8 * p) for p in range(4))
    return np.asarray(whole, np.uint32).view(np.int32)


@pytest.mark.parametrize(("preset", "max_shift"), [*((p, 15) for p in PRESETS), ("sim", 7)])
def test_planes(preset: str, max_shift: int) -> None:
    """The planes are taken from one tile, each a shift by eight further on."""
    config = VTAConfig.preset(preset)
    config = dataclasses.replace(config, capabilities=Capabilities(max_shift=max_shift))
    shape = (2, 5, 4, config.batch, config.block)
    x = int32s(np.random.default_rng(0), *shape)
    for rows in (5, 2):
        built = program(chain(config, [], shape[:3], rows, planes=True), config)
        np.testing.assert_array_equal(word(run(built, {"x": x})), x)
        amounts = [8] * 3 if max_shift == 15 else [7, 1] * 3
        tiles = -(-5 // rows)
        # a tile that comes straight from DRAM goes through the ALU once more
        assert alu(built) == [("ADD", 0), *(("SHR", a) for a in amounts)] * tiles


@pytest.mark.parametrize(
    "steps",
    [
        [("add", None)],
        [("add", None), ("mul", None), ("add", None)],
        [("add", None), ("shr", 3)],
        [("max", -5), ("shr", None)],
        [("shr", 9), ("add", 11)],
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [5, 2])
def test_planes_after_steps(steps: Steps, rows: int) -> None:
    """The steps run once, not once a plane."""
    config, shape = VTAConfig(), (3, 5, 2, 1, 16)
    rng = np.random.default_rng(0)
    x = rng.integers(-(1 << 20), 1 << 20, shape, dtype=np.int32)
    operands = values(rng, steps, 3, 1, 16)
    built = program(chain(config, steps, shape[:3], rows, planes=True))
    np.testing.assert_array_equal(
        word(run(built, inputs_of(x, operands))), expected(x, steps, operands)
    )
    each = [(op.upper(), amount) for op, amount in steps] + [("SHR", 8)] * 3
    assert alu(built) == each * -(-5 // rows)


def dense_planes(config: VTAConfig, rows: int, size: int) -> tirx.PrimFunc:
    """int32 planes of a dense layer with bias: data (rows, size), weight (size, size)."""
    b, k = config.batch, config.block
    data = te.placeholder((rows // b, size // k, b, k), "int8", name="data")
    weight = te.placeholder((size // k, size // k, k, k), "int8", name="weight")
    bias = te.placeholder((size // k, b, k), "int32", name="bias")
    rc, rk = te.reduce_axis((0, size // k), "rc"), te.reduce_axis((0, k), "rk")

    def mac(n: Any, o: Any, y: Any, z: Any) -> Any:
        left = data[n, rc, y, rk].astype("int32")
        return te.sum(left * weight[o, rc, z, rk].astype("int32"), axis=[rc, rk])

    acc = te.compute((rows // b, size // k, b, k), mac, name="acc")
    biased = te.compute(acc.shape, lambda n, o, y, z: acc[n, o, y, z] + bias[o, y, z], "biased")
    out = te.compute(
        (4, *acc.shape), lambda j, *i: (biased(*i) >> (j * 8)).astype("int8"), name="out"
    )
    sch = s_tir.Schedule(te.create_prim_func([data, weight, bias, out]))
    block = sch.get_sblock("acc")
    loads = [
        sch.cache_read(block, 0, "local.inp_buffer"),
        sch.cache_read(block, 1, "local.wgt_buffer"),
        sch.cache_read(sch.get_sblock("biased"), 1, ACC),
    ]
    sch.set_scope(block, 0, ACC)
    sch.compute_inline(sch.get_sblock("biased"))
    plane, n, o, _, _ = sch.get_loops(sch.get_sblock("out"))
    sch.reorder(o, plane, n)
    sch.compute_at(block, o, preserve_unit_loops=True)
    an, ao, ab, ak, rco, rki = sch.get_loops(block)[-6:]
    sch.reorder(rco, an, ao, ab, ak, rki)
    for load in loads[:2]:
        sch.compute_at(load, rco)
    sch.compute_at(loads[2], o)
    reset = sch.decompose_reduction(block, rco)
    for load in loads:
        mark(sch, load, "dma_copy")
    mark(sch, reset, "gemm")
    mark(sch, sch.get_sblock("acc_update"), "gemm")
    mark(sch, sch.get_sblock("out"), "alu,dma_copy")
    return sch.mod["main"]


@pytest.mark.parametrize("preset", PRESETS)
def test_planes_of_a_dense_layer(preset: str) -> None:
    config = VTAConfig.preset(preset)
    b, k, rows, size = config.batch, config.block, 8, 64
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, (n, size), dtype=np.int8) for n in (rows, size))
    bias = rng.integers(-(1 << 28), 1 << 28, size, dtype=np.int32)
    inputs: dict[str, np.ndarray] = {
        "data": np.ascontiguousarray(x.reshape(rows // b, b, -1, k).transpose(0, 2, 1, 3)),
        "weight": np.ascontiguousarray(w.reshape(-1, k, size // k, k).transpose(0, 2, 1, 3)),
        "bias": np.repeat(bias.reshape(-1, 1, k), b, axis=1),
    }
    built = program(dense_planes(config, rows, size), config)
    got = word(run(built, inputs)).transpose(0, 2, 1, 3).reshape(rows, size)
    np.testing.assert_array_equal(got, x.astype(np.int32) @ w.T.astype(np.int32) + bias)
    tiles = size // k
    assert alu(built) == [("ADD", None), *[("SHR", 8)] * 3] * tiles


# ---------------------------------------------------------------- stores that go on
LOAD = nest("load", "dma_copy", "i:4 k:16", "a[i, 0, k] = x[i, 0, k]")
LOAD_B = nest("load_b", "dma_copy", "k:16", "b[0, 0, k] = z[0, 0, k]")
OTHER_B = nest("other_b", "dma_copy", "k:16", "b[0, 0, k] = z[1, 0, k]")
A, B = "a[i, 0, k]", "b[0, 0, k]"


def stores(*values: str, between: str = "", loops: str = "i:4 k:16") -> Program:
    """x into a and a row of z into b, each value stored to a tensor of its own.

    ``between`` comes before the last, whose loops are ``loops``.
    """
    nests = [
        nest(
            f"store{n}",
            "dma_copy" if value == A else "alu,dma_copy",
            loops if n == len(values) - 1 else "i:4 k:16",
            f'y{n}[i, 0, k] = T.Cast("int8", {value})',
        )
        for n, value in enumerate(values)
    ]
    nests[-1:-1] = [between] if between else []
    outputs = " ".join(f"y{n}:int8:4,1,16" for n in range(len(values)))
    params, buffers, loads = "x:int32:4,1,16", "a:acc:4,1,16", [LOAD]
    if any(B in value for value in values):
        params, buffers = f"{params} z:int32:2,1,16", f"{buffers} b:acc:1,1,16"
        loads.append(LOAD_B)
    func = parse(function(f"{params} {outputs}", buffers, *loads, *nests))
    builder, names = ProgramBuilder(VTAConfig()), [str(p.name) for p in func.params]
    for name, param in zip(names, func.params, strict=True):
        kind = "output" if name.startswith("y") else "input"
        builder.symbol(name, kind, [int(s) for s in param.shape], str(param.dtype))
    builder.layer("layer", func, names)
    return builder.finish()


def samples(built: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {s.name: int32s(rng, *s.shape) for s in built.of_kind("input")}


def test_planes_as_four_tensors() -> None:
    """The same in-place shifts where every plane has a nest and a tensor of its own."""
    shifted = [f"T.shift_right({A} + {B}, {8 * p})" for p in (1, 2, 3)]
    built = stores(f"({A} + {B})", *shifted)
    inputs = samples(built)
    planes = np.stack([run(built, inputs, f"y{p}") for p in range(4)])
    np.testing.assert_array_equal(word(planes), inputs["x"] + inputs["z"][0])
    assert alu(built) == [("ADD", None), *[("SHR", 8)] * 3]


def test_a_store_goes_on_from_another() -> None:
    """The second expression begins with all that the first did."""
    built = stores(f"T.max({A} + {B}, -9)", f"T.min(T.max({A} + {B}, -9) * 3, 50)")
    inputs = samples(built)
    first = np.maximum(inputs["x"] + inputs["z"][0], -9)
    np.testing.assert_array_equal(run(built, inputs, "y0"), first.astype(np.int8))
    second = np.minimum(first * 3, 50)
    np.testing.assert_array_equal(run(built, inputs, "y1"), second.astype(np.int8))
    assert [op for op, _ in alu(built)] == ["ADD", "MAX", "MUL", "MIN"]


def test_a_tile_loaded_again_begins_anew() -> None:
    built = stores(f"({A} + 1)", f"({A} + 2)", between=LOAD.replace("load", "again"))
    inputs = samples(built)
    for n in (0, 1):
        np.testing.assert_array_equal(
            run(built, inputs, f"y{n}"), (inputs["x"] + np.int32(n + 1)).astype(np.int8)
        )


@pytest.mark.parametrize(
    ("values", "others"),
    [
        ((f"({A} + 1)", f"({A} + 2)"), {}),
        ((f"({A} + 1)", A), {}),
        ((f"T.shift_right({A}, 16)", f"T.shift_right({A}, 8)"), {}),
        ((f"T.shift_left({A}, 1)", f"T.shift_left({A}, 2)"), {}),
        ((f"T.shift_right({A}, 1)", f"T.shift_left({A}, 2)"), {}),
        ((f"T.max({A}, 1)", f"T.max({A}, 2)"), {}),
        ((f"({A} + {B})", f"({A} * {B})"), {}),
        ((f"({A} + {B})", f"T.shift_right({A} + {B}, 8)"), {"between": OTHER_B}),
        ((f"T.shift_right({A}, 1)", f"T.shift_right({A}, 2)"), {"loops": "i:3 k:16"}),
    ],
    ids=str,
)
def test_stores_that_cannot_go_on(values: tuple[str, ...], others: dict[str, str]) -> None:
    """What was changed in place is not what another expression wants."""
    message = "block store1 reads a after block store0 changed it in place; the ALU overwrites"
    with pytest.raises(CodegenError, match=message):
        stores(*values, **others)


def test_shifts_that_vary_too_far() -> None:
    """An amount that depends on a loop is checked turn by turn."""
    loads = nest("load", "dma_copy", "i:4 k:16", "a[i, 0, k] = x[i, 0, k]")
    store = nest(
        "store",
        "alu,dma_copy",
        "j:5 i:4 k:16",
        f'y[j, i, 0, k] = T.Cast("int8", T.shift_right({A}, j * 8))',
    )
    text = function("x:int32:4,1,16 y:int8:5,4,1,16", "a:acc:4,1,16", loads, store)
    with pytest.raises(CodegenError, match="block store shifts by 32; int32 shifts are -31 to 31"):
        program(text)


def test_any_immediate_may_vary() -> None:
    """Not shifts alone: a ramp over channels that are a loop of their own."""
    load = nest("load", "dma_copy", "c:3 i:4 k:16", "a[c, i, 0, k] = x[c, i, 0, k]")
    store = nest(
        "store",
        "alu,dma_copy",
        "c:3 i:4 k:16",
        'y[c, i, 0, k] = T.Cast("int8", T.max(a[c, i, 0, k] * (c - 1), 7 * c))',
    )
    built = program(function("x:int32:3,4,1,16 y:int8:3,4,1,16", "a:acc:3,4,1,16", load, store))
    x = np.random.default_rng(0).integers(-99, 99, (3, 4, 1, 16), dtype=np.int32)
    c = np.arange(3, dtype=np.int32)[:, None, None, None]
    np.testing.assert_array_equal(run(built, {"x": x}, "y"), np.maximum(x * (c - 1), 7 * c))
    want = [[("MUL", n - 1), ("MAX", 7 * n)] for n in range(3)]
    assert alu(built) == [step for steps in want for step in steps]
