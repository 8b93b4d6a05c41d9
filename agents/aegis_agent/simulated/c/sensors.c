/* Memory use, links, temperature, power and throttling: the `metrics` file, or a healthy default. */
#define _GNU_SOURCE
#include "simulation.h"

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
  pcie->pcie_static.max_pcie_width = 16;
  pcie->pcie_static.max_pcie_speed = 32000;
  pcie->pcie_static.pcie_interface_version = 5;
  pcie->pcie_static.slot_type = 1;
  pcie->pcie_metric.pcie_width = metric(gpu, "pcie_width", 16);
  pcie->pcie_metric.pcie_speed = metric(gpu, "pcie_speed", 32000);
  pcie->pcie_metric.pcie_replay_count = metric(gpu, "pcie_replay", 0);
  pcie->pcie_metric.pcie_l0_to_recovery_count = metric(gpu, "pcie_l0_recovery", 0);
  pcie->pcie_metric.pcie_nak_sent_count = metric(gpu, "pcie_nak_sent", 0);
  pcie->pcie_metric.pcie_nak_received_count = metric(gpu, "pcie_nak_received", 0);
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_pci_replay_counter(void *handle, uint64_t *count) {
  ENTER_LIVE(handle);
  *count = metric(gpu, "pcie_replay", 0);
  return AMDSMI_STATUS_SUCCESS;
}

/* Fields without a value are all ones: the real library's "not available". */
API amdsmi_get_power_info(void *handle, struct_amdsmi_power_info_t *power) {
  ENTER_LIVE(handle);
  memset(power, 0xff, sizeof *power);
  power->current_socket_power = metric(gpu, "power_w", 140);
#ifdef HAVE_struct_amdsmi_power_info_t__socket_power
  power->socket_power = power->current_socket_power;
#endif
  power->power_limit = 750;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_temp_metric(void *handle, uint32_t sensor, uint32_t kind, int64_t *celsius) {
  (void)kind;
  ENTER_LIVE(handle);
  *celsius = sensor == AMDSMI_TEMPERATURE_TYPE_VRAM ? metric(gpu, "temp_mem_c", 45)
                                                    : metric(gpu, "temp_hotspot_c", 45);
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
API amdsmi_get_violation_status(void *handle, struct_amdsmi_violation_status_t *violation) {
  struct timespec now;
  ENTER_LIVE(handle);
  memset(violation, 0, sizeof *violation);
  clock_gettime(CLOCK_REALTIME, &now);
  violation->reference_timestamp = now.tv_sec * 1000000ull + now.tv_nsec / 1000;
  violation->violation_timestamp = violation->reference_timestamp;
  violation->acc_counter = metric(gpu, "acc_counter", 1000);
  violation->acc_ppt_pwr = metric(gpu, "ppt_acc", 0);
  violation->acc_socket_thrm = metric(gpu, "socket_thrm_acc", 0);
  violation->acc_hbm_thrm = metric(gpu, "hbm_thrm_acc", 0);
  violation->active_socket_thrm = metric(gpu, "socket_thrm_active", 0);
  violation->per_socket_thrm = metric(gpu, "socket_thrm_pct", 0);
  return AMDSMI_STATUS_SUCCESS;
}
#endif

API amdsmi_gpu_xgmi_error_status(void *handle, uint32_t *xgmi_status) {
  char text[16];
  ENTER_LIVE(handle);
  COPY_FILE(text, "xgmi_error");
  *xgmi_status = atoi(text);
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_process_list(void *handle, uint32_t *count, struct_amdsmi_proc_info_t *list) {
  (void)list;
  ENTER(handle);
  *count = 0;
  return AMDSMI_STATUS_SUCCESS;
}
