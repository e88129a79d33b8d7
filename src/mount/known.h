/* SPDX-License-Identifier: Apache-2.0 */
/* The options that there are, whoever gives them: a command line, a file or the environment. */
#ifndef RFS_MOUNT_KNOWN_H
#define RFS_MOUNT_KNOWN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* The remedy for what is not understood. */
#define RFS_PROGRAM_HELP "reshardfs --help"

/* What becomes of an option. */
enum rfs_known_kind {
    RFS_VIEW,        /* passed on to the view */
    RFS_VIEW_FILE,   /* likewise, with its path made absolute */
    RFS_VIEW_FILES,  /* likewise, of several with ':' between */
    RFS_VIEW_TEXT,   /* the same if there is a file of that path; else it is passed on as it is */
    RFS_VIEW_FOLDER, /* likewise, but that links in it stay, and "no" is none */
    RFS_OWN,         /* the mount's */
    RFS_IGNORED,     /* mount(8)'s */
};

enum rfs_own {
    RFS_OWN_IO,
    RFS_OWN_CONTROL,
    RFS_OWN_SANDBOX,
    RFS_OWN_NONEMPTY,
    RFS_OWN_OTHER,
    RFS_OWN_ROOT,
    RFS_OWN_PERMISSIONS,
    RFS_OWN_AUTO_UNMOUNT,
    RFS_OWN_NOEXEC,
    RFS_OWN_THREADS,
    RFS_OWN_FSNAME,
    RFS_OWN_SUBTYPE,
    RFS_OWN_DEBUG,
    RFS_OWN_DECRYPTED,
    RFS_OWN_LOG_LEVEL,
    RFS_OWN_CONFIG,
    RFS_OWN_WRITABLE,
};

struct rfs_known {
    const char *name;
    enum rfs_known_kind kind;
    bool valued;
    enum rfs_own own; /* of RFS_OWN */
};

/* NULL when there is none. */
const struct rfs_known *rfs_known_find(const char *name);
/* Whether mount(8) keeps it for itself and its helpers, with or without a value. */
bool rfs_known_is_for_others(const char *name);
/* There is no option NAME, but perhaps one that was meant. -EINVAL with *err filled. */
int rfs_known_refuse(const char *name, struct rfs_error *err);

#endif
