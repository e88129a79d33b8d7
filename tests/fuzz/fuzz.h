/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzz targets share. A target defines fuzz_one; fuzz.c calls it, and measures it: work that
 * is not in proportion to the input is a finding like a crash.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* DATA is a buffer of exactly SIZE bytes, so that a sanitizer sees a read past its end. */
void fuzz_one(const uint8_t *data, size_t size);

/*
 * Called once, before the first input is measured. A target that needs nothing leaves it undefined.
 */
void fuzz_prepare(void) __attribute__((weak));

/*
 * What the corpus of a target reaches: names of goals. A target defines them, and notes by
 * fuzz_reached where its reader has taken an input, or has given bytes of it. Where a goal is
 * reached by no input of the corpus, its replay fails.
 */
extern const char *const fuzz_goals[]; /* to a NULL */
#define FUZZ_GOALS(...) const char *const fuzz_goals[] = {__VA_ARGS__, NULL}

/* Notes that the input reaches fuzz_goals[GOAL]. */
void fuzz_reached(unsigned goal);
/* Prints the goals that no input has reached. Returns their number. */
unsigned fuzz_print_missed(void);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

/* The input with a NUL behind it, malloc'ed. */
char *fuzz_text(const uint8_t *data, size_t size);

/* The input as a file: the context of fuzz_read, which gives what walkers want of it. */
struct fuzz_input {
    const uint8_t *data;
    size_t size;
};
int fuzz_read(void *ctx, void *buf, size_t n, uint64_t offset);

/* A refusal has a negative code and a text of one line that a terminal shows as it is. */
static inline void require_refusal(const struct rfs_error *err)
{
    REQUIRE(err->code < 0 && err->text[0] != '\0' && !strpbrk(err->text, "\n\r\t\033"));
}

/* RC is what a parser gave that fills ERR: 0 or a refusal. Whether it is 0. */
static inline int require_result(int rc, const struct rfs_error *err)
{
    if (rc == 0) {
        REQUIRE(err->code == 0);
    } else {
        REQUIRE(err->code == rc);
        require_refusal(err);
    }
    return rc == 0;
}

#endif
