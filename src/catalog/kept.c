/* SPDX-License-Identifier: Apache-2.0 */
/* The indexes that an earlier view has saved, and those that this one saves. */
#include "catalog/internal.h"

#include "base/cleanup.h"

int rfs_catalog_set_key(struct rfs_catalog *catalog, const struct rfs_source_spec *spec)
{
    size_t n;
    FILE *out = open_memstream(&catalog->key, &n);

    if (!out)
        return -ENOMEM;
    fprintf(out, "%s,%d,", PACKAGE_VERSION, (int)catalog->builder.format);
    rfs_setting_write(out, "path", catalog->path); /* escaped, so that no two lists make one key */
    fputc(',', out);
    if (spec->options)
        rfs_options_write(spec->options, RFS_OPTION_INDEX, out);
    const bool bad = ferror(out) != 0;
    return fclose(out) != 0 || bad || !catalog->key ? -ENOMEM : 0;
}

struct rfs_saved *rfs_catalog_saved(const struct rfs_catalog *catalog)
{
    return catalog->saved;
}

const char *rfs_catalog_key(const struct rfs_catalog *catalog)
{
    return catalog->key;
}

struct timespec rfs_catalog_opened(const struct rfs_catalog *catalog)
{
    return catalog->opened;
}

int rfs_catalog_load(struct rfs_catalog *catalog)
{
    const int rc = rfs_once_begin(&catalog->loading, &catalog->done, &catalog->lock);

    if (rc <= 0)
        return rc;
    pthread_mutex_unlock(&catalog->lock);
    struct rfs_saved_index *index =
        rfs_saved_index_load(catalog->saved, catalog->key, &catalog->tables);
    struct rfs_built **built =
        index ? calloc((size_t)rfs_saved_index_count(index) + 1, sizeof *built) : NULL;
    if (!built) {
        rfs_saved_index_free(index);
        index = NULL;
    }
    pthread_mutex_lock(&catalog->lock);
    catalog->on_disk = index;
    catalog->from_saved = built;
    rfs_once_end(&catalog->loading, &catalog->done, true);
    return 0;
}

/*
 * The ranks that can be saved; those that are in memory stay there while USE, which has begun,
 * lasts.
 */
static size_t collect(struct rfs_catalog *catalog, struct rfs_saving *list)
{
    size_t n = 0;

    for (uint32_t r = 0; r < catalog->n_ranks; r++) {
        struct catalog_rank *rank = &catalog->ranks[r];
        struct rfs_saving one = {r, rank->file, rank->parts, rank->built, RFS_NO_ID};
        if (rank->file == UINT32_MAX || rank->failed ||
            (rank->built && atomic_load(&rank->built->warned)))
            continue;
        atomic_store(&rank->used, atomic_load(&catalog->uses));
        if (one.built || catalog->on_disk)
            list[n++] = one;
    }
    return n;
}

/* The saved data of those that are not in memory. */
static size_t find_before(struct rfs_catalog *catalog, struct rfs_saving *list, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (!list[i].built)
            list[i].before = rfs_saved_index_find(catalog->on_disk, list[i].rank, catalog->files,
                                                  list[i].first, list[i].parts);
        if (list[i].built || list[i].before != RFS_NO_ID)
            list[kept++] = list[i];
    }
    return kept;
}

void rfs_catalog_save(struct rfs_catalog *catalog)
{
    if (!catalog->saved)
        return;
    RFS_FREE struct rfs_saving *list = malloc(catalog->n_ranks * sizeof *list);
    struct rfs_use use;
    size_t n = 0;

    if (!list)
        return;
    rfs_catalog_begin(catalog, &use);
    pthread_mutex_lock(&catalog->lock);
    const bool mine = catalog->unsaved && !catalog->saving;
    if (mine) {
        catalog->saving = true;
        catalog->unsaved = false;
        n = collect(catalog, list);
    }
    pthread_mutex_unlock(&catalog->lock);
    if (mine) {
        n = find_before(catalog, list, n);
        rfs_saved_index_store(catalog->saved, catalog->key, &catalog->tables, catalog->files,
                              catalog->opened, catalog->on_disk, list, n);
        pthread_mutex_lock(&catalog->lock);
        catalog->saving = false;
        pthread_mutex_unlock(&catalog->lock);
    }
    rfs_catalog_end(catalog, &use);
}
