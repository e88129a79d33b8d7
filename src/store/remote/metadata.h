/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials that a service gives for some hours: an instance's or a container's metadata, or a
 * web identity's.
 *
 * Threads: one at a time, under the lock of the chain.
 */
#pragma once

#include "base/std.h"

struct rfs_credentials;

/*
 * Get the credentials of a role for a token in a file, of a container, of an instance. 0;
 * RFS_CREDENTIALS_UNASKED; or -errno with rfs_store_fail.
 */
int rfs_metadata_web_identity(struct rfs_credentials *out);
int rfs_metadata_container(struct rfs_credentials *out);
int rfs_metadata_instance(struct rfs_credentials *out);
/* Returns the file of the token that the last ones took, which is read again; NULL: none. */
const char *rfs_metadata_token_file(void);
/*
 * Returns whether a token may be sent to URL: over the network by TLS alone, else to this machine
 * or the addresses that containers use.
 */
bool rfs_metadata_trusts(const char *url);
/* Wipes the values that were kept of the environment. */
void rfs_metadata_forget(void);
