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
