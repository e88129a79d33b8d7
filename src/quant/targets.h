/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modules that a group of a config is for, as compressed-tensors names them: by a name, by
 * "re:" and a pattern of Python that matches the beginning of a name, or by a class. The first kind
 * counts more than the second, and that more than the third.
 *
 * Nothing here knows the class of a module, other prefixes that a program may give to names, or the
 * patterns that it cannot read. So a target names a module for certain, or perhaps.
 *
 * Threads: all functions but read and free.
 */
#pragma once

#include "base/std.h"

struct cJSON;

struct rfs_quant_targets {
    char **data; /* owned, as each of them */
    size_t n;
};
/*
 * Reads a list of texts. One of another kind, or longer than 1,024, is as none. False when out of
 * memory.
 */
bool rfs_quant_targets_read(const struct cJSON *list, struct rfs_quant_targets *out);
void rfs_quant_targets_free(struct rfs_quant_targets *targets);

/* How they name a module, the strongest first. */
enum rfs_quant_naming {
    RFS_QUANT_BY_NAME,
    RFS_QUANT_BY_PATTERN,
    RFS_QUANT_BY_CLASS,
    RFS_QUANT_BY_NOTHING,
};
struct rfs_quant_named {
    enum rfs_quant_naming surely, perhaps; /* the strongest; PERHAPS is at least as strong */
};
/* Says how targets name the module of N characters at NAME. */
struct rfs_quant_named rfs_quant_targets_name(const struct rfs_quant_targets *targets,
                                              const char *name, size_t n);
