/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock: the files that the process can still open. It reads sources and /proc, writes the
 * folder of indexes, does both with /dev/null, and opens no other file. Landlock does not restrict
 * looking at names and attributes.
 */
#include "base/cleanup.h"
#include "base/variables.h"
#include "mount/sandbox.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's interface, as of version 6, because the headers at hand may know less of it. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
enum { ASK_VERSION = 1, RULE_BENEATH = 1 };

struct ruleset {
    uint64_t files, network, scoped;
};

struct __attribute__((packed)) rule {
    uint64_t allowed;
    int32_t folder;
};

#define WRITE_FILE (UINT64_C(1) << 1)
#define READ_FILE (UINT64_C(1) << 2)
#define READ_DIR (UINT64_C(1) << 3)
#define REMOVE_FILE (UINT64_C(1) << 5)
#define MAKE_FILE (UINT64_C(1) << 8)
#define TRUNCATE (UINT64_C(1) << 14)

/* The rights on files that a version of Landlock knows. */
static uint64_t known_files(int version)
{
    const unsigned bits = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;

    return (UINT64_C(1) << bits) - 1;
}

int rfs_sandbox_landlock(void)
{
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);

    return version > 0 ? (int)version : 0;
}

struct rules {
    int fd;
    uint64_t known;
};

/* A path that is missing or may not be entered needs no rule. */
static int allow(const struct rules *rules, const char *path, uint64_t access)
{
    RFS_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    struct rule rule = {.allowed = access & rules->known, .folder = fd};
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        rule.allowed &= ~READ_DIR; /* there is no such right to a file */
    if (fd < 0)
        return errno == ENOENT || errno == EACCES || errno == ENOTDIR ? 0 : -errno;
    return syscall(SYS_landlock_add_rule, rules->fd, RULE_BENEATH, &rule, 0) == 0 ? 0 : -errno;
}

static int allow_folder(void *ctx, const char *path, bool written)
{
    return allow(ctx, path,
                 READ_FILE | READ_DIR |
                     (written ? WRITE_FILE | REMOVE_FILE | MAKE_FILE | TRUNCATE : 0));
}

/* What finding hosts and trusting their certificates reads, with each new connection. */
static int allow_network(const struct rules *rules)
{
    static const char *const paths[] = {
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/host.conf",
        "/etc/gai.conf",
        "/etc/nsswitch.conf",
        "/etc/services",
        "/etc/ssl",
        "/etc/pki",
        "/etc/ca-certificates",
        "/usr/lib/ssl",
        "/usr/share/ca-certificates",
        "/usr/local/share/ca-certificates",
        "/run/systemd/resolve",
    };
    const char *certificates = rfs_variable_certificates();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof paths / sizeof *paths; i++)
        rc = allow(rules, paths[i], READ_FILE | READ_DIR);
    if (rc == 0 && certificates)
        rc = allow(rules, certificates, READ_FILE);
    return rc;
}

int rfs_sandbox_files(reshard_view *view, int landlock, bool network)
{
    const struct ruleset set = {
        .files = known_files(landlock),
        /* Binding TCP sockets, and connecting them. */
        .network = landlock < 4 ? 0
                   : network    ? 1
                                : 3,
        .scoped = landlock >= 6 ? 3 : 0, /* abstract sockets of others, signals to others */
    };
    const size_t bytes = landlock >= 6   ? sizeof set
                         : landlock >= 4 ? 2 * sizeof(uint64_t)
                                         : sizeof(uint64_t);
    struct rules rules = {-1, set.files};
    int rc;

    RFS_CLOSE int fd = (int)syscall(SYS_landlock_create_ruleset, &set, bytes, 0);
    if (fd < 0)
        return -errno;
    rules.fd = fd;
    rc = allow(&rules, "/dev/null", READ_FILE | WRITE_FILE);
    /* It shows which callers are being killed. Secrets of others there need the right to trace. */
    if (rc == 0)
        rc = allow(&rules, "/proc", READ_FILE);
    if (rc == 0)
        rc = reshard_folders(view, allow_folder, &rules);
    if (rc == 0 && network)
        rc = allow_network(&rules);
    if (rc == 0 && syscall(SYS_landlock_restrict_self, fd, 0) != 0)
        rc = -errno;
    return rc;
}
