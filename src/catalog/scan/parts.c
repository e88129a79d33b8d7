/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of hfai's dist_ckpt: PART_000.pt to PART_{n-1}.pt. Its load() counts the files PART_*.pt
 * and opens as many from PART_000.pt on, so that one that is left over from another save makes it
 * fail: here too.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"
#include "formats/formats.h"
#include "formats/hfai/hfai.h"

#define REMEDY "move files of another save away, or copy the missing ones there"

struct part_name {
    char *name; /* owned */
    uint32_t number;
};

struct part_names {
    struct part_name *data;
    size_t n, cap;
    struct rfs_error *err;
};

static void free_names(struct part_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->data[i].name);
    free(names->data);
}

const struct rfs_format_row *rfs_scan_of_parts(const char *name)
{
    for (unsigned i = RFS_FORMAT_COUNT; i < RFS_ROWS; i++)
        if (rfs_formats[i].first_part && strcmp(name, rfs_formats[i].first_part) == 0)
            return &rfs_formats[i];
    return NULL;
}

bool rfs_scan_has_parts(struct rfs_store *store, const char *path)
{
    RFS_FREE char *first = rfs_path_join(path, RFS_HFAI_FIRST);

    return first && rfs_store_there(store, first);
}

/* Matches as glob("PART_*.pt") does. */
static bool is_part(const char *name)
{
    return strncmp(name, "PART_", 5) == 0 && rfs_text_ends(name, ".pt");
}

/* Returns the number of a part named PART_%03d.pt, and nothing else; or UINT32_MAX. */
static uint32_t number_of(const char *name)
{
    char expected[32];
    const unsigned long number = strtoul(name + strlen("PART_"), NULL, 10);

    snprintf(expected, sizeof expected, "PART_%03lu.pt", number);
    return number < UINT32_MAX && strcmp(name, expected) == 0 ? (uint32_t)number : UINT32_MAX;
}

static int add_name(void *ctx, const struct dirent *entry)
{
    struct part_names *names = ctx;
    if (!is_part(entry->d_name))
        return 0;
    const struct part_name part = {strdup(entry->d_name), number_of(entry->d_name)};
    if (part.name && RFS_PUSH(names, part))
        return 0;
    free(part.name);
    return rfs_fail_memory(names->err);
}

RFS_COMPARE(by_number, struct part_name, x, y, RFS_ORDER(x->number, y->number))

static int add_parts(const struct rfs_source_spec *spec, struct rfs_scan *out,
                     const struct part_names *names, struct rfs_error *err)
{
    const struct part_name *last = &names->data[names->n - 1];

    if (last->number >= names->n) /* else they are all there: no two have one number */
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), REMEDY,
                        "the folder holds %zu files PART_*.pt, and '%s' is none of " RFS_HFAI_FIRST
                        " to PART_%03zu.pt",
                        names->n, last->name, names->n - 1);
    for (size_t i = 0; i < names->n; i++) {
        rfs_scan_add_file(out, rfs_scan_add(out, names->data[i].number, NULL),
                          rfs_path_join(spec->path, names->data[i].name));
        out->present++;
    }
    return 0;
}

int rfs_scan_parts(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_error *err)
{
    RFS_CLEANUP(free_names) struct part_names names = {.err = err};
    const int rc = rfs_scan_entry_each(spec->store, spec->path, add_name, &names, err);

    if (rc < 0 || names.n == 0)
        return rc;
    if (names.n > RFS_MAX_RANK)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), NULL, "has %zu parts", names.n);
    out->format = rfs_formats[RFS_ROW_HFAI].files;
    out->parts = true;
    RFS_SORT_ALL(&names, by_number);
    return add_parts(spec, out, &names, err);
}
