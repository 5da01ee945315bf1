/* Runs bundles of vta_byoc on a VTA device: C99, no dependencies, no allocation after vta_open.
 *
 * A bundle is a folder that `vta-byoc compile --format bundle` writes (docs/bundle-format.md). The
 * runtime reads it through a `vta_source`, checks all of it, and reaches the device through a
 * `vta_driver`: a table of functions that a board support package fills in. `vta_sim.h` is a
 * functional simulator behind the same table.
 *
 *     vta_info info;
 *     vta_look(&source, &info, &error);                  how much memory, and for which machine
 *     vta_open(&model, &source, &driver, memory, info.host_bytes, &error);
 *     vta_run(model, inputs, outputs, 1000, &error);     any number of times
 *     vta_close(model);
 *
 * Every function that can fail returns a vta_status and writes one line (value, limit, next step)
 * to `error`, which may be NULL. One model is used by one thread at a time.
 */
#ifndef VTA_RUNTIME_H
#define VTA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VTA_BUNDLE_VERSION 1u
#define VTA_DRIVER_VERSION 1u
#define VTA_MAX_RANK 8u

typedef enum vta_status {
    VTA_OK = 0,
    VTA_E_FILE = 1,     /* a file is missing, truncated or cannot be read */
    VTA_E_CHECKSUM = 2, /* a file is not as it was written */
    VTA_E_FORMAT = 3,   /* the manifest or a binary breaks a rule of the format */
    VTA_E_VERSION = 4,  /* another format, or a driver of another interface */
    VTA_E_MACHINE = 5,  /* the bundle is for another machine than the device */
    VTA_E_MEMORY = 6,   /* too little memory, on the host or on the device */
    VTA_E_DEVICE = 7,   /* the device refused or failed */
    VTA_E_TIMEOUT = 8,  /* the device did not finish in time; it was reset */
    VTA_E_ARGUMENT = 9  /* the caller gave something that is not meant */
} vta_status;

typedef struct vta_error {
    vta_status status;
    char message[256];
} vta_error;

/* What a program depends on. Two machines with equal values run the same programs. */
typedef struct vta_machine {
    uint32_t log_batch, log_block;
    uint32_t log_uop_buff_size, log_inp_buff_size, log_wgt_buff_size, log_acc_buff_size;
    uint32_t uop_bits, inp_bits, wgt_bits, acc_bits; /* of instruction fields that index SRAM */
    uint32_t mul, acc_8bit, imm_reads_src, shift_modulo, out_sram; /* 0 or 1 */
    uint32_t max_shift, dst_distance, max_tokens;
} vta_machine;

/* ------------------------------------------------------------------ where a bundle lies */
/* Files by name; both functions return 0, or anything else where the file cannot be read. */
typedef struct vta_source {
    void *state;
    int (*size)(void *state, const char *name, uint64_t *bytes);
    int (*read)(void *state, const char *name, uint64_t offset, void *data, size_t bytes);
} vta_source;

#ifndef VTA_NO_STDIO
/* The bundle in the folder `path`, a text that outlives the source. */
void vta_folder(vta_source *source, const char *path);
#endif

/* ------------------------------------------------------------------ the device */
/* Memory that the device reads and writes at `address` in its own address space. */
typedef struct vta_memory {
    uint64_t address;
    uint64_t bytes;
    void *handle; /* the driver's own */
} vta_memory;

/* The driver table. Functions return VTA_OK or the status that says what went wrong. */
typedef struct vta_driver {
    uint32_t interface_version; /* VTA_DRIVER_VERSION */
    void *state;                /* first argument of every function */
    /* The device's own version, for messages and logs. */
    vta_status (*version)(void *state, uint32_t *version);
    /* What the device is; a bundle of another machine is refused. */
    vta_status (*capabilities)(void *state, vta_machine *machine);
    /* Memory that is contiguous for the device, at a multiple of `align` (a power of two). */
    vta_status (*allocate)(void *state, uint64_t bytes, uint64_t align, vta_memory *memory);
    /* Gives back; memory comes back in the opposite order of its allocation. */
    void (*release)(void *state, vta_memory *memory);
    /* The host's pointer to device memory; the function or the pointer may be NULL: copies. */
    vta_status (*map)(void *state, const vta_memory *memory, void **pointer);
    vta_status (*copy_to)(void *state, const vta_memory *memory, uint64_t offset, const void *data,
                          size_t bytes);
    vta_status (*copy_from)(void *state, const vta_memory *memory, uint64_t offset, void *data,
                            size_t bytes);
    /* Makes what the host wrote visible to the device, and what the device wrote to the host. */
    vta_status (*flush)(void *state, const vta_memory *memory, uint64_t offset, uint64_t bytes);
    /* Starts `count` instructions at a device address; does not wait. */
    vta_status (*start)(void *state, uint64_t address, uint32_t count);
    /* Waits for FINISH at most so many milliseconds; VTA_E_TIMEOUT where it did not come. */
    vta_status (*wait)(void *state, uint32_t timeout_ms);
    /* Brings the device to where it may be started again; memory keeps its contents. */
    vta_status (*reset)(void *state);
    /* Why the last call failed, in words; the function may be NULL. */
    const char *(*explain)(void *state);
} vta_driver;

/* ------------------------------------------------------------------ models */
typedef enum vta_dtype {
    VTA_INT8 = 0,
    VTA_UINT8 = 1,
    VTA_INT32 = 2,
    VTA_INT64 = 3,
    VTA_FLOAT32 = 4
} vta_dtype;

typedef struct vta_tensor {
    const char *name;
    vta_dtype dtype;
    uint32_t rank;
    uint32_t shape[VTA_MAX_RANK]; /* rows first: the last one is dense in memory */
    uint64_t bytes;
    uint64_t offset; /* in the host's workspace */
} vta_tensor;

/* What a bundle needs, by its manifest. */
typedef struct vta_info {
    uint32_t version; /* of the format */
    vta_machine machine;
    uint64_t host_bytes;   /* that vta_open takes */
    uint64_t device_bytes; /* that it allocates of the device, alignment included */
} vta_info;

typedef struct vta_model vta_model;

/* Reads the head of a manifest whose checksum is right. */
vta_status vta_look(const vta_source *source, vta_info *info, vta_error *error);

/* Opens a bundle in `memory` (any alignment, at least vta_info.host_bytes), which belongs to the
 * model until vta_close. All files are checked first, and nothing of the bundle runs before all of
 * it is valid. `driver` is copied; its state must outlive the model. */
vta_status vta_open(vta_model **model, const vta_source *source, const vta_driver *driver,
                    void *memory, size_t bytes, vta_error *error);

size_t vta_input_count(const vta_model *model);
size_t vta_output_count(const vta_model *model);
/* NULL where there is no such input or output. */
const vta_tensor *vta_input(const vta_model *model, size_t index);
const vta_tensor *vta_output(const vta_model *model, size_t index);

/* Computes outputs of inputs, arrays of pointers to dense tensors of vta_tensor.bytes each.
 * `timeout_ms` is for each start of the device. After an error the model can be run again. */
vta_status vta_run(vta_model *model, const void *const *inputs, void *const *outputs,
                   uint32_t timeout_ms, vta_error *error);

/* Gives the device's memory back. */
void vta_close(vta_model *model);

const char *vta_status_name(vta_status status);
const char *vta_dtype_name(vta_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
