/* Hives, and resetting one: one GPU alone cannot be reset, and whoever holds one of them dies. */
#define _GNU_SOURCE
#include "simulation.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *folder(void) {
  const char *name = getenv("AEGIS_SIM_AMDSMI");
  return name ? name : "/run/aegis-sim/amdsmi";
}

static int hive_of(const struct gpu *gpu) {
  char text[16];
  return COPY_FILE(text, "xgmi_hive") > 0 ? atoi(text) : 0;
}

/* Renamed into place, as all writers do. */
static void put(const struct gpu *gpu, const char *name, const char *text) {
  char path[1024], staged[1040];
  snprintf(path, sizeof path, "%s/gpu%d/%s", folder(), gpu->index, name);
  snprintf(staged, sizeof staged, "%s.new", path);
  FILE *file = fopen(staged, "w");
  if (!file) return;
  fprintf(file, "%s\n", text);
  fclose(file);
  rename(staged, path);
}

/* The kernel kills all that has the GPU open for compute. */
static void kill_holders(const struct gpu *gpu) {
  char text[8192], *rest;
  COPY_FILE(text, "processes");
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    long pid = atol(line);
    if (pid > 1 && pid != getpid()) kill((pid_t)pid, SIGKILL);
  }
  put(gpu, "processes", "");
}

/* Errors count from zero again; those of the links to the others do not. */
static void clear_counts(const struct gpu *gpu) {
  char path[1024], text[8];
  if (COPY_FILE(text, "stubborn") > 0 && text[0] == '1') return;
  snprintf(path, sizeof path, "%s/gpu%d/ras", folder(), gpu->index);
  DIR *blocks = opendir(path);
  if (!blocks) return;
  for (struct dirent *entry; (entry = readdir(blocks));) {
    char name[300];
    if (entry->d_name[0] == '.' || strstr(entry->d_name, ".new")) continue;
    if (!strcmp(entry->d_name, "xgmi_wafl")) continue;
    snprintf(name, sizeof name, "ras/%s", entry->d_name);
    put(gpu, name, "0 0 0");
  }
  closedir(blocks);
}

static void count_reset(const struct gpu *gpu) {
  char text[16];
  int before = COPY_FILE(text, "resets") > 0 ? atoi(text) : 0;
  snprintf(text, sizeof text, "%d", before + 1);
  put(gpu, "resets", text);
}

static void take_time(void) {
  char text[16];
  long milliseconds = read_file(text, sizeof text, "reset_ms") > 0 ? atol(text) : 200;
  struct timespec span = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&span, NULL);
}

API amdsmi_get_xgmi_info(void *handle, struct_amdsmi_xgmi_info_t *info) {
  ENTER(handle);
  memset(info, 0, sizeof *info);
  info->xgmi_hive_id = hive_of(gpu) ? 0x5000 + hive_of(gpu) : 0;
  info->xgmi_lanes = hive_of(gpu) ? 16 : 0;
  info->index = gpu->index;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_reset_gpu(void *handle) {
  ENTER(handle);
  int hive = hive_of(gpu);
  for (int index = 0; index < GPUS_MAX; index++) {
    struct gpu *one = handle_of_gpu(index);
    if (one && (one == gpu || (hive && hive_of(one) == hive))) kill_holders(one);
  }
  take_time();
  for (int index = 0; index < GPUS_MAX; index++) {
    struct gpu *one = handle_of_gpu(index);
    if (!one || (one != gpu && (!hive || hive_of(one) != hive))) continue;
    clear_counts(one);
    count_reset(one);
  }
  return AMDSMI_STATUS_SUCCESS;
}
