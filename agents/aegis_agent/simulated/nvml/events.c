/* Events: each line added to a GPU's `xids` is one Xid. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { XID_CRITICAL_ERROR = 8, WAIT_MILLISECONDS = 5 };

struct event {
  void *device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

struct event_set {
  int seen[GPUS_MAX]; /* lines that were there at registration or have been told; -1: not ours */
};

/* The line with this number, from 0; how many there are. */
static int xids(const struct gpu *gpu, int wanted, unsigned long long *number) {
  char text[8192], *rest;
  int count = 0;
  read_file(text, sizeof text, "gpu%d/xids", gpu->index);
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (count++ == wanted) *number = strtoull(line, NULL, 10);
  return count;
}

API nvmlEventSetCreate(struct event_set **set) {
  if (gpu_count < 0) return UNINITIALIZED;
  *set = malloc(sizeof **set);
  for (int index = 0; index < GPUS_MAX; index++) (*set)->seen[index] = -1;
  return SUCCESS;
}

API nvmlEventSetFree(struct event_set *set) {
  free(set);
  return SUCCESS;
}

API nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *types) {
  ENTER(handle);
  *types = XID_CRITICAL_ERROR;
  return SUCCESS;
}

API nvmlDeviceRegisterEvents(void *handle, unsigned long long types, struct event_set *set) {
  unsigned long long ignored;
  ENTER(handle);
  if (types & XID_CRITICAL_ERROR) set->seen[gpu->index] = xids(gpu, -1, &ignored);
  return SUCCESS;
}

API nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned milliseconds) {
  int status = injected(__func__, NULL);
  if (status != SUCCESS) return status;
  for (long waited = 0;; waited += WAIT_MILLISECONDS) {
    for (int index = 0; index < gpu_count; index++) {
      if (set->seen[index] < 0 || xids(&gpus[index], set->seen[index], &event->data) <= set->seen[index])
        continue;
      set->seen[index]++;
      event->device = &gpus[index];
      event->type = XID_CRITICAL_ERROR;
      event->gpu_instance = event->compute_instance = 0xffffffff;
      return SUCCESS;
    }
    if (waited >= (long)milliseconds) return TIMEOUT;
    sleep_milliseconds(WAIT_MILLISECONDS);
  }
}
