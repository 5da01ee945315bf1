// Drives the core of one machine: registers, and a DRAM whose latency, bandwidth and jitter are set.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "Vvta_core.h"
#include "Vvta_core___024root.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

namespace {

// What hw/rtl/simulation.py sets, in its order.
struct Memory {
  int64_t read_latency, write_latency, jitter, beat_cycles, stall_percent, seed, answers, idle_limit;
  int64_t read_fails, write_fails, data_first;
};

// A beat that came before the address of its burst.
struct Beat {
  uint8_t data[PORT_BYTES];
  uint64_t strobe;
  bool last;
};

struct Answer {
  uint64_t ready;
  bool fails;
};

// What the core shows on the channels that it drives, as of the edge before.
struct Driven {
  bool ar, aw, w;
  uint32_t ar_address, ar_beats, aw_address, aw_beats, w_last;
  uint64_t strobe;
  uint8_t data[PORT_BYTES];
};

struct Burst {
  uint32_t address, left;
  uint64_t ready;
};

struct Random {
  uint64_t state;
  uint64_t below(uint64_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (state >> 11) % limit : 0;
  }
};

enum Outcome { DONE = 0, IDLE = 1, OUTSIDE = 2, BROKEN = 3 };
// Rules of AXI that the core keeps; hw/rtl/simulation.py has their texts.
enum Rule { NONE, HOLD_READ, HOLD_WRITE, HOLD_DATA, PAGE, ALIGNED, LENGTH, LAST };
constexpr int PORT = PORT_BYTES;
constexpr int OKAY = 0, SLVERR = 2;
constexpr int QUEUES = 3;
// Slots of the report; hw/rtl/simulation.py has their names.
enum Report { CYCLES, HANDED, FAULT_ADDRESS, READS, WRITES, RULE, ERROR_ADDRESS, STATE = 8 };

// Called behind the end of each instruction with its queue and its number there.
using Committed = void (*)(int queue, uint64_t number);

template <typename T>
void copy_sram(uint8_t* to, T& memory, uint64_t depth, uint64_t nbytes) {
  if (!to) return;
  for (uint64_t i = 0; i < depth; ++i) std::memcpy(to + i * nbytes, &memory[i], nbytes);
}

// Where on-chip memories are copied to.
struct Srams {
  uint8_t *uop, *inp, *wgt, *acc;
};

class Run {
 public:
  Run(uint8_t* dram, uint64_t size, const Memory& memory)
      : dram_(dram), size_(size), memory_(memory), random_{uint64_t(memory.seed) * 2 + 1} {
    context_.randReset(0);
    top_ = std::make_unique<Vvta_core>(&context_);
  }

  void open_wave(const char* path, uint64_t from, uint64_t to) {
    wave_from_ = from;
    wave_to_ = to;
#if VM_TRACE
    if (path && *path) {
      context_.traceEverOn(true);
      wave_ = std::make_unique<VerilatedVcdC>();
      top_->trace(wave_.get(), 99);
      wave_->open(path);
    }
#endif
  }

  void reset() {
    top_->rst = 1;
    cycle();
    cycle();
    top_->rst = 0;
    cycle();
    now_ = 0;
  }

  void write_register(uint8_t address, uint32_t value) {
    top_->reg_address = address;
    top_->reg_write_data = value;
    top_->reg_write = 1;
    cycle();
    top_->reg_write = 0;
  }

  uint32_t read_register(uint8_t address) {
    top_->reg_address = address;
    top_->eval();
    return top_->reg_read_data;
  }

  void log(const Srams& srams, Committed committed) {
    srams_ = srams;
    committed_ = committed;
  }

  void copy_srams() {
    auto* root = top_->rootp;
    copy_sram(srams_.uop, root->vta_core__DOT__compute__DOT__sram_uop, UOP_DEPTH, 4);
    copy_sram(srams_.inp, root->vta_core__DOT__sram_inp, INP_DEPTH, INP_BYTES);
    copy_sram(srams_.wgt, root->vta_core__DOT__sram_wgt, WGT_DEPTH, WGT_BYTES);
    copy_sram(srams_.acc, root->vta_core__DOT__compute__DOT__sram_acc, ACC_DEPTH, ACC_BYTES);
  }

  // Until the core is done; times of instructions by queue go to `times` where it is given.
  int run(uint64_t most, int64_t* times, uint64_t count) {
    now_ = 0;
    uint64_t active = 0, seen[QUEUES] = {}, ended[QUEUES] = {};
    while (top_->running) {
      bool moved = cycle() || top_->stepping;
      commit();
      note(times, count, seen, ended, moved);
      if (outside_) return OUTSIDE;
      if (rule_ != NONE) return BROKEN;
      if (moved) active = now_;
      if (now_ - active > uint64_t(memory_.idle_limit) || now_ > most) return IDLE;
    }
    commit();
    return DONE;
  }

  Vvta_core& top() { return *top_; }
  uint64_t now() const { return now_; }
  uint64_t reads() const { return reads_; }
  uint64_t writes() const { return writes_; }
  uint32_t fault_address() const { return fault_address_; }
  Rule rule() const { return rule_; }
  uint32_t error_address() const { return error_address_; }
  void finish() {
#if VM_TRACE
    if (wave_) wave_->close();
#endif
    top_->final();
  }

 private:
  // An instruction that ended in a cycle has written what it writes in the next one.
  void commit() {
    if (ended_now_.empty()) return;
    copy_srams();
    for (int q : ended_now_) committed_(q, committed_count_[q]++);
    ended_now_.clear();
  }

  void note(int64_t* times, uint64_t count, uint64_t* seen, uint64_t* ended, bool& moved) {
    const bool starts[] = {bool(top_->start_load), bool(top_->start_compute), bool(top_->start_store)};
    const bool dones[] = {bool(top_->done_load), bool(top_->done_compute), bool(top_->done_store)};
    for (int q = 0; q < QUEUES; ++q) {
      moved = moved || starts[q] || dones[q];
      if (committed_ && dones[q]) ended_now_.push_back(q);
      if (!times) continue;
      if (starts[q] && seen[q] < count) times[(q * count + seen[q]++) * 2] = now_;
      if (dones[q] && ended[q] < count) times[(q * count + ended[q]++) * 2 + 1] = now_ + 1;
    }
  }

  bool within(uint32_t address, uint64_t nbytes) {
    if (address + nbytes <= size_) return true;
    outside_ = true;
    fault_address_ = address;
    return false;
  }

  bool stalls() { return memory_.stall_percent && random_.below(100) < uint64_t(memory_.stall_percent); }

  // One clock. What memory gives depends on what the core showed behind the edge before.
  bool cycle() {
    const bool answers = memory_.answers < 0 || reads_ < uint64_t(memory_.answers);
    const bool ar = top_->ar_valid && top_->ar_ready, r = top_->r_valid && top_->r_ready;
    const bool aw = top_->aw_valid && top_->aw_ready, w = top_->w_valid && top_->w_ready;
    const bool b = top_->b_valid && top_->b_ready;
    check();
    if (ar) {
      uint64_t jitter = random_.below(memory_.jitter + 1);
      uint64_t ready = now_ + memory_.read_latency + jitter;
      reads_queue_.push_back({top_->ar_address, top_->ar_beats, std::max(ready, now_ + 1)});
    }
    if (aw) writes_queue_.push_back({top_->aw_address, top_->aw_beats, 0});
    if (w) take_beat();
    if (memory_.data_first ? aw : w) write_beats();
    if (r) read_beat();
    if (b) answers_.pop_front();
    top_->clk = 1;
    context_.timeInc(1);
    top_->eval();
    dump();
    top_->clk = 0;
    ++now_;
    offer(answers, r, b);
    context_.timeInc(1);
    top_->eval();
    dump();
    return ar || r || aw || w || b;
  }

  // What was offered and not taken must stay; a burst must lie in a page.
  void check() {
    Driven now{};
    if ((now.ar = top_->ar_valid)) {
      now.ar_address = top_->ar_address;
      now.ar_beats = top_->ar_beats;
      if (driven_.ar && (now.ar_address != driven_.ar_address || now.ar_beats != driven_.ar_beats))
        rule_ = HOLD_READ;
      check_burst(now.ar_address, now.ar_beats);
    }
    if ((now.aw = top_->aw_valid)) {
      now.aw_address = top_->aw_address;
      now.aw_beats = top_->aw_beats;
      if (driven_.aw && (now.aw_address != driven_.aw_address || now.aw_beats != driven_.aw_beats))
        rule_ = HOLD_WRITE;
      check_burst(now.aw_address, now.aw_beats);
    }
    if ((now.w = top_->w_valid)) {
      now.w_last = top_->w_last;
      now.strobe = top_->w_strobe;
      std::memcpy(now.data, &top_->w_data, PORT);
      if (driven_.w && (now.w_last != driven_.w_last || now.strobe != driven_.strobe ||
                        std::memcmp(now.data, driven_.data, PORT)))
        rule_ = HOLD_DATA;
    }
    if (driven_.ar && !now.ar) rule_ = HOLD_READ;
    if (driven_.aw && !now.aw) rule_ = HOLD_WRITE;
    if (driven_.w && !now.w) rule_ = HOLD_DATA;
    driven_ = now;
    driven_.ar = now.ar && !top_->ar_ready;
    driven_.aw = now.aw && !top_->aw_ready;
    driven_.w = now.w && !top_->w_ready;
  }

  void check_burst(uint32_t address, uint32_t beats) {
    if (address % PORT) rule_ = ALIGNED;
    if (beats < 1 || beats > 256) rule_ = LENGTH;
    if (address / 4096 != (address + beats * PORT - 1) / 4096) rule_ = PAGE;
  }

  // What memory offers in the next cycle; what was offered and not taken stays.
  void offer(bool answers, bool r, bool b) {
    top_->ar_ready = reads_queue_.size() < 64 && !stalls();
    const bool takes = memory_.data_first ? whole_ > 0 : writes_queue_.size() < 8;
    top_->aw_ready = takes && !stalls();
    top_->w_ready = (memory_.data_first || !writes_queue_.empty()) && !stalls();
    if (r || !top_->r_valid) {
      top_->r_valid = answers && !reads_queue_.empty() && reads_queue_.front().ready <= now_ &&
                      next_beat_ <= now_ && !stalls();
      top_->r_resp = reads_ == uint64_t(memory_.read_fails) ? SLVERR : OKAY;
      if (top_->r_valid && top_->r_resp) error_address_ = reads_queue_.front().address;
      if (top_->r_valid && within(reads_queue_.front().address, PORT))
        std::memcpy(&top_->r_data, dram_ + reads_queue_.front().address, PORT);
    }
    if (b || !top_->b_valid) {
      top_->b_valid = !answers_.empty() && answers_.front().ready <= now_;
      if (top_->b_valid) top_->b_resp = answers_.front().fails ? SLVERR : OKAY;
    }
  }

  void read_beat() {
    Burst& burst = reads_queue_.front();
    burst.address += PORT;
    next_beat_ = now_ + memory_.beat_cycles;
    ++reads_;
    if (--burst.left == 0) reads_queue_.pop_front();
  }

  void take_beat() {
    Beat beat{};
    std::memcpy(beat.data, &top_->w_data, PORT);
    beat.strobe = top_->w_strobe;
    beat.last = top_->w_last;
    whole_ += beat.last;
    beats_.push_back(beat);
  }

  // Writes the beats that have come of bursts whose addresses have.
  void write_beats() {
    while (!writes_queue_.empty() && !beats_.empty()) {
      write_beat(beats_.front());
      beats_.pop_front();
    }
  }

  void write_beat(const Beat& beat) {
    Burst& burst = writes_queue_.front();
    if (within(burst.address, PORT))
      for (int i = 0; i < PORT; ++i)
        if (beat.strobe >> i & 1) dram_[burst.address + i] = beat.data[i];
    burst.address += PORT;
    ++writes_;
    whole_ -= beat.last;
    if (beat.last != (burst.left == 1)) rule_ = LAST;
    if (--burst.left == 0) {
      const bool fails = bursts_++ == uint64_t(memory_.write_fails);
      if (fails) error_address_ = burst.address - PORT;
      const uint64_t ready = now_ + 1 + memory_.write_latency + random_.below(memory_.jitter + 1);
      answers_.push_back({ready, fails});
      writes_queue_.pop_front();
    }
  }

  void dump() {
#if VM_TRACE
    if (wave_ && now_ >= wave_from_ && now_ < wave_to_) wave_->dump(context_.time());
#endif
  }

  uint8_t* dram_;
  uint64_t size_;
  Memory memory_;
  Random random_;
  VerilatedContext context_;
  std::unique_ptr<Vvta_core> top_;
#if VM_TRACE
  std::unique_ptr<VerilatedVcdC> wave_;
#endif
  uint64_t wave_from_ = 0, wave_to_ = 0, now_ = 0, next_beat_ = 0, reads_ = 0, writes_ = 0;
  uint32_t fault_address_ = 0;
  bool outside_ = false;
  std::deque<Burst> reads_queue_, writes_queue_;
  std::deque<Beat> beats_;
  std::deque<Answer> answers_;
  uint64_t whole_ = 0, bursts_ = 0;
  uint32_t error_address_ = 0;
  Driven driven_{};
  Rule rule_ = NONE;
  Srams srams_{};
  Committed committed_ = nullptr;
  uint64_t committed_count_[QUEUES] = {};
  std::vector<int> ended_now_;
};

}  // namespace

extern "C" {

// Runs `count` instructions at `insn_address`; `registers` are (offset, value) pairs that are written
// before the launch, `read` the offsets of registers whose values come behind the report.
int vta_run(uint8_t* dram, uint64_t size, const int64_t* memory, const uint32_t* registers,
            uint64_t n_registers, const uint32_t* read, uint64_t n_read, uint64_t most,
            int64_t* report, int64_t* times, uint64_t count, uint8_t* uop, uint8_t* inp,
            uint8_t* wgt, uint8_t* acc, const char* wave, uint64_t wave_from, uint64_t wave_to,
            Committed committed) {
  Memory model;
  std::memcpy(&model, memory, sizeof model);
  Run run(dram, size, model);
  run.open_wave(wave, wave_from, wave_to);
  run.log({uop, inp, wgt, acc}, committed);
  run.reset();
  for (uint64_t i = 0; i < n_registers; ++i)
    run.write_register(registers[2 * i], registers[2 * i + 1]);
  const int outcome = run.run(most, times, count);
  Vvta_core& top = run.top();
  report[CYCLES] = run.now();
  report[HANDED] = top.handed;
  report[FAULT_ADDRESS] = run.fault_address();
  report[READS] = run.reads();
  report[WRITES] = run.writes();
  report[RULE] = run.rule();
  report[ERROR_ADDRESS] = run.error_address();
  const int64_t state[] = {top.level_load, top.busy_load, top.waits_load,
                           top.level_compute, top.busy_compute, top.waits_compute,
                           top.level_store, top.busy_store, top.waits_store,
                           top.tokens_0, top.tokens_1, top.tokens_2, top.tokens_3, top.overflow};
  std::memcpy(report + STATE, state, sizeof state);
  for (uint64_t i = 0; i < n_read; ++i)
    report[STATE + 14 + i] = run.read_register(read[i]);
  run.copy_srams();
  run.finish();
  return outcome;
}
}
