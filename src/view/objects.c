/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of torch.save has an object as a part of its dict, which is written again from the nodes
 * of the object's own pickle. Left out are an object with tensors in it, whose storages the file
 * would need; one with names that are not read; and the rest once the memory for all of them is
 * used up.
 */
#include "view/objects.h"

#include "base/cleanup.h"
#include "formats/dcp/dcp.h"
#include "formats/hyper_parallel/hyper_parallel.h"

#define MEMORY_MOST (UINT64_C(256) << 20)

void rfs_view_objects_log(struct rfs_view *view, size_t n)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);

    if (n > 0)
        rfs_log(&view->log, RFS_WARNING,
                n == 1 ? "%s: %zu value that is not a tensor is left out"
                       : "%s: %zu values that are not tensors are left out",
                rfs_files_path(chunked->files, chunked->metadata), n);
}

bool rfs_view_objects_passed(const struct rfs_view *view)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    const int shown = view->options.shown;

    return chunked && ((shown == RFS_SHOW_DCP && rfs_dcp_owns(chunked)) ||
                       (shown == RFS_SHOW_HYPER_PARALLEL && rfs_hyper_parallel_owns(chunked)));
}

int rfs_view_objects_prove(struct rfs_chunks *chunks, const struct rfs_chunked_object *object,
                           bool all, struct rfs_error *err)
{
    return rfs_hyper_parallel_owns(chunks) ? rfs_hyper_parallel_prove_object(chunks, object, err)
                                           : rfs_dcp_prove_object(chunks, object, all, err);
}

void rfs_view_objects_log_unshown(struct rfs_view *view)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    const bool tried = rfs_view_options_format(&view->options) == RFS_FORMAT_TORCH &&
                       view->options.shown != RFS_SHOW_DCP;
    const bool taken = tried || rfs_view_objects_passed(view);

    if (chunked && !taken && !view->set->late)
        rfs_view_objects_log(view, chunked->objects.n);
}

int rfs_view_objects_check_unread(const struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);

    for (size_t i = 0; chunked && i < chunked->unread.n; i++) {
        struct rfs_intern *names = chunked->tables->names;
        const char *name = rfs_intern_text(names, chunked->unread.data[i].name);
        /* If convert= is given, names= has other names. */
        if (!view->rules && !rfs_names_shown(view->names, name))
            continue;
        return rfs_fail(err, -ENOTSUP,
                        RFS_OF(rfs_files_path(chunked->files, chunked->metadata), name),
                        view->rules ? "convert= of an export that leaves it out (names=)"
                                    : "names= mapping it to null to leave it out",
                        "is not read: %s", rfs_intern_text(names, chunked->unread.data[i].why));
    }
    return 0;
}

int rfs_view_objects_same_name(const char *source, const char *name, struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(source, name), "names= with another name for one of them",
                    "two values, of which one is no tensor, are both shown by this name");
}

int rfs_view_objects_check_names(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    struct rfs_intern *seen = rfs_intern_new();
    int rc = seen ? 0 : rfs_fail_memory(err);

    for (size_t i = 0; rc == 0 && i < chunked->objects.n; i++) {
        const char *shown = rfs_names_shown(
            view->names, rfs_catalog_name(view->catalog, chunked->objects.data[i].name));
        const uint32_t n = rfs_intern_count(seen);
        const uint32_t id = shown ? rfs_intern_add(seen, shown, strlen(shown)) : n;
        if (id == RFS_NO_ID)
            rc = rfs_fail_memory(err);
        else if (id < n)
            rc = rfs_view_objects_same_name(rfs_catalog_path(view->catalog), shown, err);
    }
    rfs_intern_free(seen);
    return rc;
}

void rfs_view_objects_end(struct rfs_view_objects *objects)
{
    for (size_t i = 0; i < objects->open.n; i++)
        rfs_torch_free(&objects->open.data[i]);
    free(objects->open.data);
}

/* Returns whether a pickle names storages, which the archive then has in its folder data. */
static bool has_storages(const struct rfs_torch *torch)
{
    static const char data[] = "/data/";

    for (size_t i = 0; i < torch->zip.n; i++) {
        const struct rfs_zip_entry *entry = &torch->zip.entries[i];
        if (entry->name_bytes > torch->prefix_bytes + sizeof data - 1 &&
            memcmp(entry->name + torch->prefix_bytes, data, sizeof data - 1) == 0)
            return true;
    }
    return false;
}

/*
 * Opens an object. Returns 1 with *out to be freed, 0 if it is left out, or -errno with *err
 * filled.
 */
static int open_object(struct rfs_chunks *chunked, const struct rfs_chunked_object *object,
                       struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err)
{
    struct rfs_error why = {0};

    if (!rfs_dcp_owns(chunked))
        return 0;
    const int rc = rfs_dcp_open_object(chunked, object, budget, out, &why);

    if (rc == -ENOTSUP || rc == -EFBIG)
        return 0;
    if (rc) {
        *err = why;
        return rc;
    }
    if (!has_storages(out))
        return 1;
    rfs_torch_free(out);
    return 0;
}

/* Marks the names, by id, that the tensors have. NULL when out of memory. */
static unsigned char *names_taken(struct rfs_view *view, const struct rfs_params *params)
{
    const size_t n = rfs_intern_count(rfs_catalog_tables(view->catalog)->names);
    unsigned char *taken = calloc(n + 1, 1);

    for (size_t i = 0; taken && i < params->n; i++)
        taken[params->targets[i].shown_name] = 1;
    return taken;
}

static int check_name(struct rfs_view *view, const unsigned char *taken, const char *shown,
                      struct rfs_error *err)
{
    const uint32_t id =
        rfs_intern_find(rfs_catalog_tables(view->catalog)->names, shown, strlen(shown));

    return id == RFS_NO_ID || !taken[id]
               ? 0
               : rfs_view_objects_same_name(rfs_catalog_path(view->catalog), shown, err);
}

static int add(struct rfs_document *document, const char *name, const struct rfs_torch *torch,
               struct rfs_error *err)
{
    struct rfs_node *dict = (struct rfs_node *)(uintptr_t)document->root; /* its own */

    rfs_document_add(document, dict, rfs_document_text(document, name));
    rfs_document_add(document, dict, torch->pickle.root);
    return document->failed ? rfs_fail_memory(err) : 0;
}

int rfs_view_objects_add(struct rfs_view *view, const struct rfs_params *params,
                         struct rfs_document *document, struct rfs_view_objects *objects,
                         size_t *left_out, struct rfs_error *err)
{
    struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    RFS_FREE unsigned char *taken = chunked ? names_taken(view, params) : NULL;
    struct rfs_budget budget = {.most = MEMORY_MOST};
    int rc = 0;

    if (chunked)
        rc = taken ? rfs_view_objects_check_names(view, err) : rfs_fail_memory(err);
    for (size_t i = 0; chunked && rc == 0 && i < chunked->objects.n; i++) {
        const struct rfs_chunked_object *object = &chunked->objects.data[i];
        const char *shown =
            rfs_names_shown(view->names, rfs_catalog_name(view->catalog, object->name));
        struct rfs_torch torch;
        if (!shown)
            continue;
        rc = check_name(view, taken, shown, err);
        if (rc)
            return rc;
        rc = open_object(chunked, object, &budget, &torch, err);
        *left_out += rc == 0;
        if (rc <= 0)
            continue;
        if (!RFS_PUSH(&objects->open, torch)) {
            rfs_torch_free(&torch);
            return rfs_fail_memory(err);
        }
        rc = add(document, shown, &torch, err);
    }
    return rc;
}
