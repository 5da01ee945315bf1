"""Dependency tokens: every conflict ordered, nothing deadlocked, nothing left over."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vta_byoc.codegen.stream import QUEUES, Insn, TokenAssigner, layer_spans, no_op
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import Opcode, Queue

LOAD, COMPUTE, STORE = QUEUES
LIMIT = 255


def insn(
    queue: Queue, reads: list[tuple[str, int, int]], writes: list[tuple[str, int, int]]
) -> Insn:
    opcode = {LOAD: Opcode.LOAD, COMPUTE: Opcode.GEMM, STORE: Opcode.STORE}[queue]
    return Insn(opcode, queue, {}, reads=reads, writes=writes)


def assigned(insns: list[Insn], limit: int = LIMIT) -> list[Insn]:
    tokens = TokenAssigner(limit)
    for i in insns:
        tokens.add(i)
    tokens.finish(0)
    return tokens.out


def sources(i: Insn) -> list[Queue]:
    return [
        QUEUES[i.queue + step]
        for flag, step in (("pop_prev", -1), ("pop_next", 1))
        if i.fields.get(flag)
    ]


def targets(i: Insn) -> list[Queue]:
    return [
        QUEUES[i.queue + step]
        for flag, step in (("push_prev", -1), ("push_next", 1))
        if i.fields.get(flag)
    ]


def finished_before(stream: list[Insn]) -> list[dict[Queue, int]]:
    """For each instruction, how many of each queue are certainly finished when it starts.

    Tokens are anonymous: the k-th pop takes the k-th push.
    """
    known: list[dict[Queue, int]] = []
    here = {q: dict.fromkeys(QUEUES, 0) for q in QUEUES}
    waiting: dict[tuple[Queue, Queue], list[dict[Queue, int]]] = {}
    for i in stream:
        clock = dict(here[i.queue])
        for source in sources(i):
            pending = waiting.get((source, i.queue), [])
            assert pending, "a token is popped before it is pushed"
            token = pending.pop(0)
            clock = {q: max(clock[q], token[q]) for q in QUEUES}
        known.append(dict(clock))
        clock[i.queue] += 1
        here[i.queue] = clock
        for target in targets(i):
            waiting.setdefault((i.queue, target), []).append(dict(clock))
    assert not any(waiting.values()), "tokens are left"
    return known


def conflicts(a: Insn, b: Insn) -> bool:
    def touch(left: list[tuple[str, int, int]], right: list[tuple[str, int, int]]) -> bool:
        pairs = itertools.product(left, right)
        return any(s == t and lo < hi2 and lo2 < hi for (s, lo, hi), (t, lo2, hi2) in pairs)

    return touch(a.writes, b.reads + b.writes) or touch(a.reads, b.writes)


def check(stream: list[Insn]) -> None:
    """Every earlier conflicting instruction of another queue is finished."""
    known = finished_before(stream)
    place = {q: 0 for q in QUEUES}
    numbers = []
    for i in stream:
        numbers.append(place[i.queue])
        place[i.queue] += 1
    for late, early in itertools.combinations(range(len(stream) - 1, -1, -1), 2):
        a, b = stream[early], stream[late]
        if a.queue != b.queue and conflicts(a, b):
            assert known[late][a.queue] > numbers[early], f"{late} does not wait for {early}"
    assert stream[-1].opcode == Opcode.FINISH
    assert known[-1] == {q: place[q] - (q == COMPUTE) for q in QUEUES}, "FINISH waits for all"


def random_interval(rng: np.random.Generator, space: str) -> tuple[str, int, int]:
    low = int(rng.integers(0, 30))
    return space, low, low + int(rng.integers(1, 12))


def random_stream(rng: np.random.Generator, count: int) -> list[Insn]:
    """Loads, computes and stores over few elements; loads and stores also meet in DRAM."""
    kinds = {
        LOAD: (["dram.a", "dram.b"], ["inp", "wgt"]),
        COMPUTE: (["inp", "wgt", "acc", "dram.a"], ["acc"]),
        STORE: (["acc"], ["dram.a", "dram.b"]),
    }
    insns = []
    for _ in range(count):
        queue = QUEUES[int(rng.integers(3))]
        reads, writes = (
            [random_interval(rng, str(rng.choice(spaces))) for _ in range(int(rng.integers(1, 3)))]
            for spaces in kinds[queue]
        )
        insns.append(insn(queue, reads, writes))
    return insns


@pytest.mark.parametrize("seed", range(60))
def test_random_streams(seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(assigned(random_stream(rng, int(rng.integers(1, 60)))))


def test_number_of_tokens() -> None:
    """Few tokens and few instructions that only move them; smaller numbers are improvements."""
    rng = np.random.default_rng(0)
    streams = [random_stream(rng, 40) for _ in range(20)]
    outs = [assigned(stream) for stream in streams]
    for out in outs:
        check(out)
    tokens = sum(len(sources(i)) for out in outs for i in out)
    no_ops = sum(len(out) - len(stream) - 2 for out, stream in zip(outs, streams, strict=True))
    assert (tokens, no_ops) == (587, 154)


def test_independent_instructions_need_no_tokens() -> None:
    stream = assigned([insn(LOAD, [], [("inp", 0, 4)]), insn(COMPUTE, [("inp", 4, 8)], [])])
    assert not sources(stream[1])
    assert len(stream) == 4, "the two, the barrier, FINISH"


def test_one_token_for_many_loads() -> None:
    """The last of three loads is enough to wait for."""
    loads = [insn(LOAD, [], [("inp", k, k + 1)]) for k in range(3)]
    stream = assigned([*loads, insn(COMPUTE, [("inp", 0, 3)], [("acc", 0, 1)])])
    assert [targets(i) for i in stream[:3]] == [[], [], [COMPUTE]]
    assert sources(stream[3]) == [LOAD]


def test_what_is_known_is_not_asked_again() -> None:
    load = insn(LOAD, [], [("inp", 0, 1)])
    users = [insn(COMPUTE, [("inp", 0, 1)], [("acc", k, k + 1)]) for k in range(3)]
    stream = assigned([load, *users])
    assert [bool(sources(i)) for i in stream[1:4]] == [True, False, False]


def test_load_after_store_goes_through_compute() -> None:
    """Load and store share no token queue: a no-op of the compute queue relays."""
    stream = assigned(
        [insn(STORE, [("acc", 0, 1)], [("dram.a", 0, 64)]), insn(LOAD, [("dram.a", 0, 16)], [])]
    )
    relay = stream[1]
    assert (relay.queue, relay.fields["mem_type"], relay.reads) == (COMPUTE, 0, [])
    assert (sources(relay), targets(relay)) == ([STORE], [LOAD])
    assert sources(stream[2]) == [COMPUTE]
    check(stream)


def test_relay_that_is_there_already() -> None:
    """A compute instruction that waited for the store itself serves as relay."""
    stream = assigned(
        [
            insn(STORE, [("acc", 0, 1)], [("dram.a", 0, 64)]),
            insn(COMPUTE, [], [("acc", 0, 1)]),
            insn(LOAD, [("dram.a", 0, 16)], []),
        ]
    )
    assert [i.queue for i in stream[:3]] == [STORE, COMPUTE, LOAD]
    assert targets(stream[1]) == [LOAD]
    check(stream)


@pytest.mark.parametrize("queue", [LOAD, STORE])
def test_relay_and_compute_in_one_token(queue: Queue) -> None:
    """An instruction that waits for the far queue and for compute pops one token, not two."""
    far = STORE if queue == LOAD else LOAD
    stream = assigned(
        [
            insn(COMPUTE, [("inp", 0, 4)], [("acc", 0, 4)]),
            insn(far, [], [("dram.a", 0, 64)]),
            insn(queue, [("acc", 0, 4), ("dram.a", 0, 64)], [("inp", 0, 4)]),
        ]
    )
    check(stream)
    assert sum(len(targets(i)) for i in stream) == sum(len(sources(i)) for i in stream)


def test_barrier_before_finish() -> None:
    stream = assigned([insn(LOAD, [], [("inp", 0, 1)]), insn(STORE, [("acc", 0, 1)], [])])
    assert stream[-2].fields["mem_type"] == 0
    assert set(sources(stream[-2])) == {LOAD, STORE}
    assert not sources(stream[-1])


def flood(count: int) -> list[Insn]:
    """Loads that compute must see one by one while nothing holds the load queue back."""
    pairs = (
        (insn(LOAD, [], [("inp", k, k + 1)]), insn(COMPUTE, [("inp", k, k + 1)], []))
        for k in range(count)
    )
    return [i for pair in pairs for i in pair]


def test_outstanding_tokens() -> None:
    check(assigned(flood(LIMIT)))
    check(assigned(flood(8), limit=8))
    with pytest.raises(VTAError, match="^9 tokens from LOAD to COMPUTE may be outstanding"):
        assigned(
            [*flood(9), insn(STORE, [], [("acc", 0, 1)]), insn(COMPUTE, [("acc", 0, 1)], [])], 8
        )
    with pytest.raises(
        VTAError,
        match="256 tokens from LOAD to COMPUTE may be outstanding; the machine counts to 255; "
        "raise CAPABILITIES.max_tokens to 256 or more in the configuration file",
    ):
        assigned(flood(LIMIT + 1))


def test_layer_spans() -> None:
    stream = [no_op(k) for k in (0, 0, 1, 0, 2, 2)]
    assert layer_spans(stream) == [(0, 0, 2), (1, 2, 3), (0, 3, 4), (2, 4, 6)]
