"""A kernel that several layers or programs run is walked once, and nothing else is different."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from script_nests import X8, A, Y, function, gemm, load, parse, store, stored
from tvm import tirx

from vta_byoc.codegen import BEST, TUTORIALS, LoopCompression, ProgramBuilder, kernel_streams
from vta_byoc.codegen.kernel_streams import KernelStream, KernelStreams
from vta_byoc.codegen.linear import CodegenError
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.arena import Lifetime
from vta_byoc.hw.program.program import Program

CONFIG = VTAConfig()
BOTH = (False, True)


class Forgetting(KernelStreams):
    """Walks every kernel again."""

    def written(
        self, func: tirx.PrimFunc, config: VTAConfig, mode: LoopCompression, weight_room: int
    ) -> KernelStream:
        return KernelStreams().written(func, config, mode, weight_room)


def program(
    streams: KernelStreams,
    funcs: Sequence[tirx.PrimFunc],
    mode: LoopCompression = BEST,
    kind: str = "temp",
    shared: bool = False,
    ahead: bool = False,
) -> Program:
    """Products and sums in turn, the same two kernels again and again."""
    builder = ProgramBuilder(
        CONFIG,
        mode,
        reuse_resident=True,
        join_uops=True,
        load_early=True,
        weights_ahead=ahead,
        streams=streams,
    )
    names = ["x", "t0", "t1", "t2", "t3", "y"]
    builder.symbol("x", "input", (4, 1, 16), "int8")
    for name in ("w0", "w1", "w2"):
        builder.symbol(name, "input", (1, 16, 16), "int8")
    for name in names[1:-1]:
        builder.symbol(name, kind, (4, 1, 16), "int8")
    builder.symbol("y", "output", (4, 1, 16), "int8")
    if shared:
        builder.share({name: Lifetime(i, i + 1) for i, name in enumerate(names[1:])})
    for number, (source, result) in enumerate(itertools.pairwise(names)):
        weights = () if number % 2 else (f"w{number // 2}",)
        builder.layer(f"layer{number}", funcs[number % 2], [source, *weights, result])
    return builder.finish()


@pytest.fixture(scope="module")
def kernels() -> list[tirx.PrimFunc]:
    widened = load(value='T.Cast("int32", x[i, 0, k])')
    return [parse(gemm()), parse(function(f"{X8} {Y}", A, widened, store("a[i, 0, k] + 1")))]


@pytest.mark.parametrize("ahead", BOTH)
@pytest.mark.parametrize("shared", BOTH)
@pytest.mark.parametrize("mode", [BEST, TUTORIALS], ids=lambda mode: mode.name)
def test_a_program_is_the_same_to_the_byte(
    kernels: list[tirx.PrimFunc], mode: LoopCompression, shared: bool, ahead: bool
) -> None:
    given = {"mode": mode, "shared": shared, "ahead": ahead}
    anew, streams = program(Forgetting(), kernels, **given), KernelStreams()
    for _ in range(2):  # the second one finds all of it
        assert program(streams, kernels, **given).to_bytes() == anew.to_bytes()


def test_a_state_is_bound_as_any_symbol_is(kernels: list[tirx.PrimFunc]) -> None:
    anew = program(Forgetting(), kernels, kind="state")
    assert program(KernelStreams(), kernels, kind="state").to_bytes() == anew.to_bytes()


class Noting(KernelStreams):
    """Notes the room that weights have, in elements."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms: set[int] = set()

    def written(
        self, func: tirx.PrimFunc, config: VTAConfig, mode: LoopCompression, weight_room: int
    ) -> KernelStream:
        self.rooms.add(weight_room)
        return super().written(func, config, mode, weight_room)


def test_weights_that_are_loaded_ahead_leave_room_for_others(kernels: list[tirx.PrimFunc]) -> None:
    """Fifteen sixteenths of the SRAM; where nothing is loaded ahead, no more than their slots."""
    for ahead, room in ((False, 0), (True, CONFIG.wgt_depth * 15 // 16)):
        streams = Noting()
        program(streams, kernels, ahead=ahead)
        assert streams.rooms == {room}


def test_builders_of_one_store_may_differ(kernels: list[tirx.PrimFunc]) -> None:
    streams = KernelStreams()
    for mode, ahead in itertools.product((BEST, TUTORIALS), BOTH):
        found = program(streams, kernels, mode, ahead=ahead)
        anew = program(Forgetting(), kernels, mode, ahead=ahead)
        assert found.to_bytes() == anew.to_bytes()


def test_a_kernel_is_walked_once(
    kernels: list[tirx.PrimFunc], monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []

    def written(func: tirx.PrimFunc) -> tirx.PrimFunc:
        walked.append(func)
        return lower(func)

    lower = kernel_streams.lower
    monkeypatch.setattr(kernel_streams, "lower", written)
    streams = KernelStreams()
    for _ in range(2):
        program(streams, kernels)
    assert [func.same_as(kernel) for func, kernel in zip(walked, kernels, strict=True)] == [1, 1]


def test_instructions_of_a_layer_are_its_own(kernels: list[tirx.PrimFunc]) -> None:
    """Tokens, places of weights and micro-ops are written into them."""
    stream = KernelStreams().written(kernels[0], CONFIG, BEST, 0)
    first, second = stream.bound(["a", "b", "c"], 1), stream.bound(["d", "b", "d"], 2)
    for one, two, own in zip(first, second, stream.insns, strict=True):
        assert one.fields == two.fields == own.fields
        assert one.fields is not two.fields and one.fields is not own.fields
        assert (one.layer, two.layer, own.layer) == (1, 2, 0)
    loads = [(one.symbol, two.symbol) for one, two in zip(first, second, strict=True) if one.symbol]
    assert loads == [("a", "d"), ("b", "b"), ("c", "d")]
    spaces = [space for insn in second for space, _, _ in (*insn.reads, *insn.writes)]
    assert [space for space in spaces if space.startswith("dram")] == ["dram.d", "dram.b", "dram.d"]


def test_what_is_refused_is_refused_again() -> None:
    refused, builder = parse(stored("a[i, 0, k] // 3")), ProgramBuilder(CONFIG)
    builder.symbol("x", "input", (4, 1, 16), "int32")
    builder.symbol("y", "output", (4, 1, 16), "int8")
    errors = []
    for name in ("one", "two"):
        with pytest.raises(CodegenError) as caught:
            builder.layer(name, refused, ["x", "y"])
        errors.append(str(caught.value))
    assert errors[0].startswith("layer one: block store computes ")
    assert errors[1] == errors[0].replace("one", "two", 1)


def test_symbols_are_checked_for_every_layer() -> None:
    kernel, builder = parse(stored("a[i, 0, k] + 1")), ProgramBuilder(CONFIG)
    builder.symbol("x", "input", (4, 1, 16), "int32")
    builder.symbol("y", "output", (4, 1, 16), "int8")
    builder.symbol("z", "output", (5, 1, 16), "int8")
    builder.layer("one", kernel, ["x", "y"])
    with pytest.raises(CodegenError, match=r"^layer two: parameter y is 64 x int8, symbol z 80 x"):
        builder.layer("two", kernel, ["x", "z"])
