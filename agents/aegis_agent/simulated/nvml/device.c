/* What a GPU is, and what its sensors say. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <string.h>

struct pci_info {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct temperature {
  unsigned version, sensor;
  int celsius;
};

static int copy(const struct gpu *gpu, const char *name, char *text, unsigned length) {
  return read_file(text, length, "gpu%d/%s", gpu->index, name) < 0 ? NOT_SUPPORTED : SUCCESS;
}

#define TEXT(function, file)                                        \
  API function(void *handle, char *text, unsigned length) {         \
    ENTER(handle);                                                  \
    return copy(gpu, file, text, length);                           \
  }

TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetName, "name")

API nvmlDeviceGetPciInfo_v3(void *handle, struct pci_info *info) {
  ENTER(handle);
  memset(info, 0, sizeof *info);
  copy(gpu, "bus_id", info->bus_id, sizeof info->bus_id);
  sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
  snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04x:%02x:%02x.0",
           info->domain & 0xffff, info->bus & 0xff, info->device & 0xff);
  info->pci_device_id = 0x233010de;
  return SUCCESS;
}

#define NUMBER(function, name, type)                   \
  API function(void *handle, type *result) {           \
    long long number;                                  \
    ENTER(handle);                                     \
    if (!value(gpu, name, &number)) return NOT_SUPPORTED; \
    *result = (type)number;                            \
    return SUCCESS;                                    \
  }

NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons", unsigned long long)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons", unsigned long long)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", unsigned)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", unsigned)
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays", unsigned)
NUMBER(nvmlDeviceGetPowerUsage, "power_mw", unsigned)

API nvmlDeviceGetTemperatureV(void *handle, struct temperature *temperature) {
  long long number;
  ENTER(handle);
  if (!value(gpu, "temperature_c", &number)) return NOT_SUPPORTED;
  temperature->celsius = (int)number;
  return SUCCESS;
}

API nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
  long long number;
  ENTER(handle);
  if (sensor || !value(gpu, "temperature_c", &number)) return NOT_SUPPORTED;
  *celsius = (unsigned)number;
  return SUCCESS;
}

/* GPUs that the driver was told to leave alone: a bus address a line. */
API nvmlGetExcludedDeviceCount(unsigned *count) {
  char text[1024], *rest;
  *count = 0;
  if (gpu_count < 0) return UNINITIALIZED;
  read_file(text, sizeof text, "excluded");
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    (*count)++;
  return SUCCESS;
}

struct excluded {
  struct pci_info pci;
  char uuid[80];
};

API nvmlGetExcludedDeviceInfoByIndex(unsigned index, struct excluded *info) {
  char text[1024], *rest;
  if (gpu_count < 0) return UNINITIALIZED;
  read_file(text, sizeof text, "excluded");
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (!index--) {
      memset(info, 0, sizeof *info);
      snprintf(info->pci.bus_id, sizeof info->pci.bus_id, "%s", line);
      return SUCCESS;
    }
  return INVALID_ARGUMENT;
}
