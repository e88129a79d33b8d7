/* SPDX-License-Identifier: Apache-2.0 */
/* The headers of all ranks (inspect.h), for the view. */
#pragma once

#include "catalog/catalog.h"
#include "view/inspect.h"

/* Returns the rank, or NULL. O(log n). */
const struct rfs_headers_rank *rfs_headers_find(const struct rfs_headers *headers, uint32_t rank);
/* Returns the path of the source. */
const char *rfs_headers_path(const struct rfs_headers *headers);
/* Returns the type of the parameter with that id in a rank, or NULL. */
const struct rfs_type *rfs_headers_type(const struct rfs_headers *headers,
                                        const struct rfs_headers_rank *rank, uint32_t id);
