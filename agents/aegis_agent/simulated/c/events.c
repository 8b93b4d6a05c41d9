/* Pushed events: lines "GPU NAME MESSAGE" that are appended to the `events` file. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_STEP_MS 20

static size_t told; /* so much of the file */
static int listening;

static const struct {
  const char *name;
  int number;
} kinds[] = {
    {"VMFAULT", AMDSMI_EVT_NOTIF_VMFAULT},
    {"THERMAL_THROTTLE", AMDSMI_EVT_NOTIF_THERMAL_THROTTLE},
    {"GPU_PRE_RESET", AMDSMI_EVT_NOTIF_GPU_PRE_RESET},
    {"GPU_POST_RESET", AMDSMI_EVT_NOTIF_GPU_POST_RESET},
#ifdef AMDSMI_EVT_NOTIF_RING_HANG
    {"RING_HANG", AMDSMI_EVT_NOTIF_RING_HANG},
#endif
#ifdef AMDSMI_EVT_NOTIF_MIGRATE_START
    {"MIGRATE_START", AMDSMI_EVT_NOTIF_MIGRATE_START},
#endif
};

static size_t read_events(char *text, size_t size) {
  int length = read_file(text, size, "events");
  return length > 0 ? length : 0;
}

API amdsmi_init_gpu_event_notification(void *handle) {
  char text[65536];
  ENTER(handle);
  if (!listening++) told = read_events(text, sizeof text); /* what was is past */
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_set_gpu_event_notification_mask(void *handle, uint64_t mask) {
  (void)mask;
  ENTER(handle);
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_stop_gpu_event_notification(void *handle) {
  ENTER(handle);
  if (listening) listening--;
  return AMDSMI_STATUS_SUCCESS;
}

static int take(char *line, struct_amdsmi_evt_notification_data_t *event) {
  char name[64];
  int index, length = 0;
  if (sscanf(line, "%d %63s %n", &index, name, &length) < 2) return 0;
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    if (strcmp(kinds[kind].name, name)) continue;
    memset(event, 0, sizeof *event);
    event->processor_handle = handle_of_gpu(index);
    event->event = kinds[kind].number;
    snprintf(event->message, sizeof event->message, "%s", line + length);
    return event->processor_handle != NULL;
  }
  return 0;
}

API amdsmi_get_gpu_event_notification(int milliseconds, uint32_t *count,
                                      struct_amdsmi_evt_notification_data_t *events) {
  static char text[65536];
  struct timespec step = {0, WAIT_STEP_MS * 1000000};
  char *rest;
  size_t length = read_events(text, sizeof text);
  for (; length <= told && milliseconds > 0; milliseconds -= WAIT_STEP_MS) {
    nanosleep(&step, NULL);
    length = read_events(text, sizeof text);
  }
  uint32_t room = *count;
  *count = 0;
  if (length <= told) return AMDSMI_STATUS_NO_DATA;
  char *line = strtok_r(text + told, "\n", &rest);
  for (; line && *count < room; line = strtok_r(NULL, "\n", &rest)) {
    told = line + strlen(line) - text;
    *count += take(line, &events[*count]);
  }
  return AMDSMI_STATUS_SUCCESS;
}
