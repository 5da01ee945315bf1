/* A functional simulator of VTA behind the driver table of vta_runtime.h, in plain C99.
 *
 * It executes instruction streams bit for bit as the machine does, refuses what the machine cannot
 * do, and counts what the published counters count. It knows nothing of bundles.
 */
#ifndef VTA_SIM_H
#define VTA_SIM_H

#include "vta_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vta_sim vta_sim;

typedef struct vta_counters {
    uint64_t inp_load_nbytes, wgt_load_nbytes, acc_load_nbytes, uop_load_nbytes;
    uint64_t out_store_nbytes, gemm_counter, alu_counter;
} vta_counters;

/* Bytes that vta_sim_init takes for a machine with so many bytes of DRAM; 0 for no machine. */
uint64_t vta_sim_bytes(const vta_machine *machine, uint64_t dram_bytes);

/* A simulator in the caller's memory; NULL where that is too small or the machine is none. */
vta_sim *vta_sim_init(const vta_machine *machine, uint64_t dram_bytes, void *memory, size_t bytes);

/* Fills in the table with the simulator's functions. */
void vta_sim_driver(vta_sim *sim, vta_driver *driver);

/* Of all runs since vta_sim_init. */
vta_counters vta_sim_counters(const vta_sim *sim);

#ifdef __cplusplus
}
#endif
#endif
