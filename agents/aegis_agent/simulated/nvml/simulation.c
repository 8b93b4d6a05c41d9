/* The folder, the injected faults, and the library's life: init, handles, shut down. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gpu gpus[GPUS_MAX];
int gpu_count = -1;
static int references;

static const char *folder(void) {
  const char *name = getenv("AEGIS_SIM_NVML");
  return name ? name : "/run/aegis-sim/nvml";
}

int read_file(char *buffer, unsigned long size, const char *format, ...) {
  char name[256], path[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  snprintf(path, sizeof path, "%s/%s", folder(), name);
  buffer[0] = 0;
  FILE *file = fopen(path, "r");
  if (!file) return -1;
  size_t length = fread(buffer, 1, size - 1, file);
  fclose(file);
  while (length && (buffer[length - 1] == '\n' || buffer[length - 1] == ' ')) length--;
  buffer[length] = 0;
  return (int)length;
}

int value(const struct gpu *gpu, const char *name, long long *result) {
  char text[8192], *rest, key[64];
  if (read_file(text, sizeof text, "gpu%d/values", gpu->index) <= 0) return 0;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (sscanf(line, "%63s %lld", key, result) == 2 && !strcmp(key, name)) return 1;
  return 0;
}

int is_lost(const struct gpu *gpu) {
  char text[8];
  return read_file(text, sizeof text, "gpu%d/lost", gpu->index) > 0 && text[0] == '1';
}

void sleep_milliseconds(long milliseconds) {
  struct timespec span = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&span, NULL);
}

static int carry_out(const char *action) {
  if (!strncmp(action, "delay_ms=", 9)) sleep_milliseconds(atol(action + 9));
  if (!strcmp(action, "hang"))
    for (;;) sleep_milliseconds(1000);
  if (!strcmp(action, "crash")) abort();
  return strncmp(action, "status=", 7) ? SUCCESS : atoi(action + 7);
}

int injected(const char *function, const struct gpu *gpu) {
  char text[8192], *rest, index[16], wanted[96], who[16], action[64];
  if (read_file(text, sizeof text, "faults") <= 0) return SUCCESS;
  snprintf(index, sizeof index, "%d", gpu ? gpu->index : -1);
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (*line == '#' || sscanf(line, "%95s %15s %63s", wanted, who, action) != 3) continue;
    if (strcmp(wanted, "*") && strcmp(wanted, function)) continue;
    if (strcmp(who, "*") && strcmp(who, index)) continue;
    int status = carry_out(action);
    if (status != SUCCESS) return status;
  }
  return SUCCESS;
}

int checked(const char *function, void *handle, struct gpu **gpu) {
  if (gpu_count < 0) return UNINITIALIZED;
  *gpu = handle;
  if (*gpu < gpus || *gpu >= gpus + gpu_count) return INVALID_ARGUMENT;
  int status = injected(function, *gpu);
  if (status != SUCCESS) return status;
  return is_lost(*gpu) ? GPU_IS_LOST : SUCCESS;
}

/* By this symbol the agent knows that what it reads is simulated. */
__attribute__((visibility("default"))) const int aegis_simulated = 1;

static int driver(char *version, unsigned length) {
  char text[64];
  if (read_file(text, sizeof text, "driver") <= 0 || !strcmp(text, "absent")) return 0;
  if (version) snprintf(version, length, "%s", text);
  return 1;
}

API nvmlInitWithFlags(unsigned flags) {
  char text[64];
  (void)flags;
  int status = injected(__func__, NULL);
  if (status != SUCCESS) return status;
  if (!driver(NULL, 0)) return DRIVER_NOT_LOADED;
  for (gpu_count = 0; gpu_count < GPUS_MAX; gpu_count++) {
    if (read_file(text, sizeof text, "gpu%d/bus_id", gpu_count) <= 0) break;
    gpus[gpu_count].index = gpu_count;
  }
  references++;
  return SUCCESS;
}

API nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API nvmlShutdown(void) {
  if (gpu_count < 0) return UNINITIALIZED;
  if (--references <= 0) gpu_count = -1, references = 0;
  return SUCCESS;
}

API nvmlSystemGetDriverVersion(char *version, unsigned length) {
  int status = injected(__func__, NULL);
  if (status != SUCCESS) return status;
  return driver(version, length) ? SUCCESS : DRIVER_NOT_LOADED;
}

API nvmlSystemGetNVMLVersion(char *version, unsigned length) {
  snprintf(version, length, "12.570.0");
  return SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code) {
  static char text[48];
  snprintf(text, sizeof text, "NVML status %d (simulated)", code);
  return text;
}

API nvmlDeviceGetCount_v2(unsigned *count) {
  if (gpu_count < 0) return UNINITIALIZED;
  int status = injected(__func__, NULL);
  if (status == SUCCESS) *count = gpu_count;
  return status;
}

static int place(const char *bus_id, unsigned parts[3]) {
  return sscanf(bus_id, "%x:%x:%x", &parts[0], &parts[1], &parts[2]) == 3;
}

/* As NVIDIA's own: a lost GPU is counted and gives no handle to a process that asks anew. */
static int handle_of(const char *function, struct gpu *gpu, void **handle) {
  int status = injected(function, gpu);
  if (status != SUCCESS) return status;
  *handle = gpu;
  return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (gpu_count < 0) return UNINITIALIZED;
  if ((int)index >= gpu_count) return INVALID_ARGUMENT;
  return handle_of(__func__, &gpus[index], handle);
}

API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle) {
  if (gpu_count < 0) return UNINITIALIZED;
  for (int index = 0; index < gpu_count; index++) {
    char text[64];
    unsigned ours[3], wanted[3];
    read_file(text, sizeof text, "gpu%d/bus_id", index);
    if (place(text, ours) && place(bus_id, wanted) && !memcmp(ours, wanted, sizeof ours))
      return handle_of(__func__, &gpus[index], handle);
  }
  return NOT_FOUND;
}
