/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies that are written and read again. */
#ifndef TESTS_FUZZ_STRATEGIES_H
#define TESTS_FUZZ_STRATEGIES_H

#include "layout/strategy_doc.h"

/* A form of strategy files. */
struct strategy_form {
    const char *name; /* of a file */
    bool json;
};

/*
 * Writes a document and reads it again, or NULL when it is refused: what would be lost is. MERGED
 * documents have parameters of several stages.
 */
struct rfs_strategy *strategy_again(const struct strategy_form *form, bool merged,
                                    const struct rfs_strategy_doc *doc);
/* Does the same, and requires that STRATEGY, of which it is, comes back. */
void strategy_write_again(const struct strategy_form *form, bool merged,
                          const struct rfs_strategy_doc *doc, const struct rfs_strategy *strategy);

#endif
