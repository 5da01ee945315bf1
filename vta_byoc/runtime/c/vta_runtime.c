/* The runtime of vta_runtime.h. In order: messages, SHA-256, the reader of the manifest, the
 * bundle's tables, its checks, programs on the device, host steps, the public functions. */
#include "vta_runtime.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#ifndef VTA_NO_STDIO
#include <stdio.h>
#endif

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "float arithmetic must round to float after each operation (gcc on x86: -msse2 -mfpmath=sse)"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#define MANIFEST "manifest.json"
#define MANIFEST_SUM "manifest.sha256"
#define ALIGN 64u
#define CHUNK 4096u
#define INSN_BYTES 16u
#define RELOCATION_BYTES 12u
#define NAME_BYTES 128u
#define MOST_BYTES ((uint64_t)1 << 40)
#define MOST_ROWS ((uint64_t)1 << 20)

enum { INSTRUCTIONS = 0, CONSTANTS = 1, MICRO_OPS = 2, RELOCATIONS = 3, FILES = 4 };
static const char *const FILE_NAMES[FILES] = {"instructions.bin", "constants.bin", "micro_ops.bin",
                                              "relocations.bin"};

enum { PLAIN = 0, PACKED = 1, PLANES = 2 };
static const char *const LAYOUTS[] = {"plain", "packed", "planes", NULL};
static const char *const DTYPES[] = {"int8", "uint8", "int32", "int64", "float32", NULL};
static const uint32_t ITEM_BYTES[] = {1, 1, 4, 8, 4};

enum op { QUANTIZE, DEQUANTIZE, PACK, FOLD, UNPACK, TRANSPOSE, CAST, ADD, SOFTMAX, ARGMAX, RUN };
static const char *const OPS[] = {"quantize", "dequantize", "pack", "fold",
                                  "unpack",   "transpose",  "cast", "add",
                                  "softmax",  "argmax",     "run",  NULL};

/* ------------------------------------------------------------------ tables of a model */
typedef struct counts {
    uint32_t tensors, inputs, outputs, programs, segments, symbols, steps, bindings, name_bytes;
} counts;

typedef struct symbol {
    uint64_t offset, bytes;
} symbol;

typedef struct segment { /* bytes of a file that lie in the arena from `at` on */
    uint32_t file;
    uint64_t first, bytes, at;
} segment;

typedef struct program {
    const char *name;
    uint32_t first_insn, insns, first_relocation, relocations;
    uint32_t first_segment, segments, first_symbol, symbols;
    uint64_t stored_from, arena_bytes, align;
    vta_memory arena, code;
    void *mapped;
    int has_arena, has_code;
} program;

typedef struct binding { /* a tensor in the arena of a program */
    uint32_t tensor;
    uint64_t at;
} binding;

typedef struct step {
    enum op op;
    uint32_t from, to;           /* of all but RUN */
    uint32_t axes[VTA_MAX_RANK]; /* TRANSPOSE; SOFTMAX and ARGMAX: the first */
    uint32_t window[2], grid[2], dilation[2], constants; /* FOLD */
    int32_t offset[2];
    float scale;                                /* QUANTIZE and DEQUANTIZE */
    int32_t value;                              /* their zero point; of ADD the addend */
    uint32_t program, first_binding, ins, outs; /* RUN */
} step;

struct vta_model {
    vta_info info;
    counts n;
    uint64_t file_bytes[FILES];
    uint8_t file_sums[FILES][32];
    uint64_t workspace_bytes;
    vta_driver driver;
    vta_tensor *tensors;
    uint8_t *layouts;
    uint32_t *inputs, *outputs;
    program *programs;
    segment *segments;
    symbol *symbols;
    step *steps;
    binding *bindings;
    char *names;
    uint32_t names_used;
    uint8_t *workspace;
};

/* ------------------------------------------------------------------ messages */
/* Writes a message: each %s takes the text, each %u the next number. */
static vta_status fail(vta_error *error, vta_status status, const char *format, const char *text,
                       uint64_t first, uint64_t second) {
    size_t n = 0, most = sizeof error->message - 1;
    uint64_t number = first;
    if (error == NULL) return status;
    error->status = status;
    for (; *format != '\0' && n < most; format++) {
        if (format[0] == '%' && format[1] == 's') {
            const char *c;
            for (c = text == NULL ? "" : text; *c != '\0' && n < most; c++)
                error->message[n++] = *c;
            format++;
        } else if (format[0] == '%' && format[1] == 'u') {
            char digits[20];
            int k = 0;
            do digits[k++] = (char)('0' + number % 10);
            while ((number /= 10) != 0);
            while (k > 0 && n < most) error->message[n++] = digits[--k];
            number = second;
            format++;
        } else {
            error->message[n++] = *format;
        }
    }
    error->message[n] = '\0';
    return status;
}

static vta_status bad(vta_error *error, const char *format, const char *text, uint64_t first,
                      uint64_t second) {
    return fail(error, VTA_E_FORMAT, format, text, first, second);
}

const char *vta_status_name(vta_status status) {
    static const char *const names[] = {"ok",      "file",   "checksum", "format",  "version",
                                        "machine", "memory", "device",   "timeout", "argument"};
    return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

const char *vta_dtype_name(vta_dtype dtype) {
    return (size_t)dtype <= VTA_FLOAT32 ? DTYPES[dtype] : "unknown";
}

/* ------------------------------------------------------------------ SHA-256 (FIPS 180-4) */
typedef struct sha {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t block[64];
} sha;

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t x, unsigned n) { return x >> n | x << (32 - n); }

static void sha_block(sha *s) {
    uint32_t w[64], v[8];
    int i;
    for (i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 |
               (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
    for (; i < 64; i++) {
        uint32_t a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, s->h, sizeof v);
    for (i = 0; i < 64; i++) {
        uint32_t a = turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25);
        uint32_t t = v[7] + a + ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
        uint32_t b = turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22);
        uint32_t u = b + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (i = 0; i < 8; i++) s->h[i] += v[i];
}

static void sha_begin(sha *s) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, start, sizeof start);
    s->bytes = 0;
}

static void sha_add(sha *s, const uint8_t *data, size_t bytes) {
    while (bytes > 0) {
        size_t at = (size_t)(s->bytes % 64), n = 64 - at < bytes ? 64 - at : bytes;
        memcpy(s->block + at, data, n);
        s->bytes += n;
        data += n;
        bytes -= n;
        if (s->bytes % 64 == 0) sha_block(s);
    }
}

static void sha_end(sha *s, uint8_t sum[32]) {
    static const uint8_t one = 0x80, zero = 0;
    uint64_t bits = s->bytes * 8;
    uint8_t length[8];
    int i;
    for (i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha_add(s, &one, 1);
    while (s->bytes % 64 != 56) sha_add(s, &zero, 1);
    sha_add(s, length, 8);
    for (i = 0; i < 32; i++) sum[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

/* ------------------------------------------------------------------ files */
static vta_status file_size(const vta_source *source, const char *name, uint64_t *bytes,
                            vta_error *error) {
    if (source->size(source->state, name, bytes) != 0)
        return fail(
            error, VTA_E_FILE,
            "file \"%s\" of the bundle cannot be read; all six files belong to it; copy the "
            "bundle again",
            name, 0, 0);
    return VTA_OK;
}

static vta_status read_file(const vta_source *source, const char *name, uint64_t offset, void *data,
                            size_t bytes, vta_error *error) {
    if (source->read(source->state, name, offset, data, bytes) != 0)
        return fail(error, VTA_E_FILE,
                    "file \"%s\" of the bundle cannot be read at byte %u; copy the bundle again",
                    name, offset, 0);
    return VTA_OK;
}

static vta_status sum_of(const vta_source *source, const char *name, uint64_t bytes,
                         uint8_t sum[32], vta_error *error) {
    uint8_t buffer[CHUNK];
    uint64_t at = 0;
    sha s;
    sha_begin(&s);
    while (at < bytes) {
        size_t n = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
        vta_status status = read_file(source, name, at, buffer, n, error);
        if (status != VTA_OK) return status;
        sha_add(&s, buffer, n);
        at += n;
    }
    sha_end(&s, sum);
    return VTA_OK;
}

/* 64 lowercase digits to 32 bytes; 0 where they are not. */
static int from_hex(const char *text, uint8_t sum[32]) {
    int i;
    memset(sum, 0, 32);
    for (i = 0; i < 64; i++) {
        int c = text[i], digit = c >= '0' && c <= '9'   ? c - '0'
                                 : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                        : -1;
        if (digit < 0) return 0;
        sum[i / 2] = (uint8_t)(sum[i / 2] << 4 | digit);
    }
    return 1;
}

static vta_status damaged(vta_error *error, const char *name) {
    return fail(error, VTA_E_CHECKSUM,
                "file \"%s\" is damaged: its SHA-256 is not the one written beside it; copy the "
                "bundle again, or write it again",
                name, 0, 0);
}

static vta_status check_manifest_sum(const vta_source *source, uint64_t *bytes, vta_error *error) {
    static const char tail[] = "  " MANIFEST "\n";
    char text[64 + sizeof tail - 1];
    uint8_t want[32], have[32];
    uint64_t size;
    vta_status status = file_size(source, MANIFEST_SUM, &size, error);
    if (status == VTA_OK) status = file_size(source, MANIFEST, bytes, error);
    if (status != VTA_OK) return status;
    if (size != sizeof text)
        return fail(error, VTA_E_FILE,
                    "file \"" MANIFEST_SUM
                    "\" has %u bytes; %u belong to it; the bundle is truncated "
                    "or damaged: copy it again",
                    NULL, size, sizeof text);
    status = read_file(source, MANIFEST_SUM, 0, text, sizeof text, error);
    if (status != VTA_OK) return status;
    if (!from_hex(text, want) || memcmp(text + 64, tail, sizeof tail - 1) != 0)
        return damaged(error, MANIFEST_SUM);
    status = sum_of(source, MANIFEST, *bytes, have, error);
    if (status != VTA_OK) return status;
    return memcmp(want, have, 32) == 0 ? VTA_OK : damaged(error, MANIFEST);
}

static vta_status check_files(const vta_model *m, const vta_source *source, vta_error *error) {
    uint8_t have[32];
    int i;
    for (i = 0; i < FILES; i++) {
        uint64_t bytes;
        vta_status status = file_size(source, FILE_NAMES[i], &bytes, error);
        if (status != VTA_OK) return status;
        if (bytes != m->file_bytes[i])
            return fail(
                error, VTA_E_FILE,
                "file \"%s\" has %u bytes; the manifest says %u; the bundle is truncated or "
                "damaged: copy it again",
                FILE_NAMES[i], bytes, m->file_bytes[i]);
        status = sum_of(source, FILE_NAMES[i], bytes, have, error);
        if (status != VTA_OK) return status;
        if (memcmp(have, m->file_sums[i], 32) != 0) return damaged(error, FILE_NAMES[i]);
    }
    return VTA_OK;
}

/* ------------------------------------------------------------------ reading the manifest */
/* JSON in one form: keys in the order of docs/bundle-format.md, printable text without escapes,
 * whole numbers. The first thing that is not so stops the reader; the rest reads as zeros. */
typedef struct reader {
    const vta_source *source;
    vta_error *error;
    vta_status status;
    uint64_t size, at; /* of the file; of the next byte that is read into the buffer */
    uint8_t buffer[256];
    size_t have, next;
    int first; /* nothing stands in front in this object or list */
} reader;

static int peek(reader *r) {
    if (r->status != VTA_OK) return -1;
    if (r->next == r->have) {
        uint64_t left = r->size - r->at;
        if (left == 0) return -1;
        r->have = left < sizeof r->buffer ? (size_t)left : sizeof r->buffer;
        r->status = read_file(r->source, MANIFEST, r->at, r->buffer, r->have, r->error);
        if (r->status != VTA_OK) return -1;
        r->at += r->have;
        r->next = 0;
    }
    return r->buffer[r->next];
}

static void refuse(reader *r, const char *wanted) {
    if (r->status == VTA_OK)
        r->status = bad(r->error,
                        MANIFEST
                        ", byte %u: %s is expected; the manifest is not one that "
                        "this format has: write the bundle again",
                        wanted, r->at - (r->have - r->next), 0);
}

static void space(reader *r) {
    int c;
    while ((c = peek(r)) == ' ' || c == '\n') r->next++;
}

static void expect(reader *r, const char *text) {
    const char *c;
    space(r);
    for (c = text; *c != '\0'; c++) {
        if (peek(r) != (unsigned char)*c) {
            refuse(r, text);
            return;
        }
        r->next++;
    }
}

static void begin(reader *r, const char *bracket) {
    expect(r, bracket);
    r->first = 1;
}

static void end(reader *r, const char *bracket) {
    expect(r, bracket);
    r->first = 0;
}

static void item(reader *r) {
    if (!r->first) expect(r, ",");
    r->first = 0;
}

/* Whether a list goes on. */
static int more(reader *r) {
    space(r);
    if (peek(r) == ']' || r->status != VTA_OK) return 0;
    item(r);
    return r->status == VTA_OK;
}

static void key(reader *r, const char *name) {
    item(r);
    expect(r, "\"");
    if (r->status == VTA_OK) {
        const char *c;
        for (c = name; *c != '\0'; c++, r->next++)
            if (peek(r) != (unsigned char)*c) {
                refuse(r, name);
                return;
            }
    }
    if (peek(r) != '"')
        refuse(r, name);
    else
        r->next++;
    expect(r, ":");
}

static uint64_t number(reader *r, uint64_t most) {
    uint64_t value = 0;
    int digits = 0, c;
    space(r);
    while ((c = peek(r)) >= '0' && c <= '9') {
        if (digits == 1 && value == 0) refuse(r, "a number without leading zeros");
        if (value > (UINT64_MAX - 9) / 10) refuse(r, "a smaller number");
        if (r->status != VTA_OK) return 0;
        value = value * 10 + (uint64_t)(c - '0');
        digits++;
        r->next++;
    }
    if (digits == 0)
        refuse(r, "a number");
    else if (value > most)
        refuse(r, "a smaller number");
    return r->status == VTA_OK ? value : 0;
}

static int32_t signed_number(reader *r) {
    int negative;
    uint64_t value;
    space(r);
    negative = peek(r) == '-';
    if (negative) r->next++;
    value = number(r, (uint64_t)INT32_MAX + (negative ? 1u : 0u));
    if (negative && value == 0) refuse(r, "a number other than -0");
    return (int32_t)(negative ? -(int64_t)value : (int64_t)value);
}

static uint32_t key_number(reader *r, const char *name, uint64_t most) {
    key(r, name);
    return (uint32_t)number(r, most);
}

static uint64_t key_bytes(reader *r, const char *name) {
    key(r, name);
    return number(r, MOST_BYTES);
}

static void key_text(reader *r, const char *name, char *text, size_t most) {
    size_t n = 0;
    int c;
    key(r, name);
    expect(r, "\"");
    while ((c = peek(r)) != '"' && r->status == VTA_OK) {
        if (c < 0x20 || c > 0x7e || c == '\\')
            refuse(r, "printable text without escapes");
        else if (n + 1 >= most)
            refuse(r, "a shorter text");
        else {
            text[n++] = (char)c;
            r->next++;
        }
    }
    if (r->status == VTA_OK) r->next++;
    text[n] = '\0';
}

static uint32_t one_of(reader *r, const char *const *known, const char *what) {
    char text[NAME_BYTES];
    uint32_t i;
    key_text(r, what, text, sizeof text);
    for (i = 0; known[i] != NULL; i++)
        if (strcmp(text, known[i]) == 0) return i;
    refuse(r, what);
    return 0;
}

/* ------------------------------------------------------------------ the head of the manifest */
typedef struct named {
    const char *name;
    size_t offset;
    uint64_t most;
} named;

#define MACHINE_FIELD(field, most) {#field, offsetof(vta_machine, field), most}
static const named MACHINE[] = {MACHINE_FIELD(log_batch, 6),
                                MACHINE_FIELD(log_block, 7),
                                MACHINE_FIELD(log_uop_buff_size, 30),
                                MACHINE_FIELD(log_inp_buff_size, 30),
                                MACHINE_FIELD(log_wgt_buff_size, 30),
                                MACHINE_FIELD(log_acc_buff_size, 30),
                                MACHINE_FIELD(uop_bits, 16),
                                MACHINE_FIELD(inp_bits, 16),
                                MACHINE_FIELD(wgt_bits, 16),
                                MACHINE_FIELD(acc_bits, 16),
                                MACHINE_FIELD(mul, 1),
                                MACHINE_FIELD(acc_8bit, 1),
                                MACHINE_FIELD(imm_reads_src, 1),
                                MACHINE_FIELD(shift_modulo, 1),
                                MACHINE_FIELD(out_sram, 1),
                                MACHINE_FIELD(max_shift, 31),
                                MACHINE_FIELD(dst_distance, 64),
                                MACHINE_FIELD(max_tokens, 65535)};
#define MACHINE_FIELDS (sizeof MACHINE / sizeof *MACHINE)

#define COUNT_FIELD(field) {#field, offsetof(counts, field), MOST_ROWS}
static const named COUNTS[] = {
    COUNT_FIELD(tensors),  COUNT_FIELD(inputs),   COUNT_FIELD(outputs),
    COUNT_FIELD(programs), COUNT_FIELD(segments), COUNT_FIELD(symbols),
    COUNT_FIELD(steps),    COUNT_FIELD(bindings), COUNT_FIELD(name_bytes)};

static uint32_t *field_of(void *record, const named *field) {
    return (uint32_t *)(void *)((uint8_t *)record + field->offset);
}

static void read_record(reader *r, const char *name, const named *fields, size_t n, void *record) {
    size_t i;
    key(r, name);
    begin(r, "{");
    for (i = 0; i < n; i++)
        *field_of(record, &fields[i]) = key_number(r, fields[i].name, fields[i].most);
    end(r, "}");
}

static uint64_t rounded(uint64_t value) { return (value + ALIGN - 1) / ALIGN * ALIGN; }

/* Gives the model's tables their places, or only says where they end where `base` is NULL. */
static uint64_t lay_out(vta_model *m, uint8_t *base) {
    uint64_t at = 0;
#define TABLE(field, type, count)                                 \
    do {                                                          \
        if (base != NULL) m->field = (type *)(void *)(base + at); \
        at += rounded((uint64_t)sizeof(type) * (count));          \
    } while (0)
    TABLE(tensors, vta_tensor, m->n.tensors);
    TABLE(layouts, uint8_t, m->n.tensors);
    TABLE(inputs, uint32_t, m->n.inputs);
    TABLE(outputs, uint32_t, m->n.outputs);
    TABLE(programs, program, m->n.programs);
    TABLE(segments, segment, m->n.segments);
    TABLE(symbols, symbol, m->n.symbols);
    TABLE(steps, step, m->n.steps);
    TABLE(bindings, binding, m->n.bindings);
    TABLE(names, char, m->n.name_bytes);
    TABLE(workspace, uint8_t, m->workspace_bytes);
#undef TABLE
    return at;
}

static void read_head(reader *r, vta_model *m) {
    char text[NAME_BYTES];
    size_t i;
    begin(r, "{");
    key_text(r, "format", text, sizeof text);
    if (strcmp(text, "vta-byoc bundle") != 0) refuse(r, "the format \"vta-byoc bundle\"");
    m->info.version = key_number(r, "version", UINT32_MAX);
    if (r->status == VTA_OK && m->info.version != VTA_BUNDLE_VERSION)
        r->status =
            fail(r->error, VTA_E_VERSION,
                 "the bundle has format version %u; this runtime reads version %u; take the "
                 "runtime of the vta_byoc that wrote it, or write the bundle again",
                 NULL, m->info.version, VTA_BUNDLE_VERSION);
    key_text(r, "producer", text, sizeof text);
    read_record(r, "machine", MACHINE, MACHINE_FIELDS, &m->info.machine);
    read_record(r, "counts", COUNTS, sizeof COUNTS / sizeof *COUNTS, &m->n);
    for (i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++)
        if (*field_of(&m->n, &COUNTS[i]) > r->size)
            refuse(r, "counts of what a file of this size holds;");
    m->workspace_bytes = key_bytes(r, "workspace_bytes");
    m->info.device_bytes = key_bytes(r, "device_bytes");
    m->info.host_bytes = ALIGN + rounded(sizeof(vta_model)) + lay_out(m, NULL);
    if (r->status == VTA_OK && m->info.host_bytes > SIZE_MAX / 2)
        r->status = fail(r->error, VTA_E_MEMORY,
                         "the bundle takes %u bytes of the host; this host addresses %u; compile a "
                         "smaller model",
                         NULL, m->info.host_bytes, SIZE_MAX / 2);
}

static vta_status open_reader(reader *r, const vta_source *source, vta_error *error) {
    memset(r, 0, sizeof *r);
    r->source = source;
    r->error = error;
    return check_manifest_sum(source, &r->size, error);
}

/* ------------------------------------------------------------------ the rest of the manifest */
static const char *keep_name(reader *r, vta_model *m, const char *name) {
    char text[NAME_BYTES];
    size_t n;
    char *kept = m->names + m->names_used;
    key_text(r, name, text, sizeof text);
    n = strlen(text) + 1;
    if (n > m->n.name_bytes - m->names_used) {
        refuse(r, "counts.name_bytes to hold all names;");
        return "";
    }
    memcpy(kept, text, n);
    m->names_used += (uint32_t)n;
    return kept;
}

static void read_shape(reader *r, vta_tensor *t) {
    key(r, "shape");
    t->bytes = ITEM_BYTES[t->dtype];
    begin(r, "[");
    while (more(r)) {
        uint32_t size = (uint32_t)number(r, UINT32_MAX);
        if (t->rank == VTA_MAX_RANK || size == 0 || t->bytes > MOST_BYTES / (size ? size : 1u)) {
            refuse(r, "a shape of at most 8 positive sizes and 2^40 bytes");
            break;
        }
        t->shape[t->rank++] = size;
        t->bytes *= size;
    }
    end(r, "]");
}

static void read_files(reader *r, vta_model *m) {
    char text[NAME_BYTES];
    int i;
    key(r, "files");
    begin(r, "[");
    for (i = 0; i < FILES; i++) {
        item(r);
        begin(r, "{");
        key_text(r, "name", text, sizeof text);
        if (strcmp(text, FILE_NAMES[i]) != 0) refuse(r, FILE_NAMES[i]);
        m->file_bytes[i] = key_bytes(r, "bytes");
        key_text(r, "sha256", text, sizeof text);
        if (strlen(text) != 64 || !from_hex(text, m->file_sums[i])) refuse(r, "a SHA-256");
        end(r, "}");
    }
    end(r, "]");
}

static void read_tensors(reader *r, vta_model *m) {
    uint32_t i;
    key(r, "tensors");
    begin(r, "[");
    for (i = 0; i < m->n.tensors && r->status == VTA_OK; i++) {
        vta_tensor *t = &m->tensors[i];
        item(r);
        begin(r, "{");
        t->name = keep_name(r, m, "name");
        t->dtype = (vta_dtype)one_of(r, DTYPES, "dtype");
        m->layouts[i] = (uint8_t)one_of(r, LAYOUTS, "layout");
        read_shape(r, t);
        t->offset = key_bytes(r, "offset");
        if (t->offset % ALIGN != 0 || t->bytes > m->workspace_bytes ||
            t->offset > m->workspace_bytes - t->bytes)
            refuse(r, "a tensor inside of the workspace, at a multiple of 64,");
        end(r, "}");
    }
    end(r, "]");
}

static void read_indices(reader *r, const vta_model *m, const char *name, uint32_t *rows,
                         uint32_t n) {
    uint32_t i;
    key(r, name);
    begin(r, "[");
    for (i = 0; i < n && r->status == VTA_OK; i++) {
        item(r);
        rows[i] = (uint32_t)number(r, MOST_ROWS);
        if (rows[i] >= m->n.tensors) refuse(r, "the number of a tensor");
    }
    end(r, "]");
}

static void read_segments(reader *r, vta_model *m, program *p, uint32_t *used) {
    static const char *const files[] = {"constants.bin", "micro_ops.bin", NULL};
    key(r, "segments");
    p->first_segment = *used;
    begin(r, "[");
    while (more(r)) {
        segment *s = &m->segments[*used];
        if (*used == m->n.segments) {
            refuse(r, "counts.segments to count all segments;");
            return;
        }
        begin(r, "{");
        s->file = CONSTANTS + one_of(r, files, "file");
        s->first = key_bytes(r, "first");
        s->bytes = key_bytes(r, "bytes");
        s->at = key_bytes(r, "at");
        end(r, "}");
        (*used)++;
        p->segments++;
    }
    end(r, "]");
}

static void read_symbols(reader *r, vta_model *m, program *p, uint32_t *used) {
    static const char *const kinds[] = {"input", "const", "uop", "temp", "output", NULL};
    static const char *const dtypes[] = {"int8", "int32", "uint32", "uint8", NULL};
    static const uint32_t sizes[] = {1, 4, 4, 1};
    char text[NAME_BYTES];
    key(r, "symbols");
    p->first_symbol = *used;
    begin(r, "[");
    while (more(r)) {
        vta_tensor t;
        symbol *s = &m->symbols[*used];
        if (*used == m->n.symbols) {
            refuse(r, "counts.symbols to count all symbols;");
            return;
        }
        memset(&t, 0, sizeof t);
        begin(r, "{");
        key_text(r, "name", text, sizeof text);
        (void)one_of(r, kinds, "kind");
        t.bytes = sizes[one_of(r, dtypes, "dtype")];
        t.dtype = t.bytes == 4 ? VTA_INT32 : VTA_INT8;
        read_shape(r, &t);
        key_text(r, "scope", text, sizeof text);
        s->bytes = t.bytes;
        s->offset = key_bytes(r, "offset");
        end(r, "}");
        (*used)++;
        p->symbols++;
    }
    end(r, "]");
}

static void read_rows(reader *r, const char *name, uint32_t *first, uint32_t *count) {
    key(r, name);
    begin(r, "{");
    *first = key_number(r, "first", UINT32_MAX);
    *count = key_number(r, "count", UINT32_MAX);
    end(r, "}");
}

static void read_programs(reader *r, vta_model *m) {
    static const char *const counters[] = {"inp_load_nbytes", "wgt_load_nbytes",  "acc_load_nbytes",
                                           "uop_load_nbytes", "out_store_nbytes", "gemm_counter",
                                           "alu_counter"};
    uint32_t i, k, segments = 0, symbols = 0;
    key(r, "programs");
    begin(r, "[");
    for (i = 0; i < m->n.programs && r->status == VTA_OK; i++) {
        program *p = &m->programs[i];
        item(r);
        begin(r, "{");
        p->name = keep_name(r, m, "name");
        read_rows(r, "instructions", &p->first_insn, &p->insns);
        read_rows(r, "relocations", &p->first_relocation, &p->relocations);
        p->stored_from = key_bytes(r, "stored_from");
        p->arena_bytes = key_bytes(r, "arena_bytes");
        p->align = key_bytes(r, "align");
        read_segments(r, m, p, &segments);
        read_symbols(r, m, p, &symbols);
        key(r, "counters");
        begin(r, "{");
        for (k = 0; k < 7; k++) {
            key(r, counters[k]);
            (void)number(r, UINT64_MAX);
        }
        end(r, "}");
        end(r, "}");
    }
    end(r, "]");
    if (segments != m->n.segments || symbols != m->n.symbols)
        refuse(r, "as many rows as counts says");
}

static void read_bindings(reader *r, vta_model *m, const char *name, uint32_t *used, uint32_t *n) {
    key(r, name);
    begin(r, "[");
    while (more(r)) {
        binding *b = &m->bindings[*used];
        if (*used == m->n.bindings) {
            refuse(r, "counts.bindings to count all bindings;");
            return;
        }
        begin(r, "{");
        b->tensor = key_number(r, "tensor", MOST_ROWS);
        b->at = key_bytes(r, "at");
        if (b->tensor >= m->n.tensors) refuse(r, "the number of a tensor");
        end(r, "}");
        (*used)++;
        (*n)++;
    }
    end(r, "]");
}

static void read_pair(reader *r, const char *name, uint32_t *pair) {
    key(r, name);
    begin(r, "[");
    item(r);
    pair[0] = (uint32_t)number(r, 65535);
    item(r);
    pair[1] = (uint32_t)number(r, 65535);
    end(r, "]");
}

static void read_fold(reader *r, step *s) {
    read_pair(r, "window", s->window);
    read_pair(r, "grid", s->grid);
    read_pair(r, "dilation", s->dilation);
    key(r, "offset");
    begin(r, "[");
    item(r);
    s->offset[0] = signed_number(r);
    item(r);
    s->offset[1] = signed_number(r);
    end(r, "]");
    s->constants = key_number(r, "constants", 65535);
}

static void read_scale(reader *r, step *s) {
    uint32_t bits = key_number(r, "scale_bits", UINT32_MAX);
    memcpy(&s->scale, &bits, sizeof bits);
    key(r, "zero_point");
    s->value = signed_number(r);
}

static void read_step(reader *r, vta_model *m, step *s, uint32_t *bindings) {
    uint32_t n = 0;
    s->op = (enum op)one_of(r, OPS, "op");
    if (s->op == RUN) {
        s->program = key_number(r, "program", MOST_ROWS);
        if (s->program >= m->n.programs) refuse(r, "the number of a program");
        s->first_binding = *bindings;
        read_bindings(r, m, "inputs", bindings, &s->ins);
        read_bindings(r, m, "outputs", bindings, &s->outs);
        return;
    }
    s->from = key_number(r, "from", MOST_ROWS);
    s->to = key_number(r, "to", MOST_ROWS);
    if (s->from >= m->n.tensors || s->to >= m->n.tensors) refuse(r, "the number of a tensor");
    if (s->op == QUANTIZE || s->op == DEQUANTIZE) read_scale(r, s);
    if (s->op == FOLD) read_fold(r, s);
    if (s->op == SOFTMAX || s->op == ARGMAX) s->axes[0] = key_number(r, "axis", VTA_MAX_RANK - 1);
    if (s->op == ADD) {
        key(r, "value");
        s->value = signed_number(r);
    }
    if (s->op != TRANSPOSE) return;
    key(r, "axes");
    begin(r, "[");
    while (more(r)) {
        uint32_t axis = (uint32_t)number(r, VTA_MAX_RANK - 1);
        if (n == VTA_MAX_RANK) {
            refuse(r, "at most 8 axes");
            return;
        }
        s->axes[n++] = axis;
    }
    end(r, "]");
    if (r->status == VTA_OK && n != m->tensors[s->from].rank)
        refuse(r, "one axis for each of the tensor");
}

static void read_body(reader *r, vta_model *m) {
    uint32_t i, bindings = 0;
    read_files(r, m);
    read_tensors(r, m);
    read_indices(r, m, "inputs", m->inputs, m->n.inputs);
    read_indices(r, m, "outputs", m->outputs, m->n.outputs);
    read_programs(r, m);
    key(r, "steps");
    begin(r, "[");
    for (i = 0; i < m->n.steps && r->status == VTA_OK; i++) {
        item(r);
        begin(r, "{");
        read_step(r, m, &m->steps[i], &bindings);
        end(r, "}");
    }
    end(r, "]");
    end(r, "}");
    space(r);
    if (r->status == VTA_OK && peek(r) != -1) refuse(r, "the end of the file");
    if (bindings != m->n.bindings || m->names_used != m->n.name_bytes)
        refuse(r, "as many rows as counts says");
}

/* ------------------------------------------------------------------ checks of host steps */
static uint64_t items(const vta_tensor *t) { return t->bytes / ITEM_BYTES[t->dtype]; }

static uint64_t product(const vta_tensor *t, uint32_t first, uint32_t last) {
    uint64_t n = 1;
    for (; first < last; first++) n *= t->shape[first];
    return n;
}

static uint32_t blocks(uint32_t size, uint32_t block) {
    return (uint32_t)(((uint64_t)size + block - 1) / block);
}

static int apart(const vta_tensor *a, const vta_tensor *b) {
    return a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
}

/* Whether `t`, behind `skip` dimensions, is the packed form of (n, c, h, w) on the machine. */
static int packs(const vta_model *m, const vta_tensor *t, uint32_t skip, uint32_t n, uint32_t c,
                 uint32_t h, uint32_t w) {
    uint32_t b = 1u << m->info.machine.log_batch, k = 1u << m->info.machine.log_block;
    const uint32_t *s = t->shape + skip;
    return t->rank == skip + 6 && s[0] == blocks(n, b) && s[1] == blocks(c, k) && s[2] == h &&
           s[3] == w && s[4] == b && s[5] == k;
}

static int check_fold(const vta_model *m, const step *s, const vta_tensor *from,
                      const vta_tensor *to) {
    uint64_t copied = (uint64_t)s->window[0] * s->window[1] * from->shape[1];
    uint64_t lanes = copied + s->constants;
    const uint32_t *t = to->shape;
    int i;
    for (i = 0; i < 2; i++)
        if (s->window[i] == 0 || s->grid[i] == 0 || s->dilation[i] == 0 || s->offset[i] < -65535 ||
            s->offset[i] > 65535)
            return 0;
    return from->dtype == VTA_INT8 && to->dtype == VTA_INT8 && from->rank == 4 && to->rank == 6 &&
           lanes <= UINT32_MAX && packs(m, to, 0, from->shape[0], (uint32_t)lanes, t[2], t[3]);
}

static int check_unpack(const vta_model *m, uint8_t layout, const vta_tensor *from,
                        const vta_tensor *to) {
    const uint32_t *t = to->shape;
    uint32_t skip = to->dtype == VTA_INT32 ? 1 : 0;
    if (from->dtype != VTA_INT8 || to->rank != 4 || (to->dtype != VTA_INT8 && skip == 0)) return 0;
    return layout == (skip ? PLANES : PACKED) && (!skip || from->shape[0] == 4) &&
           packs(m, from, skip, t[0], t[1], t[2], t[3]);
}

static int check_axes(const step *s, const vta_tensor *from, const vta_tensor *to) {
    uint32_t i, seen = 0;
    if (from->rank != to->rank || from->dtype != to->dtype) return 0;
    for (i = 0; i < to->rank; i++) {
        if (s->axes[i] >= from->rank || to->shape[i] != from->shape[s->axes[i]]) return 0;
        seen |= 1u << s->axes[i];
    }
    return seen == (1u << from->rank) - 1;
}

static int check_host_step(const vta_model *m, const step *s) {
    const vta_tensor *from = &m->tensors[s->from], *to = &m->tensors[s->to];
    const uint32_t *f = from->shape;
    int same = items(from) == items(to);
    if (!apart(from, to)) return 0;
    switch (s->op) {
        case QUANTIZE: return same && from->dtype == VTA_FLOAT32 && to->dtype <= VTA_UINT8;
        case DEQUANTIZE: return same && from->dtype <= VTA_INT32 && to->dtype == VTA_FLOAT32;
        case PACK:
            return from->rank == 4 && from->dtype == VTA_INT8 && to->dtype == VTA_INT8 &&
                   m->layouts[s->to] == PACKED && packs(m, to, 0, f[0], f[1], f[2], f[3]);
        case FOLD: return m->layouts[s->to] == PACKED && check_fold(m, s, from, to);
        case UNPACK: return check_unpack(m, m->layouts[s->from], from, to);
        case TRANSPOSE: return check_axes(s, from, to);
        case CAST: return same && from->dtype != VTA_FLOAT32;
        case ADD: return same && from->dtype == VTA_INT32 && to->dtype == VTA_INT32;
        case SOFTMAX:
            return same && s->axes[0] < from->rank && from->dtype == VTA_FLOAT32 &&
                   to->dtype == VTA_FLOAT32;
        case ARGMAX:
            return s->axes[0] < from->rank && from->dtype != VTA_INT64 && to->dtype == VTA_INT64 &&
                   items(to) * f[s->axes[0]] == items(from);
        default: return 0;
    }
}

static vta_status check_steps(const vta_model *m, vta_error *error) {
    uint32_t i, k;
    for (i = 0; i < m->n.steps; i++) {
        const step *s = &m->steps[i];
        if (s->op != RUN) {
            if (!check_host_step(m, s))
                return bad(error,
                           "step %u, \"%s\": its tensors are not of the types, shapes and places "
                           "that it takes; write the bundle again",
                           OPS[s->op], i, 0);
            continue;
        }
        for (k = 0; k < s->ins + s->outs; k++) {
            const program *p = &m->programs[s->program];
            const binding *b = &m->bindings[s->first_binding + k];
            uint64_t bytes = m->tensors[b->tensor].bytes;
            uint64_t last = k < s->ins ? p->stored_from : p->arena_bytes;
            if (bytes > last || b->at > last - bytes)
                return bad(
                    error,
                    "step %u: tensor \"%s\" does not lie in its part of the arena; write the "
                    "bundle again",
                    m->tensors[b->tensor].name, i, 0);
        }
    }
    return VTA_OK;
}

/* ------------------------------------------------------------------ checks of programs */
static int log_depth(uint32_t log_bytes, uint32_t log_element, uint32_t bits) {
    int log = (int)log_bytes - (int)log_element;
    return log >= 1 && log <= 16 && bits >= (uint32_t)log && bits <= 16;
}

static vta_status check_machine(const vta_machine *m, vta_error *error) {
    uint32_t lanes = m->log_batch + m->log_block;
    uint32_t src = m->acc_bits > m->inp_bits ? m->acc_bits : m->inp_bits;
    if (m->log_block < 2 || !log_depth(m->log_uop_buff_size, 2, m->uop_bits) ||
        !log_depth(m->log_inp_buff_size, lanes, m->inp_bits) ||
        !log_depth(m->log_wgt_buff_size, 2 * m->log_block, m->wgt_bits) ||
        !log_depth(m->log_acc_buff_size, lanes + 2, m->acc_bits) || 2 * m->uop_bits > 27 ||
        m->acc_bits + m->inp_bits + m->wgt_bits > 32 || 4 * m->acc_bits > 44 ||
        m->acc_bits + src + m->wgt_bits > 32)
        return bad(error, "the manifest's machine cannot be encoded; write the bundle again", NULL,
                   0, 0);
    return VTA_OK;
}

static vta_status same_machine(const vta_machine *want, vta_machine *have, vta_error *error) {
    size_t i;
    for (i = 0; i < MACHINE_FIELDS; i++) {
        uint32_t a, b;
        memcpy(&a, (const uint8_t *)want + MACHINE[i].offset, sizeof a);
        memcpy(&b, (const uint8_t *)have + MACHINE[i].offset, sizeof b);
        if (a != b)
            return fail(
                error, VTA_E_MACHINE,
                "the bundle is for another machine: %s %u, the device has %u; compile the model "
                "for this device (--config)",
                MACHINE[i].name, a, b);
    }
    return VTA_OK;
}

static int beyond(uint64_t first, uint64_t count, uint64_t size, uint64_t bytes) {
    return first > bytes / size || count > bytes / size - first;
}

static vta_status check_program(const vta_model *m, const program *p, vta_error *error) {
    uint32_t i;
    if (p->insns == 0 || beyond(p->first_insn, p->insns, INSN_BYTES, m->file_bytes[INSTRUCTIONS]) ||
        beyond(p->first_relocation, p->relocations, RELOCATION_BYTES, m->file_bytes[RELOCATIONS]))
        return bad(error,
                   "program \"%s\": its instructions or relocations leave their file; write the "
                   "bundle again",
                   p->name, 0, 0);
    if (p->align < ALIGN || p->align > 65536 || (p->align & (p->align - 1)) != 0 ||
        p->arena_bytes == 0 || p->stored_from > p->arena_bytes)
        return bad(
            error,
            "program \"%s\": its arena of %u bytes, aligned to %u, is none; write the bundle "
            "again",
            p->name, p->arena_bytes, p->align);
    for (i = 0; i < p->segments; i++) {
        const segment *s = &m->segments[p->first_segment + i];
        if (beyond(s->first, s->bytes, 1, m->file_bytes[s->file]) ||
            beyond(s->at, s->bytes, 1, p->stored_from))
            return bad(error,
                       "program \"%s\": segment %u leaves its file or its part of the arena; write "
                       "the bundle again",
                       p->name, i, 0);
    }
    for (i = 0; i < p->symbols; i++) {
        const symbol *s = &m->symbols[p->first_symbol + i];
        if (beyond(s->offset, s->bytes, 1, p->arena_bytes))
            return bad(error, "program \"%s\": symbol %u leaves the arena; write the bundle again",
                       p->name, i, 0);
    }
    return VTA_OK;
}

static vta_status check_tables(const vta_model *m, vta_error *error) {
    uint64_t device = 0;
    uint32_t i;
    vta_status status = check_machine(&m->info.machine, error);
    for (i = 0; i < m->n.programs && status == VTA_OK; i++) {
        const program *p = &m->programs[i];
        status = check_program(m, p, error);
        device += p->arena_bytes + p->align + (uint64_t)p->insns * INSN_BYTES + ALIGN;
    }
    if (status == VTA_OK && device != m->info.device_bytes)
        status =
            bad(error,
                "the programs take %u bytes of the device; device_bytes is %u; write the bundle "
                "again",
                NULL, device, m->info.device_bytes);
    return status == VTA_OK ? check_steps(m, error) : status;
}

/* ------------------------------------------------------------------ instructions */
enum { LOAD = 0, STORE = 1, GEMM = 2, FINISH = 3, ALU = 4 };
enum { MEM_UOP = 0, MEM_WGT = 1, MEM_INP = 2, MEM_ACC = 3, MEM_OUT = 4, MEM_ACC_8BIT = 5 };

static uint32_t word32(const uint8_t *b) {
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void put32(uint8_t *b, uint32_t value) {
    int i;
    for (i = 0; i < 4; i++) b[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t word64(const uint8_t *b) { return word32(b) | (uint64_t)word32(b + 4) << 32; }

static uint32_t element_bytes(const vta_machine *m, uint32_t mem) {
    uint32_t lanes = 1u << (m->log_batch + m->log_block);
    switch (mem) {
        case MEM_UOP: return 4;
        case MEM_WGT: return 1u << 2 * m->log_block;
        case MEM_ACC: return lanes * 4;
        default: return lanes;
    }
}

/* The place of dram_base: bits 26 to 57 of the first word. */
#define DRAM_SHIFT 26
static uint32_t dram_base(const uint8_t *insn) { return (uint32_t)(word64(insn) >> DRAM_SHIFT); }

static void set_dram_base(uint8_t *insn, uint32_t base) {
    uint64_t word = word64(insn);
    word = (word & ~((uint64_t)UINT32_MAX << DRAM_SHIFT)) | (uint64_t)base << DRAM_SHIFT;
    put32(insn, (uint32_t)word);
    put32(insn + 4, (uint32_t)(word >> 32));
}

/* Whether a LOAD or STORE moves nothing: some only carry tokens. */
static int is_empty(const uint8_t *insn) {
    uint64_t second = word64(insn + 8);
    return (second & 0xffff) == 0 || (second >> 16 & 0xffff) == 0;
}

/* A LOAD or STORE touches the arena only; a STORE nothing that a later run reads as it was. */
static const char *check_transfer(const vta_model *m, const program *p, const uint8_t *insn,
                                  uint32_t opcode) {
    uint64_t first = word64(insn), second = word64(insn + 8), begin_at, end_at;
    uint32_t mem = (uint32_t)(first >> 7 & 7), size;
    uint64_t ys = second & 0xffff, xs = second >> 16 & 0xffff, stride = second >> 32 & 0xffff;
    if (opcode == STORE ? mem != MEM_OUT : mem == MEM_OUT || mem > MEM_ACC_8BIT)
        return "an unknown memory type";
    if (is_empty(insn)) return NULL;
    size = element_bytes(&m->info.machine, mem);
    begin_at = (uint64_t)dram_base(insn) * size;
    end_at = ((uint64_t)dram_base(insn) + (ys - 1) * stride + xs) * size;
    if (end_at > p->arena_bytes) return "a transfer beyond the arena";
    if (opcode == STORE && begin_at < p->stored_from) return "a STORE to inputs or constants";
    return NULL;
}

/* The relocations of a program, read in order. */
typedef struct relocations {
    uint8_t buffer[RELOCATION_BYTES * 64];
    uint32_t next, have; /* of the program; behind the last in the buffer */
} relocations;

static vta_status next_relocation(const vta_model *m, const program *p, const vta_source *source,
                                  relocations *r, const uint8_t **row, vta_error *error) {
    uint32_t at = r->next % 64;
    *row = NULL;
    (void)m;
    if (r->next == p->relocations) return VTA_OK;
    if (r->next == r->have) {
        uint32_t n = p->relocations - r->have < 64 ? p->relocations - r->have : 64;
        uint64_t offset = ((uint64_t)p->first_relocation + r->have) * RELOCATION_BYTES;
        vta_status status = read_file(source, FILE_NAMES[RELOCATIONS], offset, r->buffer,
                                      n * RELOCATION_BYTES, error);
        if (status != VTA_OK) return status;
        r->have += n;
    }
    *row = r->buffer + at * RELOCATION_BYTES;
    return VTA_OK;
}

static const char *relocate(const vta_model *m, const program *p, uint8_t *insn, const uint8_t *row,
                            uint64_t base) {
    uint32_t size = element_bytes(&m->info.machine, (uint32_t)(word64(insn) >> 7 & 7));
    uint32_t index = word32(row + 4);
    uint64_t moved = (uint64_t)dram_base(insn) + base / size;
    if (index >= p->symbols) return "a relocation to no symbol";
    if (m->symbols[p->first_symbol + index].offset / size + word32(row + 8) != dram_base(insn))
        return "an address that its relocation does not give";
    if (base % size != 0) return "an arena that its elements are not aligned in";
    if (moved > UINT32_MAX) return "an address beyond 32 bits";
    set_dram_base(insn, (uint32_t)moved);
    return NULL;
}

static const char *prepare(const vta_model *m, const program *p, uint8_t *insn, const uint8_t *row,
                           uint32_t index, int *used) {
    uint32_t opcode = insn[0] & 7;
    const char *wrong = NULL;
    *used = row != NULL && word32(row) == index;
    if (opcode > ALU) return "an unknown opcode";
    if ((opcode == FINISH) != (index == p->insns - 1)) return "FINISH where it does not stand last";
    if (opcode == LOAD || opcode == STORE) {
        wrong = check_transfer(m, p, insn, opcode);
        if (wrong != NULL || (!*used && is_empty(insn))) return wrong;
        return *used ? relocate(m, p, insn, row, p->arena.address)
                     : "a transfer without relocation";
    }
    return *used ? "a relocation of what is no transfer" : NULL;
}

/* ------------------------------------------------------------------ programs on the device */
static vta_status device(const vta_model *m, vta_status status, const char *what,
                         vta_error *error) {
    const char *why = NULL;
    char text[128];
    size_t n = 0;
    if (status == VTA_OK) return VTA_OK;
    if (m->driver.explain != NULL) why = m->driver.explain(m->driver.state);
    for (; *what != '\0' && n < sizeof text - 3; what++) text[n++] = *what;
    if (why != NULL) {
        text[n++] = ':';
        text[n++] = ' ';
        for (; *why != '\0' && n < sizeof text - 1; why++) text[n++] = *why;
    }
    text[n] = '\0';
    return fail(
        error, status == VTA_E_TIMEOUT || status == VTA_E_MEMORY ? status : VTA_E_DEVICE,
        "the device failed in %s; the driver's status is %u; look at the driver and the board",
        text, status, 0);
}

static vta_status put(const vta_model *m, const program *p, uint64_t at, const void *data,
                      size_t bytes, vta_error *error) {
    if (p->mapped != NULL) {
        memcpy((uint8_t *)p->mapped + at, data, bytes);
        return VTA_OK;
    }
    return device(m, m->driver.copy_to(m->driver.state, &p->arena, at, data, bytes), "copy", error);
}

static vta_status get(const vta_model *m, const program *p, uint64_t at, void *data, size_t bytes,
                      vta_error *error) {
    if (p->mapped != NULL) {
        memcpy(data, (const uint8_t *)p->mapped + at, bytes);
        return VTA_OK;
    }
    return device(m, m->driver.copy_from(m->driver.state, &p->arena, at, data, bytes), "copy",
                  error);
}

static vta_status place_program(vta_model *m, program *p, vta_error *error) {
    const vta_driver *d = &m->driver;
    uint64_t code = (uint64_t)p->insns * INSN_BYTES;
    vta_status status =
        device(m, d->allocate(d->state, p->arena_bytes, p->align, &p->arena), "allocate", error);
    if (status != VTA_OK) return status;
    p->has_arena = 1;
    status = device(m, d->allocate(d->state, code, ALIGN, &p->code), "allocate", error);
    if (status != VTA_OK) return status;
    p->has_code = 1;
    if (p->arena.bytes < p->arena_bytes || p->code.bytes < code)
        return fail(error, VTA_E_DEVICE,
                    "the driver allocated less than it was asked for; %u bytes are "
                    "needed; correct the driver",
                    NULL, p->arena_bytes, 0);
    if (d->map == NULL) return VTA_OK;
    return device(m, d->map(d->state, &p->arena, &p->mapped), "map", error);
}

static vta_status load_segments(vta_model *m, const program *p, const vta_source *source,
                                vta_error *error) {
    uint8_t buffer[CHUNK];
    uint32_t i;
    for (i = 0; i < p->segments; i++) {
        const segment *s = &m->segments[p->first_segment + i];
        uint64_t at = 0;
        while (at < s->bytes) {
            size_t n = s->bytes - at < CHUNK ? (size_t)(s->bytes - at) : CHUNK;
            vta_status status =
                read_file(source, FILE_NAMES[s->file], s->first + at, buffer, n, error);
            if (status == VTA_OK) status = put(m, p, s->at + at, buffer, n, error);
            if (status != VTA_OK) return status;
            at += n;
        }
    }
    return VTA_OK;
}

static vta_status load_code(vta_model *m, const program *p, const vta_source *source,
                            vta_error *error) {
    uint8_t buffer[CHUNK];
    const uint32_t most = CHUNK / INSN_BYTES;
    relocations r;
    uint32_t index = 0;
    r.next = r.have = 0;
    while (index < p->insns) {
        uint32_t n = p->insns - index < most ? p->insns - index : most, i;
        uint64_t offset = ((uint64_t)p->first_insn + index) * INSN_BYTES;
        vta_status status = read_file(source, FILE_NAMES[INSTRUCTIONS], offset, buffer,
                                      (size_t)n * INSN_BYTES, error);
        for (i = 0; i < n && status == VTA_OK; i++) {
            const uint8_t *row;
            const char *wrong;
            int used = 0;
            status = next_relocation(m, p, source, &r, &row, error);
            if (status != VTA_OK) break;
            wrong = prepare(m, p, buffer + (size_t)i * INSN_BYTES, row, index + i, &used);
            if (wrong != NULL)
                return bad(error,
                           "instruction %u of a program is refused: %s; write the bundle again",
                           wrong, index + i, 0);
            r.next += (uint32_t)used;
        }
        if (status != VTA_OK) return status;
        status = device(m,
                        m->driver.copy_to(m->driver.state, &p->code, (uint64_t)index * INSN_BYTES,
                                          buffer, (size_t)n * INSN_BYTES),
                        "copy", error);
        if (status != VTA_OK) return status;
        index += n;
    }
    if (r.next != p->relocations)
        return bad(
            error,
            "program \"%s\" has %u relocations; instructions have %u; write the bundle again",
            p->name, p->relocations, r.next);
    return device(m, m->driver.flush(m->driver.state, &p->code, 0, (uint64_t)p->insns * INSN_BYTES),
                  "flush", error);
}

static vta_status load_program(vta_model *m, program *p, const vta_source *source,
                               vta_error *error) {
    vta_status status = place_program(m, p, error);
    if (status == VTA_OK) status = load_segments(m, p, source, error);
    return status == VTA_OK ? load_code(m, p, source, error) : status;
}

static vta_status check_driver(const vta_model *m, vta_error *error) {
    const vta_driver *d = &m->driver;
    uint32_t version = 0;
    vta_machine machine;
    vta_status status;
    if (d->interface_version != VTA_DRIVER_VERSION)
        return fail(error, VTA_E_VERSION,
                    "the driver has interface version %u; this runtime calls version "
                    "%u; build both of one release",
                    NULL, d->interface_version, VTA_DRIVER_VERSION);
    if (!d->version || !d->capabilities || !d->allocate || !d->release || !d->copy_to ||
        !d->copy_from || !d->flush || !d->start || !d->wait || !d->reset)
        return fail(error, VTA_E_ARGUMENT,
                    "the driver lacks a function; all but map and explain are needed; "
                    "fill in the table",
                    NULL, 0, 0);
    status = device(m, d->version(d->state, &version), "version", error);
    if (status != VTA_OK) return status;
    memset(&machine, 0, sizeof machine);
    status = device(m, d->capabilities(d->state, &machine), "capabilities", error);
    return status == VTA_OK ? same_machine(&m->info.machine, &machine, error) : status;
}

static vta_status run_program(vta_model *m, const step *s, uint32_t timeout_ms, vta_error *error) {
    const program *p = &m->programs[s->program];
    const vta_driver *d = &m->driver;
    const binding *b = m->bindings + s->first_binding;
    vta_status status = VTA_OK;
    uint32_t i;
    for (i = 0; i < s->ins && status == VTA_OK; i++) {
        const vta_tensor *t = &m->tensors[b[i].tensor];
        status = put(m, p, b[i].at, m->workspace + t->offset, (size_t)t->bytes, error);
    }
    if (status == VTA_OK)
        status = device(m, d->flush(d->state, &p->arena, 0, p->arena_bytes), "flush", error);
    if (status != VTA_OK) return status;
    status = device(m, d->start(d->state, p->code.address, p->insns), "start", error);
    if (status == VTA_OK) {
        vta_status waited = d->wait(d->state, timeout_ms);
        if (waited == VTA_E_TIMEOUT)
            status = fail(error, VTA_E_TIMEOUT,
                          "program \"%s\" did not finish within %u ms; the device was "
                          "reset; give more time or look at the board",
                          p->name, timeout_ms, 0);
        else
            status = device(m, waited, "wait", error);
    }
    if (status != VTA_OK) {
        (void)d->reset(d->state); /* the first error is the one to report */
        return status;
    }
    status = device(m, d->flush(d->state, &p->arena, 0, p->arena_bytes), "flush", error);
    for (i = s->ins; i < s->ins + s->outs && status == VTA_OK; i++) {
        const vta_tensor *t = &m->tensors[b[i].tensor];
        status = get(m, p, b[i].at, m->workspace + t->offset, (size_t)t->bytes, error);
    }
    return status;
}

/* ------------------------------------------------------------------ host steps */
/* To the nearest integer, halves to the even one: adding 1.5 * 2^23 leaves no fraction. */
static float nearest(float x) {
    const float big = 12582912.0f;
    volatile float sum; /* or a compiler with -ffast-math takes the two for nothing */
    if (!(x > -4194304.0f && x < 4194304.0f)) return x;
    sum = x + big;
    return sum - big;
}

static void quantize(const step *s, const float *from, void *to, uint64_t n, int is_signed) {
    float low = is_signed ? -128.0f : 0.0f, high = is_signed ? 127.0f : 255.0f;
    uint64_t i;
    for (i = 0; i < n; i++) {
        float x = nearest(from[i] / s->scale) + (float)s->value;
        x = x < high ? x : high; /* what is no number becomes the highest, as in TVM */
        x = x > low ? x : low;
        if (is_signed)
            ((int8_t *)to)[i] = (int8_t)x;
        else
            ((uint8_t *)to)[i] = (uint8_t)x;
    }
}

static int64_t integer_at(const void *data, vta_dtype dtype, uint64_t i) {
    switch (dtype) {
        case VTA_INT8: return ((const int8_t *)data)[i];
        case VTA_UINT8: return ((const uint8_t *)data)[i];
        case VTA_INT32: return ((const int32_t *)data)[i];
        default: return ((const int64_t *)data)[i];
    }
}

static int32_t wrapped(int64_t value) {
    uint32_t low = (uint32_t)((uint64_t)value & UINT32_MAX);
    int32_t result;
    memcpy(&result, &low, sizeof result);
    return result;
}

static void dequantize(const step *s, const void *from, vta_dtype dtype, float *to, uint64_t n) {
    uint64_t i;
    for (i = 0; i < n; i++)
        to[i] = (float)wrapped(integer_at(from, dtype, i) - s->value) * s->scale;
}

static void cast(const void *from, vta_dtype source, void *to, vta_dtype target, uint64_t n) {
    uint64_t i;
    for (i = 0; i < n; i++) {
        int64_t value = integer_at(from, source, i);
        uint8_t low = (uint8_t)((uint64_t)value & 0xff);
        switch (target) {
            case VTA_INT8: memcpy((uint8_t *)to + i, &low, 1); break;
            case VTA_UINT8: ((uint8_t *)to)[i] = low; break;
            case VTA_INT32: ((int32_t *)to)[i] = wrapped(value); break;
            case VTA_INT64: ((int64_t *)to)[i] = value; break;
            default: ((float *)to)[i] = (float)value; break;
        }
    }
}

static void pack(const vta_tensor *from, const int8_t *x, const vta_tensor *to, int8_t *y) {
    uint64_t n = from->shape[0], c = from->shape[1],
             plane = (uint64_t)from->shape[2] * from->shape[3];
    uint64_t cb = to->shape[1], b = to->shape[4], k = to->shape[5], row, channel, at;
    memset(y, 0, (size_t)to->bytes);
    for (row = 0; row < n; row++)
        for (channel = 0; channel < c; channel++) {
            uint64_t lane = (row % b) * k + channel % k;
            int8_t *block = y + ((row / b) * cb + channel / k) * plane * b * k;
            const int8_t *in = x + (row * c + channel) * plane;
            for (at = 0; at < plane; at++) block[at * b * k + lane] = in[at];
        }
}

static void unpack(const vta_tensor *from, const uint8_t *x, const vta_tensor *to, void *y) {
    uint32_t planes = to->dtype == VTA_INT32 ? 4 : 1, skip = planes == 4 ? 1 : 0, p;
    uint64_t n = to->shape[0], c = to->shape[1], area = (uint64_t)to->shape[2] * to->shape[3];
    uint64_t cb = from->shape[skip + 1], b = from->shape[skip + 4], k = from->shape[skip + 5];
    uint64_t whole = from->bytes / planes, row, channel, at;
    for (row = 0; row < n; row++)
        for (channel = 0; channel < c; channel++) {
            uint64_t lane = (row % b) * k + channel % k;
            uint64_t block = ((row / b) * cb + channel / k) * area * b * k;
            for (at = 0; at < area; at++) {
                uint64_t to_at = (row * c + channel) * area + at;
                uint8_t *out = (uint8_t *)y + to_at * planes;
                for (p = 0; p < planes; p++) out[p] = x[p * whole + block + at * b * k + lane];
            }
        }
}

/* The lane of one pixel of a folded tensor: a pixel of its window, or a constant. */
static int8_t folded(const step *s, const vta_tensor *from, const int8_t *x, uint64_t image,
                     uint64_t lane, uint64_t h, uint64_t w) {
    uint64_t c = from->shape[1], copied = (uint64_t)s->window[0] * s->window[1] * c;
    uint64_t tap = lane / c;
    int64_t row, col;
    if (lane >= copied) {
        /* Lanes behind the constants hold what Python's tensor has there. */
        if (s->constants == 0) return 0;
        return lane == copied + s->constants - 1 ? 1 : 127;
    }
    row = (int64_t)(h * s->grid[0] + tap / s->window[1] * s->dilation[0]) - s->offset[0];
    col = (int64_t)(w * s->grid[1] + tap % s->window[1] * s->dilation[1]) - s->offset[1];
    if (image >= from->shape[0] || row < 0 || col < 0 || row >= (int64_t)from->shape[2] ||
        col >= (int64_t)from->shape[3])
        return 0;
    return x[((image * c + lane % c) * from->shape[2] + (uint64_t)row) * from->shape[3] +
             (uint64_t)col];
}

static void fold(const step *s, const vta_tensor *from, const int8_t *x, const vta_tensor *to,
                 int8_t *y) {
    uint64_t nb, cb, h, w, b, k, at = 0;
    const uint32_t *t = to->shape;
    for (nb = 0; nb < t[0]; nb++)
        for (cb = 0; cb < t[1]; cb++)
            for (h = 0; h < t[2]; h++)
                for (w = 0; w < t[3]; w++)
                    for (b = 0; b < t[4]; b++)
                        for (k = 0; k < t[5]; k++)
                            y[at++] = folded(s, from, x, nb * t[4] + b, cb * t[5] + k, h, w);
}

static void transpose(const step *s, const vta_tensor *from, const uint8_t *x, const vta_tensor *to,
                      uint8_t *y) {
    uint64_t strides[VTA_MAX_RANK], index[VTA_MAX_RANK] = {0}, n = items(to), i, at = 0;
    uint32_t size = ITEM_BYTES[to->dtype], d;
    for (d = 0; d < to->rank; d++) strides[d] = product(from, s->axes[d] + 1, from->rank);
    for (i = 0; i < n; i++) {
        memcpy(y + i * size, x + at * size, size);
        for (d = to->rank; d-- > 0;) {
            at += strides[d];
            if (++index[d] < to->shape[d]) break;
            at -= strides[d] * to->shape[d];
            index[d] = 0;
        }
    }
}

static void softmax(const vta_tensor *t, uint32_t axis, const float *x, float *y) {
    uint64_t inner = product(t, axis + 1, t->rank), length = t->shape[axis], i, k;
    uint64_t rows = items(t) / length;
    for (i = 0; i < rows; i++) {
        uint64_t at = i / inner * inner * length + i % inner;
        float most = -FLT_MAX, sum = 0.0f;
        for (k = 0; k < length; k++) {
            float value = x[at + k * inner];
            most = most > value ? most : value;
        }
        for (k = 0; k < length; k++) y[at + k * inner] = expf(x[at + k * inner] - most);
        for (k = 0; k < length; k++) sum += y[at + k * inner];
        for (k = 0; k < length; k++) y[at + k * inner] /= sum;
    }
}

/* As TVM's: the first of the largest, -1 where nothing is above the least value of the type. */
static void argmax(const vta_tensor *t, uint32_t axis, const void *x, int64_t *y) {
    uint64_t inner = product(t, axis + 1, t->rank), length = t->shape[axis], i, k;
    uint64_t rows = items(t) / length;
    for (i = 0; i < rows; i++) {
        uint64_t at = i / inner * inner * length + i % inner;
        int64_t found = -1;
        float most = -FLT_MAX;
        int64_t whole = t->dtype == VTA_INT8 ? -128 : t->dtype == VTA_UINT8 ? 0 : INT32_MIN;
        for (k = 0; k < length; k++) {
            if (t->dtype == VTA_FLOAT32) {
                float value = ((const float *)x)[at + k * inner];
                if (most > value || (most == value && found < (int64_t)k)) continue;
                most = value;
            } else {
                int64_t value = integer_at(x, t->dtype, at + k * inner);
                if (whole >= value) continue;
                whole = value;
            }
            found = (int64_t)k;
        }
        y[i] = found;
    }
}

static void run_host_step(vta_model *m, const step *s) {
    const vta_tensor *from = &m->tensors[s->from], *to = &m->tensors[s->to];
    void *x = m->workspace + from->offset, *y = m->workspace + to->offset;
    uint64_t n = items(to), i;
    switch (s->op) {
        case QUANTIZE: quantize(s, x, y, n, to->dtype == VTA_INT8); break;
        case DEQUANTIZE: dequantize(s, x, from->dtype, y, n); break;
        case PACK: pack(from, x, to, y); break;
        case FOLD: fold(s, from, x, to, y); break;
        case UNPACK: unpack(from, x, to, y); break;
        case TRANSPOSE: transpose(s, from, x, to, y); break;
        case CAST: cast(x, from->dtype, y, to->dtype, n); break;
        case ADD:
            for (i = 0; i < n; i++)
                ((int32_t *)y)[i] = wrapped((int64_t)((const int32_t *)x)[i] + s->value);
            break;
        case SOFTMAX: softmax(from, s->axes[0], x, y); break;
        case ARGMAX: argmax(from, s->axes[0], x, y); break;
        default: break;
    }
}

/* ------------------------------------------------------------------ public functions */
static int complete(const vta_source *source) {
    return source != NULL && source->size != NULL && source->read != NULL;
}

vta_status vta_look(const vta_source *source, vta_info *info, vta_error *error) {
    vta_model m;
    reader r;
    vta_status status;
    if (!complete(source) || info == NULL)
        return fail(error, VTA_E_ARGUMENT,
                    "vta_look needs a source and an info; one is NULL; give both", NULL, 0, 0);
    memset(&m, 0, sizeof m);
    status = open_reader(&r, source, error);
    if (status != VTA_OK) return status;
    read_head(&r, &m);
    if (r.status == VTA_OK) *info = m.info;
    return r.status;
}

static int is_little_endian(void) {
    const uint32_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 1;
}

/* The model's tables in its memory, filled from the manifest. */
static vta_status read_manifest(vta_model **model, const vta_source *source, uint8_t *memory,
                                size_t bytes, vta_error *error) {
    vta_model head, *m;
    reader r;
    vta_status status = open_reader(&r, source, error);
    if (status != VTA_OK) return status;
    memset(&head, 0, sizeof head);
    read_head(&r, &head);
    if (r.status != VTA_OK) return r.status;
    if (bytes < head.info.host_bytes)
        return fail(error, VTA_E_MEMORY,
                    "the model takes %u bytes of the host; %u were given; give as much "
                    "as vta_look says",
                    NULL, head.info.host_bytes, bytes);
    memset(memory, 0, (size_t)head.info.host_bytes);
    memory += (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN;
    m = (vta_model *)(void *)memory;
    *m = head;
    (void)lay_out(m, memory + rounded(sizeof(vta_model)));
    read_body(&r, m);
    *model = m;
    return r.status;
}

vta_status vta_open(vta_model **model, const vta_source *source, const vta_driver *driver,
                    void *memory, size_t bytes, vta_error *error) {
    vta_model *m = NULL;
    vta_status status;
    uint32_t i;
    if (model == NULL || !complete(source) || driver == NULL || memory == NULL)
        return fail(error, VTA_E_ARGUMENT,
                    "vta_open needs a model, source, driver and memory; one is NULL; "
                    "give all",
                    NULL, 0, 0);
    *model = NULL;
    if (!is_little_endian())
        return fail(error, VTA_E_ARGUMENT,
                    "this host is big-endian; tensors of bundles are little-endian; "
                    "run on a little-endian host",
                    NULL, 0, 0);
    status = read_manifest(&m, source, memory, bytes, error);
    if (status == VTA_OK) status = check_files(m, source, error);
    if (status == VTA_OK) status = check_tables(m, error);
    if (status != VTA_OK) return status;
    m->driver = *driver;
    status = check_driver(m, error);
    for (i = 0; i < m->n.programs && status == VTA_OK; i++)
        status = load_program(m, &m->programs[i], source, error);
    if (status != VTA_OK) {
        vta_close(m);
        return status;
    }
    *model = m;
    return VTA_OK;
}

size_t vta_input_count(const vta_model *model) { return model->n.inputs; }

size_t vta_output_count(const vta_model *model) { return model->n.outputs; }

const vta_tensor *vta_input(const vta_model *model, size_t index) {
    return index < model->n.inputs ? &model->tensors[model->inputs[index]] : NULL;
}

const vta_tensor *vta_output(const vta_model *model, size_t index) {
    return index < model->n.outputs ? &model->tensors[model->outputs[index]] : NULL;
}

vta_status vta_run(vta_model *model, const void *const *inputs, void *const *outputs,
                   uint32_t timeout_ms, vta_error *error) {
    uint32_t i;
    if (model == NULL || (inputs == NULL && model->n.inputs > 0) || outputs == NULL)
        return fail(error, VTA_E_ARGUMENT,
                    "vta_run needs a model, inputs and outputs; one is NULL; give all", NULL, 0, 0);
    for (i = 0; i < model->n.inputs; i++) {
        const vta_tensor *t = vta_input(model, i);
        memcpy(model->workspace + t->offset, inputs[i], (size_t)t->bytes);
    }
    for (i = 0; i < model->n.steps; i++) {
        const step *s = &model->steps[i];
        vta_status status = VTA_OK;
        if (s->op == RUN)
            status = run_program(model, s, timeout_ms, error);
        else
            run_host_step(model, s);
        if (status != VTA_OK) return status;
    }
    for (i = 0; i < model->n.outputs; i++) {
        const vta_tensor *t = vta_output(model, i);
        memcpy(outputs[i], model->workspace + t->offset, (size_t)t->bytes);
    }
    return VTA_OK;
}

void vta_close(vta_model *model) {
    uint32_t i;
    if (model == NULL) return;
    for (i = model->n.programs; i-- > 0;) {
        program *p = &model->programs[i];
        if (p->has_code) model->driver.release(model->driver.state, &p->code);
        if (p->has_arena) model->driver.release(model->driver.state, &p->arena);
        p->has_code = p->has_arena = 0;
    }
}

/* ------------------------------------------------------------------ bundles in folders */
#ifndef VTA_NO_STDIO
static FILE *open_in(void *state, const char *name) {
    char path[1024];
    size_t a = strlen((const char *)state), b = strlen(name);
    if (a + b + 2 > sizeof path) return NULL;
    memcpy(path, state, a);
    path[a] = '/';
    memcpy(path + a + 1, name, b + 1);
    return fopen(path, "rb");
}

static int folder_size(void *state, const char *name, uint64_t *bytes) {
    FILE *file = open_in(state, name);
    long end = -1;
    if (file == NULL) return 1;
    if (fseek(file, 0, SEEK_END) == 0) end = ftell(file);
    fclose(file);
    *bytes = end < 0 ? 0 : (uint64_t)end;
    return end < 0;
}

static int folder_read(void *state, const char *name, uint64_t offset, void *data, size_t bytes) {
    FILE *file = open_in(state, name);
    int done;
    if (file == NULL) return 1;
    done = offset <= LONG_MAX && fseek(file, (long)offset, SEEK_SET) == 0 &&
           fread(data, 1, bytes, file) == bytes;
    fclose(file);
    return !done;
}

void vta_folder(vta_source *source, const char *path) {
    union {
        const char *text;
        void *state;
    } given; /* the functions only read it */
    given.text = path;
    source->state = given.state;
    source->size = folder_size;
    source->read = folder_read;
}
#endif
