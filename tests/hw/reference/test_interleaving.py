"""Order-adversarial simulation: correct programs do not care, others are caught with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conv_cases import NetBuilder, add_work, conv_case, random_tile, random_work, rescale
from draws import draws
from hand_programs import Hand, inputs, product

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import AluOp, MemType, Queue
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.reference import numpy_model
from vta_byoc.hw.reference.interleaving import POLICIES, run_interleaved, run_stream_interleaved
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.testing.random_programs import random_stream
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.workload.workloads import Conv2dWorkload

PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")


def equal(got: RunResult, want: RunResult) -> None:
    """Every byte of DRAM and SRAM, every counter."""
    np.testing.assert_array_equal(got.arena, want.arena)
    assert got.counters == want.counters
    for name, memory in want.sram.items():
        np.testing.assert_array_equal(got.sram[name], memory, err_msg=name)
    for name, value in want.outputs.items():
        np.testing.assert_array_equal(got.outputs[name], value, err_msg=name)


def refusal(program: Program, policy: str = "program", **more: Any) -> str:
    """The text of the error that a run ends with."""
    with pytest.raises(VTAError) as err:
        run_interleaved(program, inputs(program), policy, **more)
    assert "\n" not in str(err.value)
    return str(err.value)


def changed(index: int, hand: Hand | None = None, **changes: Any) -> Program:
    hand = hand or product()
    hand.lines[index].set(**changes)
    return hand.done()


# ---------------------------------------------------------------- correct programs
@pytest.mark.parametrize("preset", PRESETS)
def test_every_order_leaves_the_simulators_bytes(preset: str) -> None:
    config, rng = VTAConfig.preset(preset), np.random.default_rng(0)
    for seed in range(draws(10, 25)):
        program, data = random_safe_program(config, rng, 20)
        want = simulator.run(program, data)
        equal(numpy_model.run_stream(config, program.insns, program.new_arena(data)), _bare(want))
        for policy in POLICIES:
            equal(run_interleaved(program, data, policy, seed), want)
        equal(run_interleaved(program, data, hold=int(rng.integers(len(program.insns)))), want)


def _bare(result: RunResult) -> RunResult:
    return RunResult(result.arena, result.counters, sram=result.sram)


@pytest.mark.parametrize("preset", PRESETS)
def test_compiled_convolutions_in_every_order(preset: str) -> None:
    config, rng = VTAConfig.preset(preset), np.random.default_rng(1)
    for _ in range(3):
        work = random_work(
            rng, in_channels=20, out_channels=20, kernel=(2, 3), padding=(1, 0, 2, 1)
        )
        case = conv_case(work, config, random_tile(rng, work, config))
        for policy in ("load-early", "store-late", "random"):
            case.check(run_interleaved(case.program, case.inputs, policy).arena)


def test_layers_meet_in_dram_in_every_order() -> None:
    net = NetBuilder(VTAConfig())
    work = Conv2dWorkload(1, 20, 20, 5, 5, (3, 3), padding=(1, 1, 1, 1), epilogue=rescale(9))
    x = net.input("x", 1, 20, 5, 5)
    a = net.conv("a", x, work)
    b = net.conv("b", a, work)
    case = net.finish(net.add("y", a, b, add_work((1, 20, 5, 5), 0, 1, 1, 1), kind="output"))
    for policy in POLICIES:
        case.check(run_interleaved(case.program, case.inputs, policy).arena)


def test_raw_streams_in_program_order() -> None:
    """Any stream, not only a correct one: the numpy model's bytes and counters."""
    for seed in range(40):
        config = VTAConfig.preset(PRESETS[seed % 4])
        insns, arena = random_stream(config, np.random.default_rng(seed), 16)
        before = arena.copy()
        try:
            result = run_stream_interleaved(config, insns, arena)
        except VTAError as err:
            assert "FINISH ends the program before" in str(err)
        else:
            equal(result, numpy_model.run_stream(config, insns, arena))
        np.testing.assert_array_equal(arena, before)


def test_random_order_is_that_of_its_seed() -> None:
    """A race shows what the order was: equal seeds agree, some seeds differ."""
    program = _racing()
    runs = [
        _stored(run_interleaved(program, inputs(program), "random", seed)) for seed in range(12)
    ]
    again = [
        _stored(run_interleaved(program, inputs(program), "random", seed)) for seed in range(12)
    ]
    assert runs == again
    assert len(set(runs)) > 1


# ---------------------------------------------------------------- adversaries
def _stored(result: RunResult) -> bytes:
    return result.outputs["y"].tobytes()


def _racing() -> Program:
    """A LOAD over what GEMM still reads: the product has no token against it."""
    hand = product(finish=False)
    hand.load(MemType.INP, "x", at=20, x=4)
    hand.finish(Queue.LOAD, Queue.STORE)
    return hand.done()


def _rewriting() -> Program:
    """An ALU instruction on what STORE still reads."""
    hand = product(finish=False)
    hand.alu(AluOp.ADD, 1, 4)
    hand.finish(Queue.STORE)
    return hand.done()


@pytest.mark.parametrize(
    ("program", "adversary"),
    [
        (_racing, {"policy": "load-early"}),
        (_racing, {"policy": "compute-late"}),
        (_racing, {"hold": 4}),
        (_rewriting, {"policy": "store-late"}),
        (_rewriting, {"policy": "compute-early"}),
        (_rewriting, {"hold": 6}),
    ],
)
def test_adversaries_find_a_race(program: Callable[[], Program], adversary: dict[str, Any]) -> None:
    built = program()
    data = inputs(built)
    assert _stored(run_interleaved(built, data)) != _stored(
        run_interleaved(built, data, **adversary)
    )


def test_finish_that_does_not_wait() -> None:
    hand = product(finish=False)
    hand.finish()
    program = hand.done()
    run_interleaved(program, inputs(program))
    for more in ({"policy": "store-late"}, {"policy": "compute-early"}, {"hold": 6}):
        assert refusal(program, **more) == (
            "instruction 7 of layer conv (FINISH): FINISH ends the program before instruction 6 of "
            "layer conv (STORE OUT sram 0 dram 0x190 y 1 x 4 stride 4 [pop_prev]); FINISH must "
            "wait for every queue; push a token there and pop it before FINISH"
        )


# ---------------------------------------------------------------- tokens
def test_deadlock_names_what_waits_in_each_queue() -> None:
    hand = Hand()
    hand.no_op(Queue.LOAD, pop_next=1, push_next=1)
    hand.no_op(Queue.COMPUTE, pop_prev=1, pop_next=1, push_prev=1, push_next=1)
    hand.no_op(Queue.STORE, pop_prev=1, push_prev=1)
    hand.finish()
    for policy in POLICIES:
        assert refusal(hand.done(), policy) == (
            "deadlock: LOAD waits for COMPUTE at instruction 0 of layer conv (LOAD INP sram 0 dram "
            "0x0 y 0 x 0 stride 0 [pop_next push_next]), COMPUTE waits for LOAD and STORE at "
            "instruction 1 of layer conv (LOAD UOP sram 0 dram 0x0 y 0 x 0 stride 0 [pop_prev "
            "pop_next push_prev push_next]), STORE waits for COMPUTE at instruction 2 of layer "
            "conv (STORE OUT sram 0 dram 0x0 y 0 x 0 stride 0 [pop_prev push_prev]); every pop "
            "needs a push that can come before it; correct the dependencies"
        )


def test_missing_token_deadlocks_in_every_order() -> None:
    program = changed(6, push_prev=0)
    texts = {refusal(program, policy) for policy in POLICIES}
    assert texts == {
        "deadlock: COMPUTE waits for STORE at instruction 7 of layer conv (LOAD UOP sram 0 dram "
        "0x0 y 0 x 0 stride 0 [pop_next]); every pop needs a push that can come before it; correct "
        "the dependencies"
    }


def test_token_left() -> None:
    assert refusal(changed(5, push_prev=1)) == (
        "instruction 8 of layer conv (FINISH): compute->load: 1 tokens are left at FINISH; there "
        "must be none; the program ends before its queues do: correct the dependencies"
    )


def test_token_overflow() -> None:
    hand = Hand(VTAConfig(capabilities=Capabilities(max_tokens=2)))
    for _ in range(3):
        hand.no_op(Queue.LOAD, push_next=1)
        hand.no_op(Queue.COMPUTE, pop_prev=1)
    hand.finish()
    program = hand.done()
    run_interleaved(program, inputs(program))
    assert refusal(program, "load-early") == (
        "instruction 4 of layer conv (LOAD INP sram 0 dram 0x0 y 0 x 0 stride 0 [push_next]): too "
        "many tokens outstanding from load->compute; the machine counts to 2; pop tokens sooner"
    )


def test_token_flag_beside_the_queues() -> None:
    assert refusal(changed(1, pop_prev=1)) == (
        "instruction 1 of layer conv (LOAD WGT sram 0 dram 0x4 y 1 x 1 stride 1 [pop_prev]): a "
        "token flag points beside the queues; LOAD has no previous and STORE no next queue; the "
        "stream is corrupt: compile the program again"
    )


def test_stream_without_finish() -> None:
    assert refusal(Hand().done()) == (
        "program of 0 instructions: the stream ends without FINISH; FINISH must come last; the "
        "stream is corrupt: compile the program again"
    )


def test_finish_is_not_last() -> None:
    hand = product()
    hand.no_op()
    assert refusal(hand.done()) == (
        "instruction 8 of layer conv (FINISH): FINISH is followed by 1 instructions; FINISH must "
        "come last; the stream is corrupt: compile the program again"
    )


def test_unknown_policy() -> None:
    assert refusal(product().done(), "sideways") == (
        "unknown policy 'sideways'; known: program, load-early, load-late, compute-early, "
        "compute-late, store-early, store-late, random; choose one"
    )


# ---------------------------------------------------------------- sanitizer
GEMM = "instruction 4 of layer conv (GEMM MAC uop 0-1 iter 1,4 dst 0,1 src 0,1 wgt 0,0 [pop_prev])"
UNDEFINED = "SRAM is undefined when a program starts; load or compute it first"


def test_read_of_undefined_inp() -> None:
    assert refusal(changed(2, x_size=3)) == (
        f"{GEMM}: INP element 3 is read but nothing wrote it; {UNDEFINED}"
    )


def test_read_of_undefined_acc() -> None:
    assert refusal(changed(3, iter_in=2)) == (
        f"{GEMM}: ACC element 2 is read but nothing wrote it; {UNDEFINED}"
    )


def test_read_of_undefined_wgt() -> None:
    assert refusal(changed(1, sram_base=1)) == (
        f"{GEMM}: WGT element 0 is read but nothing wrote it; {UNDEFINED}"
    )


def test_read_of_an_undefined_micro_op() -> None:
    assert refusal(changed(0, sram_base=1)) == (
        "instruction 3 of layer conv (GEMM RESET uop 0-1 iter 1,4 dst 0,1): UOP element 0 is read "
        f"but nothing wrote it; {UNDEFINED}"
    )


def test_store_of_undefined_acc() -> None:
    assert refusal(changed(6, sram_base=1)) == (
        "instruction 6 of layer conv (STORE OUT sram 1 dram 0x190 y 1 x 4 stride 4 [pop_prev "
        f"push_prev]): ACC element 4 is read but nothing wrote it; {UNDEFINED}"
    )


def test_load_of_what_nothing_stored() -> None:
    assert refusal(changed(2, symbol="t")) == (
        "instruction 2 of layer conv (LOAD INP sram 0 dram 0x150 y 1 x 4 stride 4 [push_next]): "
        "DRAM byte 5376 is read but nothing stored it; temporaries and outputs are undefined when "
        "a program starts; store it first"
    )


def test_undefined_only_in_another_order() -> None:
    """GEMM does not wait for its input: in program order the LOAD happens to come first."""
    hand = product()
    hand.lines[4].set(pop_prev=0)
    hand.lines[7].set(pop_prev=1)
    program = hand.done()
    run_interleaved(program, inputs(program))
    assert refusal(program, "load-late") == (
        f"{GEMM.replace(' [pop_prev]', '')}: INP element 0 is read but nothing "
        f"wrote it; {UNDEFINED}"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"index": 2, "sram_base": 2045},
            "SRAM element 2048; the buffer has 2048 elements; the program's compiler must keep "
            "inside it",
        ),
        (
            {"index": 3, "iter_out": 2, "dst_factor_out": 2045},
            "destination ACC element 2048; the buffer has 2048 elements; the program's compiler "
            "must keep inside it",
        ),
        (
            {"index": 4, "src_factor_in": 683},
            "source element 2049; the buffer has 2048 elements; the program's compiler must keep "
            "inside it",
        ),
        (
            {"index": 4, "wgt_factor_in": 342},
            "WGT element 1026; the buffer has 1024 elements; the program's compiler must keep "
            "inside it",
        ),
        (
            {"index": 4, "uop_end": 8193},
            "micro-op 8193; the range must rise and end by 8192; the program's compiler must keep "
            "inside it",
        ),
        (
            {"index": 2, "at": 61},
            "DRAM bytes 976 to 1039 leave symbol x; it holds bytes 0 to 1023; correct the address "
            "or the loops",
        ),
        (
            {"index": 6, "at": 4096},
            "DRAM byte 71999; the arena has 7424 bytes; the program's compiler must keep inside it",
        ),
        (
            {"index": 6, "symbol": "w"},
            "STORE writes const w; a program may write temporaries and outputs; declare the target "
            "as one",
        ),
        (
            {"index": 2, "symbol": ""},
            "the transfer has no relocation; each transfer must address a symbol; link the program "
            "again",
        ),
    ],
)
def test_sanitizer_bounds(change: dict[str, Any], reason: str) -> None:
    text = refusal(changed(**change))
    assert text.startswith(f"instruction {change['index']} of layer conv (")
    assert text.endswith(f"): {reason}")


def test_sanitizer_of_raw_streams_has_no_symbols() -> None:
    program = changed(2, at=61)
    arena = program.new_arena(inputs(program))
    run_stream_interleaved(program.config, program.insns, arena, sanitize=True)
    poisoned = changed(2, x_size=3)
    with pytest.raises(
        VTAError, match="^instruction 4 .*: INP element 3 is read but nothing wrote"
    ):
        run_stream_interleaved(poisoned.config, poisoned.insns, arena, sanitize=True)


def test_lenient_mode_reads_zeros() -> None:
    program = changed(2, x_size=3)
    result = run_interleaved(program, inputs(program), sanitize=False)
    assert not result.outputs["y"][3].any()


def test_refusals_of_the_model_name_the_instruction() -> None:
    assert refusal(changed(5, reset=1), sanitize=False).startswith(
        "instruction 5 of layer conv (ALU MIN uop 0-1 iter 1,4 dst 0,1 imm 127 [push_next]): "
    )
