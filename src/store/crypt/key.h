/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key: 16, 24 or 32 bytes in memory that is locked, left out of core files, and wiped in the end.
 * Nothing ever shows a byte of it, nor any byte of a file that is no key.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"

#include <stdatomic.h>

/* The ways to encrypt files; after the first, in the order of the words of option key_mode. */
enum rfs_cipher_mode {
    RFS_NOT_ENCRYPTED,
    RFS_AES_GCM,
    RFS_AES_CBC,
    RFS_SM4_CBC,
    RFS_AES_GCM_UNTAGGED, /* of MindSpore 1: GCM without its tag, which is CTR */
    RFS_CIPHER_COUNT
};

#define RFS_KEY_LONGEST 32u

/* A key, in a page of its own. Its users read the last three members. */
struct rfs_key {
    struct rfs_log *log;       /* borrowed; NULL once a failure to lock was logged */
    _Atomic pid_t locked_in;   /* the process in which the page is locked; 0: none */
    enum rfs_cipher_mode mode; /* that of its config */
    size_t n;
    unsigned char bytes[RFS_KEY_LONGEST + 2]; /* room to see a newline, or too much */
};

/* The place of a key: exactly one of the first three. Borrowed. */
struct rfs_key_config {
    const char *file; /* path; or NULL */
    const char *env;  /* name of an environment variable; or NULL */
    int fd;           /* or -1 */
    /* The mode that all files must have; RFS_NOT_ENCRYPTED: each file states its own */
    enum rfs_cipher_mode mode;
};

/*
 * Reads the bytes of a key, without a newline after 16, 24 or 32 of them. It reads the descriptor
 * to its end and closes it (0 to 2 become /dev/null), and overwrites the variable in its place and
 * removes it, even if they hold no key. No other thread may run meanwhile. LOG may be NULL; it gets
 * a warning if others may read the key file. Returns 0 with *out owned by the caller, or -errno
 * with *err filled: a mistake of usage for an invalid length, or unless there is exactly one place.
 */
int rfs_key_load(const struct rfs_key_config *config, struct rfs_log *log, struct rfs_key **out,
                 struct rfs_error *err);
/* Wipes the key. NULL is fine. */
void rfs_key_free(struct rfs_key *key);

/* Locks the key in this process, as a lock does not last over a fork. Any thread. */
void rfs_key_hold(const struct rfs_key *key);
