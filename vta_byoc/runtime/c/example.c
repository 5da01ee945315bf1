/* Runs a bundle on the functional simulator, on any PC:
 *
 *     example FOLDER [-t MILLISECONDS] [-c] INPUT.bin... -o OUTPUT.bin...
 *
 * Files hold dense tensors as the model has them, little-endian; without inputs it says what the
 * model takes and gives. -c prints what the simulator counted. Exit code: 0, or the vta_status.
 *
 * A board's program differs in one place: it fills in a vta_driver of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vta_runtime.h"
#include "vta_sim.h"

#define MOST_BYTES (512ul << 20) /* of the host's part, and of the device's */

typedef struct options {
    const char *folder;
    char **inputs, **outputs;
    size_t input_count, output_count;
    uint32_t timeout_ms;
    int counters;
} options;

static int usage(const char *message) {
    fprintf(
        stderr,
        "error: %s\nusage: example FOLDER [-t MILLISECONDS] [-c] INPUT.bin... -o OUTPUT.bin...\n",
        message);
    return VTA_E_ARGUMENT;
}

static int parse(int argc, char **argv, options *o) {
    int i;
    memset(o, 0, sizeof *o);
    o->timeout_ms = 60000;
    if (argc < 2) return usage("no bundle is given");
    o->folder = argv[1];
    for (i = 2; i < argc; i++) {
        if (strcmp(argv[i], "-t") == 0 && i + 1 < argc) {
            o->timeout_ms = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "-c") == 0) {
            o->counters = 1;
        } else if (strcmp(argv[i], "-o") == 0) {
            o->outputs = argv + i + 1;
            o->output_count = (size_t)(argc - i - 1);
            break;
        } else {
            if (o->inputs == NULL) o->inputs = argv + i;
            o->input_count++;
        }
    }
    return VTA_OK;
}

static int report(const vta_error *error) {
    fprintf(stderr, "error (%s): %s\n", vta_status_name(error->status), error->message);
    return (int)error->status;
}

static void describe(const char *what, const vta_tensor *t) {
    uint32_t i;
    printf("%s \"%s\" %s", what, t->name, vta_dtype_name(t->dtype));
    for (i = 0; i < t->rank; i++) printf("%s%lu", i ? "x" : " ", (unsigned long)t->shape[i]);
    printf(", %lu bytes\n", (unsigned long)t->bytes);
}

static int read_tensor(const char *path, const vta_tensor *t, void *data) {
    FILE *file = fopen(path, "rb");
    size_t n;
    int rest;
    if (file == NULL) {
        fprintf(stderr, "error: \"%s\" cannot be read; give a file of %lu bytes\n", path,
                (unsigned long)t->bytes);
        return VTA_E_ARGUMENT;
    }
    n = fread(data, 1, (size_t)t->bytes, file);
    rest = fgetc(file);
    fclose(file);
    if (n == t->bytes && rest == EOF) return VTA_OK;
    fprintf(
        stderr,
        "error: \"%s\" is not the %lu bytes of input \"%s\"; write it with its dtype and shape\n",
        path, (unsigned long)t->bytes, t->name);
    return VTA_E_ARGUMENT;
}

static int write_tensor(const char *path, const vta_tensor *t, const void *data) {
    FILE *file = fopen(path, "wb");
    int done = file != NULL && fwrite(data, 1, (size_t)t->bytes, file) == t->bytes;
    if (file != NULL && fclose(file) != 0) done = 0;
    if (done) return VTA_OK;
    fprintf(stderr, "error: \"%s\" cannot be written; choose another path\n", path);
    return VTA_E_ARGUMENT;
}

static int run_files(vta_model *model, const options *o, void **in, void **out) {
    vta_error error;
    size_t i;
    for (i = 0; i < o->input_count; i++)
        if (read_tensor(o->inputs[i], vta_input(model, i), in[i]) != VTA_OK) return VTA_E_ARGUMENT;
    if (vta_run(model, (const void *const *)in, out, o->timeout_ms, &error) != VTA_OK)
        return report(&error);
    for (i = 0; i < o->output_count; i++)
        if (write_tensor(o->outputs[i], vta_output(model, i), out[i]) != VTA_OK)
            return VTA_E_ARGUMENT;
    return VTA_OK;
}

/* One pointer for each input and output, each to memory of its size. */
static int run_model(vta_model *model, const options *o) {
    size_t ins = vta_input_count(model), outs = vta_output_count(model), i;
    void **data;
    int status = VTA_OK;
    if (o->input_count == 0 && o->output_count == 0 && ins > 0) {
        for (i = 0; i < ins; i++) describe("input", vta_input(model, i));
        for (i = 0; i < outs; i++) describe("output", vta_output(model, i));
        return VTA_OK;
    }
    if (o->input_count != ins || o->output_count != outs)
        return usage("the model takes and gives another number of files; name one for each");
    data = calloc(ins + outs + 1, sizeof *data);
    for (i = 0; data != NULL && i < ins + outs; i++) {
        const vta_tensor *t = i < ins ? vta_input(model, i) : vta_output(model, i - ins);
        data[i] = malloc((size_t)t->bytes);
        if (data[i] == NULL) status = VTA_E_MEMORY;
    }
    if (data == NULL) status = VTA_E_MEMORY;
    if (status == VTA_OK) status = run_files(model, o, data, data + ins);
    for (i = 0; data != NULL && i < ins + outs; i++) free(data[i]);
    free(data);
    return status;
}

static void print_counters(vta_counters c) {
    printf(
        "inp_load_nbytes %lu\nwgt_load_nbytes %lu\nacc_load_nbytes %lu\nuop_load_nbytes %lu\n"
        "out_store_nbytes %lu\ngemm_counter %lu\nalu_counter %lu\n",
        (unsigned long)c.inp_load_nbytes, (unsigned long)c.wgt_load_nbytes,
        (unsigned long)c.acc_load_nbytes, (unsigned long)c.uop_load_nbytes,
        (unsigned long)c.out_store_nbytes, (unsigned long)c.gemm_counter,
        (unsigned long)c.alu_counter);
}

int main(int argc, char **argv) {
    options o;
    vta_source source;
    vta_info info;
    vta_error error;
    vta_driver driver;
    vta_model *model = NULL;
    vta_sim *sim;
    void *host, *board;
    uint64_t board_bytes;
    int status = parse(argc, argv, &o);
    if (status != VTA_OK) return status;
    vta_folder(&source, o.folder);
    if (vta_look(&source, &info, &error) != VTA_OK) return report(&error);
    if (info.host_bytes > MOST_BYTES || info.device_bytes > MOST_BYTES) {
        fprintf(stderr,
                "error: the bundle takes %lu bytes; this example gives %lu; raise MOST_BYTES\n",
                (unsigned long)(info.host_bytes + info.device_bytes), MOST_BYTES);
        return VTA_E_MEMORY;
    }
    board_bytes = vta_sim_bytes(&info.machine, info.device_bytes);
    host = malloc((size_t)info.host_bytes);
    board = board_bytes != 0 ? malloc((size_t)board_bytes) : NULL;
    sim = board != NULL ? vta_sim_init(&info.machine, info.device_bytes, board, (size_t)board_bytes)
                        : NULL;
    if (host == NULL || sim == NULL) {
        fprintf(stderr,
                "error: no memory for the model or no such machine; the bundle takes %lu bytes\n",
                (unsigned long)(info.host_bytes + info.device_bytes));
        free(board);
        free(host);
        return VTA_E_MEMORY;
    }
    vta_sim_driver(sim, &driver);
    if (vta_open(&model, &source, &driver, host, (size_t)info.host_bytes, &error) != VTA_OK)
        status = report(&error);
    else
        status = run_model(model, &o);
    if (status == VTA_OK && o.counters) print_counters(vta_sim_counters(sim));
    vta_close(model);
    free(board);
    free(host);
    return status;
}
