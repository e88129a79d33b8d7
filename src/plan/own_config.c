/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/own_config.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "catalog/catalog.h"
#include "formats/dcp/dcp.h"
#include "formats/formats.h"
#include "formats/torch/arguments.h"

#define COMMON_BYTES ((size_t)64 << 20) /* that is not sharded: far less */

RFS_CLEANUP_OF(config_cleanup, struct rfs_hf_config *, rfs_hf_config_free)

/* Reads what a function finds in the headers of the source's first file. */
static int read_first(struct rfs_catalog *catalog, rfs_format_config_fn *find,
                      struct rfs_hf_config **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_bytes_free) struct rfs_bytes text = {0};
    struct rfs_files *files = rfs_catalog_files(catalog);
    const uint32_t rank = rfs_catalog_lowest(catalog);
    const uint32_t file = rfs_catalog_file(catalog, rank);
    const struct rfs_index *index;
    struct rfs_reading reading;

    const char *path = rfs_files_path(files, file);
    int rc = rfs_catalog_index(catalog, rank, RFS_NO_RANK, &index, err);
    if (rc)
        return rc;
    rc = rfs_reading_begin(files, file, &reading);
    if (rc)
        return rfs_files_fail(err, path, rc);
    const struct rfs_format_file headers = {.from = RFS_READING_SOURCE(&reading, path),
                                            .tables = rfs_catalog_tables(catalog)};
    rc = find(&headers, index, &text, err);
    const int end = rfs_reading_end(&reading);
    if (rc || end)
        return rc ? rc : rfs_files_fail(err, path, end);
    return text.n > 0 ? rfs_hf_config_read(path, (const char *)text.data, text.n, out, err) : 0;
}

int rfs_plan_file_config(struct rfs_catalog *catalog, struct rfs_hf_config **out,
                         struct rfs_error *err)
{
    rfs_format_config_fn *find = rfs_formats[rfs_catalog_format(catalog)].config;

    *out = NULL;
    return find && !rfs_catalog_chunks(catalog) ? read_first(catalog, find, out, err) : 0;
}

int rfs_plan_folder_config(struct rfs_store *store, const char *folder, struct rfs_hf_config **out,
                           struct rfs_error *err)
{
    static const char *const names[] = {"config.json", "params.json"};

    for (size_t i = 0; i < sizeof names / sizeof *names && !*out; i++) {
        RFS_FREE char *beside = rfs_path_join(folder, names[i]);
        if (!beside)
            return rfs_fail_memory(err);
        const int rc =
            rfs_store_there(store, beside) ? rfs_hf_config_open(store, beside, out, err) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- the arguments of a training ------------------------------------------------------------- */

static int find_arguments(const struct rfs_format_file *file, const struct rfs_index *index,
                          struct rfs_bytes *out, struct rfs_error *err)
{
    (void)index;
    return rfs_torch_arguments(file->from, out, err);
}

static int read_text(void *ctx, void *buf, size_t n, uint64_t offset)
{
    memcpy(buf, (const char *)ctx + offset, n);
    return 0;
}

/* Reads the arguments of a save by torch_dist, in common.pt or among its values. */
static int read_common(struct rfs_store *store, struct rfs_chunks *chunks,
                       struct rfs_hf_config **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_bytes_free) struct rfs_bytes found = {0};
    RFS_FREE char *path = rfs_path_join(chunks->folder, "common.pt");
    RFS_FREE char *text = NULL;
    size_t n;

    if (!path)
        return rfs_fail_memory(err);
    int rc = 0;
    if (!rfs_store_there(store, path))
        rc = rfs_dcp_arguments(chunks, &found, err);
    else
        rc = rfs_store_read_whole(store, path, COMMON_BYTES, &text, &n, err)
                 ?: rfs_torch_arguments(RFS_BYTES_SOURCE(read_text, text, n, path), &found, err);
    return rc || found.n == 0
               ? rc
               : rfs_hf_config_read(path, (const char *)found.data, found.n, out, err);
}

static int read_arguments(struct rfs_store *store, struct rfs_catalog *catalog,
                          struct rfs_hf_config **out, struct rfs_error *err)
{
    struct rfs_chunks *chunks = rfs_catalog_chunks(catalog);

    if (chunks)
        return read_common(store, chunks, out, err);
    return rfs_formats[rfs_catalog_format(catalog)].keyed
               ? read_first(catalog, find_arguments, out, err)
               : 0;
}

/* ---- a config that is given ------------------------------------------------------------------ */

int rfs_plan_given_config(struct rfs_store *store, const char *given, const char *folder,
                          struct rfs_catalog *catalog, struct rfs_hf_config **out,
                          struct rfs_error *err)
{
    RFS_CLEANUP(config_cleanup) struct rfs_hf_config *config = NULL;
    struct rfs_hf_config *own = NULL;
    struct rfs_error unread;

    *out = NULL;
    int rc = rfs_hf_config_open(store, given, &config, err);
    if (rc)
        return rc;
    if (rfs_plan_folder_config(store, folder, &own, &unread) == 0 && !own && catalog &&
        rfs_plan_file_config(catalog, &own, &unread) == 0 && !own)
        read_arguments(store, catalog, &own, &unread);
    if (own)
        rc = rfs_hf_config_compare(config, own, err);
    if (rc == 0)
        *out = RFS_STEAL(config);
    return rc;
}
