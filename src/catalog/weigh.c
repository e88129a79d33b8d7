/* SPDX-License-Identifier: Apache-2.0 */
/* What the files beside a checkpoint hold that no file has which is read, by their headers. */
#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "catalog/catalog.h"

/* A file whose headers are compared. */
struct weighing {
    struct rfs_catalog *catalog;
    const struct rfs_index *read; /* of what is read */
    struct rfs_files *files;      /* of this file alone */
    struct rfs_tables tables;
    struct rfs_error *err;
};

/* Counts the elements of the tensors of an index. */
static uint64_t elements(const struct rfs_index *index, const struct rfs_tables *tables)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_type *type =
            (const struct rfs_type *)rfs_intern_bytes(tables->types, index->entries[i].type, NULL);
        uint64_t count = 1;
        for (uint8_t k = 0; type->kind == RFS_TENSOR && k < type->ndim; k++)
            count *= type->dims[k];
        sum += count; /* may wrap: equal sets have equal sums */
    }
    return sum;
}

/* Notes the tensors of a file that nothing else has. 0 or -ENOMEM. */
static int compare(const struct weighing *weighing, const struct rfs_index *index,
                   struct rfs_aside_file *file)
{
    const struct rfs_tables *read = rfs_catalog_tables(weighing->catalog);

    file->weighed = true;
    if (file->again && elements(index, &weighing->tables) == elements(weighing->read, read))
        return 0;
    for (size_t i = 0; i < index->n; i++) {
        size_t bytes;
        const char *name = rfs_intern_bytes(weighing->tables.names, index->entries[i].name, &bytes);
        /* Names of scales are there, too, which the index of plain tensors has not. */
        if (rfs_intern_find(read->names, name, bytes) != RFS_NO_ID)
            continue;
        if (file->news++ == 0 && !(file->first = strdup(name)))
            return -ENOMEM;
    }
    return 0;
}

/* Gives the format of a file by its name and its first bytes. False: it is none that is read. */
static bool find_format(const struct weighing *weighing, const char *path, enum rfs_format *format)
{
    unsigned char head[RFS_FORMAT_HEAD];
    const ssize_t n = rfs_store_head(rfs_files_store(weighing->files), path, head, sizeof head);

    if (n < 0 || !rfs_format_of_name(path, format))
        return false;
    (void)rfs_format_of_file(path, head, (size_t)n, format);
    return true;
}

/* Reads the headers of a file, which may be of no format that is read. */
static int read_headers(const struct weighing *weighing, struct rfs_aside_file *file,
                        enum rfs_format format)
{
    struct rfs_reading reading;
    struct rfs_index *index = NULL;
    struct rfs_error why = {0};
    const int rc = rfs_reading_begin_quiet(weighing->files, 0, &reading);

    if (rc == 0) {
        struct rfs_format_file headers = {.from = RFS_READING_SOURCE(&reading, file->path),
                                          .tables = (struct rfs_tables *)&weighing->tables};
        rfs_formats[format].index(&headers, NULL, &index, &why);
        (void)rfs_reading_end(&reading);
    } else
        rfs_fail(&why, rc, RFS_IN(file->path), NULL, "%s", rfs_store_why(file->path, rc));
    if (!index && why.code != -ENODATA && !(file->fault = strdup(why.text)))
        return -ENOMEM;
    const int failed = index ? compare(weighing, index, file) : 0;
    rfs_index_free(index);
    return failed ?: why.code == -ENOMEM ? -ENOMEM : 0;
}

static int weigh(struct weighing *weighing, struct rfs_aside_file *file)
{
    enum rfs_format format;

    weighing->tables = (struct rfs_tables){rfs_intern_new(), rfs_intern_new()};
    weighing->files = rfs_files_new(NULL);
    int rc = weighing->files && weighing->tables.names && weighing->tables.types &&
                     rfs_files_add(weighing->files, file->path) == 0
                 ? 0
                 : -ENOMEM;
    if (rc == 0) {
        rfs_files_set_beneath(weighing->files,
                              rfs_files_beneath(rfs_catalog_files(weighing->catalog)));
        rfs_files_set_store(weighing->files, rfs_files_store(rfs_catalog_files(weighing->catalog)));
        rc = find_format(weighing, file->path, &format) ? read_headers(weighing, file, format) : 0;
    }
    rfs_files_free(weighing->files);
    rfs_intern_free(weighing->tables.names);
    rfs_intern_free(weighing->tables.types);
    return rc ? rfs_fail_memory(weighing->err) : 0;
}

int rfs_catalog_weigh_aside(struct rfs_catalog *catalog, struct rfs_error *err)
{
    struct rfs_aside *aside = rfs_catalog_aside(catalog);
    struct weighing weighing = {.catalog = catalog, .err = err};
    bool any = false;
    int rc = 0;

    for (size_t i = 0; i < aside->files.n; i++)
        any |= !aside->files.data[i].state && !aside->files.data[i].weighed;
    if (any)
        rc = rfs_catalog_index(catalog, 0, RFS_NO_RANK, &weighing.read, err);
    for (size_t i = 0; any && rc == 0 && i < aside->files.n; i++)
        if (!aside->files.data[i].state && !aside->files.data[i].weighed)
            rc = weigh(&weighing, &aside->files.data[i]);
    return rc;
}

/* Refuses a file that may have tensors which nothing else has. */
static int refuse(struct rfs_catalog *catalog, struct rfs_error *err)
{
    const struct rfs_aside *aside = rfs_catalog_aside(catalog);
    const int rc = rfs_catalog_weigh_aside(catalog, err);

    for (size_t i = 0; rc == 0 && i < aside->files.n; i++) {
        const struct rfs_aside_file *file = &aside->files.data[i];
        if (file->news > 0)
            return rfs_fail(err, -EINVAL, RFS_IN(file->path),
                            "move it away; or without -o strict, to leave it out",
                            "it is not read (%s), and has %zu tensor%s that no other file has, "
                            "such as '%s'",
                            file->why, file->news, file->news == 1 ? "" : "s", file->first);
        if (file->fault)
            return rfs_fail(err, -EINVAL, RFS_NOWHERE,
                            "move it away; or without -o strict, to leave it out",
                            "a file is not read (%s), and what it holds is not known: %s",
                            file->why, file->fault);
    }
    return rc;
}

int rfs_catalog_tell_aside(struct rfs_catalog *catalog, struct rfs_log *log, bool quiet,
                           bool strict, struct rfs_error *err)
{
    const struct rfs_aside *aside = rfs_catalog_aside(catalog);
    bool states = true;

    if (aside->files.n == 0)
        return 0;
    RFS_FREE char *text = rfs_aside_text(aside);
    if (!text)
        return rfs_fail_memory_of(err, rfs_catalog_path(catalog));
    for (size_t i = 0; i < aside->files.n; i++)
        states &= aside->files.data[i].state;
    /* States are beside each save that describes itself. */
    quiet |= states && rfs_catalog_chunks(catalog);
    rfs_log(log, quiet ? RFS_INFO : RFS_WARNING, "%s: %s", rfs_catalog_path(catalog), text);
    return strict ? refuse(catalog, err) : 0;
}
