/* The functional simulator; see vta_sim.h. Written from the specification of the instruction set
 * (docs/machine.md): it shares no code with the runtime or with the simulators in Python. */
#include "vta_sim.h"

#include <string.h>

#define ALIGN 64u
#define DRAM_BASE 0x10000u /* not 0: a program that was not relocated reads beside the memory */
#define MAX_STEPS ((uint64_t)1 << 26)
#define SIM_VERSION 2u

enum { LOAD = 0, STORE = 1, GEMM = 2, FINISH = 3, ALU = 4 };
enum { UOP = 0, WGT = 1, INP = 2, ACC = 3, OUT = 4, ACC_8BIT = 5 };
enum { ALU_MIN = 0, ALU_MAX = 1, ALU_ADD = 2, ALU_SHR = 3, ALU_MUL = 4 };

struct vta_sim {
    vta_machine m;
    uint32_t batch, block, lanes; /* lanes: of one accumulator element */
    uint32_t uop_depth, inp_depth, wgt_depth, acc_depth;
    uint32_t *uop;
    int8_t *inp, *wgt, *out;
    int32_t *acc;
    uint8_t *dram;
    uint64_t dram_bytes, used;
    uint64_t start_address;
    uint32_t start_count;
    int started;
    uint32_t tokens[4]; /* load->compute, compute->load, compute->store, store->compute */
    vta_counters counters;
    const char *fault;
};

/* A decoded instruction: the words, and how many bits of each were read. */
typedef struct fields {
    uint64_t word[2];
    unsigned at[2];
} fields;

static uint32_t take(fields *f, int word, unsigned bits) {
    uint64_t value = (f->word[word] >> f->at[word]) & (((uint64_t)1 << bits) - 1);
    f->at[word] += bits;
    return (uint32_t)value;
}

static int rest_is_zero(const fields *f) {
    int word;
    for (word = 0; word < 2; word++)
        if (f->at[word] < 64 && (f->word[word] >> f->at[word]) != 0) return 0;
    return 1;
}

static uint64_t rounded(uint64_t value) { return (value + ALIGN - 1) / ALIGN * ALIGN; }

static int32_t wrapped(int64_t value) {
    uint32_t low = (uint32_t)((uint64_t)value & 0xffffffffu);
    int32_t result;
    memcpy(&result, &low, sizeof result);
    return result;
}

static int8_t low_byte(int32_t value) {
    uint8_t low = (uint8_t)((uint32_t)value & 0xffu);
    int8_t result;
    memcpy(&result, &low, sizeof result);
    return result;
}

/* ------------------------------------------------------------------ the machine */
static uint64_t depth(uint32_t log_bytes, uint32_t log_element) {
    return log_bytes < log_element ? 0 : (uint64_t)1 << (log_bytes - log_element);
}

static int fits(uint64_t elements, uint32_t bits) {
    return elements >= 2 && elements <= 65536 && bits >= 1 && bits <= 16 &&
           elements <= ((uint64_t)1 << bits);
}

static int geometry(const vta_machine *m, vta_sim *s) {
    uint64_t uop, inp, wgt, acc;
    uint32_t src = m->acc_bits > m->inp_bits ? m->acc_bits : m->inp_bits;
    if (m->log_batch > 6 || m->log_block < 2 || m->log_block > 7) return 0;
    if (m->log_uop_buff_size > 30 || m->log_inp_buff_size > 30 || m->log_wgt_buff_size > 30 ||
        m->log_acc_buff_size > 30)
        return 0;
    uop = depth(m->log_uop_buff_size, 2);
    inp = depth(m->log_inp_buff_size, m->log_batch + m->log_block);
    wgt = depth(m->log_wgt_buff_size, 2 * m->log_block);
    acc = depth(m->log_acc_buff_size, m->log_batch + m->log_block + 2);
    if (!fits(uop, m->uop_bits) || !fits(inp, m->inp_bits) || !fits(wgt, m->wgt_bits) ||
        !fits(acc, m->acc_bits))
        return 0;
    if (2 * m->uop_bits > 27 || m->acc_bits + m->inp_bits + m->wgt_bits > 32 ||
        4 * m->acc_bits > 44 || m->acc_bits + src + m->wgt_bits > 32)
        return 0;
    s->m = *m;
    s->batch = 1u << m->log_batch;
    s->block = 1u << m->log_block;
    s->lanes = s->batch * s->block;
    s->uop_depth = (uint32_t)uop;
    s->inp_depth = (uint32_t)inp;
    s->wgt_depth = (uint32_t)wgt;
    s->acc_depth = (uint32_t)acc;
    return 1;
}

static uint64_t acc_bytes(const vta_sim *s) { return (uint64_t)s->acc_depth * s->lanes * 4; }
static uint64_t inp_bytes(const vta_sim *s) { return (uint64_t)s->inp_depth * s->lanes; }
static uint64_t wgt_bytes(const vta_sim *s) { return (uint64_t)s->wgt_depth * s->block * s->block; }
static uint64_t out_bytes(const vta_sim *s) { return (uint64_t)s->acc_depth * s->lanes; }
static uint64_t uop_bytes(const vta_sim *s) { return (uint64_t)s->uop_depth * 4; }

uint64_t vta_sim_bytes(const vta_machine *machine, uint64_t dram_bytes) {
    vta_sim s;
    if (!geometry(machine, &s) || dram_bytes >= (uint64_t)1 << 40) return 0;
    return ALIGN + rounded(sizeof(vta_sim)) + rounded(uop_bytes(&s)) + rounded(inp_bytes(&s)) +
           rounded(wgt_bytes(&s)) + rounded(acc_bytes(&s)) + rounded(out_bytes(&s)) +
           rounded(dram_bytes);
}

static uint8_t *part(uint8_t **at, uint64_t bytes) {
    uint8_t *result = *at;
    *at += rounded(bytes);
    return result;
}

vta_sim *vta_sim_init(const vta_machine *machine, uint64_t dram_bytes, void *memory, size_t bytes) {
    uint64_t needed = vta_sim_bytes(machine, dram_bytes);
    uint8_t *at = memory;
    vta_sim *s;
    if (needed == 0 || memory == NULL || bytes < needed) return NULL;
    at += (ALIGN - (uintptr_t)at % ALIGN) % ALIGN;
    s = (vta_sim *)(void *)part(&at, sizeof(vta_sim));
    memset(s, 0, sizeof *s);
    geometry(machine, s);
    s->uop = (uint32_t *)(void *)part(&at, uop_bytes(s));
    s->inp = (int8_t *)part(&at, inp_bytes(s));
    s->wgt = (int8_t *)part(&at, wgt_bytes(s));
    s->acc = (int32_t *)(void *)part(&at, acc_bytes(s));
    s->out = (int8_t *)part(&at, out_bytes(s));
    s->dram = part(&at, dram_bytes);
    s->dram_bytes = dram_bytes;
    memset(s->dram, 0, (size_t)dram_bytes);
    return s;
}

vta_counters vta_sim_counters(const vta_sim *sim) { return sim->counters; }

/* ------------------------------------------------------------------ LOAD and STORE */
typedef struct transfer {
    uint32_t mem, sram, ys, xs, stride, y0, y1, x0, x1;
    uint64_t dram;
} transfer;

static transfer transfer_of(fields *f) {
    transfer t;
    t.mem = take(f, 0, 3);
    t.sram = take(f, 0, 16);
    t.dram = take(f, 0, 32);
    t.ys = take(f, 1, 16);
    t.xs = take(f, 1, 16);
    t.stride = take(f, 1, 16);
    t.y0 = take(f, 1, 4);
    t.y1 = take(f, 1, 4);
    t.x0 = take(f, 1, 4);
    t.x1 = take(f, 1, 4);
    return t;
}

static uint32_t dram_element(const vta_sim *s, uint32_t mem) {
    switch (mem) {
        case UOP: return 4;
        case WGT: return s->block * s->block;
        case ACC: return s->lanes * 4;
        default: return s->lanes;
    }
}

/* The first byte of the transfer's rows in `dram`; NULL where a row leaves the memory. */
static uint8_t *rows_of(vta_sim *s, const transfer *t, uint32_t size) {
    uint64_t first = t->dram * size;
    uint64_t end = (t->dram + (uint64_t)(t->ys - 1) * t->stride + t->xs) * size;
    if (first < DRAM_BASE || end > DRAM_BASE + s->dram_bytes) return NULL;
    return s->dram + (first - DRAM_BASE);
}

static uint8_t *sram_of(vta_sim *s, uint32_t mem, uint32_t *elements) {
    switch (mem) {
        case UOP: *elements = s->uop_depth; return (uint8_t *)(void *)s->uop;
        case WGT: *elements = s->wgt_depth; return (uint8_t *)s->wgt;
        case INP: *elements = s->inp_depth; return (uint8_t *)s->inp;
        default: *elements = s->acc_depth; return (uint8_t *)(void *)s->acc;
    }
}

static void widen(int32_t *to, const uint8_t *from, uint64_t count) {
    uint64_t i;
    for (i = 0; i < count; i++) to[i] = from[i] < 128 ? from[i] : (int32_t)from[i] - 256;
}

static void count_load(vta_sim *s, uint32_t mem, uint64_t bytes) {
    switch (mem) {
        case UOP: s->counters.uop_load_nbytes += bytes; break;
        case WGT: s->counters.wgt_load_nbytes += bytes; break;
        case INP: s->counters.inp_load_nbytes += bytes; break;
        default: s->counters.acc_load_nbytes += bytes; break;
    }
}

static const char *load(vta_sim *s, const transfer *t) {
    uint32_t elements, size, chip, y;
    uint64_t width = (uint64_t)t->x0 + t->xs + t->x1, height = (uint64_t)t->y0 + t->ys + t->y1;
    uint8_t *sram, *rows, *to;
    if (t->mem == OUT || t->mem > ACC_8BIT) return "LOAD of an unknown memory type";
    if (t->mem == ACC_8BIT && !s->m.acc_8bit) return "LOAD of ACC_8BIT on a machine without it";
    if (t->ys == 0 || t->xs == 0) return NULL;
    sram = sram_of(s, t->mem, &elements);
    if (t->sram + height * width > elements) return "LOAD beyond the on-chip memory";
    size = dram_element(s, t->mem);
    chip = t->mem == ACC_8BIT ? size * 4 : size;
    rows = rows_of(s, t, size);
    if (rows == NULL) return "LOAD beyond the device's memory";
    to = sram + (uint64_t)t->sram * chip;
    memset(to, 0, (size_t)(height * width * chip));
    for (y = 0; y < t->ys; y++) {
        uint8_t *row = to + ((t->y0 + (uint64_t)y) * width + t->x0) * chip;
        const uint8_t *from = rows + (uint64_t)y * t->stride * size;
        if (t->mem == ACC_8BIT)
            widen((int32_t *)(void *)row, from, (uint64_t)t->xs * size);
        else
            memcpy(row, from, (size_t)t->xs * size);
    }
    count_load(s, t->mem, (uint64_t)t->ys * t->xs * size);
    return NULL;
}

static const char *store(vta_sim *s, const transfer *t) {
    uint32_t size = s->lanes, y;
    uint8_t *rows;
    if (t->mem != OUT) return "STORE of an unknown memory type";
    if (t->y0 || t->y1 || t->x0 || t->x1) return "STORE with padding";
    if (t->ys == 0 || t->xs == 0) return NULL;
    if (t->sram + (uint64_t)t->ys * t->xs > s->acc_depth) return "STORE beyond the on-chip memory";
    rows = rows_of(s, t, size);
    if (rows == NULL) return "STORE beyond the device's memory";
    for (y = 0; y < t->ys; y++) {
        uint64_t from = ((uint64_t)t->sram + (uint64_t)y * t->xs) * size, i;
        uint8_t *to = rows + (uint64_t)y * t->stride * size;
        if (s->m.out_sram) {
            memcpy(to, s->out + from, (size_t)t->xs * size);
            continue;
        }
        for (i = 0; i < (uint64_t)t->xs * size; i++)
            to[i] = (uint8_t)((uint32_t)s->acc[from + i] & 0xffu);
    }
    s->counters.out_store_nbytes += (uint64_t)t->ys * t->xs * size;
    return NULL;
}

/* ------------------------------------------------------------------ GEMM and ALU */
typedef struct nest {
    uint32_t reset, begin, end, outer, inner;
    uint32_t dst_out, dst_in, src_out, src_in, wgt_out, wgt_in;
    uint32_t dst_limit, src_limit, wgt_limit; /* 0: the operand is not used */
} nest;

typedef struct operands {
    uint32_t dst, src, wgt;
} operands;

static void loops_of(const vta_sim *s, fields *f, nest *n) {
    memset(n, 0, sizeof *n);
    n->reset = take(f, 0, 1);
    n->begin = take(f, 0, s->m.uop_bits);
    n->end = take(f, 0, s->m.uop_bits + 1);
    n->outer = take(f, 0, 14);
    n->inner = take(f, 0, 14);
    n->dst_out = take(f, 1, s->m.acc_bits);
    n->dst_in = take(f, 1, s->m.acc_bits);
    n->dst_limit = s->acc_depth;
}

static int uop_of(const vta_sim *s, uint32_t word, operands *u) {
    uint32_t src = s->m.acc_bits > s->m.inp_bits ? s->m.acc_bits : s->m.inp_bits;
    unsigned used = s->m.acc_bits + src + s->m.wgt_bits;
    u->dst = word & ((1u << s->m.acc_bits) - 1);
    u->src = (word >> s->m.acc_bits) & ((1u << src) - 1);
    u->wgt = (uint32_t)(((uint64_t)word >> (s->m.acc_bits + src)) & ((1u << s->m.wgt_bits) - 1));
    return used >= 32 || (word >> used) == 0;
}

/* Refuses a loop nest before its first step; *empty where it has none. */
static const char *check_nest(const vta_sim *s, const nest *n, int *empty) {
    uint64_t reach_dst, reach_src, reach_wgt, y, x;
    uint32_t i;
    operands u;
    *empty = 1;
    if (n->begin > n->end || n->end > s->uop_depth) return "micro-ops beyond the on-chip memory";
    if ((uint64_t)(n->end - n->begin) * n->outer * n->inner > MAX_STEPS)
        return "more steps than one instruction may take";
    if (n->outer == 0 || n->inner == 0) return NULL;
    y = n->outer - 1;
    x = n->inner - 1;
    reach_dst = y * n->dst_out + x * n->dst_in;
    reach_src = y * n->src_out + x * n->src_in;
    reach_wgt = y * n->wgt_out + x * n->wgt_in;
    for (i = n->begin; i < n->end; i++) {
        if (!uop_of(s, s->uop[i], &u)) return "a micro-op with reserved bits";
        if (u.dst + reach_dst >= n->dst_limit) return "a destination beyond the accumulators";
        if (n->src_limit && u.src + reach_src >= n->src_limit) return "a source beyond its memory";
        if (n->wgt_limit && u.wgt + reach_wgt >= n->wgt_limit) return "a weight beyond its memory";
    }
    *empty = 0;
    return NULL;
}

static void multiply(vta_sim *s, uint32_t dst, uint32_t src, uint32_t wgt) {
    const int8_t *weights = s->wgt + (uint64_t)wgt * s->block * s->block;
    uint32_t b, o, k, block = s->block;
    for (b = 0; b < s->batch; b++) {
        const int8_t *in = s->inp + (uint64_t)src * s->lanes + (uint64_t)b * block;
        uint64_t at = (uint64_t)dst * s->lanes + (uint64_t)b * block;
        for (o = 0; o < block; o++) {
            const int8_t *row = weights + (uint64_t)o * block;
            int32_t sum = 0;
            for (k = 0; k < block; k++) sum += (int32_t)in[k] * row[k];
            s->acc[at + o] = wrapped((int64_t)s->acc[at + o] + sum);
            s->out[at + o] = low_byte(s->acc[at + o]);
        }
    }
}

static const char *gemm(vta_sim *s, fields *f) {
    nest n;
    uint32_t y, x, i;
    int empty;
    const char *wrong;
    operands u;
    loops_of(s, f, &n);
    n.src_out = take(f, 1, s->m.inp_bits);
    n.src_in = take(f, 1, s->m.inp_bits);
    n.wgt_out = take(f, 1, s->m.wgt_bits);
    n.wgt_in = take(f, 1, s->m.wgt_bits);
    if (!rest_is_zero(f)) return "reserved bits of GEMM are set";
    n.src_limit = n.reset ? 0 : s->inp_depth;
    n.wgt_limit = n.reset ? 0 : s->wgt_depth;
    wrong = check_nest(s, &n, &empty);
    if (wrong != NULL || empty) return wrong;
    for (y = 0; y < n.outer; y++)
        for (x = 0; x < n.inner; x++)
            for (i = n.begin; i < n.end; i++) {
                uint32_t dst;
                (void)uop_of(s, s->uop[i], &u);
                dst = u.dst + y * n.dst_out + x * n.dst_in;
                if (n.reset)
                    memset(s->acc + (uint64_t)dst * s->lanes, 0, (size_t)s->lanes * 4);
                else
                    multiply(s, dst, u.src + y * n.src_out + x * n.src_in,
                             u.wgt + y * n.wgt_out + x * n.wgt_in);
            }
    if (!n.reset) s->counters.gemm_counter += (uint64_t)(n.end - n.begin) * n.outer * n.inner;
    return NULL;
}

static int64_t shifted(int64_t left, int64_t right) {
    uint32_t amount = (uint32_t)((right >= 0 ? right : -right) & 31);
    if (right < 0) return left * ((int64_t)1 << amount);
    /* Rounds down for negative numbers, too, whatever >> does there. */
    return left >= 0 ? left >> amount : -((-left - 1) >> amount) - 1;
}

static int64_t computed(uint32_t op, int64_t left, int64_t right) {
    switch (op) {
        case ALU_MIN: return left < right ? left : right;
        case ALU_MAX: return left > right ? left : right;
        case ALU_ADD: return left + right;
        case ALU_SHR: return shifted(left, right);
        default: return left * right;
    }
}

static void alu_step(vta_sim *s, uint32_t op, int32_t imm, int use_imm, uint32_t dst,
                     uint32_t src) {
    uint32_t first = use_imm && s->m.imm_reads_src ? src : dst, lane;
    for (lane = 0; lane < s->lanes; lane++) {
        int64_t left = s->acc[(uint64_t)first * s->lanes + lane];
        int64_t right = use_imm ? imm : s->acc[(uint64_t)src * s->lanes + lane];
        uint64_t to = (uint64_t)dst * s->lanes + lane;
        if (op == ALU_SHR && s->m.shift_modulo && !use_imm) right = (int64_t)((uint64_t)right & 31);
        s->acc[to] = wrapped(computed(op, left, right));
        s->out[to] = low_byte(s->acc[to]);
    }
}

static const char *alu(vta_sim *s, fields *f) {
    nest n;
    uint32_t op, use_imm, raw, y, x, i;
    int32_t imm;
    int empty;
    const char *wrong;
    operands u;
    loops_of(s, f, &n);
    n.src_out = take(f, 1, s->m.acc_bits);
    n.src_in = take(f, 1, s->m.acc_bits);
    op = take(f, 1, 3);
    use_imm = take(f, 1, 1);
    raw = take(f, 1, 16);
    imm = raw < 32768 ? (int32_t)raw : (int32_t)raw - 65536;
    if (!rest_is_zero(f)) return "reserved bits of ALU are set";
    if (n.reset) return "ALU with the reset bit";
    if (op > ALU_MUL) return "an unknown ALU opcode";
    if (op == ALU_MUL && !s->m.mul) return "ALU MUL on a machine without it";
    n.src_limit = use_imm && !s->m.imm_reads_src ? 0 : s->acc_depth;
    wrong = check_nest(s, &n, &empty);
    if (wrong != NULL || empty) return wrong;
    for (y = 0; y < n.outer; y++)
        for (x = 0; x < n.inner; x++)
            for (i = n.begin; i < n.end; i++) {
                (void)uop_of(s, s->uop[i], &u);
                alu_step(s, op, imm, (int)use_imm, u.dst + y * n.dst_out + x * n.dst_in,
                         u.src + y * n.src_out + x * n.src_in);
            }
    s->counters.alu_counter += (uint64_t)(n.end - n.begin) * n.outer * n.inner;
    return NULL;
}

/* ------------------------------------------------------------------ streams */
static uint32_t queue_of(uint32_t opcode, uint32_t mem) {
    if (opcode == STORE) return 2;
    return opcode == LOAD && (mem == WGT || mem == INP) ? 0 : 1;
}

/* Takes one token of pair `pair`, or gives one. */
static const char *token(vta_sim *s, uint32_t pair, int give) {
    if (give) {
        if (s->tokens[pair] >= s->m.max_tokens) return "too many tokens outstanding";
        s->tokens[pair]++;
        return NULL;
    }
    if (s->tokens[pair] == 0) return "a token that nobody gave: the machine would wait for ever";
    s->tokens[pair]--;
    return NULL;
}

/* Queue q gives to the next as pair 2q and takes from it as 2q+1; to the previous 2q-1, 2q-2. */
static const char *tokens(vta_sim *s, uint32_t queue, uint32_t prev, uint32_t next, int give) {
    const char *wrong = NULL;
    if ((prev && queue == 0) || (next && queue == 2)) return "a token flag beside the queues";
    if (prev) wrong = token(s, give ? 2 * queue - 1 : 2 * queue - 2, give);
    if (wrong == NULL && next) wrong = token(s, give ? 2 * queue : 2 * queue + 1, give);
    return wrong;
}

static const char *execute(vta_sim *s, const uint64_t words[2], uint32_t *opcode) {
    fields f;
    uint32_t pop_prev, pop_next, push_prev, push_next, queue;
    transfer t;
    const char *wrong;
    f.word[0] = words[0];
    f.word[1] = words[1];
    f.at[0] = f.at[1] = 0;
    *opcode = take(&f, 0, 3);
    if (*opcode > ALU) return "an unknown opcode";
    pop_prev = take(&f, 0, 1);
    pop_next = take(&f, 0, 1);
    push_prev = take(&f, 0, 1);
    push_next = take(&f, 0, 1);
    memset(&t, 0, sizeof t);
    if (*opcode == LOAD || *opcode == STORE) {
        t = transfer_of(&f);
        if (!rest_is_zero(&f)) return "reserved bits of a transfer are set";
    } else if (*opcode == FINISH && !rest_is_zero(&f)) {
        return "reserved bits of FINISH are set";
    }
    queue = queue_of(*opcode, t.mem);
    wrong = tokens(s, queue, pop_prev, pop_next, 0);
    if (wrong != NULL) return wrong;
    switch (*opcode) {
        case LOAD: wrong = load(s, &t); break;
        case STORE: wrong = store(s, &t); break;
        case GEMM: wrong = gemm(s, &f); break;
        case ALU: wrong = alu(s, &f); break;
        default: break;
    }
    return wrong != NULL ? wrong : tokens(s, queue, push_prev, push_next, 1);
}

static uint64_t word_at(const uint8_t *bytes) {
    uint64_t value = 0;
    int i;
    for (i = 7; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

static const char *run_stream(vta_sim *s) {
    uint32_t i, opcode = 0;
    uint64_t bytes = (uint64_t)s->start_count * 16, at = s->start_address - DRAM_BASE;
    const char *wrong;
    if (s->start_address < DRAM_BASE || at > s->dram_bytes || bytes > s->dram_bytes - at)
        return "instructions beyond the device's memory";
    memset(s->uop, 0, (size_t)uop_bytes(s));
    memset(s->inp, 0, (size_t)inp_bytes(s));
    memset(s->wgt, 0, (size_t)wgt_bytes(s));
    memset(s->acc, 0, (size_t)acc_bytes(s));
    memset(s->out, 0, (size_t)out_bytes(s));
    memset(s->tokens, 0, sizeof s->tokens);
    for (i = 0; i < s->start_count; i++) {
        uint64_t words[2];
        words[0] = word_at(s->dram + at + (uint64_t)i * 16);
        words[1] = word_at(s->dram + at + (uint64_t)i * 16 + 8);
        wrong = execute(s, words, &opcode);
        if (wrong != NULL) return wrong;
        if (opcode == FINISH) break;
    }
    if (opcode != FINISH) return "a stream without FINISH";
    if (i + 1 != s->start_count) return "instructions behind FINISH";
    for (i = 0; i < 4; i++)
        if (s->tokens[i] != 0) return "tokens are left at FINISH";
    return NULL;
}

/* ------------------------------------------------------------------ the driver table */
static vta_status sim_version(void *state, uint32_t *version) {
    (void)state;
    *version = SIM_VERSION;
    return VTA_OK;
}

static vta_status sim_capabilities(void *state, vta_machine *machine) {
    *machine = ((vta_sim *)state)->m;
    return VTA_OK;
}

static vta_status sim_allocate(void *state, uint64_t bytes, uint64_t align, vta_memory *memory) {
    vta_sim *s = state;
    uint64_t at;
    s->fault = "the simulated memory is full";
    if (align == 0 || align > DRAM_BASE || (align & (align - 1)) != 0 || bytes > s->dram_bytes)
        return VTA_E_MEMORY;
    at = (s->used + align - 1) / align * align; /* DRAM_BASE is a multiple of every alignment */
    if (at > s->dram_bytes || bytes > s->dram_bytes - at) return VTA_E_MEMORY;
    memory->address = DRAM_BASE + at;
    memory->bytes = bytes;
    memory->handle = NULL;
    s->used = at + bytes;
    return VTA_OK;
}

static void sim_release(void *state, vta_memory *memory) {
    vta_sim *s = state;
    if (memory->address - DRAM_BASE < s->used) s->used = memory->address - DRAM_BASE;
}

static uint8_t *range(vta_sim *s, const vta_memory *memory, uint64_t offset, uint64_t bytes) {
    s->fault = "a copy beyond its memory";
    if (offset > memory->bytes || bytes > memory->bytes - offset) return NULL;
    return s->dram + (memory->address - DRAM_BASE) + offset;
}

static vta_status sim_copy_to(void *state, const vta_memory *memory, uint64_t offset,
                              const void *data, size_t bytes) {
    uint8_t *to = range(state, memory, offset, bytes);
    if (to == NULL) return VTA_E_DEVICE;
    memcpy(to, data, bytes);
    return VTA_OK;
}

static vta_status sim_copy_from(void *state, const vta_memory *memory, uint64_t offset, void *data,
                                size_t bytes) {
    const uint8_t *from = range(state, memory, offset, bytes);
    if (from == NULL) return VTA_E_DEVICE;
    memcpy(data, from, bytes);
    return VTA_OK;
}

static vta_status sim_map(void *state, const vta_memory *memory, void **pointer) {
    *pointer = range(state, memory, 0, memory->bytes);
    return VTA_OK;
}

static vta_status sim_flush(void *state, const vta_memory *memory, uint64_t offset,
                            uint64_t bytes) {
    return range(state, memory, offset, bytes) == NULL ? VTA_E_DEVICE : VTA_OK;
}

static vta_status sim_start(void *state, uint64_t address, uint32_t count) {
    vta_sim *s = state;
    s->fault = "started twice without a wait or a reset";
    if (s->started) return VTA_E_DEVICE;
    s->start_address = address;
    s->start_count = count;
    s->started = 1;
    return VTA_OK;
}

static vta_status sim_wait(void *state, uint32_t timeout_ms) {
    vta_sim *s = state;
    (void)timeout_ms; /* a stream ends: its steps are limited */
    s->fault = "nothing was started";
    if (!s->started) return VTA_E_DEVICE;
    s->started = 0;
    s->fault = run_stream(s);
    return s->fault == NULL ? VTA_OK : VTA_E_DEVICE;
}

static vta_status sim_reset(void *state) {
    ((vta_sim *)state)->started = 0;
    return VTA_OK;
}

static const char *sim_explain(void *state) { return ((vta_sim *)state)->fault; }

void vta_sim_driver(vta_sim *sim, vta_driver *driver) {
    memset(driver, 0, sizeof *driver);
    driver->interface_version = VTA_DRIVER_VERSION;
    driver->state = sim;
    driver->version = sim_version;
    driver->capabilities = sim_capabilities;
    driver->allocate = sim_allocate;
    driver->release = sim_release;
    driver->map = sim_map;
    driver->copy_to = sim_copy_to;
    driver->copy_from = sim_copy_from;
    driver->flush = sim_flush;
    driver->start = sim_start;
    driver->wait = sim_wait;
    driver->reset = sim_reset;
    driver->explain = sim_explain;
}
