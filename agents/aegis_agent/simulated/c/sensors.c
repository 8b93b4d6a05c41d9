/* Memory use, links, temperature, power and throttling: the `metrics` file, or a healthy default. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

API amdsmi_get_gpu_vram_info(void *handle, struct_amdsmi_vram_info_t *vram) {
  ENTER(handle);
  memset(vram, 0, sizeof *vram);
  vram->vram_type = AMDSMI_VRAM_TYPE_HBM3;
  vram->vram_size = 196592;
  vram->vram_bit_width = 8192;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_vram_usage(void *handle, struct_amdsmi_vram_usage_t *vram) {
  ENTER_LIVE(handle);
  vram->vram_total = 196592;
  vram->vram_used = metric(gpu, "vram_used_mb", 300);
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_pcie_info(void *handle, struct_amdsmi_pcie_info_t *pcie) {
  ENTER_LIVE(handle);
  memset(pcie, 0, sizeof *pcie);
  pcie->pcie_static.max_pcie_width = counter(gpu, "pcie_max_width", 16);
  pcie->pcie_static.max_pcie_speed = counter(gpu, "pcie_max_speed", 32000);
  pcie->pcie_static.pcie_interface_version = 5;
  pcie->pcie_static.slot_type = 1;
  pcie->pcie_metric.pcie_width = counter(gpu, "pcie_width", 16);
  pcie->pcie_metric.pcie_speed = counter(gpu, "pcie_speed", 32000);
  pcie->pcie_metric.pcie_replay_count = counter(gpu, "pcie_replay", 0);
  pcie->pcie_metric.pcie_l0_to_recovery_count = counter(gpu, "pcie_l0_recovery", 0);
  pcie->pcie_metric.pcie_nak_sent_count = counter(gpu, "pcie_nak_sent", 0);
  pcie->pcie_metric.pcie_nak_received_count = counter(gpu, "pcie_nak_received", 0);
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_pci_replay_counter(void *handle, uint64_t *count) {
  ENTER_LIVE(handle);
  *count = counter(gpu, "pcie_replay", 0);
  return AMDSMI_STATUS_SUCCESS;
}

/* Fields without a value are all ones: the real library's "not available". */
static int fill_power(void *handle, const char *function, struct_amdsmi_power_info_t *power) {
  struct gpu *gpu;
  int status = checked(function, handle, &gpu);
  if (status != AMDSMI_STATUS_SUCCESS) return status;
  if (is_lost(gpu)) return AMDSMI_STATUS_NOT_SUPPORTED;
  memset(power, 0xff, sizeof *power);
  power->current_socket_power = counter(gpu, "power_w", 140);
#ifdef HAVE_struct_amdsmi_power_info_t__socket_power
  power->socket_power = power->current_socket_power;
#endif
  power->power_limit = 750;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_power_info(void *handle, struct_amdsmi_power_info_t *power) {
  return fill_power(handle, __func__, power);
}

/* What the wrapper 6.4.3 calls. */
API amdsmi_get_power_info_v2(void *handle, uint32_t sensor, struct_amdsmi_power_info_t *power) {
  (void)sensor;
  return fill_power(handle, "amdsmi_get_power_info", power);
}

API amdsmi_get_temp_metric(void *handle, uint32_t sensor, uint32_t kind, int64_t *celsius) {
  ENTER_LIVE(handle);
  int memory = sensor == AMDSMI_TEMPERATURE_TYPE_VRAM;
  if (!memory && sensor != AMDSMI_TEMPERATURE_TYPE_HOTSPOT) return AMDSMI_STATUS_NOT_SUPPORTED;
  if (kind == AMDSMI_TEMP_CURRENT)
    *celsius = counter(gpu, memory ? "temp_mem_c" : "temp_hotspot_c", 45);
  else if (kind == AMDSMI_TEMP_CRITICAL)
    *celsius = counter(gpu, memory ? "temp_mem_critical_c" : "temp_hotspot_critical_c",
                       memory ? 105 : 100);
  else
    return AMDSMI_STATUS_NOT_SUPPORTED;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_activity(void *handle, struct_amdsmi_engine_usage_t *usage) {
  ENTER_LIVE(handle);
  memset(usage, 0, sizeof *usage);
  usage->gfx_activity = metric(gpu, "gfx_busy", 0);
  usage->umc_activity = metric(gpu, "umc_busy", 0);
  return AMDSMI_STATUS_SUCCESS;
}

#ifdef HAVE_struct_amdsmi_violation_status_t
static uint64_t now_milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

/* Milliseconds spent throttled for that reason, so far. */
static uint64_t throttled(const struct gpu *gpu, const char *kind, uint64_t now) {
  char text[1024], name[64], key[32], *rest;
  double percent;
  unsigned long long since, base;
  snprintf(name, sizeof name, "throttle_%s", kind);
  uint64_t fixed = counter(gpu, name, 0);
  if (fixed || COPY_FILE(text, "throttle") <= 0) return fixed;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (sscanf(line, "%31s %lf %llu %llu", key, &percent, &since, &base) == 4 &&
        !strcmp(key, kind))
      return base + (now > since ? (now - since) * percent / 100 : 0);
  return 0;
}

/* Which of the flags are not available is all ones, and true once it is a bool. */
API amdsmi_get_violation_status(void *handle, struct_amdsmi_violation_status_t *violation) {
  ENTER_LIVE(handle);
  uint64_t now = now_milliseconds();
  memset(violation, 0xff, sizeof *violation);
  violation->reference_timestamp = violation->violation_timestamp = now * 1000;
  violation->acc_counter = counter(gpu, "acc_counter", now);
  violation->acc_prochot_thrm = throttled(gpu, "prochot", now);
  violation->acc_ppt_pwr = throttled(gpu, "power", now);
  violation->acc_socket_thrm = throttled(gpu, "socket", now);
  violation->acc_vr_thrm = throttled(gpu, "vr", now);
  violation->acc_hbm_thrm = throttled(gpu, "hbm", now);
  return AMDSMI_STATUS_SUCCESS;
}
#endif

API amdsmi_get_gpu_xgmi_link_status(void *handle, struct_amdsmi_xgmi_link_status_t *links) {
  char text[32];
  ENTER_LIVE(handle);
  memset(links, 0, sizeof *links);
  COPY_FILE(text, "xgmi_links");
  for (const char *letter = text; *letter && links->total_links < 8; letter++) {
    if (*letter == ' ') continue;
    links->status[links->total_links++] = *letter == 'U'   ? AMDSMI_XGMI_LINK_UP
                                          : *letter == 'D' ? AMDSMI_XGMI_LINK_DOWN
                                                           : AMDSMI_XGMI_LINK_DISABLE;
  }
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_gpu_xgmi_error_status(void *handle, uint32_t *xgmi_status) {
  char text[16];
  ENTER_LIVE(handle);
  COPY_FILE(text, "xgmi_error");
  *xgmi_status = atoi(text);
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_process_list(void *handle, uint32_t *count, struct_amdsmi_proc_info_t *list) {
  char text[8192], name[256], *rest;
  unsigned long pid;
  unsigned long long vram;
  uint32_t room = *count;
  ENTER_LIVE(handle);
  *count = 0;
  if (COPY_FILE(text, "processes") <= 0) return AMDSMI_STATUS_SUCCESS;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (*count == room || sscanf(line, "%lu %255s %llu", &pid, name, &vram) != 3) continue;
    struct_amdsmi_proc_info_t *process = &list[(*count)++];
    memset(process, 0, sizeof *process);
    strcpy(process->name, name);
    process->pid = pid;
    process->memory_usage.vram_mem = vram;
  }
  return AMDSMI_STATUS_SUCCESS;
}
