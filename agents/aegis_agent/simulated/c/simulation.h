/* A stand-in for libamd_smi.so: the amdsmi C interface over a folder of small text files.
 *
 *   $AEGIS_SIM_AMDSMI/
 *     driver                  "loaded", or amdsmi_init answers DRIVER_NOT_LOADED
 *     version                 "MAJOR.MINOR.RELEASE" that the library claims; default: its wrapper's
 *     order                   numbers of the GPUs in the order of their handles; default: 0 1 2 …
 *     faults                  lines "FUNCTION|* GPU|* ACTION": status=N, delay_ms=N, hang, crash
 *     events                  lines "GPU NAME MESSAGE", appended: pushed to those who listen
 *     gpuN/bdf uuid serial market_name unique_id model_number fru_id vbios   identity
 *     gpuN/compute_partition memory_partition                                SPX, NPS1
 *     gpuN/ras/BLOCK          "CE UE DE" since driver load, BLOCK as in AMDSMI_GPU_BLOCK_*
 *     gpuN/ras_enabled        hexadecimal mask of blocks
 *     gpuN/bad_pages          lines "ADDRESS SIZE STATUS" (0 reserved, 1 pending, 2 unreservable)
 *     gpuN/metrics            lines "NAME VALUE"; 0xffff and the like are the "not available" of the
 *                             real library, in whatever width it is written
 *     gpuN/throttle           lines "KIND PERCENT SINCE_MS BASE": kept since then, over a count
 *     gpuN/xgmi_error         0, 1 or 2
 *     gpuN/xgmi_links         a letter per link: U up, D down, X disabled
 *     gpuN/xgmi_hive          the number of its hive; 0: none. Those of one hive are reset together
 *     gpuN/processes          lines "PID NAME VRAM_BYTES": a reset of the hive kills them
 *     gpuN/resets             how often it was reset
 *     gpuN/stubborn           "1": a reset leaves its error counts as they are
 *     reset_ms                how long a reset takes; default: 200
 *     gpuN/cper               error records back to back, and a byte of zero
 *     cper_afids              lines "RECORD_ID AFID…": what the library says of a record
 *     gpuN/lost               "1": live reads fail as they do for a GPU that fell off the bus
 *
 * Every call reads the files anew, so whoever changes one injects a fault at once. Writers rename
 * new files into place. The structures come from amdsmi_abi.h, which is generated from the
 * installed Python package's own ctypes declarations.
 */
#pragma once
#include <stdint.h>
#include "amdsmi_abi.h"

#define API __attribute__((visibility("default"))) int
#define GPUS_MAX 64

struct gpu {
  int index;
};

/* The GPU that a handle stands for; NULL for a handle that is none of ours. */
struct gpu *gpu_of_handle(void *handle);

/* The other way round; NULL for a GPU that is not there. */
void *handle_of_gpu(int index);

/* Applies the `faults` file to this call: sleeps, hangs or aborts, or gives the status to answer
 * with. AMDSMI_STATUS_SUCCESS means: go on. `gpu` may be NULL. */
int injected(const char *function, const struct gpu *gpu);

/* Whether the library is initialised, the handle is good and no fault is injected. */
int checked(const char *function, void *handle, struct gpu **gpu);

/* The content of a file of the simulation's folder, without trailing blanks; its length, or -1. */
int read_file(char *buffer, unsigned long size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One file of the GPU's folder. */
int read_gpu_file(const struct gpu *gpu, const char *name, char *buffer, unsigned long size);

/* One value of the GPU's `metrics` file. */
double metric(const struct gpu *gpu, const char *name, double otherwise);

/* The same, exact for counters of 64 bits. */
uint64_t counter(const struct gpu *gpu, const char *name, uint64_t otherwise);

int is_lost(const struct gpu *gpu);
uint64_t bdf_from_text(const char *text);

/* Opens each entry point that takes a handle: returns early with a status, or defines `gpu`. */
#define ENTER(handle)                                    \
  struct gpu *gpu;                                       \
  int status = checked(__func__, handle, &gpu);          \
  if (status != AMDSMI_STATUS_SUCCESS) return status

/* The same for calls that read the hardware: they fail once the GPU is lost. */
#define ENTER_LIVE(handle) \
  ENTER(handle);           \
  if (is_lost(gpu)) return AMDSMI_STATUS_NOT_SUPPORTED

#define COPY_FILE(destination, name) \
  read_gpu_file(gpu, name, destination, sizeof(destination))
