/* SPDX-License-Identifier: Apache-2.0 */
/* One value of a .ckpt file, read but for its content. */
#pragma once

#include "formats/ckpt/wire.h"
#include "formats/index.h"
#include "formats/walker.h"

/* One value, as far as it has been read. */
struct rfs_value {
    uint64_t begin; /* of the message that holds it */
    uint64_t end;
    bool has_tag, has_body, has_type, has_content;
    uint32_t name;
    struct rfs_type type; /* but for its bytes */
    struct rfs_extent extent;
    struct rfs_extent map; /* the body of a map tensor */
};

/*
 * Reads the fields from wire->pos to value->end; the caller has set begin and end and zeroed the
 * rest. The tag is interned and becomes wire->param. The extent is the tensor's content, or all of
 * a map tensor.
 */
int rfs_value_read(struct rfs_wire *wire, struct rfs_tables *tables, struct rfs_value *value);
