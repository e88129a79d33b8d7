/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials that a container's or an instance's metadata service gives, for some hours.
 *
 * Threads: all functions; they keep nothing.
 */
#ifndef RFS_SOURCE_REMOTE_METADATA_H
#define RFS_SOURCE_REMOTE_METADATA_H

struct rfs_credentials;

/* 0, or -ENOKEY with rfs_store_told. */
int rfs_metadata_credentials(struct rfs_credentials *out);

#endif
