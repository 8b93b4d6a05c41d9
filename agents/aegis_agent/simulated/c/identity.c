/* What a GPU is. As with the real library these answer from a cache: also for a lost GPU. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

API amdsmi_get_gpu_device_bdf(void *handle, uint64_t *bdf) {
  char text[32];
  ENTER(handle);
  COPY_FILE(text, "bdf");
  *bdf = bdf_from_text(text);
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_device_uuid(void *handle, uint32_t *length, char *uuid) {
  ENTER(handle);
  *length = read_gpu_file(gpu, "uuid", uuid, *length) + 1;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_asic_info(void *handle, struct_amdsmi_asic_info_t *asic) {
  char unique[32];
  ENTER(handle);
  memset(asic, 0, sizeof *asic);
  COPY_FILE(asic->market_name, "market_name");
  strcpy(asic->vendor_name, "Advanced Micro Devices Inc. [AMD/ATI]");
  asic->vendor_id = asic->subvendor_id = 0x1002;
  asic->device_id = 0x74a1;
  COPY_FILE(unique, "unique_id");
  snprintf(asic->asic_serial, sizeof asic->asic_serial, "0x%s", unique);
  asic->oam_id = gpu->index;
  asic->num_of_compute_units = 304;
  asic->target_graphics_version = 0x942;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_board_info(void *handle, struct_amdsmi_board_info_t *board) {
  ENTER(handle);
  memset(board, 0, sizeof *board);
  COPY_FILE(board->model_number, "model_number");
  COPY_FILE(board->product_serial, "serial");
  COPY_FILE(board->fru_id, "fru_id");
  COPY_FILE(board->product_name, "market_name");
  strcpy(board->manufacturer_name, "AMD");
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_driver_info(void *handle, struct_amdsmi_driver_info_t *driver) {
  ENTER(handle);
  memset(driver, 0, sizeof *driver);
  strcpy(driver->driver_name, "amdgpu");
  strcpy(driver->driver_version, "6.16.6-simulated");
  strcpy(driver->driver_date, "20150101");
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_kfd_info(void *handle, struct_amdsmi_kfd_info_t *kfd) {
  ENTER(handle);
  memset(kfd, 0, sizeof *kfd);
  kfd->kfd_id = 10000 + gpu->index;
  kfd->node_id = gpu->index + 2;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_vbios_info(void *handle, struct_amdsmi_vbios_info_t *vbios) {
  ENTER(handle);
  memset(vbios, 0, sizeof *vbios);
  strcpy(vbios->name, "AMD MI300X_HW");
  strcpy(vbios->build_date, "2024/08/14 18:29");
  strcpy(vbios->part_number, "113-M3000100-103");
  COPY_FILE(vbios->version, "vbios");
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_fw_info(void *handle, struct_amdsmi_fw_info_t *firmware) {
  ENTER(handle);
  memset(firmware, 0, sizeof *firmware);
  firmware->num_fw_info = 2;
  firmware->fw_info_list[0].fw_id = AMDSMI_FW_ID_PM;
  firmware->fw_info_list[0].fw_version = 0x00558300;
  firmware->fw_info_list[1].fw_id = AMDSMI_FW_ID_TA_RAS;
  firmware->fw_info_list[1].fw_version = 0x1b360211;
  return AMDSMI_STATUS_SUCCESS;
}

static int copy_partition(const struct gpu *gpu, const char *name, char *text, uint32_t length) {
  return read_gpu_file(gpu, name, text, length) < 0 ? AMDSMI_STATUS_NOT_SUPPORTED
                                                    : AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_compute_partition(void *handle, char *text, uint32_t length) {
  ENTER(handle);
  return copy_partition(gpu, "compute_partition", text, length);
}

API amdsmi_get_gpu_memory_partition(void *handle, char *text, uint32_t length) {
  ENTER(handle);
  return copy_partition(gpu, "memory_partition", text, length);
}
