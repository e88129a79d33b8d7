/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the reader of JSON only. */
#pragma once

#include "base/json_read.h"

/* As rfs_json_read_fail, at a place that was passed, whose block may be gone. */
bool rfs_json_fail_from(struct rfs_json_read *json, uint64_t place, const char *wrong);
bool rfs_json_fail_memory(struct rfs_json_read *json);

/*
 * Reads on where the text comes in blocks: bytes that are not passed yet move to the front. False
 * at the end of the text.
 */
bool rfs_json_refill(struct rfs_json_read *json);
/* Whether there is another byte, data[at]. */
static inline bool rfs_json_more(struct rfs_json_read *json)
{
    return json->at < json->n || rfs_json_refill(json);
}
/* Whether there are N more bytes. */
bool rfs_json_ahead(struct rfs_json_read *json, size_t n);
