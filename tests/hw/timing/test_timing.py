"""The timing simulator: the table worked by hand, the cycle-stepped model, what it refuses."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conv_cases import (
    NetBuilder,
    add_work,
    conv_case,
    conv_tile,
    random_tile,
    random_work,
    rescale,
)
from draws import draws, least
from timing_cases import HAND, SIM, alu, gemm, load, no_op, store, stream

from vta_byoc.base.rewrites import without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, Instruction, MemType, Queue
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.reference.cycle_model import run_cycles
from vta_byoc.hw.testing.random_programs import random_stream
from vta_byoc.hw.timing.engine import simulate, simulate_stream
from vta_byoc.hw.timing.result import STALLS, TOKEN, TimingResult
from vta_byoc.hw.timing.work import jobs_of
from vta_byoc.hw.timing_parameters import Timing
from vta_byoc.workload.workloads import Conv2dWorkload

PROGRAMS = draws(600, 1000)
PROFILES = ("default", "chisel", "core")
DOC = Path(__file__).resolve().parents[3] / "docs" / "timing.md"


# ---------------------------------------------------------------- worked by hand
@pytest.mark.parametrize("name", HAND)
def test_worked_by_hand(name: str) -> None:
    insns, timing, spans, cycles = HAND[name]
    result = simulate_stream(SIM, insns, timing)
    assert [(i.start, i.end) for i in result.instructions] == spans
    assert result.cycles == cycles
    model = run_cycles(SIM, insns, timing)
    assert list(zip(model.start, model.end, strict=True)) == spans


def test_the_document_states_the_same_table() -> None:
    text = DOC.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z ]+): .*\| (\d+) \|$", text, re.MULTILINE)
    assert {name: int(cycles) for name, cycles in rows} == {n: c[-1] for n, c in HAND.items()}


def stalls_of(name: str) -> dict[Queue, dict[str, int]]:
    """The stalls of a case worked by hand, zeros left out."""
    insns, timing, *_ = HAND[name]
    queues = simulate_stream(SIM, insns, timing).queues
    return {q: {r: n for r, n in t.stalls.items() if n} for q, t in queues.items()}


def test_stalls_worked_by_hand() -> None:
    assert stalls_of("port") == {
        Queue.LOAD: {"fetch": 38, "memory port": 32},
        Queue.COMPUTE: {"fetch": 38, "memory port": 32},
        Queue.STORE: {},
    }
    assert stalls_of("bursts")[Queue.COMPUTE] == {"fetch": 64 + 18}
    assert stalls_of("full")[Queue.COMPUTE] == {"fetch": 40, "full queue": 40}
    assert stalls_of("token")[Queue.COMPUTE] == {"fetch": 38, "token from load": 41}
    assert stalls_of("store") == {
        Queue.LOAD: {},
        Queue.COMPUTE: {"fetch": 40, "token from store": 50},
        Queue.STORE: {"fetch": 40, "token from compute": 19},
    }


def test_two_missing_tokens_are_blamed_in_turn() -> None:
    insns = stream(
        load(MemType.INP, 1, 4, push_next=1),
        store(1, 40, push_prev=1),
        no_op(pop_prev=1, pop_next=1),
    )
    stalls = simulate_stream(SIM, insns).instructions[2].stalls
    # load 40-80, its token 81; store asks in 72, gets the port in 80 for 80 cycles, token 161
    assert stalls == {"fetch": 40, "token from load": 41, "token from store": 80}


def test_startup_and_drained() -> None:
    insns, timing, *_ = HAND["compute"]
    time = simulate_stream(SIM, insns, timing).queues
    assert (time[Queue.COMPUTE].busy, time[Queue.COMPUTE].startup) == (155 - 42, 40)
    assert (time[Queue.LOAD].instructions, time[Queue.LOAD].drained) == (0, 155)
    padded = simulate_stream(SIM, HAND["padding"][0]).queues[Queue.LOAD]
    assert padded.startup == 32 - 7


# ---------------------------------------------------------------- the second model
def assert_consistent(result: TimingResult) -> None:
    """Every cycle of every queue is accounted for once, every byte and row of the port too."""
    for time in result.queues.values():
        assert time.cycles == result.cycles
        assert 0 <= time.startup <= time.busy and time.drained >= 0
        assert min(time.stalls.values()) >= 0
    width = result.timing.port_bytes
    for name, cycles in result.port.items():
        assert cycles == sum(r.end - r.start for r in result.rows if r.requester == name)
        assert result.port_bytes[name] <= cycles * width
    written = [r for r in result.rows if r.requester == "store"]
    apart = result.timing.profile in ("chisel", "core")
    read = [r for r in result.rows if not apart or r.requester != "store"]
    for channel in (read, written):
        assert all(a.end <= b.start for a, b in itertools.pairwise(channel))


def assert_models_agree(config: VTAConfig, insns: np.ndarray, timing: Timing) -> TimingResult:
    result, model = simulate_stream(config, insns, timing), run_cycles(config, insns, timing)
    assert [i.start for i in result.instructions] == model.start
    assert [i.end for i in result.instructions] == model.end
    assert [i.stalls for i in result.instructions] == [dict(s) for s in model.stalls]
    assert result.cycles == model.cycles
    assert_consistent(result)
    return result


def random_timing(rng: np.random.Generator) -> Timing:
    """Parameters at their extremes, three times in ten the default ones."""
    if rng.random() < 0.3:
        return Timing.of(str(rng.choice(PROFILES)))
    choices = {
        "write_latency": (0, 1, 7),
        "load_start": (0, 6),
        "fetch_start": (0, 3, 13),
        "port_bytes": (4, 8, 16, 64),
        "dma_latency": (0, 1, 5, 32),
        "fetch_burst": (1, 2, 5, 16),
        "queue_depth": (1, 2, 4, 32),
        "compute_start": (0, 1, 10),
        "alu_imm_cycles": (1, 2, 3),
        "alu_tensor_cycles": (1, 2, 4),
        "token_latency": (0, 1, 3),
    }
    values = {name: int(rng.choice(values)) for name, values in choices.items()}
    return Timing(str(rng.choice(PROFILES)), **values)


@pytest.mark.parametrize("preset", ["sim", "tophub_4x8", "2x16", "1x32"])
def test_both_models_agree_on_random_programs(preset: str) -> None:
    config, seen = VTAConfig.preset(preset), Counter[str]()
    for seed in range(PROGRAMS // 4):
        rng = np.random.default_rng([seed, config.log_block, config.log_batch])
        insns, _ = random_stream(config, rng, int(rng.integers(6, 20)))
        result = assert_models_agree(config, insns, random_timing(rng))
        for queue in result.queues.values():
            seen.update({reason: int(count > 0) for reason, count in queue.stalls.items()})
    print(f"{PROGRAMS // 4} programs; queues that stalled: {dict(seen)}")
    assert min(seen[reason] for reason in STALLS) >= 5


@pytest.mark.parametrize("preset", ["sim", "pynq", "core"])
def test_work_is_that_of_each_instruction_alone(preset: str) -> None:
    """Equal work is found by the words; nothing that time depends on is left out of them."""
    config, rng = VTAConfig.preset(preset), np.random.default_rng(5)
    for _ in range(20):
        insns, _ = random_stream(config, rng, 30)
        timing = random_timing(rng)
        alone = [jobs_of(config, insns[[i, -1]], timing)[0] for i in range(len(insns) - 1)]
        assert jobs_of(config, insns, timing)[:-1] == alone


def test_transfers_that_differ_in_place_only_have_one_work() -> None:
    loads = [load(MemType.WGT, 2, 3, sram_base=at, dram_base=7 * at) for at in range(9)]
    stores = [store(1, 4, sram_base=at, dram_base=at) for at in range(9)]
    jobs = jobs_of(SIM, stream(*loads, *stores), SIM.timing)
    assert len({id(job) for job in jobs[:-1]}) == 2


def test_both_models_agree_on_convolutions() -> None:
    count = 0
    seeds = draws(20, 40)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        fixed = {"batch": 1, "in_channels": int(rng.integers(1, 40)), "dilation": (1, 1)}
        work = random_work(rng, **fixed, kernel=(3, 3) if seed % 2 else (1, 1))
        tile = random_tile(rng, work, SIM)
        if tile is None or work.macs > 400_000:
            continue
        insns = conv_case(work, SIM, tile, seed).program.insns
        assert_models_agree(SIM, insns, random_timing(rng))
        count += 1
    assert count >= least(15, seeds, 40)


def with_damaged_tokens(insns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A copy in which one token flag of one instruction is flipped where its queue has it."""
    isa, insns = ISA.of(SIM), insns.copy()
    while True:
        index, bit = int(rng.integers(len(insns))), int(rng.integers(4))
        queue = isa.decode(*insns[index].tolist()).queue
        beside = {Queue.LOAD: (0, 2), Queue.STORE: (1, 3)}.get(queue, ())
        if bit not in beside:
            insns[index, 0] ^= np.uint64(8 << bit)
            return insns


def test_damaged_tokens_deadlock_in_both_models_or_in_none() -> None:
    deadlocks = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        insns, _ = random_stream(SIM, rng, 12)
        insns, timing = with_damaged_tokens(insns, rng), random_timing(rng)
        try:
            simulate_stream(SIM, insns, timing)
        except VTAError as error:
            assert re.match(r"the program deadlocks after cycle \d+: load .*, comp", str(error))
            with pytest.raises(VTAError, match="deadlock in cycle"):
                run_cycles(SIM, insns, timing)
            deadlocks += 1
        else:
            assert_models_agree(SIM, insns, timing)
    assert 20 <= deadlocks <= 100


# ---------------------------------------------------------------- whole programs
def small_net() -> Program:
    net = NetBuilder(SIM)
    net.input("x", 1, 32, 8, 8)
    work = Conv2dWorkload(1, 32, 32, 8, 8, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=rescale(9))
    net.conv("conv1", "x", work)
    net.conv("conv2", "conv1", work)
    net.add("sum", "conv2", "x", add_work((1, 32, 8, 8)), kind="output")
    return net.finish("sum").program


def test_layers_add_up() -> None:
    program = small_net()
    result = simulate(program)
    assert [layer.name for layer in result.layers] == ["conv1", "conv2", "sum"]
    assert sum(layer.cycles for layer in result.layers) == result.cycles
    for queue, time in result.queues.items():
        for reason in STALLS:
            parts = [layer.queues[queue].stalls[reason] for layer in result.layers]
            assert sum(parts) == time.stalls[reason]
        assert sum(layer.queues[queue].busy for layer in result.layers) == time.busy
    assert result.layers[0].start < result.layers[1].start < result.layers[2].start
    assert result.layers[2].finish == result.cycles
    assert result.port_bytes["load"] == sum(
        program.counters()[f"{m}_load_nbytes"] for m in ("inp", "wgt")
    )
    assert result.milliseconds == result.cycles / 100_000


def test_other_parameters_change_the_time_only() -> None:
    program = small_net()
    plain, slow = simulate(program), simulate(program, program.config.timing.with_alu("hls"))
    assert slow.cycles > plain.cycles
    assert slow.timing.alu_imm_cycles == 2 and slow.port_bytes == plain.port_bytes
    assert simulate(program) == plain


def test_a_wider_port_is_never_slower() -> None:
    program = small_net()
    cycles = [
        simulate(program, dataclasses.replace(SIM.timing, port_bytes=n)).cycles
        for n in (4, 8, 16, 32)
    ]
    assert cycles == sorted(cycles, reverse=True)


def test_two_slots_hide_the_loads_of_the_tutorial_convolution() -> None:
    """7 rows, 128 channels, 16 inputs a tile, as published, with a bias that it has not."""
    work = Conv2dWorkload(1, 256, 256, 14, 14, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=rescale(8, 0))
    with without(["bias_gemm", "skip_padding"]):
        one, two = (
            simulate(
                conv_case(work, SIM, conv_tile(work, 8, 7, 14, 1, "weights", (n, n, n))).program
            )
            for n in (1, 2)
        )
    gemm, epilogue = 451_584, 16 * 14 * 14 * (1 + 2 + 3)
    assert gemm + epilogue < two.cycles <= 480_000 < 600_000 < one.cycles
    loading = TOKEN[Queue.LOAD]
    assert one.queues[Queue.COMPUTE].stalls[loading] > 100_000
    assert two.queues[Queue.COMPUTE].stalls[loading] < 2_000


# ---------------------------------------------------------------- refusals
REFUSALS: dict[str, tuple[Callable[[], np.ndarray], str]] = {
    "empty": (
        lambda: np.zeros((0, 2), np.uint64),
        "program of 0 instructions; a program has at least FINISH; compile it again",
    ),
    "shape": (
        lambda: np.zeros(4, np.uint64),
        "instructions are uint64 (4,); they must be uint64 (n, 2); encode them with ISA.encode",
    ),
    "no finish": (
        lambda: stream(no_op())[:1],
        "program of 1 instructions: the stream ends without FINISH; FINISH must come last; the "
        "stream is corrupt: compile the program again",
    ),
    "finish first": (
        lambda: stream(no_op())[::-1],
        "instruction 0 (FINISH): FINISH is followed by 1 instructions; FINISH must come last; the "
        "stream is corrupt: compile the program again",
    ),
    "memory type": (
        lambda: stream(load(MemType.OUT, 1, 1)),
        "instruction 0 (LOAD OUT sram 0 dram 0x0 y 1 x 1 stride 1): memory type 4; LOAD takes UOP, "
        "WGT, INP, ACC, ACC_8BIT and STORE takes OUT; the stream is corrupt: compile the program "
        "again",
    ),
    "store pad": (
        lambda: stream(store(1, 1, x_pad_0=1)),
        "instruction 0 (STORE OUT sram 0 dram 0x0 y 1 x 1 stride 1 pad 0,0,1,0): padding on a "
        "STORE; STORE takes none; pad when loading instead",
    ),
    "micro-ops": (
        lambda: stream(gemm(1, uop_bgn=2)),
        "instruction 0 (GEMM MAC uop 2-1 iter 1,1 dst 0,0 src 0,0 wgt 0,0): micro-op 1; the range "
        "must rise and end by 8192; the program's compiler must keep inside it",
    ),
    "alu opcode": (
        lambda: stream(alu(1, 1, alu_opcode=6)),
        "instruction 0 (ALU ?6 uop 0-1 iter 1,1 dst 0,0 imm 0): ALU opcode 6; known ALU opcodes "
        "are 0 to 4; the stream is corrupt: compile the program again",
    ),
    "token flag": (
        lambda: stream(load(MemType.INP, 1, 1, pop_prev=1)),
        "instruction 0 (LOAD INP sram 0 dram 0x0 y 1 x 1 stride 1 [pop_prev]): a token flag points "
        "beside the queues; LOAD has no previous and STORE no next queue; the stream is corrupt: "
        "compile the program again",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_no_machine_can_run_is_refused(name: str) -> None:
    make, message = REFUSALS[name]
    with pytest.raises(VTAError) as error:
        simulate_stream(SIM, make())
    assert str(error.value) == message


def test_a_deadlock_names_what_each_queue_waits_for() -> None:
    insns = stream(
        load(MemType.INP, 1, 4, pop_next=1, push_next=1),
        gemm(1, pop_prev=1, push_prev=1),
        store(1, 1, pop_prev=1),
    )
    with pytest.raises(VTAError) as error:
        simulate_stream(SIM, insns)
    assert str(error.value) == (
        "the program deadlocks after cycle 40: load waits at instruction 0 (LOAD INP sram 0 dram "
        "0x0 y 1 x 4 stride 4 [pop_next push_next]) for a token from compute, compute waits at "
        "instruction 1 (GEMM MAC uop 0-1 iter 1,1 dst 0,0 src 0,0 wgt 0,0 [pop_prev push_prev]) "
        "for a token from load, store waits at instruction 2 (STORE OUT sram 0 dram 0x0 y 1 x 1 "
        "stride 1 [pop_prev]) for a token from compute; every pop needs a push that runs before "
        "it; correct the tokens"
    )


def test_a_full_queue_can_deadlock_what_tokens_alone_would_not() -> None:
    """The instruction that pushes cannot enter: its queue comes behind the full one."""
    insns = stream(*[no_op(Queue.LOAD, pop_next=1)] * 3, *[no_op(push_prev=1)] * 3)
    assert simulate_stream(SIM, insns).cycles == 51
    with pytest.raises(VTAError) as error:
        simulate_stream(SIM, insns, Timing(queue_depth=2))
    assert str(error.value) == (
        "the program deadlocks after cycle 46: load waits at instruction 0 (LOAD INP sram 0 dram "
        "0x0 y 0 x 0 stride 0 [pop_next]) for a token from compute, compute waits for instruction "
        "3 (LOAD UOP sram 0 dram 0x0 y 0 x 0 stride 0 [push_prev]) to be fetched, behind "
        "instruction 2 for the full load queue, store is done; every pop needs a push that runs "
        "before it; correct the tokens"
    )


def test_an_instruction_of_a_corrupt_stream_is_not_waited_for() -> None:
    """The longest loop an instruction can ask for takes no time to simulate."""
    longest = Instruction(*gemm(8191, 16383, 16383))
    insns = stream((longest.opcode, dict(longest.fields)))
    assert simulate_stream(SIM, insns).cycles == 36 + 10 + 8191 * 16383 * 16383 + 1


@pytest.mark.parametrize("name", ["queue_depth", "fetch_burst", "alu_imm_cycles"])
def test_parameters_that_make_no_machine(name: str) -> None:
    with pytest.raises(VTAError) as error:
        Timing(**{name: 0})
    assert str(error.value) == (
        f"configuration key TIMING.{name} is 0; it must be an integer from 1 to 1000000; correct "
        "it in the configuration file"
    )


def test_an_alu_that_nobody_built() -> None:
    with pytest.raises(VTAError, match="unknown ALU 'fast'; known: chisel, hls; choose one"):
        Timing().with_alu("fast")
