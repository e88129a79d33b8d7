/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies rules to a source: the numbers come from a config, the shapes from the source's tensors.
 * Proves that every tensor of the source is used once or left out on purpose, that every made
 * tensor is complete, and that all shapes agree.
 *
 * The names of the source tell whether it is the left or the right side.
 *
 * Cost: time in the tensors of both sides; a name and a link for each.
 */
#pragma once

#include "rules/hf_config.h"
#include "rules/links.h"
#include "rules/rules.h"

/* A tensor of the source. Borrowed. */
struct rfs_rules_tensor {
    const char *name;
    const struct rfs_type *type; /* type of any kind; rules can take tensors only */
};

struct rfs_rules_input {
    const struct rfs_hf_config *config;
    const char *options; /* "NAME=WORD:NAME=WORD", or NULL */
    const char *source;  /* its path, for messages */
    const struct rfs_rules_tensor *tensors;
    size_t n;
    const char *const *lost; /* names of tensors of the source that no file has any more */
    size_t n_lost;
    /*
     * Takes the errors before the last one, in their order; NULL: the first error is the last. It
     * is called when all are found: one for each statement, without those that follow from others.
     */
    void (*report)(void *ctx, const struct rfs_error *err);
    void *ctx;
};

#define RFS_RULES_ERRORS 20 /* that are reported; a further one says that there are more */

/* Applies the rules. 0 with *out owned by the caller, or -errno with *err filled. */
int rfs_rules_compile(const struct rfs_rules *rules, const struct rfs_rules_input *input,
                      struct rfs_rules_map **out, struct rfs_error *err);
