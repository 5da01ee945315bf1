"""Tensors share bytes where they are never alive together: the plan, and that a wrong one is
refused."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from conv_cases import add_work
from conv_numpy import numpy_elementwise, random_int8
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_models import IntegerNet

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.codegen.linear import CodegenError
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA
from vta_byoc.hw.program.arena import ARENA_ALIGN, ArenaPlan, Lifetime, Tenant, aligned, plan_arena
from vta_byoc.hw.program.program import STORED, Program, Symbol, place_symbols, root_of
from vta_byoc.hw.reference.interleaving import POLICIES, run_interleaved
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.trace.implementations import Inputs, implementation
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.options import BuildOptions
from vta_byoc.partitioning.region import Region
from vta_byoc.passes import lower_regions as lowering
from vta_byoc.passes.early_kernels import Launch
from vta_byoc.pipeline import DRAM_ONLY, ON, Compiled, compile_module, compile_programs
from vta_byoc.runtime.execute import profile
from vta_byoc.strategies.base import LayerWork
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.validation.bit_exact import compare_layers, stored_tensors
from vta_byoc.validation.divergence import compare_with_reference
from vta_byoc.workload.packing import pack_activation, packed_shape

CONFIG = VTAConfig()


# ---------------------------------------------------------------- the plan
@st.composite
def tenants(draw: st.DrawFn) -> list[Tenant]:
    """Tensors of random sizes, alignments and lifetimes."""
    found = []
    for number in range(draw(st.integers(0, 14))):
        first = draw(st.integers(0, 9))
        alive = Lifetime(first, first + draw(st.integers(0, 5)))
        align = draw(st.sampled_from((1, 16, 64, 256, 1024)))
        found.append(Tenant(f"t{number}", draw(st.integers(0, 5000)), align, alive))
    return found


def demand(found: list[Tenant]) -> int:
    """The most bytes that are alive in one step."""
    steps = range(max((t.alive.last for t in found), default=0) + 1)
    return max(sum(t.nbytes for t in found if t.alive.meets(Lifetime(i, i))) for i in steps)


@settings(max_examples=300, derandomize=True, database=None)
@given(tenants())
def test_tensors_alive_together_lie_apart(found: list[Tenant]) -> None:
    plan = plan_arena(found)
    assert set(plan.offsets) == {t.name for t in found}
    for one, two in combinations(found, 2):
        low, high = sorted((one, two), key=lambda t: plan.offsets[t.name])
        if one.nbytes and two.nbytes and one.alive.meets(two.alive):
            assert plan.offsets[low.name] + low.nbytes <= plan.offsets[high.name]
    for t in found:
        assert plan.offsets[t.name] % max(t.align, ARENA_ALIGN) == 0
        assert plan.align % max(t.align, ARENA_ALIGN) == 0
    apart = sum(t.nbytes + max(t.align, ARENA_ALIGN) - 1 for t in found)
    assert demand(found) <= plan.nbytes <= apart
    assert plan == plan_arena(found)


def tenant(name: str, nbytes: int, first: int, last: int) -> Tenant:
    return Tenant(name, nbytes, 64, Lifetime(first, last))


def test_a_chain_needs_its_two_largest_neighbours() -> None:
    sizes = (640, 1280, 640, 128, 256)
    chain = [tenant(f"t{i}", size, i, i + 1) for i, size in enumerate(sizes)]
    assert plan_arena(chain).nbytes == 1280 + 640


@pytest.mark.parametrize(
    ("found", "offsets"),
    [
        # the largest first leaves a gap between a and b that c does not fit
        (
            [tenant("a", 64, 0, 1), tenant("b", 128, 1, 2), tenant("c", 192, 3, 3)],
            {"a": 128, "b": 0, "c": 0},
        ),
        # as defined: b takes the place of a, c stays behind it; by size d comes too late
        (
            [
                tenant("a", 128, 0, 0),
                tenant("b", 64, 0, 2),
                tenant("c", 128, 1, 1),
                tenant("d", 192, 2, 2),
            ],
            {"d": 0, "a": 0, "c": 0, "b": 192},
        ),
    ],
    ids=["by size", "gap kept"],
)
def test_places(found: list[Tenant], offsets: dict[str, int]) -> None:
    assert plan_arena(found).offsets == offsets


def test_the_better_of_two_orders_is_taken() -> None:
    """By size, each of these pairs is worse in one order."""
    early = [tenant("a", 64, 0, 0), tenant("b", 64, 0, 1), tenant("c", 128, 1, 1)]
    plan = plan_arena(early)
    assert plan.nbytes == demand(early) == 192


def test_nothing_to_place() -> None:
    assert plan_arena([]) == ArenaPlan({}, 0, ARENA_ALIGN)


def test_wrong_lifetimes_are_refused() -> None:
    with pytest.raises(ValueError, match="t is alive from step 3 to 2; a lifetime ends where it"):
        plan_arena([tenant("t", 1, 3, 2)])
    with pytest.raises(ValueError, match="two tensors have one name; a plan is by name"):
        plan_arena([tenant("t", 1, 0, 0), tenant("t", 1, 1, 1)])


# ---------------------------------------------------------------- programs
def chain_net() -> IntegerNet:
    """Five convolutions; the addition reads the second and the last; two results."""
    net = IntegerNet(x=(1, 16, 8, 8))
    a = net.conv(net.params[0], 32, name="a")
    b = net.conv(a, 32, name="b")
    c = net.conv(b, 16, 1, name="c")
    d = net.conv(c, 48, name="d")
    e = net.conv(d, 32, name="e")
    net.result = net.residual(e, b, name="join")
    return net


def skips_net() -> IntegerNet:
    """Two additions read what was stored long before."""
    net = IntegerNet(x=(1, 16, 8, 8))
    a = net.conv(net.params[0], 32, name="a")
    b = net.conv(a, 32, name="b")
    c = net.conv(b, 32, name="c")
    net.result = net.residual(net.residual(c, a, name="first"), b, name="join")
    return net


def concat_net() -> IntegerNet:
    """Parts stored right where a later operator joins them, between other layers."""
    net = IntegerNet(x=(1, 16, 6, 6))
    a = net.conv(net.params[0], 32, name="a")
    parts = [net.conv(a, 16, k, relu=False, name=f"part{k}") for k in (1, 3)]
    both = net.op("concat", parts, axis=1, name="both")
    net.result = net.conv(net.conv(both, 16, 1, name="b"), 32, name="c")
    return net


NETS: dict[str, Callable[[], IntegerNet]] = {
    "chain": chain_net,
    "skips": skips_net,
    "concat": concat_net,
}


@functools.cache
def compiled_net(
    name: str, config: VTAConfig = CONFIG, scopes: str = DRAM_ONLY
) -> tuple[IntegerNet, Compiled, Program]:
    """A network of NETS; every layer stores its tensor unless ``scopes`` say otherwise."""
    net = NETS[name]()
    compiled = compile_module(net.module(net.result), config, scopes=scopes)
    (program,) = compiled.programs.values()
    return net, compiled, program


@pytest.mark.parametrize(
    ("name", "preset", "scopes"),
    [
        ("chain", "sim", ON),
        ("concat", "1x32", ON),
        ("skips", "2x16", DRAM_ONLY),
    ],
)
def test_every_tensor_is_right_and_every_order_gives_the_results(
    name: str, preset: str, scopes: str
) -> None:
    net, compiled, program = compiled_net(name, VTAConfig.preset(preset), scopes)
    checks = compare_layers(net.module(net.result), compiled, net.inputs())
    assert all(check.equal for check in checks)
    inputs = region_inputs(compiled, net)
    wanted = simulator.run(program.without_sharing(), inputs).outputs
    for policy in POLICIES:
        outputs = run_interleaved(program, inputs, policy, 1).outputs
        for output, value in wanted.items():
            np.testing.assert_array_equal(outputs[output], value, err_msg=policy)
    assert program.peak_bytes < program.unshared_bytes


def test_peak_of_a_chain() -> None:
    """Vectors of 16 lanes: b and d beside e is the most, 2 + 3 + 2 blocks of 64."""
    _, _, program = compiled_net("chain")
    block = 64 * CONFIG.out_elem_bytes
    assert program.unshared_bytes == (2 + 2 + 1 + 3 + 2 + 2) * block
    assert program.peak_bytes == (2 + 3 + 2) * block
    assert program.arena_bytes - program.without_sharing().arena_bytes == (7 - 12) * block


def test_apart() -> None:
    _, _, program = compiled_net("concat")
    apart = program.without_sharing()
    assert program.shares() and not apart.shares()
    assert (
        apart.without_sharing() is apart
        and apart.peak_bytes == apart.unshared_bytes == program.unshared_bytes
    )
    assert verify(program) == [] and verify(apart) == []
    assert apart.relocations == program.relocations and apart.layers == program.layers
    assert [s.name for s in apart.symbols] == [s.name for s in program.symbols]
    by_name = {s.name: s for s in apart.symbols}
    part, (root, inside) = by_name["part3"], root_of(by_name["part3"], by_name)
    assert (root, part.offset) == ("both", by_name["both"].offset + inside)
    fixed = [s for s in program.symbols if s.kind not in STORED]
    assert [s for s in apart.symbols if s.kind not in STORED] == fixed
    assert apart.image is program.image and apart.counters() == program.counters()


def test_stored_tensors_are_those_of_the_run() -> None:
    """Results are what the arena holds, also when it holds something else."""
    net, compiled, program = compiled_net("chain")
    (run,) = profile(compiled.exe, net.inputs(), arenas=True).regions
    assert run.arena is not None
    arena = run.arena.copy()
    program.view(arena, "join")[...] = 5
    tensors = stored_tensors(program, arena)
    assert list(tensors) == ["a", "b", "c", "d", "e", "join"]
    assert (tensors["join"] == 5).all()
    kept = program.without_sharing()
    inputs = {s.name: program.view(arena, s.name) for s in program.of_kind("input")}
    for name in ("a", "b", "c", "d", "e"):
        np.testing.assert_array_equal(
            tensors[name], kept.view(simulator.run(kept, inputs).arena, name)
        )


def test_same_input_same_bytes() -> None:
    again = compiled_net.__wrapped__("chain")[2]
    assert compiled_net("chain")[2].to_bytes() == again.to_bytes()


# ---------------------------------------------------------------- a wrong reuse
def shortened(name: str) -> Callable[..., dict[str, Lifetime]]:
    """Lifetimes in which ``name`` ends as soon as it is stored."""

    def lifetimes(
        region: Region, scratch: Mapping[str, Sequence[str]], order: Sequence[Launch]
    ) -> dict[str, Lifetime]:
        found = lifetimes_of(region, scratch, order)
        return {**found, name: Lifetime(found[name].first, found[name].first)}

    lifetimes_of = lowering._lifetimes
    return lifetimes


@pytest.mark.unverified
@pytest.mark.parametrize(("which", "name"), [("chain", "b"), ("skips", "a"), ("skips", "b")])
def test_a_lifetime_that_ends_too_early_is_refused(
    which: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tensor takes its place before it is read again."""
    net, right, _ = compiled_net(which)
    monkeypatch.setattr(lowering, "_lifetimes", shortened(name))
    with pytest.raises(
        VTAError,
        match=rf"the program is not safe to run: .* reuse: reads byte \d+ "
        rf"of temp {name}, which instruction .* stored for \w+; ",
    ):
        compile_module(net.module(net.result), CONFIG, scopes=DRAM_ONLY)
    monkeypatch.setattr(lowering, "check", lambda program: None)
    options = BuildOptions(CONFIG, scopes=DRAM_ONLY)
    (program,) = compile_programs(net.module(net.result), options=options).values()
    assert {v.rule for v in verify(program)} == {"reuse"}
    inputs = region_inputs(right, net)
    with pytest.raises(VTAError, match=rf"DRAM byte \d+ of {name} is needed but \w+ was stored "):
        run_interleaved(program, inputs)


@pytest.mark.unverified
def test_what_spoils_a_tensor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all tensors apart nothing is wrong with the program, and it is found all the same."""
    net = chain_net()
    monkeypatch.setattr(lowering, "_lifetimes", shortened("b"))
    monkeypatch.setattr(lowering, "check", lambda program: None)
    mod = net.module(net.result)
    compiled = compile_module(mod, CONFIG, scopes=DRAM_ONLY)
    (program,) = compiled.programs.values()
    assert verify(program.without_sharing()) == []
    found = compare_with_reference(mod, compiled, net.inputs(), implementation("sim"))
    assert found is not None and found.tensor is not None and found.tensor.name == "join"
    reads = [v for v in verify(program) if v.rule == "reuse"]
    assert (found.index, found.layer) == (reads[0].other, "d")
    assert found.cause == f"it overwrites b, which instruction {reads[0].index} reads"


def region_inputs(compiled: Compiled, net: IntegerNet) -> dict[str, np.ndarray]:
    (run,) = profile(compiled.exe, net.inputs(), arenas=True).regions
    (program,) = compiled.programs.values()
    assert run.arena is not None
    return {s.name: program.view(run.arena, s.name).copy() for s in program.of_kind("input")}


@pytest.mark.unverified
def test_a_result_that_ends_too_early_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net = IntegerNet(x=(1, 16, 8, 8))
    first = net.conv(net.params[0], 16, name="first")
    mod = net.module(first, net.conv(first, 16, name="second"), net.conv(first, 32, name="third"))
    compile_module(mod, CONFIG, scopes=DRAM_ONLY)
    early = Lifetime(1, 1)
    found = lowering._lifetimes
    monkeypatch.setattr(lowering, "_lifetimes", lambda *of: {**found(*of), "second": early})
    with pytest.raises(VTAError, match="symbol: output .* and output .* overlap at byte"):
        compile_module(mod, CONFIG, scopes=DRAM_ONLY)


def test_addresses_move_with_their_symbol_also_wrong_ones() -> None:
    """A STORE one element beside its place is one element beside it where tensors lie apart."""
    _, _, program = compiled_net("chain")
    isa = ISA.of(CONFIG)
    index = max(r.index for r in program.relocations)
    insns = program.insns.copy()
    insn = isa.decode(*insns[index].tolist())
    values = {k: v for k, v in insn.fields.items() if k != "opcode"}

    def moved(base: int) -> int:
        insns[index] = isa.encode(insn.opcode, **{**values, "dram_base": base})
        apart = dataclasses.replace(program, insns=insns).without_sharing()
        return isa.decode(*apart.insns[index].tolist())["dram_base"]

    places = {s.name: s.offset for s in program.symbols}
    (join,) = (s for s in program.without_sharing().symbols if s.name == "join")
    distance = (join.offset - places["join"]) // CONFIG.out_elem_bytes
    assert distance != 0
    for base in (insn["dram_base"], insn["dram_base"] + 1, (1 << 32) - 1):
        assert moved(base) == (base + distance) % (1 << 32)


# ---------------------------------------------------------------- symbols
def test_planned_symbols_lie_behind_the_image() -> None:
    symbols = [
        Symbol("x", "input", (10,), "int8", 1),
        Symbol("w", "const", (70,), "int8", 1),
        Symbol("a", "temp", (300,), "int8", 256),
        Symbol("b", "temp", (100,), "int8", 1),
        Symbol("part", "temp", (50,), "int8", 1, parent="a", inside=20),
        Symbol("y", "output", (100,), "int8", 1),
    ]
    plan = ArenaPlan({"a": 0, "y": 128}, 300, 256)
    placed, *marks = place_symbols(symbols, plan)
    offsets = {s.name: s.offset for s in placed}
    assert offsets == {"x": 0, "w": 64, "a": 256, "y": 384, "part": 276, "b": 576}
    assert marks == [64, 192, 704]


def test_parents_must_be_declared_and_end() -> None:
    one, two = (Symbol(a, "temp", (1,), "int8", 1, parent=b) for a, b in ("pq", "qp"))
    for by_name in ({"p": one, "q": two}, {"p": one}):
        with pytest.raises(VTAError) as err:
            root_of(one, by_name)
        assert str(err.value) == (
            "symbol p lies in no whole symbol; its parents must be declared and end; link the "
            "program again"
        )


# ---------------------------------------------------------------- the builder
def three_sums(
    lifetimes: dict[str, Lifetime] | None,
) -> tuple[ProgramBuilder, Inputs, np.ndarray]:
    """x + x, and twice more; with its inputs and what it must compute."""
    work = add_work((1, 16, 5, 5), 0, 0, 0, 1)
    builder, rng = ProgramBuilder(CONFIG), np.random.default_rng(0)
    shape = packed_shape((1, 16, 5, 5), CONFIG, "int8")
    names = ("x", "one", "two", "three")
    for name, kind in zip(names, ("input", "temp", "temp", "output"), strict=True):
        builder.symbol(name, kind, shape, "int8")
    schedule = ELEMENTWISE.choose(LayerWork(work), CONFIG)
    (scales,) = ELEMENTWISE.constants(schedule, {}, CONFIG)
    builder.constant("scales", scales)
    if lifetimes is not None:
        builder.share(lifetimes)
    value = random_int8(rng, 1, 16, 5, 5)
    inputs = {"x": pack_activation(value, CONFIG)}
    for source, name in pairwise(names):
        value = numpy_elementwise(work, [value, value])
        for kernel in ELEMENTWISE.functions(schedule, CONFIG):
            args = [source, source, "scales", name]
            builder.layer(name, kernel.func, [args[i] for i in kernel.args])
    return builder, inputs, value


ALIVE = {"one": Lifetime(0, 1), "two": Lifetime(1, 2), "three": Lifetime(2, 3)}


@pytest.mark.parametrize(
    ("lifetimes", "shared"),
    [(None, 0), (ALIVE, 1), ({"one": ALIVE["one"]}, 0), ({}, 0)],
    ids=["none", "all", "one of three", "empty"],
)
def test_lifetimes_by_hand(lifetimes: dict[str, Lifetime] | None, shared: int) -> None:
    """A tensor without a lifetime keeps its place; the program is right either way."""
    builder, inputs, expected = three_sums(lifetimes)
    program = builder.finish()
    place = aligned(program.symbol("x").nbytes, program.symbol("x").align)
    assert program.unshared_bytes - program.peak_bytes == shared * place
    assert program.shares() == bool(shared)
    assert verify(program) == []
    for policy in POLICIES:
        packed = run_interleaved(program, inputs, policy).outputs["three"]
        np.testing.assert_array_equal(packed, pack_activation(expected, CONFIG))


def test_the_builder_refuses() -> None:
    builder = ProgramBuilder(CONFIG)
    builder.symbol("x", "input", (16,), "int8")
    for name in ("x", "z"):
        with pytest.raises(CodegenError) as err:
            builder.share({name: Lifetime(0, 1)})
        assert str(err.value) == (
            f"a lifetime for {name}; only temporaries and outputs that are declared have one; "
            "declare it first"
        )
    with pytest.raises(CodegenError) as err:
        three_sums({})[0].share({})
    assert str(err.value) == (
        "share() after 3 layers; tokens depend on which tensors share bytes; call it before the "
        "first layer"
    )
