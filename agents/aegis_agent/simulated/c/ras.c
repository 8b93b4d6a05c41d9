/* Error counters per block, and retired memory pages. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of the bits of AMDSMI_GPU_BLOCK_*. */
static const char *const block_names[] = {"umc",  "sdma",      "gfx",  "mmhub", "athub",
                                          "pcie_bif", "hdp",   "xgmi_wafl", "df", "smn",
                                          "sem",  "mp0",       "mp1",  "fuse",  "mca",
                                          "vcn",  "jpeg",      "ih",   "mpio"};
#define BLOCKS (sizeof block_names / sizeof *block_names)

static int add_counts(const struct gpu *gpu, const char *block, struct_amdsmi_error_count_t *sum) {
  char name[64], text[128];
  unsigned long long correctable = 0, uncorrectable = 0, deferred = 0;
  snprintf(name, sizeof name, "ras/%s", block);
  if (read_gpu_file(gpu, name, text, sizeof text) < 0) return AMDSMI_STATUS_NOT_SUPPORTED;
  sscanf(text, "%llu %llu %llu", &correctable, &uncorrectable, &deferred);
  sum->correctable_count += correctable;
  sum->uncorrectable_count += uncorrectable;
  sum->deferred_count += deferred;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_ecc_count(void *handle, uint64_t block, struct_amdsmi_error_count_t *counts) {
  ENTER_LIVE(handle);
  memset(counts, 0, sizeof *counts);
  for (size_t bit = 0; bit < BLOCKS; bit++)
    if (block == 1ull << bit) return add_counts(gpu, block_names[bit], counts);
  return AMDSMI_STATUS_NOT_SUPPORTED;
}

/* The real library skips blocks that it cannot read: a lost GPU's total is success and zeros. */
API amdsmi_get_gpu_total_ecc_count(void *handle, struct_amdsmi_error_count_t *counts) {
  ENTER(handle);
  memset(counts, 0, sizeof *counts);
  for (size_t bit = 0; bit < BLOCKS && !is_lost(gpu); bit++)
    add_counts(gpu, block_names[bit], counts);
  return AMDSMI_STATUS_SUCCESS;
}

static int enabled_blocks(const struct gpu *gpu, uint64_t *mask) {
  char text[32];
  if (COPY_FILE(text, "ras_enabled") < 0) return AMDSMI_STATUS_NOT_SUPPORTED;
  *mask = strtoull(text, NULL, 16);
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_ecc_enabled(void *handle, uint64_t *mask) {
  ENTER_LIVE(handle);
  return enabled_blocks(gpu, mask);
}

API amdsmi_get_gpu_ecc_status(void *handle, uint64_t block, uint32_t *state) {
  uint64_t mask;
  ENTER_LIVE(handle);
  if (enabled_blocks(gpu, &mask) != AMDSMI_STATUS_SUCCESS) return AMDSMI_STATUS_NOT_SUPPORTED;
  *state = mask & block ? AMDSMI_RAS_ERR_STATE_ENABLED : AMDSMI_RAS_ERR_STATE_DISABLED;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_ras_feature_info(void *handle, struct_amdsmi_ras_feature_t *feature) {
  ENTER(handle);
  memset(feature, 0, sizeof *feature);
  feature->ras_eeprom_version = 0x30000;
  feature->ecc_correction_schema_flag = 0xf;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_bad_page_threshold(void *handle, uint32_t *threshold) {
  ENTER(handle);
  *threshold = metric(gpu, "bad_page_threshold", 256);
  return AMDSMI_STATUS_SUCCESS;
}

/* With `pages` NULL it only counts, as the wrapper asks first. */
static int list_pages(const struct gpu *gpu, uint32_t *count,
                      struct_amdsmi_retired_page_record_t *pages) {
  char text[65536], *rest;
  uint32_t found = 0;
  COPY_FILE(text, "bad_pages");
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    long long address, size;
    unsigned page_status;
    if (sscanf(line, "%lli %lli %u", &address, &size, &page_status) != 3) continue;
    if (pages && found < *count) {
      pages[found].page_address = address;
      pages[found].page_size = size;
      pages[found].status = page_status;
    }
    found++;
  }
  *count = found;
  return AMDSMI_STATUS_SUCCESS;
}

API amdsmi_get_gpu_bad_page_info(void *handle, uint32_t *count,
                                 struct_amdsmi_retired_page_record_t *pages) {
  ENTER_LIVE(handle);
  return list_pages(gpu, count, pages);
}

API amdsmi_get_gpu_memory_reserved_pages(void *handle, uint32_t *count,
                                         struct_amdsmi_retired_page_record_t *pages) {
  ENTER_LIVE(handle);
  return list_pages(gpu, count, pages);
}
