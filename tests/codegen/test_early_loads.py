"""The order of loads: results stay the same, and what waits for nothing comes before what waits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from vta_byoc.codegen.early_loads import LOADS, early_loads
from vta_byoc.codegen.load_parts import Part, parts, units
from vta_byoc.codegen.stream import DRAM, Insn, TokenAssigner
from vta_byoc.codegen.uops import Kernel
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, PADS, MemType, Opcode, Queue
from vta_byoc.hw.timing.engine import simulate_stream

CONFIG = VTAConfig.preset("pynq")
BYTES = {"inp": CONFIG.inp_elem_bytes, "wgt": CONFIG.wgt_elem_bytes}
MEMORY = {"inp": MemType.INP, "wgt": MemType.WGT}


def load(
    space: str,
    tensor: str,
    dram: int,
    at: int,
    size: int,
    layer: int,
    rows: tuple[int, int] = (1, 0),
) -> Insn:
    """A LOAD of ``rows`` (number, stride) of ``size`` elements of a tensor to SRAM ``at``."""
    count, stride = rows[0], rows[1] or size
    fields = {"mem_type": int(MEMORY[space]), "sram_base": at, "y_size": count, "x_size": size}
    fields |= {"x_stride": stride, **dict.fromkeys(PADS, 0)}
    last = dram + (count - 1) * stride + size
    reads = [(DRAM + tensor, dram * BYTES[space], last * BYTES[space])]
    writes = [(space, at, at + count * size)]
    return Insn(
        Opcode.LOAD, Queue.LOAD, fields, reads, writes, symbol=tensor, addend=dram, layer=layer
    )


def gemm(inp: tuple[int, int], wgt: tuple[int, int], acc: int, layer: int, steps: int) -> Insn:
    fields = {"iter_out": 1, "iter_in": steps}
    reads, writes = [("inp", *inp), ("wgt", *wgt)], [("acc", acc, acc + 4)]
    kernel = Kernel([(0, 0, 0)])
    return Insn(Opcode.GEMM, Queue.COMPUTE, fields, reads, writes, layer=layer, kernel=kernel)


def store(acc: int, tensor: str, layer: int) -> Insn:
    fields = {"mem_type": int(MemType.OUT), "sram_base": acc, "y_size": 1, "x_size": 4}
    fields |= {"x_stride": 4, **dict.fromkeys(PADS, 0)}
    writes = [(DRAM + tensor, 0, 4 * BYTES["inp"])]
    return Insn(Opcode.STORE, Queue.STORE, fields, [("acc", acc, acc + 4)], writes, layer=layer)


def two_layers(at: int, source: str = "a") -> list[Insn]:
    """The second layer reads ``source``; its weights lie from SRAM element ``at``."""
    return [
        load("wgt", "v", 0, 0, 16, 0),
        load("inp", "x", 0, 0, 4, 0),
        gemm((0, 4), (0, 16), 0, 0, 9000),
        store(0, "a", 0),
        load("inp", source, 0, 8, 4, 1),
        load("wgt", "w", 0, at, 16, 1),
        gemm((8, 12), (at, at + 16), 8, 1, 100),
        store(8, "b", 1),
    ]


def place_of(stream: Iterable[Insn], symbol: str) -> int:
    return next(n for n, insn in enumerate(stream) if insn.symbol == symbol)


def test_weights_come_while_the_layer_before_computes() -> None:
    stream = early_loads(two_layers(64), CONFIG)
    opcodes = [insn.opcode for insn in stream]
    assert place_of(stream, "w") < opcodes.index(Opcode.STORE) < place_of(stream, "a")
    moved = stream[place_of(stream, "w")]
    assert (moved.layer, stream[place_of(stream, "a")].layer) == (0, 1)


def test_weights_wait_for_their_place() -> None:
    """The place is that of the weights that are read: behind the computation, and no further."""
    stream = early_loads(two_layers(8), CONFIG)
    assert place_of(stream, "w") > [insn.opcode for insn in stream].index(Opcode.GEMM)


def test_what_needs_no_load_begins_before_the_first_one() -> None:
    """A reset waits for nothing: both start at once, and the order is the program's."""
    reset = dataclasses.replace(gemm((0, 4), (0, 16), 0, 0, 100), reads=[])
    stream = early_loads([reset, *two_layers(64)], CONFIG)
    assert computed_before(stream, "v") == 1


def test_an_order_without_results_stays() -> None:
    """Nothing waits for a STORE: the inputs of both layers are the program's."""
    given = two_layers(64, source="y")
    symbols = [insn.symbol for insn in early_loads(given, CONFIG) if insn.queue == Queue.LOAD]
    assert symbols.index("y") < symbols.index("w")


@pytest.mark.parametrize("ahead", [False, True])
def test_weights_ahead_do_not_wait_for_other_constants(ahead: bool) -> None:
    """A constant input waits for its place, which the layer before reads last."""
    given = two_layers(64)
    given.insert(5, load("inp", "y", 0, 20, 4, 1))
    given.insert(4, gemm((20, 24), (0, 16), 4, 0, 9000))
    stream = early_loads(given, CONFIG, ahead)
    assert place_of(stream, "a") < place_of(stream, "y")
    assert (place_of(stream, "w") < place_of(stream, "a")) == ahead


def with_other_work(*steps: int) -> list[Insn]:
    """Between the layers are computations that wait for neither; the last one reads the result."""
    given = two_layers(64)
    del given[5]
    given[4] = load("inp", "a", 0, 8, 40, 1)
    given[5] = gemm((8, 48), (0, 16), 8, 1, 100)
    others = [gemm((0, 4), (0, 16), 12 + 4 * k, 0, count) for k, count in enumerate(steps)]
    return given[:4] + others + given[4:]


def computed_before(stream: Sequence[Insn], symbol: str) -> int:
    return sum(insn.kernel is not None for insn in stream[: place_of(stream, symbol)])


def test_the_compute_queue_tells_of_a_store_before_it_is_busy_for_long() -> None:
    """The STORE ends just after the second computation begins, which is better begun a bit later
    than the LOAD much later; where others follow that one, nothing waits for the LOAD."""
    assert computed_before(early_loads(with_other_work(9000), CONFIG), "a") == 1
    assert computed_before(early_loads(with_other_work(9000, 9000), CONFIG), "a") == 2


def test_the_earlier_place_of_a_load_saves_cycles() -> None:
    given = with_other_work(9000)
    assert cycles(early_loads(given, CONFIG)) < cycles(given)


def cycles(insns: Iterable[Insn]) -> int:
    """Simulated, with the tokens that the order needs."""
    tokens = TokenAssigner(255)
    for insn in insns:
        tokens.add(dataclasses.replace(insn, fields=insn.fields | {"uop_end": 1}))
    tokens.finish(0)
    isa = ISA.of(CONFIG)
    words = [isa.encode(insn.opcode, **_fields(insn)) for insn in tokens.out]
    return simulate_stream(CONFIG, np.array(words, np.uint64)).cycles


def _fields(insn: Insn) -> dict[str, int]:
    computes = insn.kernel is not None
    return insn.fields if computes else {k: v for k, v in insn.fields.items() if k != "uop_end"}


@pytest.mark.parametrize(("preset", "first"), [("pynq", "a"), ("chisel", "w")])
def test_nothing_passes_the_port_before_a_store_that_is_waited_for(preset: str, first: str) -> None:
    """Both have its end to wait for; where stores have a channel of their own, weights pass."""
    given = two_layers(8)
    given[3].fields |= {"x_size": 2000, "x_stride": 2000}
    stream = early_loads(given, VTAConfig.preset(preset))
    assert min("aw", key=lambda symbol: place_of(stream, symbol)) == first


def test_what_is_given_is_left_as_it_is() -> None:
    given = two_layers(64)
    before = [(insn.fields.copy(), insn.layer) for insn in given]
    early_loads(given, CONFIG)
    assert [(insn.fields, insn.layer) for insn in given] == before


# ------------------------------------------------------------------ all orders give the same
def played(stream: Iterable[Insn]) -> dict[str, np.ndarray]:
    """The memories after a stream was run from first to last, on names of values."""
    memory = {space: np.zeros(64, np.int64) for space in ("inp", "wgt", "acc")}
    memory |= {name: np.arange(64) + 1000 * k for k, name in enumerate("abvwx")}
    for insn in stream:
        if insn.opcode == Opcode.LOAD:
            _load(memory, insn)
        elif insn.opcode == Opcode.GEMM:
            (_, i, j), (_, k, m) = insn.reads
            ((_, low, high),) = insn.writes
            read = np.concatenate([memory["inp"][i:j], memory["wgt"][k:m]])
            digest = int((read * np.arange(1, len(read) + 1)).sum()) % 1_000_003
            memory["acc"][low:high] = memory["acc"][low:high] * 31 % 1_000_003 + digest
        else:
            (_, low, high), (tensor, *_) = insn.reads[0], insn.writes[0]
            memory[tensor.removeprefix(DRAM)][:4] = memory["acc"][low:high]
    return memory


def _load(memory: dict[str, np.ndarray], insn: Insn) -> None:
    fields, at = insn.fields, insn.fields["sram_base"]
    space = insn.writes[0][0]
    for row in range(fields["y_size"]):
        source = insn.addend + row * fields["x_stride"]
        brought = memory[insn.symbol][source : source + fields["x_size"]]
        memory[space][at : at + len(brought)] = brought
        at += len(brought)
    assert insn.writes == [(space, fields["sram_base"], at)]


def drawn(rng: np.random.Generator) -> list[Insn]:
    insns: list[Insn] = []
    for layer in range(int(rng.integers(2, 6))):
        for _ in range(int(rng.integers(1, 4))):
            inp, wgt = int(rng.integers(40)), int(rng.integers(8))
            rows = int(rng.integers(1, 4)), int(rng.integers(9, 12))
            source = str(rng.choice(list("abx")))
            insns += [
                load("inp", source, 0, inp, 4, layer),
                load(
                    "wgt", str(rng.choice(["v", "w"])), int(rng.integers(16)), wgt, 9, layer, rows
                ),
                gemm((inp, inp + 4), (wgt, wgt + 9), int(rng.integers(9)), layer, 500),
            ]
        insns.append(store(int(rng.integers(9)), str(rng.choice(["a", "b"])), layer))
    return insns


@pytest.mark.parametrize("ahead", [False, True])
def test_every_order_gives_the_same(ahead: bool) -> None:
    changed = 0
    for seed in range(120):
        insns = drawn(np.random.default_rng(seed))
        stream = early_loads(insns, CONFIG, ahead)
        expected, found = played(insns), played(stream)
        for name, values in expected.items():
            assert np.array_equal(found[name], values), (seed, name)
        rest = [[i for i in s if i.queue != Queue.LOAD] for s in (insns, stream)]
        assert all(a is b for a, b in zip(*rest, strict=True)), "these keep their order"
        layers = [insn.layer for insn in stream]
        assert layers == sorted(layers), seed
        changed += [i.symbol for i in insns] != [i.symbol for i in stream]
    assert changed > 80, changed


# ------------------------------------------------------------------ parts
@pytest.mark.parametrize("rows", [(1, 0), (6, 0), (6, 9)])
def test_parts_bring_what_the_whole_brings(rows: tuple[int, int]) -> None:
    whole = load("wgt", "w", 3, 5, 8, 0, rows)
    cut = parts(whole, 6 * 300, 2 * 300)
    assert len(cut) > 1 and sum(part.end - part.begin for part in cut) == units(whole)
    memories = [played([whole]), played([part.insn for part in cut])]
    assert np.array_equal(memories[0]["wgt"], memories[1]["wgt"])
    low, high = cut[0].insn.reads[0][1], cut[-1].insn.reads[0][2]
    assert (whole.reads[0][1], whole.reads[0][2]) == (low, high)


@pytest.mark.parametrize("cycles", [0, 1])
def test_a_load_of_no_time_is_one_part(cycles: int) -> None:
    assert parts(load("wgt", "w", 3, 5, 8, 0, (6, 0)), cycles, 1) == [
        Part(load("wgt", "w", 3, 5, 8, 0, (6, 0)), 0, 6)
    ]


def test_parts_that_follow_are_one() -> None:
    whole = load("wgt", "w", 0, 0, 4, 0, (6, 7))
    first, second, third = (Part(whole, at, at + 2) for at in (0, 2, 4))
    joined = first.joined(second)
    assert joined == Part(whole, 0, 4)
    both = joined.joined(third)
    assert both is not None and both.insn is whole
    assert first.joined(third) is None, "a gap"
    assert first.joined(Part(load("wgt", "w", 0, 0, 4, 0, (6, 7)), 2, 4)) is None, "another LOAD"


def test_what_has_no_parts() -> None:
    """Inputs, padding and other instructions are one."""
    padded = load("wgt", "w", 0, 0, 4, 0, (6, 0))
    padded.fields[PADS[0]] = 1
    others = (load("inp", "x", 0, 0, 8, 0, (6, 0)), padded, store(0, "a", 0))
    assert [[part.insn for part in parts(insn, 9000, 10)] for insn in others] == [
        [insn] for insn in others
    ]


def test_each_kind_of_load_keeps_an_order_of_its_own() -> None:
    """Constants and weights of three layers in turn, and what waits for results."""
    assert len(set(LOADS)) == 7
