/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and times as people read them. */
#ifndef RFS_TOOL_SHOW_H
#define RFS_TOOL_SHOW_H

#include <stdint.h>

#define RFS_SHOWN_BYTES 32

/* "1.4 GiB"; returns OUT. */
const char *rfs_show_bytes(uint64_t bytes, char out[RFS_SHOWN_BYTES]);
/* "2:05" or "1:02:05", hours beyond 99 as "99:59:59"; returns OUT. */
const char *rfs_show_seconds(double seconds, char out[RFS_SHOWN_BYTES]);

#endif
