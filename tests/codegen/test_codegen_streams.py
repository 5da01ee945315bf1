"""Small functions to their whole instruction streams, `tests/golden/streams.txt`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest
from script_nests import (
    LOAD,
    STORE,
    X8,
    A,
    X,
    Y,
    alu,
    computed,
    function,
    gemm,
    gemm_of,
    load,
    nest,
    parse,
    store,
    stored,
)

from vta_byoc.codegen import CodegenError, ProgramBuilder, View, with_views
from vta_byoc.codegen.uops import TUTORIALS
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.program.arena import Lifetime
from vta_byoc.hw.program.program import Program

CONFIG = VTAConfig()
SLOW = dataclasses.replace(
    CONFIG,
    capabilities=dataclasses.replace(Capabilities(), max_shift=4, dst_distance=4),
    log_uop_buff_size=5,
)
PADDED = function(
    "x:int32:3,5,16 y:int8:5,9,16",
    "a:acc:5,9,16",
    nest(
        "load",
        "dma_copy",
        "i:5 j:9 k:16",
        "a[i, j, k] = T.if_then_else(1 <= i and i < 4 and 3 <= j and j < 8, x[i - 1, j - 3, k], 0)",
    ),
    nest("store", "alu,dma_copy", "i:5 j:9 k:16", 'y[i, j, k] = T.Cast("int8", a[i, j, k] << 2)'),
)
POOLED = function(
    "x:int32:4,6,16 y:int8:2,3,16",
    "a:acc:4,6,16 b:acc:2,3,16",
    nest("load", "dma_copy", "i:4 j:6 k:16", "a[i, j, k] = x[i, j, k]"),
    nest("fill", "alu", "i:2 j:3 k:16", "b[i, j, k] = -70000"),
    nest(
        "pool",
        "alu",
        "i:2 j:3 p:2R q:2R k:16",
        "b[i, j, k] = T.max(b[i, j, k], a[i * 2 + p, j * 2 + q, k])",
    ),
    nest("store", "dma_copy", "i:2 j:3 k:16", 'y[i, j, k] = T.Cast("int8", b[i, j, k])'),
)
CHANNELS = function(
    "x:int32:2,4,16 c:int32:2,16 y:int8:2,4,16",
    "a:acc:2,4,16 b:acc:2,16",
    nest("load", "dma_copy", "o:2 i:4 k:16", "a[o, i, k] = x[o, i, k]"),
    nest("load_c", "dma_copy", "o:2 k:16", "b[o, k] = c[o, k]"),
    nest(
        "store",
        "alu,dma_copy",
        "o:2 i:4 k:16",
        'y[o, i, k] = T.Cast("int8", T.min(T.max((a[o, i, k] + b[o, k]) >> 9, -128), 127))',
    ),
)
TWICE = function(
    f"{X} {Y} z:int8:4,1,16",
    A,
    LOAD,
    nest("early", "alu,dma_copy", "i:4 k:16", 'y[i, 0, k] = T.Cast("int8", a[i, 0, k] >> 3)'),
    nest("late", "alu,dma_copy", "i:4 k:16", 'z[i, 0, k] = T.Cast("int8", a[i, 0, k] >> 8)'),
)
PARTIAL = function(
    f"{X} {Y}",
    A,
    LOAD,
    nest("some", "alu", "i:4 k:16", "a[i, 0, k] = a[i, 0, k] * 3", where="i_ < 3"),
    STORE,
)
STEP_BY_STEP = function(
    f"{X} {Y}", A, LOAD, alu("a[i, 0, k] = a[i, 0, k] + i * 2"), store("a[i, 0, k] - 7")
)
FUNCTIONS = {
    "a copy": (function(f"{X} {Y}", A, LOAD, STORE), CONFIG),
    "two steps": (stored("T.max(a[i, 0, k] + 5, -3)"), CONFIG),
    "shifts, seven bits at most": (stored("(a[i, 0, k] << 9) >> 5"), SLOW),
    "one operand into another buffer": (computed("b[i, 0, k] = a[i, 0, k] + 1"), CONFIG),
    "a sum with a destination of its own": (
        computed("b[i, 0, k] = T.min(a[i, 0, k], 7) + a[i, 0, k] * 2"),
        CONFIG,
    ),
    "GEMM": (gemm(), CONFIG),
    "GEMM, far destinations": (gemm(), SLOW),
    "GEMM of zeros": (
        gemm_of(nest("load_d", "dma_copy", "i:4 k:16", "d[i, 0, k] = T.int8(0)")),
        CONFIG,
    ),
    "padding": (PADDED, CONFIG),
    "pooling": (POOLED, CONFIG),
    "an operand a channel": (CHANNELS, CONFIG),
    "one tile stored twice": (TWICE, CONFIG),
    "part of a nest": (PARTIAL, CONFIG),
    "a number that a loop changes": (STEP_BY_STEP, CONFIG),
    "int8 into the accumulator": (
        function(f"{X8} {Y}", A, load(value='T.Cast("int32", x[i, 0, k])'), STORE),
        CONFIG,
    ),
}


def made(text: str, config: VTAConfig) -> Program:
    """The function of ``text``; y and z are its outputs."""
    func, builder = parse(text), ProgramBuilder(config)
    for param in func.params:
        kind = "output" if param.name in "yz" else "input"
        builder.symbol(str(param.name), kind, [int(s) for s in param.shape], str(param.dtype))
    builder.layer("layer", func, [str(p.name) for p in func.params])
    return builder.finish()


def test_streams(golden: Callable[[str, str], None]) -> None:
    texts = [f"== {name}\n{made(*case).disassemble()}" for name, case in FUNCTIONS.items()]
    golden("streams.txt", "\n".join(texts))


PLUS = parse(
    function(f"{X8} {Y}", A, load(value='T.Cast("int32", x[i, 0, k])'), store("a[i, 0, k] + 1"))
)


def chain(*names: str, outputs: tuple[str, ...], share: dict[str, tuple[int, int]]) -> Program:
    """Layer k, called `names[k]`, adds one to what the layer before made."""
    builder = ProgramBuilder(CONFIG, TUTORIALS)
    builder.symbol("x", "input", (4, 1, 16), "int8")
    for name in outputs:
        builder.symbol(name, "output" if name == outputs[-1] else "temp", (4, 1, 16), "int8")
    if share:
        builder.share({name: Lifetime(*alive) for name, alive in share.items()})
    for name, pair in zip(names, itertools.pairwise(("x", *outputs)), strict=True):
        builder.layer(name, PLUS, pair)
    return builder.finish()


def test_layers(golden: Callable[[str, str], None]) -> None:
    """Parts of one layer follow one another under its name; a layer may be called as a tensor."""
    program = chain("first", "first", "b", outputs=("a", "b", "c"), share={})
    assert [(layer.name, layer.output) for layer in program.layers] == [("first", "b"), ("b", "c")]
    shared = chain(
        "p", "q", "r", outputs=("a", "b", "c"), share={"a": (0, 1), "b": (1, 2), "c": (2, 3)}
    )
    golden("layers.txt", f"{program.disassemble()}\n{shared.disassemble()}")


def test_a_tensor_starts_at_its_own_first_byte_and_a_part_where_it_is_said_to() -> None:
    builder = ProgramBuilder(CONFIG)
    builder.symbol("both", "temp", (8, 1, 16), "int8")
    builder.symbol("low", "temp", (4, 1, 16), "int8", inside=("both", 0))
    builder.symbol("high", "temp", (4, 1, 16), "int8", inside=("both", 64))
    program = builder.finish()
    both, low, high = (program.symbol(name) for name in ("both", "low", "high"))
    assert [(s.parent, s.inside) for s in (both, low, high)] == [
        *(("", 0), ("both", 0), ("both", 64))
    ]
    assert (low.offset, high.offset) == (both.offset, both.offset + 64)


def refusal(build: Callable[[ProgramBuilder], object]) -> str:
    builder = ProgramBuilder(CONFIG)
    for name, kind in (("x", "input"), ("t", "temp"), ("y", "output")):
        builder.symbol(name, kind, (4, 1, 16), "int8")
    with pytest.raises(CodegenError) as error:
        build(builder)
    return str(error.value)


def test_refusals_of_the_builder() -> None:
    assert refusal(lambda b: b.symbol("x", "temp", (1,), "int8")) == (
        "symbol 'x' is declared twice; give tensors distinct names"
    )
    for name in ("x", "z"):
        alive = {name: Lifetime(0, 1)}
        assert refusal(lambda b, alive=alive: b.share(alive)) == (
            f"a lifetime for {name}; only temporaries and outputs that are declared have one; "
            "declare it first"
        )

    def late(builder: ProgramBuilder) -> None:
        builder.layer("l", PLUS, ["x", "y"])
        builder.share({"t": Lifetime(0, 1)})

    assert refusal(late) == (
        "share() after 1 layers; tokens depend on which tensors share bytes; call it before the "
        "first layer"
    )
    assert refusal(lambda b: b.layer("l", PLUS, ["x"])) == (
        "layer l: 1 symbols for 2 parameters; bind each parameter once"
    )
    assert refusal(lambda b: b.layer("l", PLUS, ["x", "z"])) == (
        "layer l: symbol z is not declared; declare it first"
    )
    wide = parse(function("x:int32:4,1,16 y:int8:4,1,16", A, LOAD, STORE))
    assert refusal(lambda b: b.layer("l", wide, ["x", "y"])) == (
        "layer l: parameter x is 64 x int32, symbol x 64 x int8; bind a tensor of the same size "
        "and type"
    )


WHOLE = "scalars of x; an element has 16; keep its lanes dense and step over whole elements"


@pytest.mark.parametrize(
    ("offset", "strides", "refused"),
    [
        (0, (32, 16, 1), ""),
        (48, (-16, 16, 1), ""),
        (16, (16, 16, 1), ""),
        (
            80,
            (16, 16, 1),
            "reaches scalars 80 to 143 of x; it has 128; correct the offset or the strides",
        ),
        (
            32,
            (-16, 16, 1),
            "reaches scalars -16 to 47 of x; it has 128; correct the offset or the strides",
        ),
        (
            8,
            (16, 16, 1),
            f"starts at 8 {WHOLE}",
        ),
        (
            0,
            (24, 16, 1),
            f"steps 24 {WHOLE}",
        ),
        (
            0,
            (16, 16, 2),
            f"steps 2 {WHOLE}",
        ),
        (0, (16, 7, 1), ""),
    ],
)
def test_views_of_whole_elements(offset: int, strides: tuple[int, ...], refused: str) -> None:
    builder = ProgramBuilder(CONFIG)
    builder.symbol("x", "input", (8, 1, 16), "int8")
    builder.symbol("y", "output", (4, 1, 16), "int8")
    func = with_views(PLUS, {0: View(offset, strides)})
    if not refused:
        builder.layer("l", func, ["x", "y"])
        first = builder.finish().disassemble().split("LOAD   ACC_8BIT sram 0 dram ")[1]
        assert int(first.split()[0], 16) * 16 == offset
        return
    with pytest.raises(CodegenError) as error:
        builder.layer("l", func, ["x", "y"])
    assert str(error.value) == f"layer l: the view of parameter x {refused}"


def test_numbers_of_views() -> None:
    for index in (-1, 2):
        with pytest.raises(CodegenError) as error:
            with_views(PLUS, {index: View(0, (16, 16, 1))})
        assert str(error.value) == (
            f"a view of parameter {index}; the function has 2; number them from 0"
        )
    with pytest.raises(CodegenError) as error:
        with_views(PLUS, {1: View(0, (16, 1))})
    assert str(error.value) == (
        "the view of parameter y has 2 strides; it has 3 dimensions; give one stride each"
    )


def test_a_copy_that_writes_twice() -> None:
    """A loop of the copy that moves nothing in SRAM."""
    again = nest("load", "dma_copy", "i:4 r:2 k:16", "a[i, 0, k] = x[i, 0, k]")
    with pytest.raises(CodegenError) as error:
        made(function(f"{X} {Y}", A, again, STORE), CONFIG)
    assert str(error.value) == (
        "layer layer: block load: a loop steps 0 scalars in SRAM and 0 in DRAM; elements hold 16; "
        "copy whole elements once"
    )
