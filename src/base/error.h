/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One form for every error: "FILE: offset N: parameter 'P': what is wrong; try: what to do",
 * without the parts that do not apply. Functions return 0 or -errno; those that run at set-up also
 * take a struct rfs_error, which the caller owns and which may be NULL.
 */
#pragma once

#include "base/std.h"

struct rfs_error {
    int code;   /* 0 or -errno */
    bool usage; /* the command line or the options are at fault, not the input */
    char text[2048];
};

/* The place of a fault. NULL, and offset < 0, mean "does not apply". Borrowed for a call. */
struct rfs_where {
    const char *file;
    int64_t offset;
    const char *param;
};

#define RFS_NOWHERE ((struct rfs_where){NULL, -1, NULL})
#define RFS_IN(file) ((struct rfs_where){(file), -1, NULL})
#define RFS_AT(file, offset) ((struct rfs_where){(file), (int64_t)(offset), NULL})
#define RFS_OF(file, param) ((struct rfs_where){(file), -1, (param)})

/*
 * Fills err (if any) and returns CODE, which must be negative. REMEDY may be NULL. Control
 * characters in names and paths are shown as \xNN, so that a message is always one line of
 * printable text. An earlier failure in err is overwritten.
 */
int rfs_fail(struct rfs_error *err, int code, struct rfs_where where, const char *remedy,
             const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Fails with -EINVAL for a mistake in the options or the command line. */
int rfs_fail_usage(struct rfs_error *err, const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fail with -ENOMEM, "out of memory"; the second names a file. */
int rfs_fail_memory(struct rfs_error *err);
int rfs_fail_memory_of(struct rfs_error *err, const char *file);
