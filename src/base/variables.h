/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of the environment for connections: credentials, and the file of certificates to trust.
 * What a view takes over of them is listed in store/remote/environment.c.
 *
 * Threads: all functions, while none changes the environment.
 */
#pragma once

#include "base/std.h"

/*
 * Returns the value of a variable that is set and not empty, unless the process has more rights
 * than its user; else NULL.
 */
const char *rfs_variable(const char *name);
/*
 * Overwrites the variables that hold credentials, which others could read in /proc/PID/environ.
 * Before any thread starts.
 */
void rfs_variables_wipe(void);
/*
 * Overwrites them, too, but keeps their values for rfs_variable in memory that no core file holds.
 * False when out of memory.
 */
bool rfs_variables_hide(void);

/* The user's bundle of certificates, as AWS's tools and curl find it; NULL: the system's. */
static inline const char *rfs_variable_certificates(void)
{
    static const char *const names[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    const char *value = NULL;

    for (size_t i = 0; i < sizeof names / sizeof *names && !value; i++)
        value = rfs_variable(names[i]);
    return value;
}
