/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials, and the texts that hold them: shared files of AWS's tools, answers of metadata
 * services.
 *
 * Threads: all functions; they keep nothing.
 */
#pragma once

#include "base/std.h"

#include <time.h>

/* There are no credentials of a kind because nothing asks for that kind. */
#define RFS_CREDENTIALS_UNASKED 1

struct rfs_credentials {
    char key_id[256], secret[256], token[8192]; /* "" where there is none */
    time_t ends;                                /* 0: never */
};

/*
 * Writes to OUT the value of NAME in [SECTION] or [profile SECTION] of a shared file's text, or
 * gives false.
 */
bool rfs_credentials_find(const char *text, const char *section, const char *name, char *out,
                          size_t cap);
/* Of "2026-01-01T00:00:00Z"; false when it is none. */
bool rfs_credentials_time(const char *text, time_t *out);
/* The answer of a metadata service. False when it has no credentials. */
bool rfs_credentials_parse(const char *json, size_t n, struct rfs_credentials *out);
