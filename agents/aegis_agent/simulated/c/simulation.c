/* The folder, the injected faults, and the library's life: init, handles, shut down. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct gpu gpus[GPUS_MAX];
static int gpu_count = -1; /* -1: not initialised */
static int references;

static const char *folder(void) {
  const char *name = getenv("AEGIS_SIM_AMDSMI");
  return name ? name : "/run/aegis-sim/amdsmi";
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

int read_gpu_file(const struct gpu *gpu, const char *name, char *buffer, unsigned long size) {
  return read_file(buffer, size, "gpu%d/%s", gpu->index, name);
}

/* Whether the `metrics` file has a value of that name, and which. */
static int find_metric(const struct gpu *gpu, const char *name, char value[64]) {
  char text[8192], *rest, key[64];
  if (read_gpu_file(gpu, "metrics", text, sizeof text) <= 0) return 0;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (sscanf(line, "%63s %63s", key, value) == 2 && !strcmp(key, name)) return 1;
  return 0;
}

double metric(const struct gpu *gpu, const char *name, double otherwise) {
  char value[64];
  return find_metric(gpu, name, value) ? strtod(value, NULL) : otherwise;
}

uint64_t counter(const struct gpu *gpu, const char *name, uint64_t otherwise) {
  char value[64];
  return find_metric(gpu, name, value) ? strtoull(value, NULL, 0) : otherwise;
}

int is_lost(const struct gpu *gpu) {
  char text[8];
  return read_gpu_file(gpu, "lost", text, sizeof text) > 0 && text[0] == '1';
}

uint64_t bdf_from_text(const char *text) {
  unsigned domain, bus, device, function;
  if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return 0;
  return (uint64_t)domain << 16 | (uint64_t)bus << 8 | (uint64_t)device << 3 | function;
}

static void sleep_milliseconds(long milliseconds) {
  struct timespec span = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&span, NULL);
}

static int carry_out(const char *action) {
  if (!strncmp(action, "delay_ms=", 9)) sleep_milliseconds(atol(action + 9));
  if (!strcmp(action, "hang"))
    for (;;) sleep_milliseconds(1000);
  if (!strcmp(action, "crash")) abort();
  return strncmp(action, "status=", 7) ? AMDSMI_STATUS_SUCCESS : atoi(action + 7);
}

int injected(const char *function, const struct gpu *gpu) {
  char text[8192], *rest, index[16], wanted[96], who[16], action[64];
  if (read_file(text, sizeof text, "faults") <= 0) return AMDSMI_STATUS_SUCCESS;
  snprintf(index, sizeof index, "%d", gpu ? gpu->index : -1);
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (*line == '#' || sscanf(line, "%95s %15s %63s", wanted, who, action) != 3) continue;
    if (strcmp(wanted, "*") && strcmp(wanted, function)) continue;
    if (strcmp(who, "*") && strcmp(who, index)) continue;
    int status = carry_out(action);
    if (status != AMDSMI_STATUS_SUCCESS) return status;
  }
  return AMDSMI_STATUS_SUCCESS;
}

struct gpu *gpu_of_handle(void *handle) {
  struct gpu *gpu = handle;
  return gpu >= gpus && gpu < gpus + (gpu_count > 0 ? gpu_count : 0) ? gpu : NULL;
}

void *handle_of_gpu(int index) {
  for (int place = 0; place < gpu_count; place++)
    if (gpus[place].index == index) return &gpus[place];
  return NULL;
}

int checked(const char *function, void *handle, struct gpu **gpu) {
  if (gpu_count < 0) return AMDSMI_STATUS_NOT_INIT;
  *gpu = gpu_of_handle(handle);
  return *gpu ? injected(function, *gpu) : AMDSMI_STATUS_INVAL;
}

/* By this symbol the agent knows that what it reads is simulated. */
__attribute__((visibility("default"))) const int aegis_simulated = 1;

/* The GPUs in the order of the `order` file, which the real library does not keep from start to
 * start; without it as many as have a folder, by number. */
static void list_gpus(void) {
  char order[512], bdf[64], *rest;
  int listed = read_file(order, sizeof order, "order") > 0;
  char *number = listed ? strtok_r(order, " ", &rest) : NULL;
  for (gpu_count = 0; gpu_count < GPUS_MAX && (!listed || number); gpu_count++) {
    int index = listed ? atoi(number) : gpu_count;
    if (read_file(bdf, sizeof bdf, "gpu%d/bdf", index) <= 0) break;
    gpus[gpu_count].index = index;
    if (listed) number = strtok_r(NULL, " ", &rest);
  }
}

API amdsmi_init(uint64_t flags) {
  char driver[32];
  (void)flags;
  int status = injected(__func__, NULL);
  if (status != AMDSMI_STATUS_SUCCESS) return status;
  read_file(driver, sizeof driver, "driver");
  if (strcmp(driver, "loaded")) return AMDSMI_STATUS_DRIVER_NOT_LOADED;
  list_gpus();
  references++;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_shut_down(void) {
  if (gpu_count < 0) return AMDSMI_STATUS_NOT_INIT;
  if (--references <= 0) gpu_count = -1, references = 0;
  return AMDSMI_STATUS_SUCCESS;
}

/* Until 25.x the structure began with the year, which was the version's first number. */
API amdsmi_get_lib_version(struct_amdsmi_version_t *version) {
  char text[32];
  unsigned first, second, third;
  if (read_file(text, sizeof text, "version") <= 0) strcpy(text, SIMULATED_VERSION);
  if (sscanf(text, "%u.%u.%u", &first, &second, &third) != 3) return AMDSMI_STATUS_INVAL;
  memset(version, 0, sizeof *version);
#ifdef HAVE_struct_amdsmi_version_t__year
  version->year = first, version->major = second, version->minor = third;
#else
  version->major = first, version->minor = second, version->release = third;
#endif
  version->build = (void *)"aegis-simulated";
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_status_code_to_string(int code, const char **text) {
  static char buffer[48];
  snprintf(buffer, sizeof buffer, "AMDSMI_STATUS %d (simulated)", code);
  *text = buffer;
  return AMDSMI_STATUS_SUCCESS;
}

/* One socket per GPU, and the same handle for both, as on MI300X. */
API amdsmi_get_socket_handles(uint32_t *count, void **handles) {
  if (gpu_count < 0) return AMDSMI_STATUS_NOT_INIT;
  int status = injected(__func__, NULL);
  if (status != AMDSMI_STATUS_SUCCESS) return status;
  for (int index = 0; handles && index < gpu_count && index < (int)*count; index++)
    handles[index] = &gpus[index];
  *count = gpu_count;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_socket_info(void *handle, size_t length, char *name) {
  ENTER(handle);
  return read_gpu_file(gpu, "bdf", name, length) < 0 ? AMDSMI_STATUS_NOT_SUPPORTED
                                                     : AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles) {
  ENTER(socket);
  if (handles && *count) handles[0] = gpu;
  *count = 1;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_processor_type(void *handle, uint32_t *type) {
  ENTER(handle);
  *type = AMDSMI_PROCESSOR_TYPE_AMD_GPU;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_processor_handle_from_bdf(uint64_t bdf, void **handle) {
  if (gpu_count < 0) return AMDSMI_STATUS_NOT_INIT;
  for (int index = 0; index < gpu_count; index++) {
    char text[32];
    read_gpu_file(&gpus[index], "bdf", text, sizeof text);
    if (bdf_from_text(text) != bdf) continue;
    *handle = &gpus[index];
    return AMDSMI_STATUS_SUCCESS;
  }
  return AMDSMI_STATUS_API_FAILED;
}
