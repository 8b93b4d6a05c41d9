/* Error records (CPER): a ring of bytes per GPU, scanned as the real library scans debugfs' one. */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_struct_amdsmi_cper_hdr_t

#define RING_BYTES (4 << 20)
#define SIGNATURE_BYTES 4

static char ring[RING_BYTES];

/* Whether a header begins there. Nothing else is checked: a length of zero comes through. */
static const struct_amdsmi_cper_hdr_t *header_at(uint64_t place, uint64_t length) {
  const struct_amdsmi_cper_hdr_t *header = (const void *)&ring[place];
  if (memcmp(header->signature, "CPER", SIGNATURE_BYTES)) return NULL;
  if (header->signature_end != 0xffffffff || header->record_length > length) return NULL;
  return header;
}

static int is_wanted(const struct_amdsmi_cper_hdr_t *header, uint32_t mask) {
  return header->error_severity < 32 && (1u << header->error_severity & mask);
}

/* The cursor counts the wanted records from the oldest one; 39 says that more are to come. */
static int copy_records(uint64_t length, uint32_t mask, char *data, uint64_t *size,
                        struct_amdsmi_cper_hdr_t **headers, uint64_t *count, uint64_t *cursor) {
  uint64_t filled = 0, copied = 0, wanted = 0, place;
  int status = AMDSMI_STATUS_SUCCESS;
  for (place = 0; place + sizeof **headers <= length; place++) {
    const struct_amdsmi_cper_hdr_t *header = header_at(place, length);
    if (!header || !is_wanted(header, mask)) continue;
    if (*size - filled < header->record_length || copied == *count) {
      status = filled ? AMDSMI_STATUS_MORE_DATA : AMDSMI_STATUS_OUT_OF_RESOURCES;
      break;
    }
    if (*cursor != wanted++) continue;
    headers[copied++] = (void *)&data[filled];
    memcpy(&data[filled], header, header->record_length);
    filled += header->record_length;
    *cursor = wanted;
  }
  *count = copied;
  *size = filled;
  return status;
}

API amdsmi_get_gpu_cper_entries(void *handle, uint32_t mask, char *data, uint64_t *size,
                                struct_amdsmi_cper_hdr_t **headers, uint64_t *count,
                                uint64_t *cursor) {
  ENTER_LIVE(handle);
  int length = read_gpu_file(gpu, "cper", ring, sizeof ring);
  return copy_records(length < 0 ? 0 : length, mask, data, size, headers, count, cursor);
}

/* Lines "RECORD_ID AFID…" say what a record decodes to: whoever wrote the record wrote them too,
 * truly or not. */
static int look_up(const char *record_id, uint64_t *afids, uint32_t *count) {
  char *rest, *text = malloc(RING_BYTES);
  uint32_t room = *count;
  int status = AMDSMI_STATUS_UNEXPECTED_DATA;
  *count = 0;
  if (!text) return AMDSMI_STATUS_OUT_OF_RESOURCES;
  if (read_file(text, RING_BYTES, "cper_afids") < 0) text[0] = 0;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char *word, *words, *name = strtok_r(line, " ", &words);
    if (!name || strcmp(name, record_id)) continue;
    status = AMDSMI_STATUS_SUCCESS;
    while (*count < room && (word = strtok_r(NULL, " ", &words)))
      afids[(*count)++] = strtoull(word, NULL, 0);
  }
  free(text);
  return status;
}

API amdsmi_get_afids_from_cper(char *record, uint32_t size, uint64_t *afids, uint32_t *count) {
  const struct_amdsmi_cper_hdr_t *header = (const void *)record;
  char record_id[sizeof header->record_id + 1] = "";
  int status = injected(__func__, NULL);
  if (status != AMDSMI_STATUS_SUCCESS) return status;
  if (size < sizeof *header) return AMDSMI_STATUS_UNEXPECTED_SIZE;
  if (memcmp(header->signature, "CPER", SIGNATURE_BYTES)) return AMDSMI_STATUS_UNEXPECTED_DATA;
  memcpy(record_id, header->record_id, sizeof header->record_id);
  return look_up(record_id, afids, count);
}

#endif
