/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of hfai's dist_ckpt: PART_000.pt to PART_{n-1}.pt. Its load() counts the files PART_*.pt and opens
 * as many from PART_000.pt on, so that one that is left over from another save makes it fail: here too.
 */
#include "base/cleanup.h"
#include "base/vec.h"
#include "source/scan_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REMEDY "move away what is left over from another save, or copy what is missing there"

struct part_name {
    char *name; /* owned */
    uint32_t number;
};

struct part_names {
    struct part_name *data;
    size_t n, cap;
};

static void free_names(struct part_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->data[i].name);
    free(names->data);
}

/* As glob("PART_*.pt") finds it. */
static bool is_part(const char *name)
{
    const size_t n = strlen(name);
    return n >= 8 && strncmp(name, "PART_", 5) == 0 && strcmp(name + n - 3, ".pt") == 0;
}

static int list_parts(const char *path, struct part_names *names, struct rfs_error *err)
{
    RFS_CLOSE_DIR DIR *dir = opendir(path);
    if (!dir)
        return rfs_fail(err, -errno, RFS_IN(path), "check the folder's permissions",
                        "the source cannot be listed: %s", strerror(errno));
    for (;;) {
        const struct dirent *entry;
        const int rc = rfs_entry_next(dir, path, &entry, err);
        if (rc < 0 || !entry)
            return rc;
        if (!is_part(entry->d_name))
            continue;
        struct part_name part = {strdup(entry->d_name), UINT32_MAX};
        if (!part.name || !RFS_PUSH(names, part)) {
            free(part.name);
            return rfs_fail_memory(err);
        }
    }
}

/* Part NUMBER's name is PART_%03d.pt, and nothing else. */
static bool is_number(const char *name, size_t number)
{
    char expected[32];

    snprintf(expected, sizeof expected, "PART_%03zu.pt", number);
    return strcmp(name, expected) == 0;
}

static int add_part(const struct rfs_source_spec *spec, struct rfs_scan *out,
                    const struct part_names *names, size_t number, struct rfs_error *err)
{
    for (size_t i = 0; i < names->n; i++) {
        if (!is_number(names->data[i].name, number))
            continue;
        struct rfs_scanned *item = rfs_scan_add(out, (uint32_t)number, NULL);
        if (!item || !rfs_scan_add_file(item, rfs_path_join(spec->path, names->data[i].name)))
            return rfs_fail_memory(err);
        out->present++;
        names->data[i].number = (uint32_t)number;
        return 0;
    }
    for (size_t i = 0; i < names->n; i++)
        if (names->data[i].number == UINT32_MAX)
            return rfs_fail(err, -EINVAL, RFS_IN(spec->path), REMEDY,
                            "the folder holds %zu files PART_*.pt, of which '%s' is none of "
                            "PART_000.pt to PART_%03zu.pt",
                            names->n, names->data[i].name, names->n - 1);
    return rfs_fail(err, -ENOENT, RFS_IN(spec->path), REMEDY, "PART_%03zu.pt is missing", number);
}

int rfs_scan_parts(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_error *err)
{
    RFS_CLEANUP(free_names) struct part_names names = {0};
    int rc = list_parts(spec->path, &names, err);

    if (rc < 0 || names.n == 0)
        return rc;
    if (names.n > RFS_MAX_RANK)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), NULL, "has %zu parts", names.n);
    out->format = RFS_FORMAT_TORCH;
    out->parts = true;
    for (size_t i = 0; rc == 0 && i < names.n; i++)
        rc = add_part(spec, out, &names, i, err);
    return rc;
}
