/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How parameters leave: under which name, and with which element type. Read from the user's map and
 * rules; immutable, so any thread may ask.
 */
#ifndef RFS_PLAN_OUTWARD_H
#define RFS_PLAN_OUTWARD_H

#include "base/error.h"
#include "source/dtype.h"

struct rfs_outward;

struct rfs_outward_config {
    const char *names; /* path of a JSON object from source names to shown names; or NULL */
    const char *dtype; /* "bfloat16", or rules; outward.c tells the grammar; or NULL */
};

/* 0 with *out owned by the caller, NULL when the config asks for nothing; or -errno with *err filled. */
int rfs_outward_open(const struct rfs_outward_config *config, struct rfs_outward **out,
                     struct rfs_error *err);
void rfs_outward_free(struct rfs_outward *outward);

/* The name that NAME is shown by (NAME itself when it has no other), or NULL when it is left out. OUTWARD
 * may be NULL here and below. */
const char *rfs_outward_name(const struct rfs_outward *outward, const char *name);

/* The dtype in which the parameter that is shown as NAME leaves: FROM unless a rule says otherwise. */
enum rfs_dtype rfs_outward_dtype(const struct rfs_outward *outward, const char *name,
                                 enum rfs_dtype from);

#endif
