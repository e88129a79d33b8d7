/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: the rules of -o dtype=. */
#pragma once

#include "base/error.h"
#include "formats/dtype.h"

struct rfs_dtype_rules;

/* 0 with *out owned by the caller, or -EINVAL (a mistake of usage) or -ENOMEM with *err filled. */
int rfs_dtype_rules_parse(const char *text, struct rfs_dtype_rules **out, struct rfs_error *err);
void rfs_dtype_rules_free(struct rfs_dtype_rules *rules);

/* The dtype of a floating-point parameter of that name: FROM where no rule says otherwise. */
enum rfs_dtype rfs_dtype_rules_find(const struct rfs_dtype_rules *rules, const char *name,
                                    enum rfs_dtype from);
