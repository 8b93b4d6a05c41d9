/* A stand-in for libnvidia-ml.so.1: NVIDIA's management library over a folder of small text files.
 *
 *   $AEGIS_SIM_NVML/
 *     driver                       its version, or "absent": nvmlInit answers DRIVER_NOT_LOADED
 *     excluded                     bus addresses that the driver was told to leave alone
 *     faults                       lines "FUNCTION|* GPU|* ACTION": status=N, delay_ms=N, hang, crash
 *     gpuN/bus_id uuid serial name identity
 *     gpuN/ecc                     lines "LOCATION CE UE CE_EVER UE_EVER": since driver load, and ever
 *     gpuN/values                  lines "NAME VALUE": sensors, links, retired pages, remapped rows
 *     gpuN/nvlink                  lines "LINK ACTIVE REPLAYS RECOVERIES CRC_ERRORS"
 *     gpuN/lost                    "1": everything answers GPU_IS_LOST
 *     gpuN/xids                    a number a line: each line added is an event
 *
 * Every call reads the files anew, so whoever changes one injects a fault at once. Writers rename
 * new files into place. Names, numbers and layouts are those that nvidia-ml-py expects.
 */
#pragma once
#include <stdint.h>

#define API __attribute__((visibility("default"))) int
#define GPUS_MAX 64

enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NOT_FOUND = 6,
  DRIVER_NOT_LOADED = 9,
  TIMEOUT = 10,
  GPU_IS_LOST = 15,
};

struct gpu {
  int index;
};

extern struct gpu gpus[GPUS_MAX];
extern int gpu_count; /* -1: not initialised */

/* Applies the `faults` file to this call: sleeps, hangs or aborts, or gives the status to answer
 * with. SUCCESS means: go on. `gpu` may be NULL. */
int injected(const char *function, const struct gpu *gpu);

/* Whether the library is initialised, the handle is good, no fault is injected, the GPU is there. */
int checked(const char *function, void *handle, struct gpu **gpu);

/* The content of a file of the simulation's folder, without trailing blanks; its length, or -1. */
int read_file(char *buffer, unsigned long size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One value of the GPU's `values` file. Whether it is there. */
int value(const struct gpu *gpu, const char *name, long long *result);

int is_lost(const struct gpu *gpu);
void sleep_milliseconds(long milliseconds);

/* Opens each entry point that takes a handle: returns early with a status, or defines `gpu`. */
#define ENTER(handle)                           \
  struct gpu *gpu;                              \
  int status = checked(__func__, handle, &gpu); \
  if (status != SUCCESS) return status
