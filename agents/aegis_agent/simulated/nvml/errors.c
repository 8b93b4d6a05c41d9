/* What a GPU counts: memory errors, retired pages, remapped rows, NVLink and PCIe errors. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <string.h>

struct field {
  unsigned id, scope;
  long long timestamp, latency;
  unsigned type, status;
  union {
    double real;
    unsigned long long number;
  } value;
};

struct link {
  int active;
  unsigned long long replays, recoveries, crc_errors;
};

/* A name for each location's number. */
static const char *const locations[] = {"l1", "l2", "dram", "register", "texture", "shared", "cbu",
                                        "sram"};
enum { LOCATIONS = sizeof locations / sizeof *locations };

/* The sum over all locations, or one location's count; column 0 to 3 as in the file. */
static int errors(const struct gpu *gpu, const char *location, int column,
                  unsigned long long *result) {
  char text[4096], *rest, name[32];
  unsigned long long counts[4];
  int found = 0;
  *result = 0;
  if (read_file(text, sizeof text, "gpu%d/ecc", gpu->index) <= 0) return 0;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (sscanf(line, "%31s %llu %llu %llu %llu", name, &counts[0], &counts[1], &counts[2],
               &counts[3]) != 5)
      continue;
    if (location && strcmp(location, name)) continue;
    *result += counts[column];
    found = 1;
  }
  return found;
}

API nvmlDeviceGetMemoryErrorCounter(void *handle, int kind, int since, int location,
                                    unsigned long long *count) {
  ENTER(handle);
  if (location < 0 || location >= LOCATIONS) return INVALID_ARGUMENT;
  return errors(gpu, locations[location], 2 * since + kind, count) ? SUCCESS : NOT_SUPPORTED;
}

API nvmlDeviceGetTotalEccErrors(void *handle, int kind, int since, unsigned long long *count) {
  ENTER(handle);
  return errors(gpu, NULL, 2 * since + kind, count) ? SUCCESS : NOT_SUPPORTED;
}

static int read_link(const struct gpu *gpu, unsigned number, struct link *link) {
  char text[4096], *rest;
  unsigned found;
  if (read_file(text, sizeof text, "gpu%d/nvlink", gpu->index) <= 0) return 0;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (sscanf(line, "%u %d %llu %llu %llu", &found, &link->active, &link->replays,
               &link->recoveries, &link->crc_errors) == 5 && found == number)
      return 1;
  return 0;
}

API nvmlDeviceGetNvLinkState(void *handle, unsigned number, unsigned *active) {
  struct link link;
  ENTER(handle);
  if (!read_link(gpu, number, &link)) return INVALID_ARGUMENT;
  *active = link.active;
  return SUCCESS;
}

/* The older way to the same numbers. */
API nvmlDeviceGetNvLinkErrorCounter(void *handle, unsigned number, int counter,
                                    unsigned long long *count) {
  struct link link;
  ENTER(handle);
  if (!read_link(gpu, number, &link)) return INVALID_ARGUMENT;
  unsigned long long counts[] = {link.replays, link.recoveries, link.crc_errors, 0};
  if (counter < 0 || counter > 3) return NOT_SUPPORTED;
  *count = counts[counter];
  return SUCCESS;
}

static const char *field_name(unsigned id) {
  switch (id) {
    case 29: return "retired_sbe";
    case 30: return "retired_dbe";
    case 31: return "retired_pending";
    case 94: return "pcie_replays";
    case 142: return "remapped_correctable";
    case 143: return "remapped_uncorrectable";
    case 144: return "remapped_pending";
    case 145: return "remapped_failure";
    case 230: return "recovery_action";
    default: return NULL;
  }
}

static int fill(const struct gpu *gpu, struct field *field) {
  struct link link;
  long long number;
  if (field->id >= 3 && field->id <= 6) /* SBE_VOL_TOTAL DBE_VOL_TOTAL SBE_AGG_TOTAL DBE_AGG_TOTAL */
    return errors(gpu, NULL, (int)field->id - 3, &field->value.number) ? SUCCESS : NOT_SUPPORTED;
  if (field->id >= 161 && field->id <= 163) {
    if (!read_link(gpu, field->scope, &link)) return NOT_SUPPORTED;
    unsigned long long counts[] = {link.replays, link.recoveries, link.crc_errors};
    field->value.number = counts[field->id - 161];
    return SUCCESS;
  }
  const char *name = field_name(field->id);
  if (!name || !value(gpu, name, &number)) return NOT_SUPPORTED;
  field->value.number = (unsigned long long)number;
  return SUCCESS;
}

API nvmlDeviceGetFieldValues(void *handle, int count, struct field *fields) {
  ENTER(handle);
  for (int index = 0; index < count; index++) {
    fields[index].type = 3; /* unsigned long long */
    fields[index].status = fill(gpu, &fields[index]);
  }
  return SUCCESS;
}
